package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// errLost is the cause of a computation that ends because its lease is not held any more.
var errLost = errors.New("the lease was lost")

// hold keeps a lease: it is renewed every ttl/3, by a goroutine that waits for nothing else. The first renewal that is refused, or the
// deadline when none comes through, ends the context of the work.
type hold struct {
	leases control.Leases
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // ends the renewals
	done   chan struct{}

	mu    sync.Mutex
	lease control.Lease
}

// keep starts to renew a lease that was just acquired. The context is that of the work under it.
func keep(ctx context.Context, leases control.Leases, l control.Lease) (*hold, context.Context) {
	work, cancel := context.WithCancelCause(ctx)
	// Renewing goes on while the work is told to end: what it still has to write needs the lease.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &hold{leases: leases, cancel: cancel, stop: stop, done: make(chan struct{}), lease: l}
	go h.run(renewing)
	return h, work
}

// Lease is the lease as it stands.
func (h *hold) Lease() control.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

func (h *hold) run(ctx context.Context) {
	defer close(h.done)
	l := h.Lease()
	every := max(l.TTL/3, time.Millisecond)
	timer := time.NewTimer(every)
	defer timer.Stop()
	// Whatever a call to the store waits for, the work ends at the deadline.
	deadline := time.AfterFunc(time.Until(l.Deadline), func() {
		h.cancel(codes.New(codes.StaleFence, "%w: it was not renewed before its deadline", errLost))
	})
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, err := h.renew(ctx, l)
		switch {
		case err == nil:
			l = next
			h.mu.Lock()
			h.lease = l
			h.mu.Unlock()
			deadline.Reset(time.Until(l.Deadline))
			timer.Reset(every)
		case ctx.Err() != nil:
			return
		case control.Refused(err) || !time.Now().Before(l.Deadline):
			h.cancel(codes.New(codes.StaleFence, "%w: %s", errLost, err))
			return
		default:
			// The store does not answer. Try sooner: the deadline does not wait.
			timer.Reset(max(every/4, time.Millisecond))
		}
	}
}

// renew asks until the deadline at most; an answer that comes later than that is worth nothing.
func (h *hold) renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	ctx, cancel := context.WithDeadline(ctx, l.Deadline)
	defer cancel()
	next, err := h.leases.Renew(ctx, l)
	if err == nil && !time.Now().Before(next.Deadline) {
		return next, codes.New(codes.StaleFence, "lease %q: the answer to a renewal came after its deadline", l.Name)
	}
	return next, err
}

// end stops renewing; the lease stays as it is.
func (h *hold) end() {
	h.stop()
	<-h.done
	h.cancel(nil)
}

// release ends the term, so that the next owner need not wait. What goes wrong is left to the expiry.
func (h *hold) release(ctx context.Context) error {
	h.end()
	return h.leases.Release(ctx, h.Lease())
}
