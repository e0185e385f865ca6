package partitions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// DecisionInherited is the kind of the decision with which a partition begins that goes on where others ended.
const DecisionInherited = "INHERITED"

// Inherit makes the machine of a partition that goes on where others ended: a log that is split or merged keeps each key in one place, and takes
// it elsewhere. keep says which keys come to this partition. The parents were restored from their last cuts, of which the log
// has nothing more; they are used up.
//
//	parent 4 ──┐ split                  parent 4 ──┐ merge
//	           ├─▶ child 7 (keys 0…7)              ├─▶ child 9 (keys of both)
//	           └─▶ child 8 (keys 8…f)   parent 5 ──┘
//
// The child has the operators' states, the numbering and the waiting records of its keys, and all event ids, since an id does not tell its key. Its
// watermark is the greatest of its parents'. A parent that is behind is first brought up to it: what it releases on the way are the
// child's first rows, in eff. Counts and position are the child's own, from zero.
//
// The result depends on the parents' cuts alone. Errors: INTERNAL for parents that were finished or whose history is open, LIMIT_REACHED.
func Inherit(plan *flow.Plan, partition int32, parents []*Machine, keep func(key string) bool, eff *Effects) (*Machine, error) {
	m := New(plan, partition)
	if len(parents) == 0 {
		return nil, m.internal("it inherits from nobody")
	}
	slices.SortFunc(parents, func(a, b *Machine) int { return int(a.partition) - int(b.partition) })
	w := record.NoTime
	var names []string
	for _, p := range parents {
		if p.finished || p.history.open() || p.failed != nil {
			return nil, m.internal("partition %d is finished, failed or takes a history in; nothing can be inherited from it", p.partition)
		}
		w = max(w, p.wm.Watermark())
		names = append(names, fmt.Sprint(p.partition))
	}
	rows := eff.Rows.Count
	for _, p := range parents {
		if err := p.bringTo(w, eff); err != nil {
			return nil, err
		}
		if err := m.take(p, keep); err != nil {
			return nil, err
		}
		m.takeHeld(p, keep, eff)
	}
	if m.holds != nil {
		if err := m.settled(eff); err != nil {
			return nil, err
		}
	}
	m.counts.Outputs = int64(eff.Rows.Count - rows)
	m.ids.advance(w)
	if m.grid != nil {
		m.grid.resume(m.keys.names, w)
	}
	if m.past != nil {
		m.waiting.sortKept()
		m.past.loaded(m)
	}
	if m.ids.over() {
		return nil, m.limited(m.ids.limitError())
	}
	if m.waiting.over() {
		return nil, m.limited(m.waiting.limitError())
	}
	m.decide(eff, m.next, DecisionInherited, fmt.Sprintf("from partition %s, at the watermark %s", strings.Join(names, " and "), w))
	return m, nil
}

// bringTo moves the watermark of a parent on, as if a record of that time had come, past its gaps.
func (m *Machine) bringTo(w record.EventTime, eff *Effects) error {
	if !m.wm.RaiseTo(w) {
		return nil
	}
	if err := m.moved(eff); err != nil {
		return m.limited(err)
	}
	return m.limited(m.settle(eff))
}

// take moves over what belongs to the kept keys of a parent.
func (m *Machine) take(p *Machine, keep func(key string) bool) error {
	m.wm.Inherit(p.wm, keep)
	// numbers are the child's numbers of the parent's keys, or -1.
	numbers := make([]int32, len(p.keys.names))
	for key, name := range p.keys.names {
		numbers[key] = -1
		if !keep(name) {
			continue
		}
		n, err := m.keys.intern([]byte(name))
		if err != nil {
			return m.limited(err)
		}
		numbers[key] = n
		copy(m.keys.of(n), p.keys.of(int32(key)))
		if m.grid != nil {
			m.grid.inherit(n, p.grid, int32(key))
		}
		if m.past != nil {
			p.past.room(p.keys, int32(key))
			m.past.inherit(m.keys, n, p.past, int32(key))
		}
	}
	released := p.decided()
	p.waiting.each(func(slot int32) {
		s := &p.waiting.slots[slot]
		n := numbers[s.key]
		if n < 0 {
			return
		}
		copy(m.waiting.push(s.at, p.waiting.idOf(slot), n), p.waiting.inputsOf(slot))
		if revision := p.waiting.numbers[slot]; revision > 0 {
			m.waiting.number(m.waiting.newest(), revision)
		}
		if s.at < released {
			m.waiting.keepNewest()
		}
	})
	return p.ids.each(func(h idHash, number int64) error {
		_, err := m.ids.add(h, m.ids.gens.startOf(number))
		return err
	})
}

// inherit takes over a key of another grid.
func (g *grid) inherit(key int32, from *grid, was int32) {
	g.room(key)
	from.room(was)
	g.ends[key] = from.ends[was]
	copy(g.inputs[int(key)*g.width:(int(key)+1)*g.width], from.inputs[int(was)*g.width:])
}

// inherit takes over a key of another history. Its records are linked later.
func (p *past) inherit(k *keyTable, key int32, from *past, was int32) {
	p.room(k, key)
	copy(p.of(key), from.of(was))
	if p.grid != nil {
		p.grid.inherit(key, from.grid, was)
	}
	p.keys[key].again = from.keys[was].again
}

// each calls fn with every living id and the number of its generation.
func (d *dedupe) each(fn func(h idHash, number int64) error) error {
	numbers := make(map[uint16]int64, len(d.gens.living))
	for _, g := range d.gens.living {
		numbers[g.tag] = g.number
	}
	for i := range d.segments {
		for _, s := range d.segments[i].slots {
			number, lives := numbers[s.tag()]
			if !lives {
				continue
			}
			if err := fn(idHash{segment: uint8(i), high: s.high, low: s.low &^ tagMask}, number); err != nil {
				return err
			}
		}
	}
	return nil
}

// startOf is an event time of a generation.
func (g *generations) startOf(number int64) record.EventTime {
	first := int64((record.NoTime + 1) / g.span)
	if number < first {
		return record.NoTime + 1
	}
	return max(record.EventTime(number)*g.span, record.NoTime+1)
}
