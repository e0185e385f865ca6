package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

// TestTheWorkEndsInTime: at the first renewal that is refused, at once; when none gets through, at the deadline, whatever the call waits for.
func TestTheWorkEndsInTime(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, c := range map[string]struct {
		renew func(ctx context.Context, n int64) error
		after time.Duration
	}{
		"refused at once": {func(context.Context, int64) error { return codes.New(codes.StaleFence, "injected") }, ttl / 3},
		"refused later": {func(_ context.Context, n int64) error {
			if n < 3 {
				return nil
			}
			return codes.New(codes.StaleFence, "injected")
		}, ttl},
		"away":      {func(context.Context, int64) error { return errAway }, ttl},
		"no answer": {func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }, ttl},
		"deaf":      {func(context.Context, int64) error { <-time.After(time.Hour); return errAway }, ttl},
		"away after one": {func(_ context.Context, n int64) error {
			if n < 2 {
				return nil
			}
			return errAway
		}, ttl/3 + ttl},
		"away for a while": {func(_ context.Context, n int64) error {
			if n == 1 || n == 2 {
				return errAway
			}
			if n > 3 {
				return codes.New(codes.StaleFence, "injected")
			}
			return nil
		}, ttl/3 + 2*(ttl/12) + ttl/3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newIntercept()
				var n atomic.Int64
				s.on(func(ctx context.Context, op string) error {
					if op == "renew" {
						return c.renew(ctx, n.Add(1))
					}
					return nil
				}, nil)
				began := time.Now()
				l, err := s.Acquire(t.Context(), "run/x", "me", ttl)
				if err != nil {
					t.Fatal(err)
				}
				h, work := keep(t.Context(), s, l)
				<-work.Done()
				if took := time.Since(began); took != c.after {
					t.Errorf("the work ends after %s, want %s", took, c.after)
				}
				if err := context.Cause(work); !codes.Has(err, codes.StaleFence) || !errors.Is(err, errLost) {
					t.Errorf("%v", err)
				}
				h.end()
			})
		})
	}
}

// TestAWriteThatArrivesLate: the first try is answered with a failure, is not there when it is looked for, and comes through before the second one,
// which is refused. The run has ended as it should.
func TestAWriteThatArrivesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &late{Store: controltest.NewMemory()}
		p := newPlace(t, s)
		id := p.submit("a")
		if o := p.once(p.config()); o.Kind != Succeeded || s.tries != 2 {
			t.Errorf("%+v after %d tries", o, s.tries)
		}
		p.succeeded(id)
		p.ended()
	})
}

// late holds the first write of a result back until the second comes.
type late struct {
	Store
	tries int
	held  []control.Effect
}

func (s *late) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	if len(effects) < 3 {
		return s.Store.Fenced(ctx, l, effects...)
	}
	if s.tries++; s.tries == 1 {
		s.held = effects
		return errAway
	}
	if err := s.Store.Fenced(ctx, l, s.held...); err != nil {
		return fmt.Errorf("the late write fails: %w", err)
	}
	return s.Store.Fenced(ctx, l, effects...)
}

// TestAQueueIsNotHoarded: what a worker has claimed and not begun by half the age of abandoned claims is anybody's again.
func TestAQueueIsNotHoarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, controltest.NewMemory())
		for i := range 8 {
			p.submit(fmt.Sprint(i))
		}
		cfg := p.config()
		n := 0
		cfg.step = at("computed", func() error {
			if n++; n == 2 {
				<-time.After(time.Minute)
			}
			return nil
		})
		w := begin(t.Context(), cfg)
		claimed := func() (n int) {
			for _, e := range p.pending() {
				if e.Claimant != "" {
					n++
				}
			}
			return n
		}
		<-time.After(2 * time.Second)
		if got := claimed(); got != 7 {
			t.Errorf("%d of 7 events are claimed", got)
		}
		<-time.After(1500 * time.Millisecond) // StaleClaims is 6 s
		if got := claimed(); got != 1 {
			t.Errorf("%d events are claimed, want that of the run in hand alone", got)
		}
		<-time.After(5 * time.Minute)
		if report, err := w.end(); err != nil || report.Ended[Succeeded] != 8 {
			t.Errorf("%+v, %v", report, err)
		}
		p.ended()
	})
}

// TestAnEventThatComesBack: a worker waits so long for a lease that its claim is taken for abandoned and comes back to itself. The run is in
// hand and is not begun twice, although the lease would not stand in the way of its own holder.
func TestAnEventThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newIntercept()
		p := newPlace(t, s)
		id := p.submit("a")
		var acquired, claims atomic.Int64
		s.on(func(_ context.Context, op string) error {
			if op == "acquire" && acquired.Add(1) == 1 {
				<-time.After(20 * time.Second)
			}
			return nil
		}, nil)
		cfg := p.config()
		cfg.Concurrency = 3
		cfg.step = at("computed", func() error { claims.Add(1); return nil })
		w := begin(t.Context(), cfg)
		<-time.After(15 * time.Second)
		if events := p.pending(); len(events) != 1 || events[0].Attempt < 2 {
			t.Errorf("the event did not come back: %+v", events)
		}
		<-time.After(time.Minute)
		report, err := w.end()
		if err != nil || acquired.Load() != 1 || claims.Load() != 1 || report.Ended[Succeeded] != 1 {
			t.Errorf("%d leases, %d computations, %+v, %v", acquired.Load(), claims.Load(), report, err)
		}
		p.succeeded(id)
		p.ended()
	})
}

// TestAnAnswerThatIsCutOff: the time to drain is over while the answer to the last write is awaited. It stands, and the worker says so.
func TestAnAnswerThatIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newIntercept()
		p := newPlace(t, s)
		id := p.submit("a")
		cfg := p.config()
		cfg.Drain = time.Second
		written := make(chan struct{})
		s.on(nil, func(ctx context.Context, op string) error {
			if op != "succeed" {
				return nil
			}
			close(written)
			<-ctx.Done()
			return ctx.Err()
		})
		w := begin(t.Context(), cfg)
		<-written
		if report, err := w.end(); err != nil || report.Ended[Succeeded] != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		p.succeeded(id)
		p.ended()
	})
}
