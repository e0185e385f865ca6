package file

import (
	"io"
	"os"
	"unicode/utf8"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file/parquet"
)

type parquetFormat struct{}

// parquetColumns are those of every row.
var parquetColumns = []parquet.Column{
	{Name: "run", Kind: parquet.Words}, {Name: "partition", Kind: parquet.Int32}, {Name: "row", Kind: parquet.Int64}, {Name: "time", Kind: parquet.Moment},
	{Name: "key", Kind: parquet.Words}, {Name: "key_bytes", Kind: parquet.Bytes}, {Name: "event_id", Kind: parquet.Text}, {Name: "event_id_bytes", Kind: parquet.Bytes},
}

func (parquetFormat) extension() string { return ".parquet" }

func (parquetFormat) taken() []string {
	names := make([]string, len(parquetColumns))
	for i, c := range parquetColumns {
		names[i] = c.Name
	}
	return names
}

type parquetEncoder struct {
	scratch
	run []byte
	out *parquet.Writer
}

func (parquetFormat) begin(t sinks.Target) encoder {
	columns := append([]parquet.Column(nil), parquetColumns...)
	for _, name := range t.Outputs {
		columns = append(columns, parquet.Column{Name: name, Kind: parquet.Double})
	}
	return &parquetEncoder{newScratch(t), []byte(t.RunID), parquet.NewWriter(columns)}
}

func (e *parquetEncoder) write(out io.Writer, rows []sinks.Rows) error {
	w := e.out
	w.Begin(out)
	for _, r := range rows {
		err := r.Each(e.width, e.values, func(number int64, row *partitions.Row) error {
			w.Text(0, e.run)
			w.Int(1, int64(r.Partition))
			w.Int(2, number)
			w.Int(3, int64(row.Time))
			text(w, 4, row.Key)
			text(w, 6, row.ID)
			for i, v := range row.Values {
				if v.OK {
					w.Double(len(parquetColumns)+i, v.F)
				} else {
					w.Null(len(parquetColumns) + i)
				}
			}
			return w.Row()
		})
		if err != nil {
			return err
		}
	}
	return w.End()
}

// text sets a column of texts, or the one of bytes after it.
func text(w *parquet.Writer, c int, v []byte) {
	if !utf8.Valid(v) {
		w.Null(c)
		w.Text(c+1, v)
		return
	}
	w.Text(c, v)
	w.Null(c + 1)
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
	return parquet.Rows(f, info.Size())
}
