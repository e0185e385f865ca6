package file_test

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	library "github.com/parquet-go/parquet-go"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkFiles compares with a loop that encodes the same rows with a buffered writer, or with a library of Parquet, syncs, renames and syncs the folder.
// ByEventTime is the same rows in a folder for each minute of event time, of which a publication meets one or two.
func BenchmarkFiles(b *testing.B) {
	for _, c := range []struct {
		name   string
		format file.Format
		every  time.Duration
		bare   func(path string, rows sinks.Rows) error
	}{
		{"JSONLines", file.JSONLines, 0, bareJSON}, {"CSV", file.CSV, 0, bareCSV}, {"Parquet", file.Parquet, 0, bareParquet},
		{"JSONLines/ByEventTime", file.JSONLines, time.Minute, bareJSON}, {"CSV/ByEventTime", file.CSV, time.Minute, bareCSV},
		{"Parquet/ByEventTime", file.Parquet, time.Minute, bareParquet},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 50_000
			dir, plain := b.TempDir(), b.TempDir()
			to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
			w := open(b, file.Config{Folder: dir, Format: c.format, Every: c.every}, to)
			all := sinktest.Rounds(11, n)
			sinktest.Compare(b, 11, n, func(round int) {
				if err := w.Publish(b.Context(), all[round:round+1]); err != nil {
					b.Fatal(err)
				}
			}, func(round int) {
				if err := c.bare(filepath.Join(plain, fmt.Sprint(round)), all[round]); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(bytesIn(b, paths(b, dir, "r"))/(11*n), "B/row")
			whole, err := filepath.Glob(filepath.Join(plain, "*"))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(bytesIn(b, whole)/(11*n), "bare-B/row")
		})
	}
}

// BenchmarkTwoSinks publishes four partitions to files of JSON Lines and of Parquet side by side, beside one after the other: above 1, two cost less than
// their sum.
func BenchmarkTwoSinks(b *testing.B) {
	const n, partitions = 10_000, 4
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0, 1, 2, 3}}
	all := sinktest.Rounds(15, n)
	batches := func(round int) (out []sinks.Rows) {
		for p := range int32(partitions) {
			r := all[round]
			r.Partition = p
			out = append(out, r)
		}
		return out
	}
	var lines, columns [2]string
	for i := range 2 {
		lines[i], columns[i] = b.TempDir(), b.TempDir()
	}
	p := &sinks.Publisher{}
	for name, cfg := range map[string]file.Config{"lines": {Folder: lines[0]}, "columns": {Folder: columns[0], Format: file.Parquet}} {
		s, err := file.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		p.Sinks = append(p.Sinks, sinks.Named{Name: name, Sink: s})
	}
	both, err := p.Open(b.Context(), to, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer both.Close()
	each := []sinks.Writer{open(b, file.Config{Folder: lines[1]}, to), open(b, file.Config{Folder: columns[1], Format: file.Parquet}, to)}
	sinktest.Compare(b, 15, n*partitions, func(round int) {
		if err := both.Publish(b.Context(), batches(round)); err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		for _, w := range each {
			if err := w.Publish(b.Context(), batches(round)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func bytesIn(b *testing.B, paths []string) (sum float64) {
	b.Helper()
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			b.Fatal(err)
		}
		sum += float64(info.Size())
	}
	return sum
}

func bareJSON(path string, rows sinks.Rows) error {
	return bare(path, func(out *bufio.Writer) error {
		enc := sinks.NewJSON(sinks.Target{RunID: "r", Outputs: sinktest.Outputs})
		var line []byte
		return rows.Each(2, nil, func(number int64, row *partitions.Row) error {
			line = append(enc.Append(line[:0], 0, number, row), '\n')
			_, err := out.Write(line)
			return err
		})
	})
}

// bareCSV is the standard library's writer with the standard library's numbers.
func bareCSV(path string, rows sinks.Rows) error {
	return bare(path, func(out *bufio.Writer) error {
		w := csv.NewWriter(out)
		line := make([]string, 7)
		err := rows.Each(2, nil, func(number int64, row *partitions.Row) error {
			line[0], line[1], line[2], line[3], line[4] = "0", strconv.FormatInt(number, 10), time.Unix(0, int64(row.Time)).UTC().Format(time.RFC3339Nano), string(row.ID), string(row.Key)
			line[5], line[6] = strconv.FormatFloat(row.Values[0].F, 'g', -1, 64), strconv.FormatFloat(row.Values[1].F, 'g', -1, 64)
			return w.Write(line)
		})
		w.Flush()
		return cmp.Or(err, w.Error())
	})
}

// bareParquet gives rows to the library in its own way, a thousand at a time.
func bareParquet(path string, rows sinks.Rows) error {
	return bare(path, func(out *bufio.Writer) error {
		w := library.NewGenericWriter[parquetRow](out)
		batch := make([]parquetRow, 0, 1000)
		err := rows.Each(2, nil, func(number int64, row *partitions.Row) error {
			key, id, first, second := string(row.Key), string(row.ID), row.Values[0].F, row.Values[1].F
			batch = append(batch, parquetRow{Run: "r", Row: number, Time: int64(row.Time), Key: &key, ID: &id, Ema12: &first, Close: &second})
			if len(batch) < cap(batch) {
				return nil
			}
			_, err := w.Write(batch)
			batch = batch[:0]
			return err
		})
		if err == nil {
			_, err = w.Write(batch)
		}
		if err == nil {
			err = w.Close()
		}
		return err
	})
}

func bare(path string, encode func(out *bufio.Writer) error) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<16)
	if err = encode(out); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
