package control

import (
	"context"
	"time"
)

// FenceToken numbers the terms of a lease. It only grows: a take-over adds one, a renewal leaves it.
type FenceToken uint64

// Lease is the right to act under a name until a time: what its holder knows of it.
type Lease struct {
	Name, Owner string
	Token       FenceToken
	// Until is the expiry by the store's clock, for people. Deadline is the holder's own: when the call that gave the lease was sent
	// plus the ttl, on the holder's monotonic clock. The holder must not act past Deadline whatever Until says: an answer may come late.
	Until, Deadline time.Time
	TTL             time.Duration
}

// LeaseInfo is one line of a listing.
type LeaseInfo struct {
	Name, Owner string
	Token       FenceToken
	Until       time.Time
	// Valid is judged by the store's clock.
	Valid bool
}

// Leases is the port of leases.
//
//	lease row              Acquire by me           token
//	none                   created                 1
//	valid, another owner   error LEASE_HELD        same
//	valid, mine            renewed                 same
//	expired (anyone's)     taken over              +1
//
// Times are compared as timestamps, by the store's clock, after the row is locked. An owner id is unique per process incarnation
// (NewOwner); a released lease counts as expired.
type Leases interface {
	// Acquire fails with LeaseHeld, which names the holder and the expiry. A take-over waits for an effect that runs under the old
	// term (bounded by the store's time-outs) and never the other way round.
	Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error)
	// Renew extends a valid lease of this owner and token. Anything else is StaleFence: a heartbeat never revives an expired lease.
	// It never waits for an effect that runs under the same lease.
	Renew(ctx context.Context, l Lease) (Lease, error)
	// Release ends the term at once, so that the next owner need not wait. StaleFence when it is no longer ours.
	Release(ctx context.Context, l Lease) error
	// ListLeases lists leases by name; LookupLease finds one (ok false when there is none).
	ListLeases(ctx context.Context) ([]LeaseInfo, error)
	LookupLease(ctx context.Context, name string) (info LeaseInfo, ok bool, err error)
}
