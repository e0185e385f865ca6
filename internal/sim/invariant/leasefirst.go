package invariant

import "time"

// LeaseFirst: a process reads the log only while it believes to hold the lease, and begins no write past the end of its term by its own clock.
// In the very moment in which it learns that the lease is lost, or in which it goes on after it was stopped, a question to the log may just
// leave it: its answer has no effect any more.
type LeaseFirst struct {
	holds              map[string]bool
	lost, woken, until map[string]time.Duration
}

// NewLeaseFirst makes the checker.
func NewLeaseFirst() *LeaseFirst {
	return &LeaseFirst{holds: map[string]bool{}, lost: map[string]time.Duration{}, woken: map[string]time.Duration{}, until: map[string]time.Duration{}}
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
	case LeaseBelieved:
		c.until[e.Process] = ev.Until
	case Woken:
		c.woken[e.Process] = e.At
	case Sent:
		if until, ok := c.until[e.Process]; ok && e.At > until {
			r.Add("%s began to commit epoch %d %s after its term", e.Process, ev.Epoch, e.At-until)
		}
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
	if until, ok := c.until[e.Process]; ok && e.At > until && e.At > c.woken[e.Process] {
		r.Add("%s %s the log %s after its term", e.Process, what, e.At-until)
	}
}

// End implements Checker.
func (*LeaseFirst) End(*Report) {}
