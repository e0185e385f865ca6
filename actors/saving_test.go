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
	"github.com/weirstream/weir/sources/sourcetest"
)

// keeper is a Checkpointer that notes when it was called, and does what a test says.
type keeper struct {
	mu      sync.Mutex
	journal interface {
		Epoch(runID string) uint64
	}
	began  time.Time
	at     []time.Duration
	epochs []uint64
	tokens []control.FenceToken
	do     func(ctx context.Context, n int) error
	busy   int
}

func (k *keeper) Save(ctx context.Context, l control.Lease, runID string) (control.Pointer, error) {
	k.mu.Lock()
	k.at = append(k.at, time.Since(k.began))
	k.epochs, k.tokens = append(k.epochs, k.journal.Epoch(runID)), append(k.tokens, l.Token)
	n, epoch := len(k.at), k.epochs[len(k.epochs)-1]
	k.busy++
	over := k.busy > 1
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.busy--
		k.mu.Unlock()
	}()
	if over {
		return control.Pointer{}, errors.New("two at a time")
	}
	if k.do != nil {
		if err := k.do(ctx, n); err != nil {
			return control.Pointer{}, err
		}
	}
	return control.Pointer{RunID: runID, Epoch: epoch}, nil
}

// told is what OnCheckpoint hears.
type toldCheckpoints struct {
	epochs []uint64
	errs   []error
}

func (r *rig) keep(do func(ctx context.Context, n int) error) (*keeper, *toldCheckpoints) {
	k, told := &keeper{journal: r.journal, began: time.Now(), do: do}, &toldCheckpoints{}
	r.cfg.Checkpointer = k
	r.cfg.OnCheckpoint = func(p control.Pointer, err error) {
		if err != nil {
			told.errs = append(told.errs, err)
			return
		}
		told.epochs = append(told.epochs, p.Epoch)
	}
	return k, told
}

// drip appends records one every d.
func (r *rig) drip(in input, d time.Duration) {
	for p := range in {
		for i, rec := range in[p] {
			time.AfterFunc(time.Duration(i+1)*d, func() { r.log.Append(int32(p), rec) })
		}
	}
}

func TestCheckpointsAreMadeNowAndThen(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 80), 1, 100)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, input{nil}, awake)
		r.fence("a")
		k, told := r.keep(nil)
		r.cfg.MaxRecords = int64(in.total())
		r.drip(in, 2*time.Second) // 200 s
		r.finish(want)
		// Every minute, and at the end.
		if len(k.at) != 4 || k.at[0] != time.Minute || k.at[1] != 2*time.Minute || k.at[2] != 3*time.Minute || k.at[3] < 200*time.Second {
			t.Errorf("checkpoints at %v", k.at)
		}
		if last := k.epochs[3]; last != r.journal.Epoch("run") || len(told.epochs) != 4 || len(told.errs) != 0 || k.tokens[3] != 1 {
			t.Errorf("epochs %v, told %+v", k.epochs, told)
		}
	})
	t.Run("not without a commit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, input{nil}, awake)
			r.fence("a")
			k, _ := r.keep(nil)
			time.AfterFunc(10*time.Minute-time.Second, func() { r.log.Append(0, in[0][0]) })
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) {
				t.Error(err)
			}
			if len(k.at) != 1 || k.at[0] < 10*time.Minute-time.Second || k.at[0] > 10*time.Minute {
				t.Errorf("checkpoints at %v", k.at)
			}
			// The same again, with nothing new.
			if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) || len(k.at) != 1 {
				t.Errorf("%v, checkpoints at %v", err, k.at)
			}
		})
	})
}

// Commits go on while a checkpoint is made, one at a time, and its failure stops nothing.
func TestCheckpointsStopNothing(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 81), 1, 100)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, input{nil}, awake)
		r.fence("a")
		var k *keeper
		k, told := r.keep(func(_ context.Context, n int) error {
			switch n {
			case 1:
				before := r.journal.Epoch("run")
				<-time.After(90 * time.Second)
				if after := r.journal.Epoch("run"); after < before+40 {
					t.Errorf("from epoch %d to %d while a checkpoint was made", before, after)
				}
			case 2:
				panic("disk")
			case 3:
				return codes.New(codes.OutputUnwritable, "full")
			}
			return nil
		})
		// An incarnation that fails does not end it.
		r.cfg.Hooks, _ = every(BeforeStep, 40, func(context.Context) error { return errBoom })
		r.cfg.CheckpointEvery = 30 * time.Second
		r.cfg.MaxRecords = int64(in.total())
		r.drip(in, 2*time.Second)
		if result := r.finish(want); result.Incarnations != 2 {
			t.Errorf("%d incarnations", result.Incarnations)
		}
		if len(told.errs) != 2 || !codes.Has(told.errs[1], codes.OutputUnwritable) || len(told.epochs) != len(k.at)-2 {
			t.Errorf("told %+v of %d", told, len(k.at))
		}
		if n := strings.Count(r.logged.String(), "no checkpoint was made"); n != 2 || r.lease().Valid {
			t.Errorf("%d in the log", n)
		}
	})
}

func TestCheckpointAtTheEnd(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 82), 2, 60)
	stale := codes.New(codes.StaleFence, "injected")
	for name, c := range map[string]struct {
		tune func(r *rig, stop, kill func())
		do   func(ctx context.Context, n int) error
		made int
		code *codes.Code
		took time.Duration
		lost bool
	}{
		"finished":    {func(*rig, func(), func()) {}, nil, 1, nil, 0, false},
		"until":       {func(r *rig, _, _ func()) { r.cfg.UntilRecords = 30 }, nil, 1, nil, 0, false},
		"interrupted": {func(r *rig, stop, _ func()) { time.AfterFunc(1500*time.Millisecond, stop); r.endless() }, nil, 1, codes.Interrupted, 1500 * time.Millisecond, false},
		"blocked": {func(r *rig, _, _ func()) {
			r.cfg.Hooks, _ = poison(0, 9, func() error { return codes.New(codes.LimitReached, "injected") })
		}, nil, 1, codes.LimitReached, time.Second, false},
		"given up": {func(r *rig, _, _ func()) {
			r.cfg.EpochRecords, r.cfg.MaxFailures = 10, 1
			lockstep(&r.cfg, nil)
			r.log.FailAt(0, r.log.End(0), errBoom)
			in := r.cfg.Hooks
			r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
				if p.Name == BeforeStep && p.Partition == 1 {
					return codes.New(codes.Internal, "injected")
				}
				return in.at(ctx, p)
			}
			r.cfg.MaxRecords = 60
		}, nil, 0, codes.Internal, time.Second, false},
		"killed": {func(r *rig, _, kill func()) {
			r.cfg.Hooks, _ = every(BeforeStep, 3, func(ctx context.Context) error { kill(); return hang(ctx) }) // or it may have ended before anybody looks
		}, nil, 0, codes.Interrupted, killGrace, true},
		"killed while it is made": {func(r *rig, _, kill func()) { time.AfterFunc(time.Minute, kill) },
			hangs, 1, nil, time.Minute, true},
		"it hangs in an interrupted run": {func(r *rig, stop, _ func()) { time.AfterFunc(1500*time.Millisecond, stop); r.endless() },
			hangs, 1, codes.Interrupted, 1500*time.Millisecond + saveGrace, false},
		"interrupted while it is made": {func(r *rig, stop, _ func()) { time.AfterFunc(time.Minute, stop) },
			hangs, 1, nil, time.Minute + saveGrace, false},
		"it fails":      {func(*rig, func(), func()) {}, func(context.Context, int) error { return errBoom }, 1, nil, 0, false},
		"it is fenced":  {func(*rig, func(), func()) {}, func(context.Context, int) error { return stale }, 1, nil, 0, true},
		"nobody fences": {func(r *rig, _, _ func()) { r.cfg.Fencing = nil }, nil, 0, codes.ConfigInvalid, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in)
				lease := r.fence("a")
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				die, kill := context.WithCancel(context.Background())
				defer kill()
				r.cfg.Kill = die
				k, told := r.keep(c.do)
				c.tune(r, stop, kill)
				began := time.Now()
				_, err := Run(ctx, r.cfg)
				if (c.code == nil) != (err == nil) || c.code != nil && !codes.Has(err, c.code) {
					t.Errorf("%v", err)
				}
				if d := time.Since(began); len(k.at) != c.made || d > c.took || d < c.took-time.Second {
					t.Errorf("%d checkpoints, ended after %v", len(k.at), d)
				}
				if c.code != codes.ConfigInvalid && r.lease().Valid != c.lost {
					t.Errorf("lease %+v, told %s", r.lease(), lease)
				}
				if name == "it is fenced" && (len(told.errs) != 0 || !strings.HasSuffix(lease.String(), "LOST/1")) {
					t.Errorf("told %+v, %s", told, lease)
				}
				synctest.Wait()
			})
		})
	}
}

// endless makes the log of a rig one without an end, with the same records.
func (r *rig) endless() {
	in := randomInput(seeded(r.t, 82), 2, 60)
	r.log = in.log(sourcetest.Config{})
	r.cfg.Source = r.log
}

func hangs(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }

// An owner that is interrupted gives the run to the one that stands by, which goes on where it ended.
func TestHandOverToAStandBy(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 83), 3, 300)
	want := plainLoop(t, plan, in, 7)
	for _, at := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a := newRig(t, plan, input{nil, nil, nil}, awake)
			a.cfg.FetchSize = 3
			a.fence("a")
			a.drip(in, 100*time.Millisecond)
			b := newRig(t, plan, nil, func(c *Config, _ *sourcetest.Config) { c.MaxRecords = int64(in.total()) })
			b.journal, b.cfg.Journal, b.log, b.cfg.Source = a.journal, a.journal, a.log, a.log
			told := b.fence("b")
			b.cfg.Fencing.Standby = true
			var first time.Time
			b.cfg.Hooks.At = func(_ context.Context, p Point) error {
				if p.Name == AfterRestore && first.IsZero() {
					first = time.Now()
				}
				return nil
			}
			var ended time.Time
			var epoch uint64
			ctx, stop := context.WithCancel(context.Background())
			time.AfterFunc(at, stop)
			done := make(chan struct{})
			go func() {
				defer close(done)
				result, err := Run(ctx, a.cfg)
				if !errors.Is(err, ErrInterrupted) || result.Epoch != a.journal.Epoch("run") {
					t.Errorf("%v at epoch %d", err, result.Epoch)
				}
				ended, epoch = time.Now(), result.Epoch
			}()
			synctest.Wait()
			watch := watchOrder(b, want)
			result, err := Run(t.Context(), b.cfg)
			<-done
			if err != nil {
				t.Fatalf("%v\n%s", err, b.logged)
			}
			b.compare(result, want)
			if d := first.Sub(ended); d < 0 || d > DefaultStandEvery {
				t.Errorf("the next owner began %v after the end of the one before", d)
			}
			if told.String() != "WAITING/1 ACQUIRED/2 RELEASED/2" || watch.epochs == 0 || result.Epoch <= epoch {
				t.Errorf("told %s, %d epochs", told, watch.epochs)
			}
		})
	}
}
