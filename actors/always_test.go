package actors

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// An actor that panics at every message, from its n-th on, is the end of the run, which names it. Nothing loops for ever, and what is
// published is the beginning of the reference, from which a run without the panic goes on.
func TestTheSamePanicEveryTimeIsTheEnd(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 90), 2, 40)
	want := plainLoop(t, plan, in, 7)
	for _, actor := range []string{runName, leaseName, readerName, coordinatorName, fanInName, partitionName(0)} {
		t.Run(actor, func(t *testing.T) {
			t.Parallel()
			// The lease actor gets few messages: what it is asked, the answer, and then one for each renewal.
			for _, n := range []int{1, 2, 3, 5, 8} {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small, lockstep, awake)
					r.cfg.MaxFailures = 3
					r.fence("a")
					watch := watchOrder(r, want)
					steady := r.cfg.Hooks
					var mu sync.Mutex
					seen := 0
					r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
						if p.Name != OnMessage || p.Actor != actor {
							return steady.at(ctx, p)
						}
						mu.Lock()
						defer mu.Unlock()
						if seen++; seen >= n {
							panic(fmt.Sprintf("boom in %s", actor))
						}
						return nil
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					began := time.Now()
					result, err := Run(ctx, r.cfg)
					r.settled(result)
					if !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), actor) || !strings.Contains(err.Error(), "boom in "+actor) {
						t.Fatalf("from message %d: %v", n, err)
					}
					// A partition that is blocked does not end it; everything else does, long before the hour.
					if blocked := strings.Contains(err.Error(), "blocked partitions: 0;"); blocked != (actor == partitionName(0)) || !blocked && time.Since(began) > 2*time.Minute {
						t.Errorf("from message %d: ended after %v: %v", n, time.Since(began), err)
					}
					if result.Status != control.RunOpen || result.Epoch != r.journal.Epoch("run") {
						t.Errorf("from message %d: %s at epoch %d of %d", n, result.Status, result.Epoch, r.journal.Epoch("run"))
					}
					<-time.After(testTTL) // a lease that nobody could give back runs out
					watch.epochs = 0
					r.cfg.Hooks, r.cfg.MaxRecords = steady, int64(in.total())
					r.finish(want)
					if watch.epochs == 0 && result.Counts.Records < int64(in.total()) {
						t.Errorf("from message %d: nothing was watched", n)
					}
				})
			}
		})
	}
}
