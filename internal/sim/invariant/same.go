package invariant

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// SameAsUndisturbed: in the end the run is FINISHED, and what is read is what a reading without any fault gives, to the byte.
type SameAsUndisturbed struct{ truth *Truth }

// NewSameAsUndisturbed makes the checker.
func NewSameAsUndisturbed(t *Truth) *SameAsUndisturbed { return &SameAsUndisturbed{truth: t} }

// Name is same-as-undisturbed.
func (*SameAsUndisturbed) Name() string { return "same-as-undisturbed" }

// See implements Checker.
func (c *SameAsUndisturbed) See(e Entry, r *Report) {
	ev, ok := e.Event.(Published)
	if !ok {
		return
	}
	t := c.truth
	if ev.State.Status != control.RunFinished || ev.State.Watermark != record.MaxTime {
		r.Add("the run stands at epoch %d, %s, watermark %s", ev.State.Epoch, ev.State.Status, ev.State.Watermark)
	}
	for _, p := range t.Partitions() {
		if !bytes.Equal(ev.Rows[p], t.Rows[p]) {
			r.Add("partition %d: %d bytes of results, undisturbed %d, or others", p, len(ev.Rows[p]), len(t.Rows[p]))
		}
		cut := ev.State.Cuts[p]
		if cut.Counts != t.Counts[p] || cut.Next != t.End(p) || !cut.Finished {
			r.Add("partition %d: %+v at %s, undisturbed %+v at %s", p, cut.Counts, cut.Next, t.Counts[p], t.End(p))
		}
	}
	if !slices.EqualFunc(ev.Quarantine, t.Quarantine, sameAside) {
		r.Add("%d records aside, undisturbed %d, or others", len(ev.Quarantine), len(t.Quarantine))
	}
	if !slices.Equal(ev.Decisions, t.Decisions) {
		r.Add("%d decisions, undisturbed %d, or others", len(ev.Decisions), len(t.Decisions))
	}
	if t.Hash != "" && ev.Hash != t.Hash {
		r.Add("hash %s, undisturbed %s", ev.Hash, t.Hash)
	}
}

func sameAside(a, b partitions.Quarantined) bool {
	k, v := bytes.Equal(a.Key, b.Key), bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	a.Key, a.Value, b.Key, b.Value = nil, nil, nil, nil
	a.Number, b.Number = 0, 0 // a journal gives it
	return k && v && fmt.Sprint(a) == fmt.Sprint(b)
}

// End implements Checker.
func (*SameAsUndisturbed) End(*Report) {}
