package invariant

import "github.com/weirstream/weir/partitions"

// UnknownOnce: an attempt to commit stands at most once; one that was answered stands once, one that was refused does not; and one of which
// nobody knows does not stand a second time under another number: an epoch carries exactly the results that its cut adds to the counts.
type UnknownOnce struct {
	applied map[int64]int
	told    map[int64]Outcome
	sent    map[int64]uint64
	counts  map[int32]partitions.Counts
}

// NewUnknownOnce makes the checker.
func NewUnknownOnce() *UnknownOnce {
	return &UnknownOnce{applied: map[int64]int{}, told: map[int64]Outcome{}, sent: map[int64]uint64{}, counts: map[int32]partitions.Counts{}}
}

// Name is unknown-once.
func (*UnknownOnce) Name() string { return "unknown-once" }

// See implements Checker.
func (c *UnknownOnce) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Sent:
		c.sent[ev.ID] = ev.Epoch
	case Answered:
		c.told[ev.ID] = ev.Outcome
	case Committed:
		if c.applied[ev.ID]++; c.applied[ev.ID] > 1 {
			r.Add("attempt %d at epoch %d was applied %d times", ev.ID, ev.Commit.Epoch, c.applied[ev.ID])
		}
		for _, p := range ev.Commit.Partitions {
			before := c.counts[p.Cut.Partition]
			if added := p.Cut.Counts.Outputs - before.Outputs; added != int64(p.Rows.Count) {
				r.Add("epoch %d, partition %d: %d results with a cut that adds %d", ev.Commit.Epoch, p.Cut.Partition, p.Rows.Count, added)
			}
			c.counts[p.Cut.Partition] = p.Cut.Counts
		}
	}
}

// End implements Checker.
func (c *UnknownOnce) End(r *Report) {
	for id, told := range c.told {
		switch n := c.applied[id]; {
		case told == Stands && n != 1:
			r.Add("attempt %d at epoch %d was answered and applied %d times", id, c.sent[id], n)
		case told == Refused && n != 0:
			r.Add("attempt %d at epoch %d was refused and applied", id, c.sent[id])
		}
	}
}
