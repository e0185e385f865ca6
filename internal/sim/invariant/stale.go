package invariant

import "github.com/weirstream/weir/control"

// StaleSilent: nothing takes effect but under a lease that is held at that very moment, by the store's clock: the right owner, the right token,
// a term that has not ended.
type StaleSilent struct{ leases map[string]control.LeaseRow }

// NewStaleSilent makes the checker.
func NewStaleSilent() *StaleSilent { return &StaleSilent{leases: map[string]control.LeaseRow{}} }

// Name is stale-silent.
func (*StaleSilent) Name() string { return "stale-silent" }

// See implements Checker.
func (c *StaleSilent) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Granted:
		c.leases[ev.Row.Name] = ev.Row
	case Released:
		if row := c.leases[ev.Hold.Lease]; row.Token == ev.Hold.Token && row.Owner == ev.Hold.Owner {
			row.Until = ev.Now
			c.leases[ev.Hold.Lease] = row
		}
	case Written:
		row, h := c.leases[ev.Hold.Lease], ev.Hold
		switch {
		case h.Token == 0:
			r.Add("%s took effect under no lease", ev.What)
		case row.Token != h.Token || row.Owner != h.Owner:
			r.Add("%s of %q took effect under token %d, while %q held token %d", ev.What, h.Owner, h.Token, row.Owner, row.Token)
		case !row.Valid(ev.Now):
			r.Add("%s of %q took effect %s after its term had ended", ev.What, h.Owner, ev.Now.Sub(row.Until))
		}
	}
}

// End implements Checker.
func (*StaleSilent) End(*Report) {}
