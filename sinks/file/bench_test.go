package file_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkFiles compares with a loop that encodes the same rows with a buffered writer, syncs, renames and syncs the folder.
func BenchmarkFiles(b *testing.B) {
	for name, format := range map[string]file.Format{"JSONLines": file.JSONLines, "CSV": file.CSV} {
		b.Run(name, func(b *testing.B) {
			const n = 50_000
			dir, plain := b.TempDir(), b.TempDir()
			to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
			w, err := sink(b, dir, format, nil).Open(b.Context(), to)
			if err != nil {
				b.Fatal(err)
			}
			all := sinktest.Rounds(11, n)
			sinktest.Compare(b, 11, n, func(round int) {
				if err := w.Publish(b.Context(), all[round:round+1]); err != nil {
					b.Fatal(err)
				}
			}, func(round int) {
				if err := byHand(filepath.Join(plain, fmt.Sprint(round)), all[round], name == "CSV"); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func byHand(path string, rows sinks.Rows, csv bool) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<16)
	enc := sinks.NewJSON(sinks.Target{RunID: "r", Outputs: sinktest.Outputs})
	var line []byte
	err = rows.Each(2, nil, func(number int64, row *partitions.Row) error {
		if csv {
			_, err := fmt.Fprintf(out, "0,%d,%s,%q,%q,%v,%v\n", number, row.Time, row.ID, row.Key, row.Values[0].F, row.Values[1].F)
			return err
		}
		line = append(enc.Append(line[:0], 0, number, row), '\n')
		_, err := out.Write(line)
		return err
	})
	if err == nil {
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
