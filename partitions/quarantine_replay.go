package partitions

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir/record"
)

// Reinstate is an operator's recorded decision to give an entry of the quarantine to its partition again. It is tried as a record of the log is, with the
// flow of the machine, and counted nowhere a second time: what the log's record was counted as stays.
//
//	verdict             the entry is   the record
//	accepted            REPLAYED       CONSUMED: its id is remembered, it moves the watermark, it is released like any other
//	not selected        REPLAYED       FILTERED
//	its id lives        REPLAYED       DUPLICATE: the event came in another way
//	anything else       SET_ASIDE      the reason of today: UNREADABLE, TOMBSTONE, FUTURE, LATE, HELD_OVERFLOW, REVISION_AFTER_DECISION
//
// It is too far in the future if it is so by the greater of its log's timestamp and the greatest event time so far: time has gone on since.
type Reinstate struct {
	Entry Quarantined
	// Why names who asked for it, and why.
	Why string
}

// Discard is an operator's recorded decision that an entry of the quarantine is given up: it is DROPPED, and holds its key no more.
type Discard struct {
	Entry Quarantined
	Why   string
}

func (Reinstate) event() {}
func (Discard) event()   {}

// Kinds of the decisions about entries of the quarantine. All are made by operators.
const (
	DecisionReplayed = "QUARANTINE_REPLAYED"
	// DecisionRefused: it was tried again, and stays set aside.
	DecisionRefused = "QUARANTINE_REFUSED"
	DecisionDropped = "QUARANTINE_DROPPED"
)

// Outcomes of entries beside the reasons for which they stay set aside.
const (
	OutcomeConsumed  = "CONSUMED"
	OutcomeFiltered  = "FILTERED"
	OutcomeDuplicate = "DUPLICATE"
	OutcomeDropped   = "DROPPED"
)

// Replayable says whether what was set aside for a reason can be given to its partition again. Notes about records that were counted otherwise cannot.
func Replayable(reason string) bool {
	switch reason {
	case ReasonUnreadable, ReasonTombstone, ReasonLate, ReasonFuture, ReasonAfterEnd, ReasonHeldOverflow:
		return true
	}
	return false
}

func (m *Machine) reinstate(ev Reinstate, eff *Effects) error {
	q := &ev.Entry
	if !Replayable(q.Reason) {
		return m.internal("entry %d of the quarantine, a note of %s, would be replayed", q.Number, q.Reason)
	}
	one := [1]record.Record{q.Record()}
	r := &one[0]
	r.Position, r.Sub = m.next, 0 // where what follows from it is decided
	m.ahead.read(one[:])
	m.read = &m.ahead.records[0]
	outcome, detail := m.again(r, q)
	kind := DecisionRefused
	switch outcome {
	case OutcomeConsumed, OutcomeFiltered, OutcomeDuplicate:
		kind = DecisionReplayed
	}
	m.decide(eff, m.next, kind, asideDetail(q, outcome, detail, ev.Why))
	if kind == DecisionRefused {
		return nil
	}
	if outcome == OutcomeConsumed {
		if err := m.acceptAgain(r, q, eff); err != nil {
			return m.limited(err)
		}
	} else {
		m.unblock(q, eff)
	}
	return m.settled(eff)
}

// settled releases what a decision has let go on.
func (m *Machine) settled(eff *Effects) error {
	err := m.settle(eff)
	if err == nil && m.waiting.over() {
		err = m.waiting.limitError()
	}
	return m.limited(err)
}

// again is the verdict on a record that was set aside before, and why it stays so.
func (m *Machine) again(r *record.Record, q *Quarantined) (outcome, detail string) {
	x := m.read
	if _, is := control(r); is {
		return ReasonUnreadable, "it is a control record, which is never replayed"
	}
	switch {
	case x.reason != "":
		return x.reason, x.detail
	case !x.selected:
		return OutcomeFiltered, ""
	}
	skew := record.EventTime(m.plan.MaxFutureSkew)
	switch late := m.wm.IsLate(x.at) && !m.blocks(q, x.key); {
	case late && q.Reason == ReasonLate: // the id is its own
		return ReasonLate, m.lateDetail(x.at)
	case m.ids.has(x.hash) && x.revision > 0:
		return ReasonRevisionLate, fmt.Sprintf("revision %d of an event that was taken in before", x.revision)
	case m.ids.has(x.hash):
		return OutcomeDuplicate, ""
	case skew > 0 && r.Arrival != record.NoTime && minus(x.at, skew) > max(r.Arrival, m.wm.MaxEventTime()):
		return ReasonFuture, fmt.Sprintf("event time is %s ahead of the log's timestamp %s, more than max_future_skew allows", distance(r.Arrival, x.at), r.Arrival)
	case m.holds.full(x.key) && !m.blocks(q, x.key):
		return ReasonHeldOverflow, m.holds.overflow()
	case late:
		return ReasonLate, m.lateDetail(x.at)
	}
	return OutcomeConsumed, ""
}

// acceptAgain takes the record in. It was counted when it was set aside.
func (m *Machine) acceptAgain(r *record.Record, q *Quarantined, eff *Effects) error {
	if _, err := m.ids.add(m.read.hash, m.read.at); err != nil {
		return err
	}
	consumed := m.counts.Consumed
	held, _ := m.holds.find(q)
	m.standIn = q
	err := m.accept(r, eff)
	m.standIn, m.counts.Consumed = nil, consumed
	if held == string(m.read.key) && m.holds.has(m.read.key) {
		m.letGo(held, false, fmt.Sprintf("entry %d was replayed", q.Number), eff)
	} else {
		m.unblock(q, eff)
	}
	if err == nil && m.ids.over() {
		err = m.ids.limitError()
	}
	return err
}

func (m *Machine) discard(ev Discard, eff *Effects) error {
	q := &ev.Entry
	m.decide(eff, m.next, DecisionDropped, asideDetail(q, OutcomeDropped, "", ev.Why))
	m.unblock(q, eff)
	return m.settled(eff)
}

const (
	asideStart = "entry %d, set aside at %s as %s, is %s"
	asideIs    = ", is "
	asideAs    = " as "
)

func asideDetail(q *Quarantined, outcome, detail, why string) string {
	s := fmt.Sprintf(asideStart, q.Number, q.Position, q.Reason, outcome)
	if detail != "" {
		s += " " + strconv.Quote(detail)
	}
	return s + ": " + why
}

// AsideDecision is a decision about an entry of the quarantine.
type AsideDecision struct {
	Partition int32
	Number    int64
	// Position and Reason are those under which it was set aside.
	Position record.Position
	Reason   string
	// Outcome is one of the outcomes, or the reason for which it stays set aside, with its Detail.
	Outcome, Detail string
	// Why names who asked for it, and why.
	Why string
}

// Aside reads a decision about an entry of the quarantine. It is false for any other.
func (d Decision) Aside() (a AsideDecision, ok bool) {
	if d.Kind != DecisionReplayed && d.Kind != DecisionRefused && d.Kind != DecisionDropped {
		return a, false
	}
	head, rest, _ := strings.Cut(d.Detail, asideIs)
	var number, place string
	number, place, _ = strings.Cut(strings.TrimPrefix(head, "entry "), ", set aside at ")
	at, reason, _ := strings.Cut(place, asideAs)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return a, false
	}
	a = AsideDecision{Partition: d.Partition, Number: n, Reason: reason}
	if a.Position, err = record.ParsePosition(at); err != nil {
		return a, false
	}
	end := strings.IndexAny(rest, " :")
	if end < 0 {
		return a, false
	}
	a.Outcome, rest = rest[:end], rest[end:]
	if quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(rest, " ")); rest[0] == ' ' && err == nil {
		rest = rest[1+len(quoted):]
		if a.Detail, err = strconv.Unquote(quoted); err != nil {
			return a, false
		}
	}
	a.Why, ok = strings.CutPrefix(rest, ": ")
	return a, ok
}

// event is what makes the decision again. Whoever replays a log fills the entry in, from what that replay has set aside: see Again.
func (a AsideDecision) event() Event {
	q := Quarantined{Partition: a.Partition, Number: a.Number, Position: a.Position, Reason: a.Reason}
	if a.Outcome == OutcomeDropped {
		return Discard{Entry: q, Why: a.Why}
	}
	return Reinstate{Entry: q, Why: a.Why}
}

// Again gives an event that was made from a recorded decision the entry that it is about, out of what a replay of the log has set aside in the partition
// so far: entry n is the n-th. Other events come back as they are.
func Again(ev Event, aside []Quarantined) (Event, error) {
	entry := func(q Quarantined) (Quarantined, error) {
		if q.Number < 0 || q.Number >= int64(len(aside)) {
			return q, fmt.Errorf("partition %d: entry %d of the quarantine was decided about, and %d were set aside by then", q.Partition, q.Number, len(aside))
		}
		n := q.Number
		q = aside[n]
		q.Number = n
		return q, nil
	}
	var err error
	switch e := ev.(type) {
	case Reinstate:
		e.Entry, err = entry(e.Entry)
		return e, err
	case Discard:
		e.Entry, err = entry(e.Entry)
		return e, err
	}
	return ev, nil
}

// AsideState is where an entry of the quarantine stands.
type AsideState string

// The states. SET_ASIDE → REPLAYED or DROPPED, both final.
const (
	AsideStands   AsideState = "SET_ASIDE"
	AsideReplayed AsideState = "REPLAYED"
	AsideDropped  AsideState = "DROPPED"
)

// AsideStatus is what is known of an entry beside itself.
type AsideStatus struct {
	State AsideState
	// Attempts counts how often it was tried, the first time included.
	Attempts int64
	// Last is the last decision about it; its Outcome is "" when there was none.
	Last AsideDecision
}

// Asides tells from the decisions of a run, in their order, where the entries of its quarantine stand.
type Asides struct {
	of map[asideKey]AsideStatus
	// Replayed and Dropped count entries; by partition and outcome, what came in.
	Replayed, Dropped int64
	// Consumed is how many of the replayed ones were accepted, by partition.
	Consumed map[int32]int64
}

type asideKey struct {
	partition int32
	number    int64
}

// Add takes a decision; those about other things change nothing.
func (s *Asides) Add(d Decision) {
	a, ok := d.Aside()
	if !ok {
		return
	}
	if s.of == nil {
		s.of, s.Consumed = map[asideKey]AsideStatus{}, map[int32]int64{}
	}
	k := asideKey{a.Partition, a.Number}
	st := s.Of(a.Partition, a.Number)
	st.Last = a
	switch d.Kind {
	case DecisionDropped:
		st.State = AsideDropped
		s.Dropped++
	case DecisionReplayed:
		st.State = AsideReplayed
		st.Attempts++
		s.Replayed++
		if a.Outcome == OutcomeConsumed {
			s.Consumed[a.Partition]++
		}
	default:
		st.Attempts++
	}
	s.of[k] = st
}

// Of is where an entry stands.
func (s *Asides) Of(partition int32, number int64) AsideStatus {
	if st, ok := s.of[asideKey{partition, number}]; ok {
		return st
	}
	return AsideStatus{State: AsideStands, Attempts: 1}
}
