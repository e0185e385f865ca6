package partitions

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirstream/weir/record"
)

// ReasonRevisionMoved is a revision with another key or event time than its event, which no revision changes.
const ReasonRevisionMoved = "REVISION_MOVED"

// revise takes a delivery of a known event whose number says that it is a revision. It was counted as a duplicate: its event counts once.
//
//	the event                                       the revision                                       set aside as
//	waits, or is kept; same or greater number       changes nothing                                    -
//	waits, or is kept; other key or event time      changes nothing                                    REVISION_MOVED
//	waits                                           takes its place                                    REVISED (a note)
//	is kept                                         takes its place, and what follows is made again    REVISED (a note)
//	anything else                                   comes too late                                     REVISION_AFTER_DECISION
//
// What is asked is where the event stands by the watermark, never what happens to be in memory.
func (m *Machine) revise(r *record.Record, eff *Effects) error {
	if m.past != nil {
		if err := m.settle(eff); err != nil {
			return err
		}
	}
	x := m.read
	slot, found := m.waiting.find(x.hash)
	if !found || m.waiting.slots[slot].at < m.kept() {
		m.setAside(r, eff, ReasonRevisionLate, m.tooLate())
		return nil
	}
	w := m.waiting.slots[slot]
	was := m.waiting.numbers[slot]
	switch name := m.keys.names[w.key]; {
	case x.revision <= was:
	case w.at != x.at || name != string(x.key):
		m.setAside(r, eff, ReasonRevisionMoved, fmt.Sprintf("revision %d has the key %q and the event time %s, its event %q and %s: a revision changes values alone", x.revision, x.key, x.at, name, w.at))
	case w.at >= m.decided():
		m.setAside(r, eff, ReasonRevised, fmt.Sprintf("revision %d took the place of revision %d before it was released", x.revision, was))
		m.waiting.amend(slot, x.inputs, x.revision)
	default:
		rows := eff.Rows.Count
		if err := m.recompute(slot, x, eff); err != nil {
			return err
		}
		detail := fmt.Sprintf("revision %d took the place of revision %d after it was released", x.revision, was)
		if m.plan.Revised {
			detail += fmt.Sprintf("; results published again: %d", eff.Rows.Count-rows)
		}
		m.setAside(r, eff, ReasonRevised, detail)
	}
	return nil
}

// tooLate says why a revision is not taken in.
func (m *Machine) tooLate() string {
	x, w := m.read, m.wm.Watermark()
	switch {
	case x.at >= m.kept():
		return fmt.Sprintf("revision %d of an event that came late, or with another event time", x.revision)
	case m.past != nil:
		return fmt.Sprintf("revision %d of an event that is decided: its event time is %s older than the watermark %s, further than revisions.horizon; results of key %q from %s on stand without it",
			x.revision, distance(x.at, w), w, x.key, x.at)
	}
	return fmt.Sprintf("revision %d of an event that is decided: its event time is %s older than the watermark %s; results of key %q from %s on stand without it",
		x.revision, distance(x.at, w), w, x.key, x.at)
}

// again is the number of the revision under which the result of a key at a time is published now; first is the one of its first publication.
func (p *past) again(key int32, at record.EventTime, first uint64) uint64 {
	k := &p.keys[key]
	i, found := slices.BinarySearchFunc(k.again, at, func(a republished, at record.EventTime) int { return cmp.Compare(a.at, at) })
	if !found {
		k.again = slices.Insert(k.again, i, republished{at, first})
	}
	k.again[i].number++
	return k.again[i].number
}
