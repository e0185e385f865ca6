package actors

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sources/sourcetest"
)

// What is told: the way through the phases with one failure, queues that begin and end, results that wait for the journal, and each partition of
// a cut as the journal has it.
func TestStatesQueuesAndPartitionsAreTold(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 71), 3, 400)
	want := plainLoop(t, plan, in, 20)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) {
			c.FetchSize, c.CreditRecords, c.EpochBytes = 20, 40, 500
		})
		var mu sync.Mutex
		var states []RunState
		withheld, queues, last := map[bool]int{}, map[int32]int{}, map[int32]PartitionProgress{}
		r.cfg.OnState = func(s StateChange) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, s.State)
			if s.State == StateBackoff && (s.Pause <= 0 || len(s.Result.Failures) != 1) {
				t.Errorf("a back-off of %v after %d failures", s.Pause, len(s.Result.Failures))
			}
		}
		r.cfg.OnQueue = func(q Queue) {
			mu.Lock()
			defer mu.Unlock()
			queues[q.Partition]++
		}
		r.cfg.OnWithheld = func(_ int32, on bool) {
			mu.Lock()
			defer mu.Unlock()
			withheld[on]++
		}
		r.cfg.OnProgress = func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			for _, part := range p.Partitions {
				last[part.Partition] = part
			}
		}
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if p.Name == AfterPoll && p.Incarnation == 1 {
				return codes.New(codes.SourceFailure, "for a moment")
			}
			return nil
		}
		result := r.finish(want)
		mu.Lock()
		defer mu.Unlock()
		way := []RunState{StateOpening, StateRunning, StateEnding, StateBackoff, StateOpening, StateRunning, StateEnding, StateOver}
		if !slices.Equal(states, way) {
			t.Errorf("states %v, want %v", states, way)
		}
		if got := slices.Sorted(maps.Keys(queues)); !slices.Equal(got, []int32{0, 1, 2}) {
			t.Errorf("queues of %v were told", got)
		}
		if withheld[true] == 0 || withheld[true] != withheld[false] {
			t.Errorf("withheld %v", withheld)
		}
		for _, p := range result.Partitions {
			got := last[p.Partition]
			if got.Next != p.Next || got.Watermark != p.Watermark || got.Counts != p.Counts || got.MaxEventTime < got.Watermark {
				t.Errorf("partition %d: told %+v, the journal has %+v", p.Partition, got, p)
			}
			n := int64(0)
			for _, k := range got.SetAside {
				n += k
			}
			if n > got.Counts.Records {
				t.Errorf("partition %d: %d records of one epoch set aside", p.Partition, n)
			}
		}
	})
}
