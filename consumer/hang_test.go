package consumer

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/control"
)

// Somebody who waits for the draining is told of the last handler's end, although the reader waits for the same until it notices that it is to stop.
func TestTheLastHandlerIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		world := newWorld(t, 1, true)
		cfg := world.config(nil).withDefaults()
		for range 50 {
			w := newWorker(&cfg, "r", world.log, false)
			w.base, w.end = context.WithCancelCause(t.Context())
			w.addPart(0, control.RunState{})
			w.parts[0].running = 1
			ctx, cancel := context.WithCancel(w.base)
			var reading sync.WaitGroup
			reading.Go(func() { _ = w.readAll(ctx) })
			synctest.Wait() // the reader waits for something to change
			w.mu.Lock()
			w.look() // it has that now, and looks as soon as it gets the lock
			for range 200 {
				runtime.Gosched() // one that has not run by then notices its end first, and leaves the same behind
			}
			cancel()
			w.look()
			w.mu.Unlock()
			reading.Wait()
			if len(w.changed) != 1 {
				t.Fatal("the reader has taken what was meant for the draining")
			}
			w.end(nil)
		}
	})
}

// A rewind while everything of a log with an end was read, and a copy still waits: the records are read again, and the run ends with all of them. It would
// have hung, or have called the log done without them.
func TestRewindAtTheEndOfTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, true)
		w.put(0, 0, 4)
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if string(d.Value) == "0:1" && w.times("0:1#1") == 1 {
				return RetryAfter(time.Hour, "later")
			}
			return Ack()
		})
		cfg.Retry = w.back()
		c := w.consumer(cfg)
		stop := w.start(c)
		after(time.Minute)
		w.want("committed", w.committed("r"), "0=1")
		wantNil(t, c.Rewind(0))
		after(time.Minute)
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:1#1 0:2#1 0:2#1 0:3#1 0:3#1")
		w.want("committed", w.committed("r"), "0=4")
		r, err := stop()
		wantNil(t, err)
		if r.Counts.Consumed != 4 || len(w.copies) != 0 {
			t.Errorf("%+v, %d copies", r.Counts, len(w.copies))
		}
		state, err := w.store.Runs(t.Context())
		if err != nil || len(state) != 1 || state[0].Status != control.RunFinished {
			t.Errorf("%+v, %v", state, err)
		}
		w.released()
	})
}

// Once everything was read, nothing can be rewound: nobody would read it again, and the run would be finished without it.
func TestNothingIsRewoundAfterTheEnd(t *testing.T) {
	t.Parallel()
	cfg := Config{Store: newWorld(t, 1, true).store}.withDefaults()
	w := newWorker(&cfg, "r", nil, false)
	w.base, w.end = context.WithCancelCause(t.Context())
	w.addPart(0, control.RunState{})
	if err := w.rewind(0); err != nil || w.exhausted(0) {
		t.Errorf("what was rewound is not read again: %v", err)
	}
	w.reopen = false
	if !w.exhausted(0) {
		t.Error("the end is not the end")
	}
	if err := w.rewind(0); !errors.Is(err, ErrRevoked) {
		t.Errorf("rewound at the end: %v", err)
	}
}

// A partition whose handler was abandoned is not worked on before its lease has run out, by this process neither.
func TestAnAbandonedHandlerKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 1)
		stuck := make(chan struct{})
		a, first := newHand(), true
		cfg := w.config(func(context.Context, Delivery) Outcome {
			if first {
				first = false
				<-stuck
			}
			return Ack()
		})
		cfg.Assigner, cfg.TTL, cfg.Drain, cfg.Abandon = a, time.Minute, time.Second, time.Second
		stop := w.start(w.consumer(cfg))
		a.assign(0)
		synctest.Wait()
		a.h.Revoked(t.Context(), []int32{0})
		a.assign(0)
		after(30 * time.Second)
		w.want("handled while the lease lasts", w.seen(), "0:0#1")
		after(time.Minute)
		w.want("handled later", w.seen(), "0:0#1 0:0#1")
		close(stuck)
		_, err := stop()
		wantNil(t, err)
		w.want("committed", w.committed("r/0"), "0=1")
	})
}
