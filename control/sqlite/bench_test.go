package sqlite

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// BenchmarkCommit is the price of an epoch of 1000 rows and 20,000 new event ids for each partition, beside that of one bare insert of as many
// bytes into one table with the same settings, in the same run, interleaved. The ratio is that of the medians.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int32{1, 4} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			s := open(b, Config{Path: filepath.Join(dir, "weir.db")})
			defer s.Close()
			bare := bareTable(b, filepath.Join(dir, "bare.db"))
			h := control.RunHeader{RunID: "run", Fingerprint: "f", Source: "s"}
			for p := range n {
				h.Partitions = append(h.Partitions, p)
			}
			if _, err := s.OpenRun(b.Context(), h); err != nil {
				b.Fatal(err)
			}
			var commits, inserts []time.Duration
			b.ReportAllocs()
			for epoch := uint64(1); b.Loop(); epoch++ {
				c := epochOf(epoch, n)
				payload := bytesOf(c)
				b.SetBytes(int64(len(payload)))
				commit := func() { commits = append(commits, took(b, func() error { return s.Commit(b.Context(), c) })) }
				insert := func() {
					inserts = append(inserts, took(b, func() error { _, err := bare.ExecContext(b.Context(), payload); return err }))
				}
				// Whoever comes second finds a quieter disk, so they take turns.
				if epoch%2 == 0 {
					commit()
					insert()
				} else {
					insert()
					commit()
				}
			}
			b.ReportMetric(float64(median(commits).Microseconds()), "commit-us")
			b.ReportMetric(float64(median(inserts).Microseconds()), "bare-us")
			b.ReportMetric(float64(median(commits))/float64(median(inserts)), "ratio")
		})
	}
}

func took(b *testing.B, do func() error) time.Duration {
	start := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// bareTable is the baseline: one table, one statement, the same settings.
func bareTable(b *testing.B, path string) *sql.Stmt {
	all := append(embedded(), migration{version: len(embedded()) + 1, name: "bare", sql: "CREATE TABLE bare (data BLOB) STRICT"})
	s := open(b, Config{Path: path, migrations: all})
	b.Cleanup(func() { _ = s.Close() })
	st, err := s.writer.PrepareContext(b.Context(), "INSERT INTO bare (data) VALUES (?)")
	if err != nil {
		b.Fatal(err)
	}
	return st
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// epochOf is what a partition of a busy flow commits: rows, a blob of new ids (the oldest of ten goes), a chunk of operator state and the
// waiting records.
func epochOf(epoch uint64, n int32) control.Commit {
	c := control.Commit{RunID: "run", Epoch: epoch, Status: control.RunOpen, Watermark: record.EventTime(epoch)}
	rng := rand.New(rand.NewPCG(epoch, 1))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for p := range n {
		pc := control.PartitionCommit{Cut: partitions.Cut{Partition: p, Next: record.Offset(int64(epoch) * 20000), Watermark: record.EventTime(epoch), Counts: partitions.Counts{Records: int64(epoch) * 20000}}}
		for i := range 1000 {
			pc.Rows.Append(record.EventTime(epoch*1000+uint64(i)), fmt.Appendf(nil, "exchange.event.%d.%d", epoch, i), []byte("instrument-17"), []operators.Value{operators.Number(rng.Float64())})
		}
		pc.Cut.Put = []partitions.StateBlob{{Name: fmt.Sprintf("ids/%08d", epoch), Data: noise(20000 * 16)}, {Name: "ops/17", Data: noise(256 * 40)}, {Name: "waiting", Data: noise(20000)}}
		if epoch > 10 {
			pc.Cut.Delete = []string{fmt.Sprintf("ids/%08d", epoch-10)}
		}
		c.Partitions = append(c.Partitions, pc)
	}
	return c
}

// bytesOf is everything that a commit carries, in one piece.
func bytesOf(c control.Commit) (out []byte) {
	for _, p := range c.Partitions {
		out = append(out, p.Rows.Data...)
		for _, b := range p.Cut.Put {
			out = append(out, b.Data...)
		}
	}
	return out
}
