package invariant

import (
	"maps"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// JournalMonotone: epochs grow by one, no position and no watermark of a partition goes back, nothing follows the last epoch, a position
// stands beyond exactly the records that its cut counts, and whoever opens the run is told what was committed last.
type JournalMonotone struct {
	truth *Truth
	state control.RunState
}

// NewJournalMonotone makes the checker.
func NewJournalMonotone(t *Truth) *JournalMonotone {
	return &JournalMonotone{truth: t, state: control.RunState{Status: control.RunOpen, Cuts: map[int32]partitions.Cut{}}}
}

// Name is journal-monotone.
func (*JournalMonotone) Name() string { return "journal-monotone" }

// See implements Checker.
func (c *JournalMonotone) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Committed:
		c.committed(ev.Commit, r)
	case Opened:
		c.opened(ev.State, r)
	}
}

func (c *JournalMonotone) committed(m control.Commit, r *Report) {
	if m.Epoch != c.state.Epoch+1 {
		r.Add("epoch %d follows epoch %d", m.Epoch, c.state.Epoch)
	}
	if c.state.Status == control.RunFinished {
		r.Add("epoch %d follows the last one", m.Epoch)
	}
	for _, p := range m.Partitions {
		n, before := p.Cut.Partition, c.state.Cuts[p.Cut.Partition]
		if p.Cut.Next.Cmp(before.Next) < 0 {
			r.Add("epoch %d: the position of partition %d goes back from %s to %s", m.Epoch, n, before.Next, p.Cut.Next)
		}
		if _, was := c.state.Cuts[n]; was && p.Cut.Watermark < before.Watermark {
			r.Add("epoch %d: the watermark of partition %d goes back from %s to %s", m.Epoch, n, before.Watermark, p.Cut.Watermark)
		}
		if want := c.truth.Before(n, p.Cut.Next); p.Cut.Counts.Records != want {
			r.Add("epoch %d: partition %d stands at %s, before which are %d records, and counts %d", m.Epoch, n, p.Cut.Next, want, p.Cut.Counts.Records)
		}
		cut := p.Cut
		cut.Put, cut.Delete = nil, nil
		c.state.Cuts[n] = cut
	}
	c.state.Epoch, c.state.Status = m.Epoch, m.Status
}

func (c *JournalMonotone) opened(s control.RunState, r *Report) {
	if s.Epoch != c.state.Epoch || s.Status != c.state.Status {
		r.Add("opened at epoch %d (%s); epoch %d (%s) was committed last", s.Epoch, s.Status, c.state.Epoch, c.state.Status)
	}
	same := func(a, b partitions.Cut) bool {
		return a.Next == b.Next && a.Watermark == b.Watermark && a.Finished == b.Finished && a.Counts == b.Counts
	}
	if !maps.EqualFunc(s.Cuts, c.state.Cuts, same) {
		r.Add("opened at epoch %d with other cuts than were committed", s.Epoch)
	}
}

// End implements Checker.
func (*JournalMonotone) End(*Report) {}
