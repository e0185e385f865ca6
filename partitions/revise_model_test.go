package partitions

import (
	"cmp"
	"slices"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// revise is what the rules say about a delivery of a known event that is a revision. It computes a key from its first event on, twice.
func (m *model) revise(r made) {
	w := m.wm.Watermark()
	floor := func(t record.EventTime) record.EventTime {
		if every := record.EventTime(m.plan.ClockEvery); every > 0 {
			return record.EventTime(floorDiv(t, every)) * every
		}
		return t
	}
	decided := floor(w)
	kept := decided
	if m.plan.RevisionHorizon > 0 {
		kept = floor(w - record.EventTime(m.plan.RevisionHorizon))
	}
	i := len(m.ever) - 1
	for i >= 0 && m.ever[i].id != r.id {
		i--
	}
	switch {
	case i < 0 || m.ever[i].at < kept:
		m.set(r, ReasonRevisionLate)
	case r.revision <= m.ever[i].revision:
	case m.ever[i].at != r.at || m.ever[i].key != r.key:
		m.set(r, ReasonRevisionMoved)
	case r.at >= decided:
		m.set(r, ReasonRevised)
		m.ever[i] = r
		for j := range m.waiting {
			if m.waiting[j].id == r.id {
				m.waiting[j] = r
			}
		}
	default:
		m.set(r, ReasonRevised)
		before, _ := m.results(r.key, decided)
		m.ever[i] = r
		after, ops := m.results(r.key, decided)
		for n, row := range after {
			if n+1 < len(after) && after[n+1].at == row.at || m.show(row.values) == m.show(before[n].values) || !m.plan.Revised {
				continue
			}
			m.publish(row.at, row.id, r.key, row.values)
		}
		m.ops[r.key] = ops
	}
}

type result struct {
	at     record.EventTime
	id     string
	values []operators.Value
}

// results are all results of a key that were decided.
func (m *model) results(key string, decided record.EventTime) (out []result, ops []operators.Operator) {
	var events []made
	for _, e := range m.ever {
		if e.key == key && e.at < decided {
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b made) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	ops = m.fresh()
	value := func(e made) operators.Value {
		if e.gap {
			return operators.Gap
		}
		return operators.Number(e.x)
	}
	every := record.EventTime(m.plan.ClockEvery)
	if every == 0 {
		for _, e := range events {
			out = append(out, result{e.at, e.id, m.step(ops, e.at, value(e))})
		}
		return out, ops
	}
	for at := record.EventTime(floorDiv(events[0].at, every)+1) * every; at <= m.ticked; at += every {
		x := operators.Gap
		for ; len(events) > 0 && events[0].at < at; events = events[1:] {
			x = value(events[0])
		}
		out = append(out, result{at, key + "@" + at.String(), m.step(ops, at, x)})
	}
	return out, ops
}
