package partitions

import (
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// release gives the records older than w to the clock, in (event time, id) order.
func (m *Machine) release(w record.EventTime, eff *Effects) {
	for {
		ref, fromHeap, ok := m.waiting.first()
		if !ok || ref.at >= w {
			return
		}
		m.waiting.remove(fromHeap)
		key := m.waiting.slots[ref.slot].key
		inputs := m.waiting.inputsOf(ref.slot)
		m.keys.changed(key)
		if m.past != nil {
			m.keep(ref, eff)
			continue
		}
		if m.grid != nil {
			m.grid.take(key, m.keys.names[key], ref.at, inputs)
		} else {
			m.row(key, ref.at, m.waiting.idOf(ref.slot), inputs, eff)
		}
		m.waiting.done(ref.slot)
	}
}

// row runs the operators of a key at one tick and appends its outputs.
func (m *Machine) row(key int32, at record.EventTime, id []byte, inputs []float64, eff *Effects) {
	m.compute(m.keys.of(key), at, inputs)
	m.publish(key, at, id, eff)
}

// compute makes the operators take a step.
func (m *Machine) compute(ops []operators.Operator, at record.EventTime, inputs []float64) {
	for i := range m.plan.Nodes {
		n := &m.plan.Nodes[i]
		if n.Field >= 0 {
			m.values[i] = ops[i].Step(at, valueOf(inputs[n.Field]))
		} else {
			m.values[i] = ops[i].Step(at, m.values[n.From])
		}
	}
}

// publish appends the values of a step as a row.
func (m *Machine) publish(key int32, at record.EventTime, id []byte, eff *Effects) {
	for i := range m.results {
		m.out[i] = m.values[m.plan.Outputs[i].Node]
	}
	m.name = append(m.name[:0], m.keys.names[key]...)
	eff.Rows.Append(at, id, m.name, m.out)
}

// tick ticks a grid at every instant up to and including last, each after the records older than it. Records not older than w are
// not touched.
func (m *Machine) tick(last, w record.EventTime, eff *Effects) error {
	g := m.grid
	for empty := 0; ; {
		if !g.ticking() {
			// The first record that is released starts the clock.
			ref, _, ok := m.waiting.first()
			if !ok || ref.at >= w {
				return nil
			}
			m.release(ref.at+1, eff)
		}
		if g.next > last {
			return nil
		}
		m.release(min(g.next, w), eff)
		for _, key := range g.at(m.keys.names) {
			inputs, ok := g.value(key)
			if !ok {
				inputs = m.gaps
				if empty++; m.plan.Limits.Ticks > 0 && empty > m.plan.Limits.Ticks {
					return codes.New(codes.LimitReached, "event time moved on by more than %d empty ticks at once, the flow's `limits.ticks`: raise it, or set `max_future_skew` lower, or `clock.every` longer", m.plan.Limits.Ticks)
				}
			}
			m.keys.changed(key)
			m.row(key, g.next, g.tickID(m.keys.names[key]), inputs, eff)
		}
		g.next = plus(g.next, g.every)
	}
}
