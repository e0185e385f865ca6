package invariant

import "github.com/weirstream/weir/control"

// FenceIncreases: the token of a lease grows by one with every take-over and stays as it is with every renewal, one token has one owner, and
// what was committed under a token is never followed by a commit under a lower one.
type FenceIncreases struct {
	leases    map[string]control.LeaseRow
	committed control.FenceToken
}

// NewFenceIncreases makes the checker.
func NewFenceIncreases() *FenceIncreases {
	return &FenceIncreases{leases: map[string]control.LeaseRow{}}
}

// Name is fence-increases.
func (*FenceIncreases) Name() string { return "fence-increases" }

// See implements Checker.
func (c *FenceIncreases) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Granted:
		before := c.leases[ev.Row.Name]
		switch {
		case ev.Row.Token == before.Token && ev.Row.Owner != before.Owner:
			r.Add("token %d of %q went from %q to %q", ev.Row.Token, ev.Row.Name, before.Owner, ev.Row.Owner)
		case ev.Row.Token != before.Token && ev.Row.Token != before.Token+1:
			r.Add("the token of %q went from %d to %d", ev.Row.Name, before.Token, ev.Row.Token)
		case ev.Row.Token == before.Token+1 && before.Valid(ev.Now):
			r.Add("%q took %q over from %q, whose term had not ended", ev.Row.Owner, ev.Row.Name, before.Owner)
		}
		c.leases[ev.Row.Name] = ev.Row
	case Released:
		row := c.leases[ev.Hold.Lease]
		row.Until = ev.Now
		c.leases[ev.Hold.Lease] = row
	case Committed:
		if ev.Token < c.committed {
			r.Add("epoch %d was committed under token %d after token %d", ev.Commit.Epoch, ev.Token, c.committed)
		}
		c.committed = max(c.committed, ev.Token)
	}
}

// End implements Checker.
func (*FenceIncreases) End(*Report) {}
