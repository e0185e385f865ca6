package handoff

import (
	"context"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Hold is a lease that is renewed every third of its ttl until it is released.
type Hold struct {
	leases control.Leases
	stop   context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	lease control.Lease
}

// Acquire takes the lease of a run and keeps it. The context that it returns ends, with STREAM_FENCE_OBSOLETO as its cause, when the lease is
// lost. When another owner has it, it asks again every so often, or, with standEvery 0, is STREAM_LEASE_OCUPADO.
func Acquire(ctx context.Context, leases control.Leases, runID, owner string, ttl, standEvery time.Duration) (*Hold, context.Context, error) {
	l, err := stand(ctx, leases, runID, owner, ttl, standEvery)
	if codes.Has(err, codes.LeaseHeld) {
		return nil, ctx, codes.New(codes.StreamLeaseHeld, "run %q has an owner: %w", runID, err)
	}
	if err != nil {
		return nil, ctx, err
	}
	work, lost := context.WithCancelCause(ctx)
	// It is renewed while the work is told to end too: what the work still has to write needs it.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &Hold{leases: leases, stop: stop, done: make(chan struct{}), lease: l}
	go h.renew(renewing, lost)
	return h, work, nil
}

// stand asks for the lease until it is free.
func stand(ctx context.Context, leases control.Leases, runID, owner string, ttl, every time.Duration) (control.Lease, error) {
	for {
		l, err := leases.Acquire(ctx, control.StreamLease(runID), owner, ttl)
		switch {
		case err != nil && ctx.Err() != nil:
			return l, context.Cause(ctx)
		case every == 0 || !codes.Has(err, codes.LeaseHeld):
			return l, err
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return l, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// Lease as it stands.
func (h *Hold) Lease() control.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

func (h *Hold) renew(ctx context.Context, lost context.CancelCauseFunc) {
	defer close(h.done)
	l := h.Lease()
	every := max(l.TTL/3, time.Millisecond)
	// Whatever a call to the store waits for, the work ends at the deadline.
	deadline := time.AfterFunc(time.Until(l.Deadline), func() {
		lost(codes.New(codes.StreamFenceStale, "a lease of the run was not renewed before its deadline; what was not committed is not there"))
	})
	defer deadline.Stop()
	for pause := every; ; {
		timer := time.NewTimer(min(pause, time.Until(l.Deadline)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		within, cancel := context.WithDeadline(ctx, l.Deadline)
		next, err := h.leases.Renew(within, l)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && time.Now().Before(next.Deadline):
			l, pause = next, every
			deadline.Reset(time.Until(l.Deadline))
			h.mu.Lock()
			h.lease = l
			h.mu.Unlock()
		case err == nil || control.Refused(err) || !time.Now().Before(l.Deadline):
			lost(codes.New(codes.StreamFenceStale, "the lease %q under token %d was not renewed in time (%v); what was not committed is not there", l.Name, l.Token, err))
			return
		default:
			pause = max(every/4, time.Millisecond) // the store does not answer, and the deadline does not wait
		}
	}
}

// Release gives the lease back, so that the next owner need not wait. What goes wrong is left to the expiry.
func (h *Hold) Release(ctx context.Context) error {
	h.stop()
	<-h.done
	return h.leases.Release(ctx, h.Lease())
}
