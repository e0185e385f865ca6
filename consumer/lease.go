package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// acquire takes the lease of the run, or waits for it.
func (w *worker) acquire(ctx context.Context) (control.Lease, error) {
	for failures := 0; ; {
		l, err := w.cfg.Store.Acquire(ctx, control.StreamLease(w.runID), w.cfg.Owner, w.cfg.TTL)
		wait := w.cfg.StandEvery
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return l, ctx.Err()
		case codes.Has(err, codes.LeaseHeld) && !w.standby:
			return l, codes.New(codes.StreamLeaseHeld, "run %q has an owner: %w", w.runID, err)
		case codes.Has(err, codes.LeaseHeld):
			failures = 0
		case !retryable(err) || failures >= maxFailures:
			return l, err
		default:
			failures++
			wait = w.cfg.delay(restarting, failures)
		}
		if !pause(ctx, wait) {
			return l, ctx.Err()
		}
	}
}

// keep renews the lease every third of its ttl, apart from everything else, and ends the worker when it is lost or has run out by our own clock.
func (w *worker) keep(ctx context.Context) {
	tick := time.NewTicker(max(w.cfg.TTL/3, 1))
	defer tick.Stop()
	deadline := time.NewTimer(time.Until(w.held().Deadline))
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			w.lost(codes.New(codes.StaleFence, "the lease %q could not be renewed in time", control.StreamLease(w.runID)))
			return
		case <-tick.C:
		}
		l := w.held()
		// A store that does not answer must not keep the deadline from being noticed.
		within, cancel := context.WithDeadline(ctx, l.Deadline)
		renewed, err := w.cfg.Store.Renew(within, l)
		cancel()
		switch {
		case err == nil:
			w.mu.Lock()
			w.lease = renewed
			w.mu.Unlock()
			deadline.Reset(time.Until(renewed.Deadline))
		case codes.Has(err, codes.StaleFence):
			w.lost(err)
			return
		case ctx.Err() == nil:
			w.log.Warn("the lease was not renewed; it is tried again", "run", w.runID, "until", l.Until, "cause", err.Error())
		}
		w.alarm()
	}
}

func (w *worker) held() control.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease
}

// lost ends the worker: nothing is written any more.
func (w *worker) lost(cause error) {
	err := codes.New(codes.StreamFenceStale, "run %q is no longer ours; it stands at epoch %d as far as this owner knows, and nothing was committed after the lease was lost: %w", w.runID, w.epoch.Load(), cause)
	w.log.Warn("the lease is lost", "run", w.runID, "cause", cause.Error())
	w.end(err)
}

// alarm tells of partitions that one record has held for too long.
func (w *worker) alarm() {
	w.mu.Lock()
	defer w.unlock()
	for _, p := range w.parts {
		if at, has := p.settler.Oldest(); has && !p.told && at == p.heldAt && time.Since(p.heldSince) >= w.cfg.HeldAlarm {
			p.told = true
			w.log.Error("one undone record holds its partition; before the log drops what is behind it, it has to end", "run", w.runID, "partition", p.n, "position", at.String(),
				"since", p.heldSince.UTC(), "in_flight", p.settler.InFlight())
			w.tell(Held{RunID: w.runID, Partition: p.n, Position: at, Since: p.heldSince})
		}
	}
}

// pause waits; false when ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// restarting is the pause after a failure of the source or the store.
var restarting = Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.5}

// maxFailures is how often in a row something that passes may fail at the start.
const maxFailures = 10

func retryable(err error) bool {
	c := codes.Of(err)
	return c != nil && c.Verdict == codes.Retry && !control.Refused(err)
}

func internal(format string, args ...any) error { return codes.New(codes.Internal, format, args...) }

// ended is the error with which a context ended, unless that is only the end of a context.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
