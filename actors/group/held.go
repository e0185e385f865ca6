package group

import (
	"context"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// releaseTimeout bounds giving back the lease of an engine that was stopped at once. What is not given back runs out.
const releaseTimeout = 500 * time.Millisecond

// held remembers the lease of one engine. An engine that is stopped at once leaves its lease to run out; once it has stopped, giving it back
// spares the next owner the wait. That is safe even if a write of it is still under way: a take-over waits for it, and no later one is accepted.
type held struct {
	control.Leases

	mu    sync.Mutex
	lease control.Lease
	have  bool
}

// Acquire is control.Leases'.
func (h *held) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	l, err := h.Leases.Acquire(ctx, name, owner, ttl)
	h.note(l, err)
	return l, err
}

// Renew is control.Leases'.
func (h *held) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	l, err := h.Leases.Renew(ctx, l)
	h.note(l, err)
	return l, err
}

// Release is control.Leases'.
func (h *held) Release(ctx context.Context, l control.Lease) error {
	err := h.Leases.Release(ctx, l)
	if err == nil {
		h.mu.Lock()
		h.have = false
		h.mu.Unlock()
	}
	return err
}

func (h *held) note(l control.Lease, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.lease, h.have = l, true
	case codes.Has(err, codes.StaleFence):
		h.have = false
	}
}

// giveBack ends the term if there is one. What goes wrong is left to the expiry.
func (h *held) giveBack() {
	h.mu.Lock()
	l, have := h.lease, h.have
	h.have = false
	h.mu.Unlock()
	if !have {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = h.Leases.Release(ctx, l)
}
