package file

import (
	"io"
	"os"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

type parquetFormat struct{}

// parquetColumns are those of every row, with their type and, as the library has its tags, encoding and whether they may be null.
var parquetColumns = []struct {
	name, tag string
	of        reflect.Type
}{
	{"run", ",dict", reflect.TypeFor[string]()}, {"partition", ",delta", reflect.TypeFor[int32]()}, {"row", ",delta", reflect.TypeFor[int64]()},
	{"time", ",timestamp(nanosecond),delta", reflect.TypeFor[int64]()},
	{"key", ",optional,dict", reflect.TypeFor[string]()}, {"key_bytes", ",optional", reflect.TypeFor[[]byte]()},
	{"event_id", ",optional,delta", reflect.TypeFor[string]()}, {"event_id_bytes", ",optional", reflect.TypeFor[[]byte]()},
}

// The columns of parquetColumns, and the first one of an output.
const (
	columnRun = iota
	columnPartition
	columnRow
	columnTime
	columnKey
	columnKeyBytes
	columnID
	columnIDBytes
	columnOutputs
)

const (
	// groupRows and groupBytes, of keys and ids, are the most of a row group, which is what a writer holds in memory.
	groupRows, groupBytes = 64 << 10, 16 << 20
	// pieceRows are given to the library at a time.
	pieceRows = 512
)

func (parquetFormat) extension() string { return ".parquet" }

func (parquetFormat) taken() []string {
	names := make([]string, len(parquetColumns))
	for i, c := range parquetColumns {
		names[i] = c.name
	}
	return names
}

// parquetEncoder gives the library its values column by column, without compression: the same rows are the same bytes, as long as the library writes them so.
type parquetEncoder struct {
	scratch
	out     *parquet.GenericWriter[any]
	run     parquet.Value
	columns [][]parquet.Value
	text    []byte                    // of the values in columns
	grouped struct{ rows, bytes int } // of the open row group
}

func (parquetFormat) begin(t sinks.Target) encoder {
	var fields []reflect.StructField
	field := func(name, tag string, of reflect.Type) {
		fields = append(fields, reflect.StructField{Name: "C" + strconv.Itoa(len(fields)), Type: of, Tag: reflect.StructTag(`parquet:"` + name + tag + `"`)})
	}
	for _, c := range parquetColumns {
		field(c.name, c.tag, c.of)
	}
	for _, name := range t.Outputs {
		field(name, ",optional", reflect.TypeFor[float64]())
	}
	schema := parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
	return &parquetEncoder{
		scratch: newScratch(t), run: parquet.ValueOf(t.RunID).Level(0, 0, columnRun), columns: make([][]parquet.Value, len(fields)),
		out: parquet.NewGenericWriter[any](io.Discard, schema, parquet.Compression(&parquet.Uncompressed), parquet.CreatedBy("weir", "1", "")),
	}
}

func (e *parquetEncoder) write(out io.Writer, rows []sinks.Rows) error {
	e.out.Reset(out)
	e.clear()
	e.grouped.rows, e.grouped.bytes = 0, 0
	for _, r := range rows {
		err := r.Each(e.width, e.values, func(number int64, row *partitions.Row) error {
			e.add(r.Partition, number, row)
			if len(e.columns[columnRun]) < pieceRows && len(e.text) < pieceBytes {
				return nil
			}
			return e.flush()
		})
		if err != nil {
			return err
		}
	}
	if err := e.flush(); err != nil {
		return err
	}
	return e.out.Close()
}

func (e *parquetEncoder) clear() {
	for c := range e.columns {
		e.columns[c] = e.columns[c][:0]
	}
	e.text = e.text[:0]
}

// flush gives a piece to the library, which copies it.
func (e *parquetEncoder) flush() error {
	for c, to := range e.out.ColumnWriters() {
		if _, err := to.WriteRowValues(e.columns[c]); err != nil {
			return err
		}
	}
	e.grouped.rows += len(e.columns[columnRun])
	e.grouped.bytes += len(e.text)
	e.clear()
	if e.grouped.rows < groupRows && e.grouped.bytes < groupBytes {
		return nil
	}
	e.grouped.rows, e.grouped.bytes = 0, 0
	return e.out.Flush()
}

func (e *parquetEncoder) add(partition int32, number int64, row *partitions.Row) {
	e.set(columnRun, e.run)
	e.set(columnPartition, parquet.Int32Value(partition).Level(0, 0, columnPartition))
	e.set(columnRow, parquet.Int64Value(number).Level(0, 0, columnRow))
	e.set(columnTime, parquet.Int64Value(int64(row.Time)).Level(0, 0, columnTime))
	e.words(columnKey, row.Key)
	e.words(columnID, row.ID)
	for i, v := range row.Values {
		if c := columnOutputs + i; v.OK {
			e.set(c, parquet.DoubleValue(v.F).Level(0, 1, c))
		} else {
			e.null(c)
		}
	}
}

func (e *parquetEncoder) set(c int, v parquet.Value) { e.columns[c] = append(e.columns[c], v) }

func (e *parquetEncoder) null(c int) { e.set(c, parquet.NullValue().Level(0, 0, c)) }

// words sets a column of texts, or the one of bytes after it.
func (e *parquetEncoder) words(c int, text []byte) {
	from := len(e.text)
	e.text = append(e.text, text...)
	v := parquet.ByteArrayValue(e.text[from:])
	if !utf8.Valid(text) {
		e.null(c)
		e.set(c+1, v.Level(0, 1, c+1))
		return
	}
	e.set(c, v.Level(0, 1, c))
	e.null(c + 1)
}

func (parquetFormat) rows(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	in, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return 0, err
	}
	return in.NumRows(), nil
}
