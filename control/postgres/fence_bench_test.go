package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

// An epoch of ordinary size under a lease, beside the same without one.
func BenchmarkFencedCommit(b *testing.B) {
	db := place(b)
	s := open(b, db, Config{TTL: time.Minute})
	journal := func(id string, fence bool) contestant {
		w := controltest.Workload{Seed: 1, RunID: id, Partitions: 4, Rows: 50, Blob: 4000}
		name, j := "unfenced", control.Journal(s)
		if fence {
			l, err := s.Acquire(b.Context(), control.StreamLease(id), "a", time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			name, j = "fenced", s.Under(l)
		}
		if _, err := j.OpenRun(b.Context(), w.Header()); err != nil {
			b.Fatal(err)
		}
		epoch := uint64(0)
		return contestant{name, func(ctx context.Context, _, _ int) error {
			epoch++
			return j.Commit(ctx, w.Commit(epoch))
		}}
	}
	duel(b, 1, 4, 50*time.Millisecond, 1, journal("fenced", true), journal("unfenced", false))
}
