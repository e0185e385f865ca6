package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// BenchmarkFencedCommit is the price of an epoch under a lease beside one without, in the same file, interleaved: one partition, a small and an
// ordinary epoch. The ratio is that of the medians.
func BenchmarkFencedCommit(b *testing.B) {
	small := func(epoch uint64) control.Commit {
		return control.Commit{Epoch: epoch, Status: control.RunOpen, Partitions: []control.PartitionCommit{{Cut: partitions.Cut{Next: epochOf(epoch, 1).Partitions[0].Cut.Next}}}}
	}
	for name, epochs := range map[string]func(epoch uint64) control.Commit{"small": small, "ordinary": func(epoch uint64) control.Commit { return epochOf(epoch, 1) }} {
		b.Run(name, func(b *testing.B) {
			s := open(b, Config{Path: filepath.Join(b.TempDir(), "weir.db")})
			defer s.Close()
			l, err := s.Acquire(b.Context(), control.StreamLease("owned"), "a", time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			journals := map[string]control.Journal{"owned": s.Under(l), "free": s}
			for id, j := range journals {
				if _, err := j.OpenRun(b.Context(), control.RunHeader{RunID: id, Fingerprint: "f", Source: "s", Partitions: []int32{0}}); err != nil {
					b.Fatal(err)
				}
			}
			all := map[string][]time.Duration{}
			for epoch := uint64(1); b.Loop(); epoch++ {
				order := []string{"owned", "free"}
				if epoch%2 == 0 {
					order = []string{"free", "owned"}
				}
				for _, id := range order {
					c := epochs(epoch)
					c.RunID = id
					all[id] = append(all[id], took(b, func() error { return journals[id].Commit(b.Context(), c) }))
				}
			}
			b.ReportMetric(float64(median(all["owned"]).Microseconds()), "owned-us")
			b.ReportMetric(float64(median(all["free"]).Microseconds()), "free-us")
			b.ReportMetric(float64(median(all["owned"]))/float64(median(all["free"])), "ratio")
		})
	}
}

// BenchmarkFork is how long the write lock is held for a fork, by the bytes that it copies: 200 epochs of 1000 rows, and the state.
func BenchmarkFork(b *testing.B) {
	s := open(b, Config{Path: filepath.Join(b.TempDir(), "weir.db")})
	defer s.Close()
	h := control.RunHeader{RunID: "run", Fingerprint: "f", Source: "s", Partitions: []int32{0}}
	if _, err := s.OpenRun(b.Context(), h); err != nil {
		b.Fatal(err)
	}
	const epochs = 200
	size := int64(0)
	for epoch := uint64(1); epoch <= epochs; epoch++ {
		c := epochOf(epoch, 1)
		size += int64(len(c.Partitions[0].Rows.Data))
		if err := s.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	f := control.Fork{From: "run", Epoch: epochs, Header: h, Load: func(n int32, yield func(partitions.StateBlob) error) error {
		return s.LoadBlobs(b.Context(), "run", n, yield)
	}}
	err := s.Snapshot(b.Context(), "run", func(v control.JournalView) error {
		f.Cuts, f.Watermark = v.State().Cuts, v.State().Watermark
		return v.Blobs(b.Context(), 0, func(r control.BlobRef) error { size += r.Size; return nil })
	})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for n := 0; b.Loop(); n++ {
		f.Header.RunID = "fork" + time.Duration(n).String()
		l, err := s.Acquire(b.Context(), control.StreamLease(f.Header.RunID), "a", time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.ForkRun(b.Context(), l, f); err != nil {
			b.Fatal(err)
		}
	}
}
