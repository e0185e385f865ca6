package checkpoint

import (
	"context"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// DefaultTTL is that of leases that commands take.
const DefaultTTL = 15 * time.Second

// Hold takes a lease, keeps it renewed every third of its ttl while fn runs, and gives it back. The context of fn ends when a renewal is refused;
// the error is then that refusal, StaleFence. LeaseHeld when another owner has the lease. A ttl of 0 is DefaultTTL.
func Hold(ctx context.Context, leases control.Leases, name, owner string, ttl time.Duration, fn func(ctx context.Context, l control.Lease) error) error {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	l, err := leases.Acquire(ctx, name, owner, ttl)
	if err != nil {
		return err
	}
	inside, lost := context.WithCancelCause(ctx)
	last := &renewed{lease: l}
	var beat sync.WaitGroup
	beat.Go(func() { last.keep(inside, leases, lost) })
	err = fn(inside, l)
	if cause := context.Cause(inside); err != nil && codes.Has(cause, codes.StaleFence) {
		err = cause
	}
	lost(nil)
	beat.Wait()
	// Giving back is a courtesy: whoever comes next need not wait. A lease that cannot be given back ends by itself.
	_ = leases.Release(context.WithoutCancel(ctx), last.lease)
	return err
}

type renewed struct{ lease control.Lease }

// keep renews until the context ends, or ends it when a renewal is refused or the lease has run out by our own clock.
func (r *renewed) keep(ctx context.Context, leases control.Leases, lost context.CancelCauseFunc) {
	tick := time.NewTicker(r.lease.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l, err := leases.Renew(ctx, r.lease)
		switch {
		case err == nil:
			r.lease = l
		case codes.Has(err, codes.StaleFence):
			lost(err)
			return
		case time.Now().After(r.lease.Deadline):
			lost(codes.New(codes.StaleFence, "the lease %q could not be renewed in time: %w", r.lease.Name, err))
			return
		}
	}
}
