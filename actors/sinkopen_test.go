package actors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// downFor makes a target that is down for so long from now on.
func (s *shelf) downFor(outage time.Duration) {
	began := time.Now()
	s.at = func(string) error {
		if time.Since(began) < outage {
			return codes.New(codes.SinkUnavailable, "down")
		}
		return nil
	}
}

// A target that is down when the run starts, or starts again after a failure, is waited for as one that goes down later: with the lease, in one incarnation, and
// nothing is read before it is back.
func TestASinkThatIsDownAtTheStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 27), 2, 60)
	want := plainLoop(t, plan, in, 7)
	const outage = 10 * time.Minute
	for name, c := range map[string]struct{ late, again bool }{"start": {}, "late events": {late: true}, "restart": {again: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, small, lockstep)
				told := r.fence("me")
				target, began := newShelf(), time.Now()
				p := publisher(target)
				if r.cfg.Publisher = p; c.late {
					r.cfg.Publisher, r.cfg.Late = nil, p
				}
				var states []sinks.State
				p.OnState = func(s sinks.State) {
					states = append(states, s)
					if s.Err != nil && !c.again && (r.log.Opened() != 0 || r.journal.Epoch("run") != 0) {
						t.Error("something is read or committed while the target is down")
					}
				}
				incarnations := 1
				if c.again {
					incarnations = 2
					// Epochs that are due while one is committed become one, so only the first and the last are sure to come.
					r.cfg.Hooks, _ = every(BeforeCommit, 2, func(context.Context) error { target.downFor(outage); return errBoom })
				} else {
					target.downFor(outage)
				}
				result := r.finish(want)
				if !c.late {
					target.holds(t, want)
				}
				if took := time.Since(began); took < outage || took > outage+time.Minute || result.Incarnations != incarnations || len(result.Failures) != incarnations-1 {
					t.Errorf("it took %v, with %d incarnations and failures %v", took, result.Incarnations, result.Failures)
				}
				if n := len(states); n < 20 || states[n-1].Err != nil {
					t.Errorf("%d states", n)
				}
				if got := told.String(); got != "ACQUIRED/1 RELEASED/1" {
					t.Errorf("the lease was not kept: %v", got)
				}
			})
		})
	}
}

// Who waits for a target at the start can be told to stop: nothing is read, the lease is given back, and the next start goes on.
func TestWaitingForASinkCanBeStopped(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 28), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		told := r.fence("me")
		target := newShelf()
		target.downFor(24 * time.Hour)
		r.cfg.Publisher = publisher(target)
		stop := r.start()
		<-time.After(time.Hour)
		began := time.Now()
		if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Epoch != 0 || r.log.Opened() != 0 {
			t.Errorf("%v at epoch %d, the log was opened %d times", err, result.Epoch, r.log.Opened())
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("stopping took %v", took)
		}
		if got := told.String(); got != "ACQUIRED/1 RELEASED/1" {
			t.Errorf("the lease was not kept and given back: %v", got)
		}
		target.at = func(string) error { return nil }
		r.finish(want)
		target.holds(t, want)
	})
	// One that refuses ends the run at once.
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		target, began := newShelf(), time.Now()
		refused := codes.New(codes.SinkInvalid, "no")
		target.at = func(string) error { return refused }
		r.cfg.Publisher = publisher(target)
		if result, err := r.run(); !errors.Is(err, refused) || result.Incarnations != 1 || time.Since(began) != 0 {
			t.Errorf("%v after %v and %d incarnations", err, time.Since(began), result.Incarnations)
		}
	})
}
