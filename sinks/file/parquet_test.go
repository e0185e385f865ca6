package file_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"path/filepath"
	"testing"

	library "github.com/parquet-go/parquet-go"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

func TestParquet(t *testing.T) { suite(t, file.Config{Format: file.Parquet}, seenParquet) }

// parquetRow is a row as a library of Parquet knows it, and as the benchmark has it written.
type parquetRow struct {
	Run       string   `parquet:"run,dict"`
	Partition int32    `parquet:"partition,delta"`
	Row       int64    `parquet:"row,delta"`
	Time      int64    `parquet:"time,timestamp(nanosecond),delta"`
	Key       *string  `parquet:"key,optional,dict"`
	KeyBytes  *[]byte  `parquet:"key_bytes,optional"`
	ID        *string  `parquet:"event_id,optional"`
	IDBytes   *[]byte  `parquet:"event_id_bytes,optional"`
	Ema12     *float64 `parquet:"ema12,optional"`
	Close     *float64 `parquet:"close,optional"`
}

func (r *parquetRow) row() partitions.Row {
	row := partitions.Row{Time: record.EventTime(r.Time), Key: []byte{}, ID: []byte{}}
	for _, v := range []*float64{r.Ema12, r.Close} {
		if v == nil {
			row.Values = append(row.Values, operators.Gap)
		} else {
			row.Values = append(row.Values, operators.Number(*v))
		}
	}
	if r.Key != nil {
		row.Key = []byte(*r.Key)
	} else {
		row.Key = *r.KeyBytes
	}
	if r.ID != nil {
		row.ID = []byte(*r.ID)
	} else {
		row.ID = *r.IDBytes
	}
	return row
}

func readParquet(t testing.TB, text []byte) []parquetRow {
	t.Helper()
	in := library.NewGenericReader[parquetRow](bytes.NewReader(text))
	defer in.Close()
	rows := make([]parquetRow, in.NumRows()+1)
	n, err := in.Read(rows)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return rows[:n]
}

func seenParquet(t testing.TB, run string, text []byte) []sinktest.Seen {
	var out []sinktest.Seen
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	for _, r := range readParquet(t, text) {
		if r.Run != run {
			t.Fatalf("a row of the run %q lies among those of %q", r.Run, run)
		}
		row := r.row()
		out = append(out, sinktest.Seen{Partition: r.Partition, Number: r.Row, Text: string(enc.Append(nil, r.Partition, r.Row, &row))})
	}
	return out
}

// odd are two rows with values that no operator lets out, and a null.
func odd(values ...operators.Value) sinks.Rows {
	r := sinks.Rows{}
	for i := range 2 {
		r.Append(record.EventTime(i), []byte("e"), []byte("k"), values)
	}
	return r
}

// TestNumbersThatAreNot: Parquet keeps NaN, infinities and null apart; formats that have no such numbers refuse them, and say which output it was.
// Nothing of the publication stands.
func TestNumbersThatAreNot(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
	dir := t.TempDir()
	w := open(t, file.Config{Folder: dir, Format: file.Parquet}, to)
	if err := w.Publish(t.Context(), []sinks.Rows{odd(operators.Number(math.NaN()), operators.Gap)}); err != nil {
		t.Fatal(err)
	}
	row := readParquet(t, files(t, dir, "r")[0])[1]
	if row.Ema12 == nil || !math.IsNaN(*row.Ema12) || row.Close != nil {
		t.Errorf("NaN and null are read as %v and %v", row.Ema12, row.Close)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, format := range []file.Format{file.JSONLines, file.CSV} {
			dir := t.TempDir()
			w := open(t, file.Config{Folder: dir, Format: format}, to)
			err := w.Publish(t.Context(), []sinks.Rows{odd(operators.Gap, operators.Number(f))})
			wants(t, err, codes.SinkInvalid, `"close"`, "row 0", "Parquet")
			if got := paths(t, dir, "r"); got != nil {
				t.Errorf("%v are left", got)
			}
		}
	}
}

// TestColumnsOfTheirOwn: an output that has the name of a column, or of a folder, that is there already is refused before anything is written.
func TestColumnsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]file.Config{
		"Run": {Format: file.Parquet}, "key_bytes": {Format: file.Parquet}, "hour": {Every: 3600e9}, "DATE": {Every: 24 * 3600e9, Format: file.CSV},
	} {
		cfg.Folder = t.TempDir()
		s, err := file.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Open(t.Context(), sinks.Target{RunID: "r", Outputs: []string{"x", name}, Partitions: []int32{0}})
		wants(t, err, codes.SinkInvalid, name, "another name")
		if left, _ := filepath.Glob(filepath.Join(cfg.Folder, "*")); left != nil {
			t.Errorf("%v is made", left)
		}
	}
	w := open(t, file.Config{Folder: t.TempDir(), Every: 24 * 3600e9}, sinks.Target{RunID: "r", Outputs: []string{"hour"}, Partitions: []int32{0}})
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 3)}); err != nil {
		t.Errorf("there is no folder for an hour, and the output is refused: %v", err)
	}
}
