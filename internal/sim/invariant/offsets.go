package invariant

import "github.com/weirstream/weir/record"

// OffsetsBehind: what a consumer group is told is never ahead of the journal. A reader that believed the group would lose records otherwise.
type OffsetsBehind struct{ next map[int32]record.Position }

// NewOffsetsBehind makes the checker.
func NewOffsetsBehind() *OffsetsBehind { return &OffsetsBehind{next: map[int32]record.Position{}} }

// Name is offsets-behind.
func (*OffsetsBehind) Name() string { return "offsets-behind" }

// See implements Checker.
func (c *OffsetsBehind) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Committed:
		for _, p := range ev.Commit.Partitions {
			c.next[p.Cut.Partition] = p.Cut.Next
		}
	case OffsetsTold:
		for n, at := range ev.Next {
			if at.Cmp(c.next[n]) > 0 {
				r.Add("the group is told %s for partition %d, and the journal stands at %s", at, n, c.next[n])
			}
		}
	}
}

// End implements Checker.
func (*OffsetsBehind) End(*Report) {}
