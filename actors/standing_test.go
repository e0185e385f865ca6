package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// at makes a hook that acts at a failpoint of one incarnation.
func at(name Failpoint, incarnation uint64, do func(ctx context.Context) error) Hooks {
	return Hooks{At: func(ctx context.Context, p Point) error {
		if p.Name == name && p.Incarnation == incarnation {
			return do(ctx)
		}
		return nil
	}}
}

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A run that is interrupted is a clean end only when what was processed is committed. While a failure stands, with no commit after it,
// that failure is the end, or a daemon whose store is gone would report that all is well.
func TestInterruptedWhileAFailureStands(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 50), 2, 40)
	want := plainLoop(t, plan, in, 7)
	hour := Backoff{Min: time.Hour, Max: time.Hour}
	for name, c := range map[string]struct {
		tune func(r *rig)
		// after is when the run is interrupted. The first cut is made after a second.
		after time.Duration
		// code of the end, or nil when it is clean.
		code  *codes.Code
		epoch uint64
	}{
		"a commit failed, during the back-off": {func(r *rig) {
			r.cfg.Backoff = hour
			r.journal.Inject(controltest.FailCommit(1))
		}, time.Minute, codes.StoreUnavailable, 0},
		"a commit failed, while opening again": {func(r *rig) {
			r.journal.Inject(controltest.FailCommit(1))
			r.cfg.Hooks = at(BeforeOpen, 2, hang)
		}, time.Minute, codes.StoreUnavailable, 0},
		"a commit failed, before the source gave the records again": {func(r *rig) {
			r.journal.Inject(controltest.FailCommit(1))
			r.cfg.Hooks = at(AfterPoll, 2, hang)
		}, time.Minute, codes.StoreUnavailable, 0},
		"the last commit fails": {func(r *rig) {
			r.journal.Inject(controltest.FailCommit(1))
		}, 500 * time.Millisecond, codes.StoreUnavailable, 0},
		"an actor panicked, during the back-off": {func(r *rig) {
			r.cfg.Backoff = hour
			r.cfg.Hooks = at(AfterStep, 1, func(context.Context) error { panic("boom") })
		}, time.Minute, codes.Internal, 0},
		"a commit failed, and the next stands": {func(r *rig) {
			r.journal.Inject(controltest.FailCommit(1))
		}, time.Minute, nil, 1},
		"the answer was lost, and the commit stands": {func(r *rig) {
			r.cfg.Backoff = hour
			r.journal.Inject(controltest.LoseAnswer(1))
		}, time.Minute, nil, 1},
		"the answer to the last commit is lost, and it stands": {func(r *rig) {
			r.journal.Inject(controltest.LoseAnswer(1))
		}, 500 * time.Millisecond, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, func(_ *Config, s *sourcetest.Config) { s.Bounded = false })
				backoff := r.cfg.Backoff
				c.tune(r)
				ctx, cancel := context.WithTimeout(context.Background(), c.after)
				defer cancel()
				result, err := Run(ctx, r.cfg)
				r.settled(result)
				if c.code == nil && !errors.Is(err, ErrInterrupted) {
					t.Errorf("%v, want a clean end", err)
				}
				if c.code != nil && (errors.Is(err, ErrInterrupted) || !codes.Has(err, c.code) || !strings.Contains(err.Error(), "interrupted")) {
					t.Errorf("%v, want %s that says that the run was interrupted", err, c.code.Name)
				}
				if len(result.Failures) != 1 || result.Epoch != c.epoch || r.journal.Epoch("run") != c.epoch || result.Status != control.RunOpen {
					t.Errorf("failures %v, epoch %d, in the journal %d", result.Failures, result.Epoch, r.journal.Epoch("run"))
				}
				// What stands can be gone on from.
				r.cfg.Hooks, r.cfg.Backoff, r.cfg.MaxRecords = Hooks{}, backoff, int64(in.total())
				r.finish(want)
			})
		})
	}
}

// The source of an idle run failed and came back: nothing was lost, there is nothing to commit, and the end is clean.
func TestInterruptedAfterAnIdleSourceCameBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), input{nil}, func(_ *Config, s *sourcetest.Config) { s.Bounded = false })
		r.log.AnswerEmpty()
		r.cfg.Hooks = at(AfterPoll, 1, func(context.Context) error { return codes.New(codes.SourceFailure, "injected") })
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		result, err := Run(ctx, r.cfg)
		if !errors.Is(err, ErrInterrupted) || len(result.Failures) != 1 || result.Incarnations != 2 {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

// A source that fails again and again between two commits does not end the run as long as each time more is read than ever before.
func TestSourceFailuresWithoutACommitBetweenThem(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 51), 1, 40)
	want := plainLoop(t, plan, in, 7)
	passing := codes.New(codes.SourceFailure, "injected")
	rare := func(c *Config, _ *sourcetest.Config) { c.FetchSize, c.MaxFailures, c.EpochEvery = 1, 3, time.Hour }
	t.Run("further each time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, rare)
			for n := range in[0] {
				r.log.FailAt(0, record.Offset(int64(n)), passing)
			}
			if result := r.finish(want); result.Incarnations != len(in[0])+1 || result.Epoch != 1 {
				t.Errorf("%d incarnations, epoch %d", result.Incarnations, result.Epoch)
			}
		})
	})
	t.Run("at one record", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, rare)
			for range 10 {
				r.log.FailAt(0, record.Offset(20), passing)
			}
			result, err := r.run()
			if !codes.Has(err, codes.SourceFailure) || !strings.Contains(err.Error(), "run/reader failed 3 times") || result.Incarnations != 3 {
				t.Errorf("%v after %d incarnations", err, result.Incarnations)
			}
		})
	})
	t.Run("less far each time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, rare)
			opens := int64(0)
			r.cfg.Hooks.At = func(_ context.Context, p Point) error {
				if p.Name == AfterRestore {
					opens++
					r.log.FailAt(0, record.Offset(30-opens), passing)
				}
				return nil
			}
			result, err := r.run()
			if !codes.Has(err, codes.SourceFailure) || result.Incarnations != 3 {
				t.Errorf("%v after %d incarnations", err, result.Incarnations)
			}
		})
	})
	t.Run("while nothing can be committed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, rare)
			r.cfg.EpochRecords = 5
			// In turns the source fails first, further than ever before, and the commit of what was read.
			r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
				second := []Failpoint{BeforeCommit, AfterPoll}[p.Incarnation%2]
				if p.Name == second {
					select {
					case <-time.After(time.Microsecond):
					case <-ctx.Done():
					}
				}
				if p.Name == BeforeCommit {
					return codes.New(codes.StoreUnavailable, "injected")
				}
				return nil
			}
			for n := range in[0] {
				r.log.FailAt(0, record.Offset(int64(n)), passing)
			}
			result, err := r.run()
			if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "run/coordinator failed 3 times") || result.Epoch != 0 || result.Incarnations != 11 {
				t.Errorf("%v, epoch %d, %d incarnations", err, result.Epoch, result.Incarnations)
			}
		})
	})
}

// The error that Run returns is its caller's to report: the log has it as information only, a failure that is tried again as a warning.
func TestTheEndOfARunIsNotLoggedAsAnError(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 52), 1, 40)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.cfg.UntilRecords = 20
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		r.cfg.UntilRecords, r.cfg.MaxRecords = 0, 10
		if _, err := r.run(); !codes.Has(err, codes.RunMismatch) {
			t.Errorf("fewer than there are: %v", err)
		}
		r.cfg.MaxRecords = 0
		r.log.FailOpen(errBoom)
		r.finish(plainLoop(t, plan, in, 7))
		if _, err := r.run(); !codes.Has(err, codes.RunFinished) {
			t.Errorf("a finished run: %v", err)
		}
		logged := r.logged.String()
		if n := strings.Count(logged, `level=INFO msg="failed; the run ends"`); n != 2 || strings.Contains(logged, "level=ERROR") ||
			strings.Count(logged, "level=WARN") != 1 {
			t.Errorf("%d ends in the log:\n%s", n, logged)
		}
	})
}
