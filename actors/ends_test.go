package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// A run is stopped at the n-th passing of a failpoint, for every n, and resumed: everything that was handed out is committed, and the
// end is that of a run that was never stopped.
func TestStopAtEveryMomentAndResume(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 20), 3, 60)
	want := plainLoop(t, plan, in, 7)
	for _, point := range []Failpoint{BeforeOpen, AfterRestore, AfterPoll, OnMessage, AfterStep, AfterCut, BeforeCommit, AfterCommit} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small)
					r.fence("a")
					ctx, stop := context.WithCancel(context.Background())
					defer stop()
					cfg := r.cfg
					hooks, seen := every(point, n, func(context.Context) error { stop(); return nil })
					cfg.Hooks = hooks
					began := time.Now()
					result, err := Run(ctx, cfg)
					r.settled(result)
					if d := time.Since(began); d > time.Second {
						t.Errorf("stopped at passing %d: ended after %v", n, d)
					}
					// The next owner need not wait.
					r.cfg.Fencing.Owner = "b"
					if leases, err := r.journal.ListLeases(context.Background()); err != nil || len(leases) > 1 || len(leases) == 1 && leases[0].Valid {
						t.Errorf("stopped at passing %d: leases %+v, %v", n, leases, err)
					}
					if hit = *seen >= n; !hit || err == nil {
						// Not stopped, or stopped when the end had begun already.
						if err != nil {
							t.Fatal(err)
						}
						r.compare(result, want)
						return
					}
					if !errors.Is(err, ErrInterrupted) || result.Status != control.RunOpen || result.Epoch != r.journal.Epoch("run") {
						t.Errorf("stopped at passing %d: %v, %s, epoch %d of %d", n, err, result.Status, result.Epoch, r.journal.Epoch("run"))
					}
					r.finish(want)
				})
				if point == OnMessage {
					n += 9
				}
			}
		})
	}
}

// What was handed out before the stop is processed and committed; what waits aside is not.
func TestStopDrainsWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := append(randomInput(seeded(t, 21), 1, 200), nil)
	synctest.Test(t, func(t *testing.T) {
		// The source is asked for 80 records and has them all in one partition: a part is handed out, the rest waits aside.
		r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) { c.FetchSize, c.CreditRecords, s.Bounded = 100, 40, false })
		ctx, stop := context.WithCancel(context.Background())
		gate := make(chan struct{})
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if p.Name == BeforeStep {
				<-gate
			}
			return nil
		}
		go func() {
			synctest.Wait()
			stop()
			synctest.Wait()
			close(gate)
		}()
		result, err := Run(ctx, r.cfg)
		if !errors.Is(err, ErrInterrupted) || result.Counts.Records != 40 || result.Partitions[0].Next != record.Offset(40) {
			t.Errorf("%v; %d records committed, next %s", err, result.Counts.Records, result.Partitions[0].Next)
		}
		r.settled(result)
	})
}

func TestKillReturnsAtOnceAndCommitsNothing(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 22), 2, 100)
	want := plainLoop(t, plan, in, 7)
	t.Run("after a stop that hangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small, lockstep)
			ctx, stop := context.WithCancel(context.Background())
			die, kill := context.WithCancel(context.Background())
			defer kill()
			release := make(chan struct{})
			hung := make(chan struct{})
			r.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 4, Do: func() { close(hung); <-release }, Err: errBoom})
			cfg := r.cfg
			cfg.Kill = die
			var killed time.Time
			go func() {
				<-hung
				stop()
				<-time.After(time.Hour)
				killed = time.Now()
				kill()
			}()
			result, err := Run(ctx, cfg)
			if !errors.Is(err, ErrKilled) || time.Since(killed) > killGrace || result.Epoch != 3 {
				t.Errorf("%v after %v, epoch %d", err, time.Since(killed), result.Epoch)
			}
			close(release)
			synctest.Wait()
			r.cfg.Hooks = Hooks{}
			r.finish(want)
		})
	})
	t.Run("before it has begun", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in)
			die, kill := context.WithCancel(context.Background())
			kill()
			r.cfg.Kill = die
			if result, err := r.run(); !errors.Is(err, ErrKilled) || result.Epoch != 0 {
				t.Errorf("%v, epoch %d", err, result.Epoch)
			}
		})
	})
	t.Run("an actor that hangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in)
			die, kill := context.WithCancel(context.Background())
			defer kill()
			release := make(chan struct{})
			hooks, _ := every(BeforeStep, 3, func(context.Context) error { kill(); <-release; return nil })
			r.cfg.Kill, r.cfg.Hooks = die, hooks
			began := time.Now()
			if _, err := Run(context.Background(), r.cfg); !errors.Is(err, ErrKilled) || time.Since(began) != killGrace {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			close(release)
		})
	})
}

func TestStopWhileWaitingAndWhileOpening(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, input{nil, nil}, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		r.cfg.Backoff = Backoff{Min: time.Hour, Max: time.Hour}
		r.log.FailOpen(errBoom)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		result, err := Run(ctx, r.cfg)
		if errors.Is(err, ErrInterrupted) || !errors.Is(err, errBoom) || !codes.Has(err, codes.Internal) || time.Since(began) != time.Minute || len(result.Failures) != 1 {
			t.Errorf("%v after %v, failures %v", err, time.Since(began), result.Failures)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, input{nil, nil})
		r.cfg.Hooks = at(BeforeOpen, 1, hang)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if result, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) || len(result.Failures) != 0 {
			t.Errorf("%v, failures %v", err, result.Failures)
		}
	})
}

// --once-n counts over the life of the run, across stops and failures, and takes exactly so many.
func TestMaxRecordsAreCountedOverTheWholeRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 23), 1, 120)
	short := input{in[0][:77]}
	want := plainLoop(t, plan, short, 7)
	for _, fetch := range []int{1, 10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) { c.FetchSize, s.Bounded = fetch, false })
			for _, until := range []int64{13, 13, 40} {
				r.cfg.UntilRecords = until
				result, err := r.run()
				if err != nil || result.Counts.Records != until || result.Status != control.RunOpen {
					t.Fatalf("until %d: %v, %+v", until, err, result)
				}
			}
			r.cfg.UntilRecords = 0
			r.cfg.MaxRecords = 39
			if _, err := r.run(); !codes.Has(err, codes.RunMismatch) || !strings.Contains(err.Error(), "40 records") {
				t.Errorf("fewer than there are: %v", err)
			}
			r.cfg.MaxRecords = 77
			r.finish(want)
			result, err := r.run()
			if !codes.Has(err, codes.RunFinished) {
				t.Errorf("a finished run: %v", err)
			}
			r.compare(result, want)
		})
	}
}

// More records than there are on a log without an end: the run waits for them.
func TestMaxRecordsWaits(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 24), 2, 50)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		head := input{in[0][:len(in[0])-1], in[1]}
		r := newRig(t, plan, head, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		r.cfg.MaxRecords = int64(in.total())
		time.AfterFunc(time.Hour+500*time.Millisecond, func() { r.log.Append(0, in[0][len(in[0])-1]) })
		began := time.Now()
		r.finish(want)
		if time.Since(began) != time.Hour+500*time.Millisecond {
			t.Errorf("ended after %v", time.Since(began))
		}
		if n := r.journal.Epoch("run"); n != 2 {
			t.Errorf("%d epochs; an hour without a record is not worth one", n)
		}
	})
}

func TestUntilRecordsFlushesNothing(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 25), 2, 50)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.cfg.UntilRecords = int64(in.total())
		result, err := r.run()
		if err != nil || result.Status != control.RunOpen || result.Watermark == record.MaxTime {
			t.Errorf("%v, %+v", err, result)
		}
		if result.Counts.Outputs >= result.Counts.Consumed {
			t.Errorf("%d of %d consumed records are released", result.Counts.Outputs, result.Counts.Consumed)
		}
		r.cfg.UntilRecords = 0
		r.finish(plainLoop(t, plan, in, 7))
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.cfg.UntilRecords = int64(in.total()) + 1
		result, err := r.run()
		if !codes.Has(err, codes.SourceEnded) || result.Counts.Records != int64(in.total()) || result.Status != control.RunOpen {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

// The group's offsets are told after the commit and never stand beyond the journal, whatever fails.
func TestOffsetsAreACourtesyBehindTheJournal(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 26), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		var mu sync.Mutex
		told := map[int32]record.Position{}
		calls := 0
		r.cfg.CommitOffsets = func(ctx context.Context, next map[int32]record.Position) error {
			mu.Lock()
			defer mu.Unlock()
			runs, err := r.journal.Runs(ctx)
			if err != nil {
				return err
			}
			state, err := r.journal.OpenRun(ctx, runs[0].Header)
			if err != nil && !codes.Has(err, codes.RunFinished) {
				return err
			}
			for p, at := range next {
				if at.Cmp(state.Cuts[p].Next) > 0 || at.Cmp(told[p]) < 0 {
					t.Errorf("partition %d: offset %s told, journal at %s, told before %s", p, at, state.Cuts[p].Next, told[p])
				}
			}
			maps.Copy(told, next) // those that have moved
			if calls++; calls%3 == 0 {
				return errBoom
			}
			return nil
		}
		r.journal.Inject(controltest.LoseAnswer(4), controltest.FailCommit(7))
		result := r.finish(want)
		if fmt.Sprint(told) != fmt.Sprint(result.Positions()) || calls < 8 {
			t.Errorf("told %v in %d calls, journal %v", told, calls, result.Positions())
		}
		if !strings.Contains(r.logged.String(), "the group's offsets were not written") {
			t.Error("an offset that was not written is not logged")
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := Run(context.Background(), Config{MaxRecords: 1, UntilRecords: 1, FetchSize: -1})
	if !codes.Has(err, codes.ConfigInvalid) {
		t.Fatal(err)
	}
	for _, want := range []string{"no plan", "no source", "no journal", "no run id", "both set", "FetchSize is -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestProgressTellsWhatIsCommitted(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 27), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		var all []Progress
		r.cfg.OnProgress = func(p Progress) { all = append(all, p) }
		result := r.finish(want)
		rows := 0
		for i, p := range all {
			rows += p.Rows
			if p.Epoch != uint64(i+1) || p.Incarnation != 1 || len(p.Queues) != 2 {
				t.Errorf("progress %d: %+v", i, p)
			}
			for _, q := range p.Queues {
				if q.Records < 0 || q.Records > q.WindowRecords || q.Bytes < 0 {
					t.Errorf("queue %+v", q)
				}
			}
		}
		last := all[len(all)-1]
		if last.Status != control.RunFinished || last.Counts != result.Counts || int64(rows) != result.Counts.Outputs || last.Epoch != result.Epoch {
			t.Errorf("last progress %+v, %d rows; result %+v", last, rows, result)
		}
	})
}
