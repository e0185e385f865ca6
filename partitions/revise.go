package partitions

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
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

// recompute gives a kept record the inputs of a revision, runs its key from the base on with it, and publishes what has changed. The
// operators go on from there.
func (m *Machine) recompute(slot int32, x *extracted, eff *Effects) error {
	key := m.waiting.slots[slot].key
	p := m.past
	if err := copyStates(p.trial, p.of(key), &p.text); err != nil {
		return m.internal("key %q: %v", m.keys.names[key], err)
	}
	c := recomputing{m: m, key: key, slot: slot, revised: x.inputs, eff: eff}
	var err error
	if m.grid == nil {
		err = c.events()
	} else {
		err = c.ticks()
	}
	if err != nil {
		return m.internal("key %q: %v", m.keys.names[key], err)
	}
	live := m.keys.of(key)
	for i := range live {
		live[i], p.trial[i] = p.trial[i], live[i]
	}
	m.waiting.amend(slot, x.inputs, x.revision)
	m.keys.changed(key)
	return nil
}

// recomputing is one revision of a kept record.
type recomputing struct {
	m       *Machine
	key     int32
	slot    int32
	revised []float64
	eff     *Effects
	// apart: the revision has been met, and from then on there is a state with it and one without.
	apart bool
}

// events steps through the kept events of the key.
func (c *recomputing) events() error {
	m, p := c.m, c.m.past
	var ties uint64
	for s := p.keys[c.key].first; s != none; s = p.next[s] {
		at, inputs := m.waiting.slots[s].at, m.waiting.inputsOf(s)
		if err := c.meet(s == c.slot); err != nil {
			return err
		}
		with := inputs
		if s == c.slot {
			with = c.revised
		}
		changed := c.step(at, inputs, with)
		if next := p.next[s]; next != none && m.waiting.slots[next].at == at {
			ties++
			continue
		}
		if changed {
			m.publishAs(p.again(c.key, at, ties), c.key, at, m.waiting.idOf(s), c.eff)
		}
		ties = 0
	}
	return nil
}

// ticks steps through the ticks of the key since the base.
func (c *recomputing) ticks() error {
	m, p, g := c.m, c.m.past, c.m.past.grid
	s := p.keys[c.key].first
	at := g.next
	if len(g.ends) <= int(c.key) || g.ends[c.key] == record.NoTime {
		at = g.end(m.waiting.slots[s].at) // its first interval
	}
	for ; at < m.grid.next; at = plus(at, g.every) {
		inputs, with := m.gaps, m.gaps
		for ; s != none && m.waiting.slots[s].at < at; s = p.next[s] {
			if err := c.meet(s == c.slot); err != nil {
				return err
			}
			inputs = m.waiting.inputsOf(s)
			if with = inputs; s == c.slot {
				with = c.revised
			}
		}
		if c.step(at, inputs, with) {
			p.text = record.AppendTime(append(append(p.text[:0], m.keys.names[c.key]...), '@'), at)
			m.publishAs(p.again(c.key, at, 0), c.key, at, p.text, c.eff)
		}
	}
	return nil
}

// meet is called at each record, before its step.
func (c *recomputing) meet(revised bool) error {
	if !revised {
		return nil
	}
	c.apart = true
	p := c.m.past
	return copyStates(p.standing, p.trial, &p.text)
}

// step makes a step with the revision, and one without it, and says whether a result differs that is published again. The values of the step
// with it are in m.values then.
func (c *recomputing) step(at record.EventTime, without, with []float64) (changed bool) {
	m, p := c.m, c.m.past
	if c.apart {
		m.compute(p.standing, at, without)
		for i := range p.without {
			p.without[i] = m.values[m.plan.Outputs[i].Node]
		}
	}
	m.compute(p.trial, at, with)
	if !c.apart || !m.plan.Revised {
		return false
	}
	for i, was := range p.without {
		v := m.values[m.plan.Outputs[i].Node]
		changed = changed || was.OK != v.OK || math.Float64bits(was.F) != math.Float64bits(v.F)
	}
	return changed
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

// copyStates makes the operators of dst stand where those of src do.
func copyStates(dst, src []operators.Operator, scratch *[]byte) error {
	for i := range src {
		*scratch = src[i].Snapshot((*scratch)[:0])
		if err := dst[i].Restore(*scratch); err != nil {
			return codes.New(codes.Internal, "an operator does not take its own state: %w", err)
		}
	}
	return nil
}
