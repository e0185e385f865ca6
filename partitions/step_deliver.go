package partitions

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// releaseEvery bounds how many accepted records a batch may pile up before those that the watermark has passed are released.
const releaseEvery = 512

// deliver takes a batch, record by record in log order.
//
// Verdicts, watermark and ticks are settled at each record. Rows of records are released only now and then, and at the end of the
// batch, which gives the same rows in the same order as releasing at each record: a record is accepted only when it is not older
// than W, and what was released before was; so whatever is released later sorts behind it, and each key's operators see the same
// sequence. The one verdict that looks at the records that wait, the limit, releases first. So the size of a batch shows
// nowhere, and no more than limits.reorder records wait, however large it is.
func (m *Machine) deliver(b *record.Batch, eff *Effects) error {
	if b.Partition != m.partition {
		return m.internal("was handed a batch of partition %d", b.Partition)
	}
	if len(b.Records) > 0 && m.wm.Status() == watermark.Active {
		m.wm.Record() // the polls are not empty any more; whether an idle input is back depends on the verdict
	}
	accepted := m.counts.Consumed
	for i := range b.Records {
		r := &b.Records[i]
		if i%lookahead == 0 {
			m.ahead.read(b.Records[i:min(i+lookahead, len(b.Records))])
		}
		m.read = &m.ahead.records[i%lookahead]
		if r.Position.Cmp(m.next) < 0 && !(i > 0 && r.Sub > 0 && r.Position == b.Records[i-1].Position) {
			return m.internal("position %s was delivered after %s", r.Position, m.next)
		}
		if r.Sub > 0 && (i == 0 || r.Position != b.Records[i-1].Position || r.Sub != b.Records[i-1].Sub+1) {
			return m.internal("part %d of the record at %s was delivered without the part before it", r.Sub, r.Position)
		}
		m.next = r.Position.Next()
		if err := m.record(r, eff); err != nil {
			return m.limited(err)
		}
		if m.counts.Consumed-accepted >= releaseEvery || m.past != nil {
			accepted = m.counts.Consumed
			if err := m.settle(eff); err != nil {
				return m.limited(err)
			}
		}
	}
	if b.Next.Cmp(m.next) < 0 {
		return m.internal("the batch ends before %s, but its records go up to %s", b.Next, m.next)
	}
	m.next = b.Next
	return m.limited(m.settle(eff))
}

// record tries one record: unreadable, filtered, duplicate, future, late, accepted. The first that holds is its verdict.
func (m *Machine) record(r *record.Record, eff *Effects) error {
	m.counts.Records++
	if m.finished {
		m.omit(r, eff, ReasonAfterEnd, "a record before it has ended the partition")
		return nil
	}
	if what, is := control(r); is {
		return m.obey(r, what, eff)
	}
	x := m.read
	if x.reason != "" {
		m.unreadable(r, eff)
		return nil
	}
	if !x.selected {
		m.counts.Filtered++
		return nil
	}
	if m.holds.full(x.key) && !m.ids.has(x.hash) {
		m.omit(r, eff, ReasonHeldOverflow, m.holds.overflow())
		return nil
	}
	future := m.plan.MaxFutureSkew > 0 && r.Arrival != record.NoTime && minus(x.at, record.EventTime(m.plan.MaxFutureSkew)) > r.Arrival
	var duplicate bool
	var err error
	if future {
		duplicate = m.ids.has(x.hash)
	} else if duplicate, err = m.ids.add(x.hash, x.at); err != nil {
		return err
	}
	switch {
	case duplicate:
		err = m.duplicate(r, eff)
	case future:
		m.counts.Future++
		m.setAside(r, eff, ReasonFuture, fmt.Sprintf("event time is %s ahead of the log's timestamp %s, more than max_future_skew allows",
			distance(r.Arrival, x.at), r.Arrival))
	case m.wm.IsLate(x.at):
		m.counts.Late++
		m.setAside(r, eff, ReasonLate, m.lateDetail(x.at))
		err = m.observe(r, string(x.key), eff)
	default:
		err = m.accept(r, eff)
	}
	if err == nil && m.ids.over() {
		err = m.ids.limitError()
	}
	return err
}

func (m *Machine) omit(r *record.Record, eff *Effects, reason, detail string) {
	m.counts.Omitted++
	m.setAside(r, eff, reason, detail)
}

// duplicate is a record whose id lives. It may be a revision.
func (m *Machine) duplicate(r *record.Record, eff *Effects) error {
	m.counts.Duplicates++
	m.wm.Record()
	if m.read.revision > 0 {
		return m.revise(r, eff)
	}
	return nil
}

func (m *Machine) accept(r *record.Record, eff *Effects) error {
	x := m.read
	key, err := m.keys.intern(x.key)
	if err != nil {
		return err
	}
	m.counts.Consumed++
	if x.revision > 0 {
		m.setAside(r, eff, ReasonRevised, fmt.Sprintf("the event came first as revision %d", x.revision))
	}
	if m.wait() {
		return m.observe(r, m.keys.names[key], eff)
	}
	copy(m.waiting.push(x.at, x.id, key), x.inputs)
	if x.revision > 0 {
		m.waiting.number(m.waiting.newest(), x.revision)
	}
	if err := m.observe(r, m.keys.names[key], eff); err != nil || !m.waiting.over() {
		return err
	}
	if m.release(m.decided(), eff); m.waiting.over() {
		return m.waiting.limitError()
	}
	return nil
}

// observe lets the watermark see an accepted or late record, and does what its move asks for. An accepted record waits already:
// closing a gap may move W past it at once.
func (m *Machine) observe(r *record.Record, key string, eff *Effects) error {
	x := m.read
	m.wm.Record()
	if x.numbered {
		m.gapDecisions(r, m.wm.Sequence(key, x.sequence, x.at), eff)
	}
	newest := m.wm.MaxEventTime()
	moved := m.wm.Observe(x.at)
	if m.wm.MaxEventTime() > newest {
		m.hold(r)
	}
	if m.ahead.extract.sequence >= 0 {
		m.gapDecisions(r, m.wm.Changes(), eff) // gaps may expire without a number
	}
	if !moved {
		return nil
	}
	return m.moved(eff)
}

// moved follows the watermark: ids die, and a grid ticks. Records are released by the caller, sooner or later.
func (m *Machine) moved(eff *Effects) error {
	w := m.wm.Watermark()
	m.ids.advance(w)
	if m.grid == nil {
		return nil
	}
	return m.tick(w, m.decided(), eff)
}

var gapKinds = [...]string{
	watermark.GapOpened: DecisionGapOpened, watermark.GapFilled: DecisionGapFilled, watermark.GapExpired: DecisionGapExpired,
	watermark.GapForced: DecisionGapForced,
}

// gapDecisions records what became of gaps. A number that is neither new nor missing is no decision.
func (m *Machine) gapDecisions(r *record.Record, changes []watermark.GapChange, eff *Effects) {
	for _, c := range changes {
		if c.Kind == watermark.GapIgnored {
			continue
		}
		m.decide(eff, r.Position, gapKinds[c.Kind], gapDetail(c.Key, c.First, c.Last))
	}
}

func gapDetail(key string, first, last int64) string {
	if first == last {
		return fmt.Sprintf("key %q, sequence %d", key, first)
	}
	return fmt.Sprintf("key %q, sequence %d to %d", key, first, last)
}

// setAside copies a record: nothing that is kept aliases its batch.
func (m *Machine) setAside(r *record.Record, eff *Effects, reason, detail string) {
	id := string(m.read.id)
	if m.read.id == nil {
		id = headerID(r)
	}
	eff.Quarantine = append(eff.Quarantine, Quarantined{
		Partition: m.partition, Position: r.Position, Sub: r.Sub, Reason: reason, Detail: detail, Arrival: r.Arrival,
		EventID: id, EventTime: m.read.at, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: cloneHeaders(r.Headers),
	})
}

// headerID is the event id that travels beside a record, or "".
func headerID(r *record.Record) string {
	for _, h := range r.Headers {
		if h.Key == record.HeaderEventID {
			return string(h.Value)
		}
	}
	return ""
}

// distance is b - a for b >= a, at most the longest duration.
func distance(a, b record.EventTime) time.Duration {
	if d := b - a; d >= 0 {
		return time.Duration(d)
	}
	return time.Duration(record.MaxTime)
}
