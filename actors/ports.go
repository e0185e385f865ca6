package actors

import (
	"context"
	"time"

	"github.com/weirstream/weir/control"
)

// Defaults of a Fencing.
const (
	DefaultTTL        = 15 * time.Second
	DefaultStandEvery = 200 * time.Millisecond
)

// Fencing makes a run the property of one owner at a time: the lease is taken before anything is opened, renewed every third of its ttl apart
// from the data path, and every effect runs under it. The journal has to be a control.Fencer.
type Fencing struct {
	Leases control.Leases
	// Owner is unique to this incarnation of the process. Defaults to control.NewOwner().
	Owner string
	// TTL of the lease. Defaults to 15 s.
	TTL time.Duration
	// Standby waits while another owner holds the lease, asking every StandEvery (defaults to 200 ms), instead of ending with
	// STREAM_LEASE_OCUPADO.
	Standby    bool
	StandEvery time.Duration
	// OnLease is told what happens to the lease. It is called in an actor and must not block.
	OnLease func(LeaseEvent)
}

func (f *Fencing) validate(j control.Journal, check func(bad bool, format string, args ...any)) {
	if f == nil {
		return
	}
	_, fenced := j.(control.Fencer)
	check(f.Leases == nil, "Fencing has no store of leases.")
	check(j != nil && !fenced, "The journal cannot write under a lease: use a store that can, or leave Fencing out.")
	check(f.TTL < 0 || f.StandEvery < 0, "The lease's ttl is %v, asked for every %v by a stand-by. Both must be 0 (the defaults) or more.", f.TTL, f.StandEvery)
}

func (f *Fencing) withDefaults() *Fencing {
	if f == nil {
		return nil
	}
	out := *f
	orDefault(&out.TTL, DefaultTTL)
	orDefault(&out.StandEvery, DefaultStandEvery)
	if out.Owner == "" {
		out.Owner = control.NewOwner()
	}
	return &out
}

// LeaseChange is what happened to a lease.
type LeaseChange string

// The changes.
const (
	LeaseWaiting  LeaseChange = "WAITING"  // another owner holds it, and we stand by
	LeaseAcquired LeaseChange = "ACQUIRED" // ours, under Token
	LeaseLost     LeaseChange = "LOST"     // no longer ours: we step down
	LeaseReleased LeaseChange = "RELEASED" // given back
)

// LeaseEvent tells of a change. Holder is the other owner when we wait, as far as the store said.
type LeaseEvent struct {
	Change LeaseChange
	Lease  control.Lease
	Cause  error
}

// Checkpointer makes a retained checkpoint of what the journal holds now, and returns its pointer. It is called after a commit, in a goroutine,
// one call at a time; commits go on meanwhile.
type Checkpointer interface {
	Save(ctx context.Context, l control.Lease, runID string) (control.Pointer, error)
}
