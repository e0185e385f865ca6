package actors

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// poison makes a partition fail at a position, always, and counts it.
func poison(partition int32, at int64, how func() error) (Hooks, *int) {
	var mu sync.Mutex
	n := new(int)
	return Hooks{At: func(_ context.Context, p Point) error {
		if p.Name != AfterStep || p.Partition != partition || p.Position.Cmp(record.Offset(at)) < 0 {
			return nil
		}
		mu.Lock()
		*n++
		mu.Unlock()
		return how()
	}}, n
}

// fullest is the partition with the most records.
func fullest(in input) (p int32) {
	for i := range in {
		if len(in[i]) > len(in[p]) {
			p = int32(i)
		}
	}
	return p
}

func poisoned() error { panic("poisoned record") }

// One partition fails at a record always; the others read their log to its end. The run ends with the cause, and goes on from there once the
// cause is gone.
func TestOneBadPartitionDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 70), 3, 90)
	want := plainLoop(t, plan, in, 7)
	for name, tune := range map[string]func(*Config, *sourcetest.Config){
		"epochs by time":         func(*Config, *sourcetest.Config) {},
		"an epoch for each poll": func(c *Config, s *sourcetest.Config) { small(c, s); lockstep(c, s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, tune)
				r.fence("a")
				r.cfg.FetchSize, r.cfg.MaxFailures = 3, 4
				steady := r.cfg.Hooks
				bad, failed := poison(1, 9, poisoned)
				r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
					if err := steady.at(ctx, p); err != nil {
						return err
					}
					return bad.at(ctx, p)
				}
				var last Progress
				r.cfg.OnProgress = func(p Progress) { last = p }
				began := time.Now()
				result, err := r.run()
				if errors.Is(err, ErrInterrupted) || !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), "blocked partitions: 1;") ||
					!strings.Contains(err.Error(), "poisoned record") || !strings.Contains(err.Error(), "failed 4 times") {
					t.Errorf("error %v", err)
				}
				// Before the fourth failure at the record the partition may move on, as far as the record.
				if *failed < 4 || *failed > 4*4 || time.Since(began) > 3*time.Second {
					t.Errorf("%d failures in %v", *failed, time.Since(began))
				}
				for _, p := range result.Partitions {
					if p.Partition == 1 {
						if p.Status != PartitionBlocked || p.Cause == nil || p.Next.Cmp(record.Offset(12)) > 0 {
							t.Errorf("blocked: %+v", p)
						}
						if result.Watermark > p.Watermark {
							t.Errorf("the merged watermark %v passed that of the blocked partition, %v", result.Watermark, p.Watermark)
						}
						continue
					}
					if p.Status != PartitionRead || p.Next != record.Offset(int64(len(in[p.Partition]))) {
						t.Errorf("%+v, want all %d records", p, len(in[p.Partition]))
					}
				}
				if result.Status != control.RunOpen || len(last.Blocked) != 1 || last.Blocked[0].Partition != 1 || r.lease().Valid {
					t.Errorf("%+v, progress %+v", result, last)
				}
				if !strings.Contains(r.logged.String(), `level=ERROR msg="a partition is blocked; the others go on" run=run partition=1`) {
					t.Error("the log does not name the blocked partition")
				}
				r.cfg.Hooks = steady
				watch := watchOrder(r, want)
				r.finish(want)
				if watch.epochs == 0 {
					t.Error("nothing was watched")
				}
			})
		})
	}
}

func TestWhatABlockedPartitionDoes(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 71), 3, 90)
	want := plainLoop(t, plan, in, 7)
	bad := fullest(in)
	limit := func() error { return codes.New(codes.LimitReached, "injected") }
	t.Run("a stopped run ends with the cause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, awake)
			r.cfg.Hooks, _ = poison(bad, 9, poisoned)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			result, err := Run(ctx, r.cfg)
			if errors.Is(err, ErrInterrupted) || !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), "poisoned record") {
				t.Errorf("error %v", err)
			}
			for _, p := range result.Partitions {
				if all := record.Offset(int64(len(in[p.Partition]))); (p.Next == all) != (p.Partition != bad) {
					t.Errorf("partition %d stands at %s of %s", p.Partition, p.Next, all)
				}
			}
			r.settled(result)
		})
	})
	t.Run("a failure that does not pass blocks at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in)
			var failed *int
			r.cfg.Hooks, failed = poison(bad, 9, limit)
			result, err := r.run()
			if !codes.Has(err, codes.LimitReached) || *failed != 1 || result.Incarnations != 2 {
				t.Errorf("%v after %d failures", err, *failed)
			}
		})
	})
	t.Run("a failure that passes blocks nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in)
			left := 9
			hooks, failed := poison(bad, 9, func() error {
				if left--; left >= 0 {
					panic("for a while")
				}
				return nil
			})
			r.cfg.Hooks = hooks
			began := time.Now()
			result := r.finish(want)
			if *failed <= 9 || len(result.Failures) != 9 || time.Since(began) > 2*time.Second {
				t.Errorf("%d failures in %v", len(result.Failures), time.Since(began))
			}
		})
	})
	t.Run("none is left", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, awake)
			r.cfg.Hooks.At = func(_ context.Context, p Point) error {
				if p.Name == BeforeStep {
					return limit()
				}
				return nil
			}
			result, err := r.run()
			if !codes.Has(err, codes.LimitReached) || result.Incarnations != 3 || result.Epoch != 0 {
				t.Errorf("%v after %d incarnations", err, result.Incarnations)
			}
			for _, p := range result.Partitions {
				if p.Status != PartitionBlocked {
					t.Errorf("%+v", p)
				}
			}
		})
	})
	t.Run("a bounded run does not wait", func(t *testing.T) {
		t.Parallel()
		for _, tune := range []func(*Config){func(c *Config) { c.MaxRecords = 80 }, func(c *Config) { c.UntilRecords = 80 }} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, awake)
				r.cfg.Hooks, _ = poison(bad, 9, limit)
				tune(&r.cfg)
				if result, err := r.run(); !codes.Has(err, codes.LimitReached) || result.Incarnations != 1 {
					t.Errorf("%v after %d incarnations", err, result.Incarnations)
				}
			})
		}
	})
	t.Run("a store that is away is told first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, awake)
			hooks, _ := poison(bad, 9, limit)
			r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
				if p.Name == BeforeCommit && p.Incarnation > 1 {
					return codes.New(codes.StoreUnavailable, "injected")
				}
				return hooks.at(ctx, p)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			if _, err := Run(ctx, r.cfg); !codes.Has(err, codes.StoreUnavailable) {
				t.Errorf("%v", err)
			}
		})
	})
}
