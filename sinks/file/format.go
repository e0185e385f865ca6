package file

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"

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
}

// encoder turns rows into the bytes of a file. It is for one goroutine.
type encoder interface {
	check(r sinks.Rows) error
	append(dst []byte, rows []sinks.Rows) ([]byte, error)
}

// The formats.
var (
	// JSONLines has one object a line, as sinks.JSON writes it.
	JSONLines Format = jsonLines{}
	// CSV is RFC 4180 with \n: a line of names (partition, row, time, event_id, key and the outputs), then a line for each row. A null is an empty
	// field; texts are always quoted, and their bytes are as they came.
	CSV Format = csvFormat{}
)

// errCut says that a file ends in the middle of a row.
var errCut = errors.New("it ends within a row")

type scratch struct {
	width  int
	values []operators.Value
}

func newScratch(t sinks.Target) scratch {
	return scratch{width: len(t.Outputs), values: make([]operators.Value, 0, len(t.Outputs))}
}

func (s scratch) each(rows []sinks.Rows, fn func(partition int32, number int64, row *partitions.Row)) error {
	for _, r := range rows {
		if err := r.Each(s.width, s.values, func(number int64, row *partitions.Row) error {
			fn(r.Partition, number, row)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s scratch) check(r sinks.Rows) error {
	return s.each([]sinks.Rows{r}, func(int32, int64, *partitions.Row) {})
}

type jsonLines struct{}

func (jsonLines) extension() string { return ".jsonl" }

type jsonEncoder struct {
	scratch
	json *sinks.JSON
}

func (jsonLines) begin(t sinks.Target) encoder { return &jsonEncoder{newScratch(t), sinks.NewJSON(t)} }

func (e *jsonEncoder) append(dst []byte, rows []sinks.Rows) ([]byte, error) {
	err := e.each(rows, func(partition int32, number int64, row *partitions.Row) {
		dst = append(e.json.Append(dst, partition, number, row), '\n')
	})
	return dst, err
}

func (jsonLines) rows(path string) (int64, error) { return lines(path, false) }

type csvFormat struct{}

func (csvFormat) extension() string { return ".csv" }

type csvEncoder struct {
	scratch
	head []byte
}

func (csvFormat) begin(t sinks.Target) encoder {
	head := []byte("partition,row,time,event_id,key")
	for _, name := range t.Outputs {
		head = appendQuoted(append(head, ','), []byte(name))
	}
	return &csvEncoder{newScratch(t), append(head, '\n')}
}

func (e *csvEncoder) append(dst []byte, rows []sinks.Rows) ([]byte, error) {
	dst = append(dst, e.head...)
	err := e.each(rows, func(partition int32, number int64, row *partitions.Row) {
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
		dst = append(dst, '\n')
	})
	return dst, err
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
