package partitions

import (
	"bytes"
	"math"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// stop is a place from which a key can be computed on: the states of its operators before the first record of a time, or before a tick.
type stop struct {
	at record.EventTime
	// slot is the first record that is not in the states.
	slot   int32
	states []byte
}

// stopEvery is how many steps of a key there are from one stop to the next. It shows nowhere but in time and memory.
const stopEvery = 64

// recompute gives a kept record the inputs of a revision, runs its key with it, and publishes what has changed. The operators go on from there.
//
//	base ── r1 ── … ──┤ stop ├── … ── revised ── … ──┤ stop ├── … ── rn ── operators
//	                       └──▶ one state ──▶ with it and without it ──▶ until they meet, or to the end
//
// It begins at the last stop before the record, and leaves stops behind for the next revision; so one that comes soon costs little, however much is kept. Where the
// states with the revision and without it are the same again, everything behind is as it was.
func (m *Machine) recompute(slot int32, x *extracted, eff *Effects) error {
	c := recomputing{m: m, key: m.waiting.slots[slot].key, slot: slot, revised: x.inputs, eff: eff}
	if err := c.run(); err != nil {
		return m.internal("key %q: %v", m.keys.names[c.key], err)
	}
	if !c.met {
		live, trial := m.keys.of(c.key), m.past.trial
		for i := range live {
			live[i], trial[i] = trial[i], live[i]
		}
	}
	m.waiting.amend(slot, x.inputs, x.revision)
	m.keys.changed(c.key)
	return nil
}

// recomputing is one revision of a kept record.
type recomputing struct {
	m       *Machine
	key     int32
	slot    int32
	revised []float64
	eff     *Effects
	// apart: the revision has been reached, and there is a state with it and one without. met: they have become the same.
	apart, met bool
	// steps since the last stop; later are the stops of before that lie ahead.
	steps int
	later []stop
}

func (c *recomputing) run() error {
	m, p := c.m, c.m.past
	k := &p.keys[c.key]
	first, at := k.first, m.waiting.slots[c.slot].at
	if m.grid != nil {
		at = m.grid.end(at)
	}
	n := len(k.stops)
	for n > 0 && k.stops[n-1].at > at {
		n--
	}
	c.later = append(c.later, k.stops[n:]...)
	k.stops = k.stops[:n]
	var err error
	if n > 0 {
		at, first = k.stops[n-1].at, k.stops[n-1].slot
		err = loadStates(p.trial, k.stops[n-1].states)
	} else {
		at = c.begin()
		p.text = appendStates(p.text[:0], p.of(c.key))
		err = loadStates(p.trial, p.text)
	}
	if err != nil {
		return err
	}
	if m.grid == nil {
		err = c.events(first)
	} else {
		err = c.ticks(first, at)
	}
	if c.met {
		k.stops = append(k.stops, c.later...)
	}
	return err
}

// begin is the first tick of the key behind the base.
func (c *recomputing) begin() record.EventTime {
	m, g := c.m, c.m.past.grid
	switch {
	case g == nil:
		return record.NoTime
	case len(g.ends) <= int(c.key) || g.ends[c.key] == record.NoTime:
		return g.end(m.waiting.slots[m.past.keys[c.key].first].at) // its first interval
	}
	return g.next
}

// events steps through the kept events of the key, from one on.
func (c *recomputing) events(s int32) error {
	m, p := c.m, c.m.past
	var ties uint64
	for ; s != none; s = p.next[s] {
		at, inputs := m.waiting.slots[s].at, m.waiting.inputsOf(s)
		if ties == 0 {
			if c.stop(at, s); c.met {
				return nil
			}
		}
		if err := c.reach(s); err != nil {
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

// ticks steps through the ticks of the key, from one on; s is the first record that they have not taken.
func (c *recomputing) ticks(s int32, at record.EventTime) error {
	m, p := c.m, c.m.past
	for ; at < m.grid.next; at = plus(at, m.grid.every) {
		if s != none {
			if c.stop(at, s); c.met {
				return nil
			}
		}
		inputs, with := m.gaps, m.gaps
		for ; s != none && m.waiting.slots[s].at < at; s = p.next[s] {
			if err := c.reach(s); err != nil {
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

// stop leaves a stop where one is due, and finds out there whether the states have met.
func (c *recomputing) stop(at record.EventTime, s int32) {
	p := c.m.past
	for c.apart && len(c.later) > 0 && c.later[0].at < at {
		c.later = c.later[1:]
	}
	if c.steps < p.stopEvery {
		return
	}
	c.steps = 0
	states := appendStates(nil, p.trial)
	if c.apart {
		p.text = appendStates(p.text[:0], p.standing)
		c.met = bytes.Equal(states, p.text)
	}
	if c.met && len(c.later) > 0 && c.later[0].at == at {
		return // it is there already
	}
	p.keys[c.key].stops = append(p.keys[c.key].stops, stop{at: at, slot: s, states: states})
	if len(c.later) > 0 && c.later[0].at == at {
		c.later = c.later[1:]
	}
}

// reach is called at each record, before its step.
func (c *recomputing) reach(s int32) error {
	if s != c.slot {
		return nil
	}
	c.apart = true
	p := c.m.past
	p.text = appendStates(p.text[:0], p.trial)
	return loadStates(p.standing, p.text)
}

// step makes a step with the revision, and one without it, and says whether a result differs that is published again. The values of the step
// with it are in m.values then.
func (c *recomputing) step(at record.EventTime, without, with []float64) (changed bool) {
	m, p := c.m, c.m.past
	c.steps++
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

// appendStates writes the states of the operators of a key, each with its length in front.
func appendStates(dst []byte, ops []operators.Operator) []byte {
	var scratch [256]byte
	for _, op := range ops {
		dst = appendText(dst, op.Snapshot(scratch[:0]))
	}
	return dst
}

// loadStates makes operators stand where those did of which appendStates wrote the states.
func loadStates(ops []operators.Operator, states []byte) error {
	in := decoder{src: states}
	for _, op := range ops {
		if err := op.Restore(in.text()); err != nil {
			return codes.New(codes.Internal, "an operator does not take its own state: %w", err)
		}
	}
	return nil
}
