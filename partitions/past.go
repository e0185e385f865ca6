package partitions

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// past is what a flow with `revisions` keeps behind the watermark: the records that were released within the horizon, and for each key the
// operators as they were before the first of them. A revision of such a record is computed from there.
//
//	        base                     kept, in order                  waiting
//	────────────┤ r1 ─ r2 ─ … ─ rn ├──────────────────┤ …
//	            B = W - horizon                       R = W
//
// Under a grid clock both B and R are the start of the interval that holds them: base and operators stand between two ticks. The records
// of an interval are released when it ticks.
type past struct {
	horizon          record.EventTime
	limit, stopEvery int
	// base are the operators of each key before its first kept record; grid is the clock there, nil when every event ticks.
	base []operators.Operator
	grid *grid
	keys []pastKey
	// next is the record of the same key that follows in order, by slot, or none.
	next []int32

	// The rest is scratch: the operators with a revision and without it, what they gave without it, and an id.
	trial, standing []operators.Operator
	without         []operators.Value
	text            []byte
}

// pastKey is the part of one key.
type pastKey struct {
	// first and last kept record, or none.
	first, last int32
	// ties is the number of records of the last one's event time before it.
	ties int32
	// again are the results that were published more than once, by time.
	again []republished
	// stops are where a computation of the key can begin, by time. They are no part of the state.
	stops []stop
}

// republished is the number of the revision under which the result of a key at a time was published last.
type republished struct {
	at     record.EventTime
	number uint64
}

const none int32 = -1

func newPast(m *Machine) *past {
	p := &past{horizon: record.EventTime(m.plan.RevisionHorizon), limit: m.plan.Limits.History, stopEvery: stopEvery, without: make([]operators.Value, m.results)}
	for i := range m.plan.Nodes {
		p.trial = append(p.trial, m.plan.Nodes[i].New())
		p.standing = append(p.standing, m.plan.Nodes[i].New())
	}
	if m.grid != nil {
		p.grid = newGrid(m.grid.every, m.grid.width)
	}
	return p
}

// decided is up to where event time is decided: what is older was released.
func (m *Machine) decided() record.EventTime {
	if m.defers {
		return m.grid.floor(m.wm.Watermark())
	}
	return m.wm.Watermark()
}

// kept is up to where event time is out of reach: what is older was given up.
func (m *Machine) kept() record.EventTime {
	if m.past == nil {
		return m.decided()
	}
	b := minus(m.wm.Watermark(), m.past.horizon)
	if m.grid != nil {
		b = m.grid.floor(b)
	}
	return b
}

// settle releases what the watermark has passed, and gives up what is out of reach. The error is LIMIT_REACHED.
func (m *Machine) settle(eff *Effects) error {
	m.release(m.decided(), eff)
	if m.past == nil {
		return nil
	}
	m.trim()
	if p := m.past; p.limit > 0 && m.waiting.kept() > p.limit {
		return codes.New(codes.LimitReached, "more than %d records are kept for revisions, the flow's `limits.history`: raise it, or shorten `revisions.horizon`", p.limit)
	}
	return nil
}

// room makes place for a key.
func (p *past) room(k *keyTable, key int32) {
	for n := len(p.keys); n <= int(key); n++ {
		p.keys = append(p.keys, pastKey{first: none, last: none})
		for i := range k.plan.Nodes {
			p.base = append(p.base, k.plan.Nodes[i].New())
		}
	}
}

// of are the operators of a key before its first kept record.
func (p *past) of(key int32) []operators.Operator {
	n := len(p.trial)
	return p.base[int(key)*n : int(key)*n+n]
}

// link appends a record to those of its key.
func (p *past) link(r *reorder, slot int32) {
	for len(p.next) <= int(slot) {
		p.next = append(p.next, none)
	}
	p.next[slot] = none
	k := &p.keys[r.slots[slot].key]
	if k.last == none {
		k.first, k.ties = slot, 0
	} else {
		p.next[k.last] = slot
		if r.slots[k.last].at == r.slots[slot].at {
			k.ties++
		} else {
			k.ties = 0
		}
	}
	k.last = slot
}

// keep takes a released record: it goes to the clock, and stays.
func (m *Machine) keep(ref waitingRef, eff *Effects) {
	key := m.waiting.slots[ref.slot].key
	m.past.room(m.keys, key)
	m.waiting.past = append(m.waiting.past, ref)
	m.past.link(m.waiting, ref.slot)
	inputs := m.waiting.inputsOf(ref.slot)
	if m.grid != nil {
		m.grid.take(key, m.keys.names[key], ref.at, inputs)
		return
	}
	m.compute(m.keys.of(key), ref.at, inputs)
	// Of several events of one time, the result at that time is the one after the last of them.
	m.publishAs(uint64(m.past.keys[key].ties), key, ref.at, m.waiting.idOf(ref.slot), eff)
}

// publishAs is publish with the number of the row's revision: how often there was a result of the key at that time before.
func (m *Machine) publishAs(number uint64, key int32, at record.EventTime, id []byte, eff *Effects) {
	if m.plan.Revised {
		m.out[m.results] = operators.Number(float64(number))
	}
	m.publish(key, at, id, eff)
	if m.plan.Revised {
		m.out[m.results] = operators.Number(0)
	}
}

// trim gives up what is out of reach: the base takes it in.
func (m *Machine) trim() {
	p, b := m.past, m.kept()
	if p.grid == nil {
		for ref, ok := m.waiting.oldest(); ok && ref.at < b; ref, ok = m.waiting.oldest() {
			key := m.waiting.slots[ref.slot].key
			m.compute(p.of(key), ref.at, m.waiting.inputsOf(ref.slot))
			p.outlived(key, ref.at)
			m.giveUpOldest()
		}
		return
	}
	for {
		if !p.grid.ticking() {
			if ref, ok := m.waiting.oldest(); !ok || ref.at >= b {
				return
			}
			m.takeOldest() // it starts the clock
		}
		if p.grid.next > b {
			return
		}
		m.tickBase()
	}
}

// tickBase makes the base take one tick.
func (m *Machine) tickBase() {
	p, g := m.past, m.past.grid
	for ref, ok := m.waiting.oldest(); ok && ref.at < g.next; ref, ok = m.waiting.oldest() {
		m.takeOldest()
	}
	for key, end := range g.ends {
		if end == record.NoTime {
			continue
		}
		inputs, ok := g.value(int32(key))
		if !ok {
			inputs = m.gaps
		}
		m.compute(p.of(int32(key)), g.next, inputs)
		p.outlived(int32(key), g.next)
		m.keys.changed(int32(key))
	}
	g.next = plus(g.next, g.every)
}

// takeOldest hands the first kept record to the clock of the base.
func (m *Machine) takeOldest() {
	ref, _ := m.waiting.oldest()
	key := m.waiting.slots[ref.slot].key
	m.past.grid.take(key, m.keys.names[key], ref.at, m.waiting.inputsOf(ref.slot))
	m.giveUpOldest()
}

func (m *Machine) giveUpOldest() {
	ref, _ := m.waiting.oldest()
	key := m.waiting.slots[ref.slot].key
	k := &m.past.keys[key]
	if k.first = m.past.next[ref.slot]; k.first == none {
		k.last, k.ties = none, 0
	}
	m.keys.changed(key)
	m.waiting.dropOldest()
	m.waiting.done(ref.slot)
}

// outlived forgets what is known of a key up to a time: no revision reaches it any more.
func (p *past) outlived(key int32, at record.EventTime) {
	k := &p.keys[key]
	n := 0
	for n < len(k.again) && k.again[n].at <= at {
		n++
	}
	k.again = slices.Delete(k.again, 0, n)
	for n = 0; n < len(k.stops) && k.stops[n].at <= at; n++ {
	}
	k.stops = slices.Delete(k.stops, 0, n)
}

// giveUp ends it: no revision comes any more.
func (p *past) giveUp(m *Machine) {
	for m.waiting.kept() > 0 {
		m.giveUpOldest()
	}
}

// loaded takes up what a restore has read.
func (p *past) loaded(m *Machine) {
	if n := len(m.keys.names); n > 0 {
		p.room(m.keys, int32(n-1))
	}
	for _, ref := range m.waiting.past {
		p.link(m.waiting, ref.slot)
	}
	if p.grid != nil {
		p.grid.resume(m.keys.names, m.kept())
	}
}

// appendKey writes the part of a key behind the states of its operators:
//
//	state of the clock before the first kept record (a grid's only) │ per node its snapshot there │ results published more than once uvarint │
//	per result: time 8, number uvarint
func (p *past) appendKey(dst []byte, k *keyTable, key int32) []byte {
	p.room(k, key)
	if p.grid != nil {
		dst = p.grid.appendKey(dst, key)
	}
	for _, op := range p.of(key) {
		p.text = op.Snapshot(p.text[:0])
		dst = appendText(dst, p.text)
	}
	again := p.keys[key].again
	dst = binary.AppendUvarint(dst, uint64(len(again)))
	for _, a := range again {
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.at))
		dst = binary.AppendUvarint(dst, a.number)
	}
	return dst
}

// loadKey reads what appendKey wrote, out of the blob of that name.
func (p *past) loadKey(in *decoder, k *keyTable, key int32, blob string) error {
	p.room(k, key)
	if p.grid != nil && !p.grid.loadKey(in, key) {
		return damaged(blob, fmt.Sprintf("has no state of the clock behind the history of key %q", k.names[key]))
	}
	for n, op := range p.of(key) {
		state := in.text()
		if in.bad {
			return damaged(blob, "is cut short")
		}
		if err := op.Restore(state); err != nil {
			return codes.New(codes.JournalCorrupt, "state blob %q, key %q, operator %q behind the history: %w", blob, k.names[key], k.plan.Nodes[n].Name, err)
		}
	}
	again := p.keys[key].again[:0]
	for range in.uvarint() {
		if again = append(again, republished{record.EventTime(in.uint64()), in.uvarint()}); in.bad {
			return damaged(blob, "is cut short")
		}
	}
	p.keys[key].again = again
	return nil
}

// skipKey passes over what appendKey wrote.
func (p *past) skipKey(in *decoder) {
	if p.grid != nil {
		p.grid.skipKey(in)
	}
	for range p.trial {
		in.text()
	}
	for range in.uvarint() {
		if in.uint64(); in.bad {
			return
		}
		in.uvarint()
	}
}
