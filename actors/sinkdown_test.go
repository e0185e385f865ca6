package actors

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources/sourcetest"
)

// Two minutes without a target, with a log that always has more to read: every partition comes to PROCESS_PAUSED, since its results wait and its window is
// out, and stays there with what one window holds; the source is paused meanwhile. When the target is back each goes through SOURCE_PAUSED, or straight
// back, to FLOWING, without a failure, and everything is there once.
func TestASinkThatIsDownAtFullInput(t *testing.T) {
	t.Parallel()
	const parts, window, outage = 3, 200, 2 * time.Minute
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 41), parts, 9000)
	want := plainLoop(t, plan, in, 500)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, func(c *Config, _ *sourcetest.Config) {
			c.FetchSize, c.CreditRecords, c.EpochBytes, c.EpochRecords = 50, window, 2000, 500
		})
		target := newShelf()
		began, failed := time.Time{}, false
		target.at = func(step string) error {
			switch {
			case step != "open" && began.IsZero() && target.ends[0]+target.ends[1]+target.ends[2] > 0:
				began = time.Now() // not at the first epoch: the target has worked before
			case began.IsZero() || time.Since(began) >= outage:
				return nil
			}
			failed = true
			return codes.New(codes.SinkUnavailable, "down")
		}
		var mu sync.Mutex
		path := map[int32][]backpressure.State{}
		r.cfg.Publisher = publisher(target)
		r.cfg.OnBackpressure = func(p int32, tr backpressure.Transition) {
			mu.Lock()
			defer mu.Unlock()
			path[p] = append(path[p], tr.To)
			if tr.To == backpressure.ProcessPaused && (tr.Reason == "" || tr.Release == "" || tr.Measured < tr.Threshold) {
				t.Errorf("partition %d is held without a reason: %v", p, tr)
			}
		}
		most := map[int32]int64{}
		r.cfg.OnQueue = func(q Queue) {
			mu.Lock()
			defer mu.Unlock()
			most[q.Partition] = max(most[q.Partition], q.Records)
		}
		// stands is how a partition is while the target is down, and when how often it has changed by then. How it ends is a matter of the last records.
		stands, when := map[int32]backpressure.State{}, map[int32]int{}
		r.cfg.Publisher.OnState = func(s sinks.State) {
			mu.Lock()
			defer mu.Unlock()
			if s.Err != nil && time.Since(began) > outage/2 {
				for p := range int32(parts) {
					if all := path[p]; len(all) > 0 {
						stands[p], when[p] = all[len(all)-1], len(all)
					}
				}
			}
		}
		result := r.finish(want)
		target.holds(t, want)
		if !failed || result.Incarnations != 1 {
			t.Errorf("the target failed: %v; %d incarnations, want one", failed, result.Incarnations)
		}
		for p := range int32(parts) {
			if stands[p] != backpressure.ProcessPaused {
				t.Errorf("partition %d is %v while the target is down", p, stands[p])
			}
			if most[p] == 0 || most[p] > window {
				t.Errorf("partition %d had %d records under way, the window is %d", p, most[p], window)
			}
			all := path[p]
			at := slices.Index(all, backpressure.ProcessPaused)
			if at < 1 || all[at-1] != backpressure.SourcePaused || !slices.Contains(all[when[p]:], backpressure.Flowing) {
				t.Errorf("partition %d went through %v", p, all)
			}
		}
	})
}
