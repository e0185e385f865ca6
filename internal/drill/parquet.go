package drill

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// ColumnFiles reads the Parquet that a folder holds of a run.
func ColumnFiles(folder string, outputs []string) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(_ context.Context, run string, fn func(line []byte) error) error {
		text := sinks.NewJSON(sinks.Target{RunID: run, Outputs: outputs})
		return eachFile(folder, run, ".parquet", func(_ string, in io.Reader) error {
			f := in.(*os.File)
			info, err := f.Stat()
			if err != nil {
				return err
			}
			table, err := parquet.OpenFile(f, info.Size())
			if err != nil {
				return err
			}
			for _, group := range table.RowGroups() {
				if err := rowsOfGroup(table.Schema(), group, func(v map[string]parquet.Value) error {
					return fn(lineOf(text, v, outputs))
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// rowsOfGroup gives the values of each row by the name of their column.
func rowsOfGroup(schema *parquet.Schema, group parquet.RowGroup, fn func(map[string]parquet.Value) error) error {
	columns := schema.Columns()
	rows := group.Rows()
	defer rows.Close()
	some := make([]parquet.Row, 64)
	for {
		n, err := rows.ReadRows(some)
		for _, row := range some[:n] {
			byName := map[string]parquet.Value{}
			for _, v := range row {
				byName[columns[v.Column()][0]] = v
			}
			if err := fn(byName); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lineOf is a row of Parquet as sinks.JSON writes it.
func lineOf(text *sinks.JSON, v map[string]parquet.Value, outputs []string) []byte {
	row := partitions.Row{Time: record.EventTime(v["time"].Int64()), ID: bytesOf(v["event_id"], v["event_id_bytes"]), Key: bytesOf(v["key"], v["key_bytes"])}
	for _, name := range outputs {
		if v[name].IsNull() {
			row.Values = append(row.Values, operators.Gap)
			continue
		}
		row.Values = append(row.Values, operators.Number(v[name].Double()))
	}
	return text.Append(nil, v["partition"].Int32(), v["row"].Int64(), &row)
}

// bytesOf is a text, or the bytes that stand in its place when they are none.
func bytesOf(text, bytes parquet.Value) []byte {
	if text.IsNull() {
		return bytes.ByteArray()
	}
	return text.ByteArray()
}
