package file

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// Format is how rows are written.
type Format interface {
	extension() string
	begin(target sinks.Target) encoder
	// rows counts the rows of a file.
	rows(path string) (int64, error)
	// taken are names that no output may have, whatever their case; nil where outputs are no columns.
	taken() []string
}

// encoder turns rows into the bytes of a file. It is for one goroutine.
type encoder interface {
	write(out io.Writer, rows []sinks.Rows) error
}

// The formats.
var (
	// JSONLines has one object a line, as sinks.JSON writes it.
	JSONLines Format = jsonLines{}
	// CSV is RFC 4180 with \n: a line of names (partition, row, time, event_id, key and the outputs), then a line for each row. A null is an empty
	// field; texts are always quoted, and their bytes are as they came.
	CSV Format = csvFormat{}
	// Parquet has the columns run, partition, row, time (nanoseconds in UTC), key, key_bytes, event_id, event_id_bytes, and a nullable double for each
	// output. A key or an id that is not UTF-8 stands in the column of bytes, and the other is null.
	Parquet Format = parquetFormat{}
)

// errCut says that a file ends in the middle of a row, and errEmpty that it has none, which no publication leaves.
var (
	errCut   = errors.New("it ends within a row")
	errEmpty = errors.New("it has no row")
)

// pieceBytes is how much is encoded before it is written.
const pieceBytes = 256 << 10

// scratch is the memory of an encoder of lines.
type scratch struct {
	width   int
	outputs []string
	values  []operators.Value
	buf     []byte
}

func newScratch(t sinks.Target) scratch {
	return scratch{width: len(t.Outputs), outputs: t.Outputs, values: make([]operators.Value, 0, len(t.Outputs))}
}

// noNumber refuses NaN and infinities, which operators do not let out, where a format has nothing to write for them.
func (s *scratch) noNumber(partition int32, number int64, output int, f float64) error {
	return codes.New(codes.SinkInvalid, "sink of files: the output %q is %v in row %d of partition %d, and this format has no such number: publish to Parquet, or let the operator give a gap",
		s.outputs[output], f, number, partition)
}

// lines writes a head and then what line appends for each row.
func (s *scratch) lines(out io.Writer, head []byte, rows []sinks.Rows, line func(dst []byte, partition int32, number int64, row *partitions.Row) []byte) error {
	buf := append(s.buf[:0], head...)
	for _, r := range rows {
		err := r.Each(s.width, s.values, func(number int64, row *partitions.Row) error {
			for i := range row.Values {
				if f := row.Values[i].F; row.Values[i].OK && f-f != 0 {
					return s.noNumber(r.Partition, number, i, f)
				}
			}
			if buf = line(buf, r.Partition, number, row); len(buf) < pieceBytes {
				return nil
			}
			_, err := out.Write(buf)
			buf = buf[:0]
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := out.Write(buf)
	s.buf = buf
	return err
}

type jsonLines struct{}

func (jsonLines) extension() string { return ".jsonl" }

func (jsonLines) taken() []string { return nil }

type jsonEncoder struct {
	scratch
	json *sinks.JSON
}

func (jsonLines) begin(t sinks.Target) encoder { return &jsonEncoder{newScratch(t), sinks.NewJSON(t)} }

func (e *jsonEncoder) write(out io.Writer, rows []sinks.Rows) error {
	return e.lines(out, nil, rows, func(dst []byte, partition int32, number int64, row *partitions.Row) []byte {
		return append(e.json.Append(dst, partition, number, row), '\n')
	})
}

func (jsonLines) rows(path string) (int64, error) { return lines(path, false) }

type csvFormat struct{}

func (csvFormat) extension() string { return ".csv" }

func (csvFormat) taken() []string { return csvColumns }

// csvColumns are those of every row.
var csvColumns = []string{"partition", "row", "time", "event_id", "key"}

type csvEncoder struct {
	scratch
	head []byte
}

func (csvFormat) begin(t sinks.Target) encoder {
	head := []byte(strings.Join(csvColumns, ","))
	for _, name := range t.Outputs {
		head = appendQuoted(append(head, ','), []byte(name))
	}
	return &csvEncoder{newScratch(t), append(head, '\n')}
}

func (e *csvEncoder) write(out io.Writer, rows []sinks.Rows) error {
	return e.lines(out, e.head, rows, func(dst []byte, partition int32, number int64, row *partitions.Row) []byte {
		dst = append(strconv.AppendInt(dst, int64(partition), 10), ',')
		dst = append(strconv.AppendInt(dst, number, 10), ',')
		dst = append(record.AppendTime(dst, row.Time), ',')
		dst = append(appendQuoted(dst, row.ID), ',')
		dst = appendQuoted(dst, row.Key)
		for _, v := range row.Values {
			if dst = append(dst, ','); v.OK {
				dst = record.AppendFloat(dst, v.F)
			}
		}
		return append(dst, '\n')
	})
}

func (csvFormat) rows(path string) (int64, error) {
	n, err := lines(path, true)
	return max(n-1, 0), err
}

func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	if !slices.Contains(text, '"') {
		return append(append(dst, text...), '"')
	}
	for _, c := range text {
		if c == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// lines counts the lines of a file; with quotes, those between quotes do not count.
func lines(path string, quotes bool) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	quoted, last := false, byte('\n')
	for {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF && (quoted || last != '\n'):
			return n, errCut
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case c == '"' && quotes:
			quoted = !quoted
		case c == '\n' && !quoted:
			n++
		}
		last = c
	}
}
