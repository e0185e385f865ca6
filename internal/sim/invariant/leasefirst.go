package invariant

import "time"

// LeaseFirst: a process reads the log only while it believes to hold the lease. In the very moment in which it learns that the lease is lost, a
// question may just leave it: its answer has no effect any more.
type LeaseFirst struct {
	holds map[string]bool
	lost  map[string]time.Duration
}

// NewLeaseFirst makes the checker.
func NewLeaseFirst() *LeaseFirst {
	return &LeaseFirst{holds: map[string]bool{}, lost: map[string]time.Duration{}}
}

// Name is lease-first.
func (*LeaseFirst) Name() string { return "lease-first" }

// See implements Checker.
func (c *LeaseFirst) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case LeaseTold:
		if c.holds[e.Process] && !ev.Holds {
			c.lost[e.Process] = e.At
		}
		c.holds[e.Process] = ev.Holds
	case SourceOpened:
		c.check(e, "opened", r)
	case PollBegan:
		c.check(e, "asked", r)
	}
}

func (c *LeaseFirst) check(e Entry, what string, r *Report) {
	lost, held := c.lost[e.Process]
	if !c.holds[e.Process] && !(held && e.At == lost) {
		r.Add("%s %s the log without a lease", e.Process, what)
	}
}

// End implements Checker.
func (*LeaseFirst) End(*Report) {}
