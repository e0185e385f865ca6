package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// small tunes a run to many small messages and epochs, so that failures fall everywhere.
func small(c *Config, s *sourcetest.Config) {
	c.FetchSize, c.EpochRecords, c.CreditRecords = 3, 10, 9
	c.MaxFailures = 1000
}

// A failpoint is passed many times in a run. In each of these runs the failure strikes at another passing, until there is none left.
func TestFailureAtEveryPassingOfEveryFailpoint(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 5), 3, 60)
	want := plainLoop(t, plan, in, 7)
	strikes := map[string]func(context.Context) error{
		"error": func(context.Context) error { return errBoom },
		"panic": func(context.Context) error { panic(errBoom) },
	}
	for _, point := range Failpoints() {
		for how, strike := range strikes {
			t.Run(string(point)+"/"+how, func(t *testing.T) {
				t.Parallel()
				step, n := 1, 1
				if point == OnMessage {
					step = 7
				}
				for hit := true; hit; n += step {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, plan, in, small)
						hooks, seen := every(point, n, strike)
						r.cfg.Hooks = hooks
						result := r.finish(want)
						hit = *seen >= n
						// A failure before the first incarnation was opened makes no second one.
						incarnations := 1
						if hit && result.Failures[0].Incarnation > 0 {
							incarnations = 2
						}
						if hit && (result.Incarnations != incarnations || len(result.Failures) != 1 || !errors.Is(result.Failures[0].Cause, errBoom)) {
							t.Errorf("passing %d: %d incarnations, failures %v", n, result.Incarnations, result.Failures)
						}
						if !hit && result.Incarnations != 1 {
							t.Errorf("%d incarnations although nothing failed", result.Incarnations)
						}
					})
				}
				if n < 3 {
					t.Errorf("the failpoint was passed %d times only", n-1)
				}
			})
		}
	}
}

// One actor after the other fails at every message that it gets.
func TestFailureAtEveryMessageOfEveryActor(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 6), 2, 40)
	want := plainLoop(t, plan, in, 7)
	for _, actor := range []string{runName, leaseName, readerName, coordinatorName, fanInName, partitionName(0), partitionName(1)} {
		t.Run(actor, func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small, lockstep)
					told := r.fence("a")
					steady := r.cfg.Hooks
					watch := watchOrder(r, want)
					seen := 0
					var mu sync.Mutex
					r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
						if p.Name != OnMessage || p.Actor != actor {
							return steady.at(ctx, p)
						}
						mu.Lock()
						defer mu.Unlock()
						if seen++; seen == n {
							panic("boom")
						}
						return nil
					}
					result := r.finish(want)
					if hit = seen >= n; hit && len(result.Failures) > 0 && result.Failures[0].Actor != actor || len(result.Failures) > 1 {
						t.Errorf("message %d: failures %v", n, result.Failures)
					}
					// What fails behind the last effect is none of the run any more: only the lease is to be given back then.
					if late := len(result.Failures) == 0; hit && late && actor != leaseName {
						t.Errorf("message %d: the failure was swallowed", n)
					}
					if watch.epochs < 5 {
						t.Errorf("%d epochs were watched", watch.epochs)
					}
					if r.lease().Token != 1 || r.lease().Valid && actor != leaseName || told.all[0].Change != LeaseAcquired {
						t.Errorf("message %d: lease %+v, told %s", n, r.lease(), told)
					}
				})
			}
		})
	}
}

// An operator panics in the middle of a batch, at every k-th tick of the run.
func TestPanicInAnOperatorAtEveryTick(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 7), 3, 80)
	want := plainLoop(t, plan, in, 7)
	ticks := 0
	for _, c := range want.counts {
		ticks += int(c.Outputs)
	}
	if ticks < 40 {
		t.Fatalf("only %d ticks", ticks)
	}
	for n := 1; n <= ticks; n++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, breakAt(plan, n), in, small)
			if result := r.finish(want); result.Incarnations != 2 || !strings.Contains(result.Failures[0].Cause.Error(), "brittle") {
				t.Errorf("tick %d: %d incarnations, failures %v", n, result.Incarnations, result.Failures)
			}
		})
	}
}

// The process dies at every passing of every failpoint, one after the other, all on one journal: a run makes its way by single steps.
func TestCrashAtEveryPassingOfEveryFailpoint(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 8), 3, 60)
	want := plainLoop(t, plan, in, 7)
	for _, point := range Failpoints() {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small)
					hit = crash(t, r, point, n)
					result, err := r.run()
					if codes.Has(err, codes.RunFinished) && (point == AfterCommit || point == AfterOffsets || point == OnMessage) {
						err = nil // the crash came after the last commit
					}
					if err != nil {
						t.Fatalf("passing %d: %v", n, err)
					}
					r.compare(result, want)
				})
				if point == OnMessage {
					n += 4
				}
			}
		})
	}
}

// crash runs until the n-th passing of a failpoint, where the process dies. It is false when there are not so many.
func crash(t *testing.T, r *rig, point Failpoint, n int) bool {
	t.Helper()
	die, kill := context.WithCancel(context.Background())
	defer kill()
	cfg := r.cfg
	hooks, seen := every(point, n, func(context.Context) error {
		kill()
		<-die.Done()
		return die.Err()
	})
	cfg.Kill, cfg.Hooks = die, hooks
	result, err := Run(context.Background(), cfg)
	synctest.Wait()
	r.settled(result)
	if *seen < n {
		if err != nil {
			t.Fatal(err)
		}
		r.journal = controltest.NewMemory()
		r.cfg.Journal = r.journal
		return false
	}
	// The run actor still gets messages when the last commit stands and the run is over: who dies there has finished.
	over := err == nil && point == OnMessage && result.Status == control.RunFinished
	if !over && (!errors.Is(err, ErrKilled) || !codes.Has(err, codes.Interrupted)) {
		t.Errorf("passing %d: %v, %s at epoch %d", n, err, result.Status, result.Epoch)
	}
	return true
}

func TestLostAnswersAndFailedCommits(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 9), 3, 60)
	want := plainLoop(t, plan, in, 7)
	faults := map[string]func(int) controltest.Fault{"lost": controltest.LoseAnswer, "failed": controltest.FailCommit}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small, lockstep)
					r.journal.Inject(fault(n))
					result := r.finish(want)
					hit = r.journal.Fired() == 1
					if hit && !codes.Has(result.Failures[0].Cause, codes.StoreUnavailable) {
						t.Errorf("commit %d: failures %v", n, result.Failures)
					}
					if !hit && n < 8 {
						t.Errorf("only %d commits", n-1)
					}
				})
			}
		})
	}
}

// An actor fails while a commit is under way: nothing is read back before its answer is there, or a commit that comes through late would
// look like that of another process.
func TestCommitUnderWayIsAwaited(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 13), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		steady := r.cfg.Hooks
		var answered atomic.Bool
		committing := make(chan struct{})
		r.journal.Inject(
			controltest.Fault{Op: controltest.OpCommit, Call: 2, Do: func() {
				close(committing)
				<-time.After(time.Hour)
				answered.Store(true)
			}},
			controltest.Fault{Op: controltest.OpOpen, Call: 2, Do: func() {
				if !answered.Load() {
					t.Error("the journal was read back while a commit was under way")
				}
			}})
		fail := once(func() {
			if answered.Load() {
				t.Error("the failure came too late to show anything")
			}
			panic("boom")
		})
		r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
			select {
			case <-committing:
				if p.Name == BeforeStep {
					fail()
				}
			default:
			}
			return steady.at(ctx, p)
		}
		if result := r.finish(want); result.Incarnations != 2 {
			t.Errorf("%d incarnations", result.Incarnations)
		}
		r.journal.AllFired(t)
	})
}

func TestSourceFailures(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 10), 2, 40)
	want := plainLoop(t, plan, in, 7)
	passing := codes.New(codes.SourceFailure, "injected")
	t.Run("at every record", func(t *testing.T) {
		t.Parallel()
		for p := range in {
			for at := range in[p] {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small)
					r.log.FailAt(int32(p), record.Offset(int64(at)), passing)
					if result := r.finish(want); result.Incarnations != 2 || result.Failures[0].Actor != readerName {
						t.Errorf("failures %v", result.Failures)
					}
				})
			}
		}
	})
	t.Run("at all of them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			for p := range in {
				for at := range in[p] {
					r.log.FailAt(int32(p), record.Offset(int64(at)), passing)
				}
			}
			// Every commit forgives the failure before it, so the same cause may come for ever.
			lockstep(&r.cfg, nil)
			r.cfg.FetchSize, r.cfg.MaxFailures = 1, 3
			if result := r.finish(want); result.Incarnations <= in.total()/2 {
				t.Errorf("%d incarnations", result.Incarnations)
			}
		})
	})
	t.Run("at the start", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			r.log.FailInfo(passing, errBoom)
			r.log.FailOpen(errBoom, passing)
			if result := r.finish(want); result.Incarnations != 5 {
				t.Errorf("%d incarnations", result.Incarnations)
			}
		})
	})
}

// While the source fails it may go on for ever, as long as there is progress in between; the pause grows only without any.
func TestOneCauseThatComesAgainAndAgainEndsTheRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 11), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		r.cfg.MaxFailures, r.cfg.MaxRecords = 5, int64(in.total())
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if p.Name == BeforeStep && p.Partition == 1 && p.Position.Cmp(record.Offset(12)) >= 0 {
				panic("poisoned record")
			}
			return nil
		}
		began := time.Now()
		result, err := r.run()
		last := result.Failures[len(result.Failures)-1]
		if last.Partition != 1 || last.Position.Cmp(record.Offset(12)) < 0 {
			t.Errorf("last failure %+v", last)
		}
		place := fmt.Sprintf("run/partition/1, in the batch at position %s failed 5 times", last.Position)
		if !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), place) ||
			!strings.Contains(err.Error(), "poisoned record") || strings.Contains(err.Error(), "goroutine") {
			t.Errorf("error %v, want one with %q", err, place)
		}
		// Four pauses, at least, all of them short: a partition depends on nothing that would need time.
		if d := time.Since(began); d < 400*time.Millisecond || d > 2*time.Second || result.Status != control.RunOpen {
			t.Errorf("ended after %v, status %s", d, result.Status)
		}
		// What is committed stands, and a run without the poison goes on from there.
		r.cfg.Hooks = Hooks{}
		r.finish(plainLoop(t, plan, in, 7))
	})
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	for n, want := range map[int]time.Duration{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 6: 1000, 1 << 40: 1000} {
		if got := b.Pause(n); got != want*time.Millisecond {
			t.Errorf("pause %d is %v, want %v", n, got, want*time.Millisecond)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), input{nil}, small)
		r.cfg.MaxFailures = 7
		r.log.FailOpen(errBoom, errBoom, errBoom, errBoom, errBoom, errBoom, errBoom)
		began := time.Now()
		if _, err := r.run(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "7 times") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(began); d != 6300*time.Millisecond {
			t.Errorf("ended after %v, want 100+200+400+800+1600+3200 ms", d)
		}
	})
}

// An incarnation that lived for a while starts the count again.
func TestHealthyStretchForgives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), input{{}}, small, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		r.cfg.MaxFailures = 2
		ctx, cancel := context.WithCancel(context.Background())
		polls := 0
		r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
			if p.Name == AfterPoll {
				if polls++; polls < 5 {
					return errBoom
				}
				cancel()
			}
			return nil
		}
		for i := range 5 {
			time.AfterFunc(time.Duration(i+1)*2*time.Minute, r.log.AnswerEmpty)
		}
		result, err := Run(ctx, r.cfg)
		if !errors.Is(err, ErrInterrupted) || len(result.Failures) != 4 {
			t.Errorf("error %v, failures %v", err, result.Failures)
		}
	})
}

func TestFatalErrorsEndAtOnce(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 12), 2, 60)
	for name, c := range map[string]struct {
		code *codes.Code
		tune func(r *rig)
	}{
		"another process commits": {codes.JournalConflict, func(r *rig) {
			r.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 1, Do: once(func() {
				other := control.Commit{RunID: "run", Epoch: 1, Status: control.RunOpen, Watermark: record.MaxTime,
					Partitions: []control.PartitionCommit{{Cut: partitions.Cut{Partition: 1, Next: record.Offset(1 << 40), Watermark: record.MaxTime}}}}
				if err := r.journal.Commit(context.Background(), other); err != nil {
					r.t.Error(err)
				}
			})})
		}},
		"log recreated": {codes.TopicRecreated, func(r *rig) {
			hooks, _ := every(AfterPoll, 3, func(context.Context) error { r.log.Recreate("another"); return nil })
			r.cfg.Hooks = hooks
		}},
		"records lost": {codes.OffsetLost, func(r *rig) {
			hooks, _ := every(AfterPoll, 3, func(context.Context) error { r.log.Truncate(1, record.Offset(20)); return nil })
			r.cfg.Hooks = hooks
		}},
		"store damaged": {codes.JournalCorrupt, func(r *rig) {
			r.journal.Inject(controltest.Fault{Op: controltest.OpOpen, Call: 1, Err: codes.New(codes.JournalCorrupt, "injected")})
		}},
		"limit reached": {codes.LimitReached, func(r *rig) {
			tight := *plan
			tight.Limits.Keys = 1
			r.cfg.Plan, r.cfg.MaxRecords = &tight, int64(in.total())
		}},
		"fewer records than asked for": {codes.SourceEnded, func(r *rig) { r.cfg.MaxRecords = int64(in.total()) + 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, small)
				c.tune(r)
				began := time.Now()
				result, err := r.run()
				if !codes.Has(err, c.code) {
					t.Errorf("error %v, want %s", err, c.code.Name)
				}
				if result.Incarnations != 1 || time.Since(began) != 0 {
					t.Errorf("%d incarnations in %v", result.Incarnations, time.Since(began))
				}
			})
		})
	}
}
