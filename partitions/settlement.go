package partitions

import (
	"errors"

	"github.com/weirstream/weir/record"
)

// Settlement tracks the deliveries of one partition in order of arrival until they are done, which may be in any order. The
// committed position is the last record of the contiguous done run from the oldest: it never passes a record still in flight.
//
//	delivered      1  2  3  4  5  6
//	done           ■  ■  □  ■  ■  □      committed: 2; when 3 ends: 5
//
// What becomes of one delivery:
//
//	            done, an earlier one runs              the earlier ones end
//	         ┌───────────────────────────▶ ┌──────┐ ───────────────────────┐
//	  ┌─────────┐                          │ DONE │                        ▼
//	─▶│ RUNNING │                          └──────┘                    ┌────────┐
//	  └─────────┘ ─────────────────────────────────────────────────────▶ │ PASSED │
//	              done, no earlier one runs: committed moves             └────────┘
//
//	every state ── rewind, or another term ──▶ VOID
//
// What a completion does, by the state of its delivery:
//
//	RUNNING  SettledMoved or SettledHeld
//	DONE     SettledTwice
//	PASSED   SettledTwice
//	VOID     SettledStale
//	UNKNOWN  SettledForeign
//
// Only RUNNING is changed by a completion, so an acknowledgement that comes late, twice, from before a rewind or from somewhere else
// never moves the committed position.
//
// A delivery is one record, or a run of them that ends as one (Bulk). Both may be mixed.
//
// Memory is bounded: at most capacity deliveries stand between the oldest unfinished one and the newest, 24 bytes and a bit each, and about 130
// more for a bulk. At that bound Deliver refuses and the reader has to wait. Not safe for concurrent use.
type Settlement struct {
	partition int32
	rewinds   uint32
	term      uint64
	capacity  int

	// ring holds the positions of the deliveries first to next-1 of this generation, each at its number modulo the length, a power of two from
	// 64 on. done has a bit for each, apart from them: completions come in any order, and the bits of 100,000 deliveries fit the nearest cache.
	ring        []record.Position
	done        []uint64
	first, next uint64
	// bulks are those deliveries of this generation that are runs of records, oldest first; passed of them the committed position has passed. records
	// and bytes are those of the others.
	bulks          []bulk
	passed         int
	records, bytes int64

	committed record.Position
	known     bool
	// last is the newest position delivered, or the committed one; it counts while known or next > 0.
	last record.Position
}

// Ticket names one delivery. It is bound to its partition, term and rewind; the zero value names none.
type Ticket struct {
	term, number uint64
	rewind       uint32
	partition    int32
}

// Settled says what a completion did.
type Settled uint8

// The outcomes of a completion.
const (
	// SettledMoved: the committed position moved.
	SettledMoved Settled = iota
	// SettledHeld: the delivery is done, an earlier one is still in flight.
	SettledHeld
	// SettledTwice: it was done before.
	SettledTwice
	// SettledStale: it was delivered before a rewind, or in another term.
	SettledStale
	// SettledForeign: this partition never delivered it.
	SettledForeign
)

var settledNames = [...]string{"MOVED", "HELD", "TWICE", "STALE", "FOREIGN"}

func (s Settled) String() string {
	if int(s) < len(settledNames) {
		return settledNames[s]
	}
	return "UNKNOWN"
}

type deliveryState uint8

const (
	deliveryRunning deliveryState = iota
	deliveryDone
	deliveryPassed
	deliveryVoid
	deliveryUnknown
)

// settledBy is the table above; what RUNNING becomes depends on the earlier deliveries.
var settledBy = [...]Settled{
	deliveryRunning: SettledHeld, deliveryDone: SettledTwice, deliveryPassed: SettledTwice,
	deliveryVoid: SettledStale, deliveryUnknown: SettledForeign,
}

// Errors of Deliver.
var (
	// ErrSettlementFull: capacity deliveries wait for the oldest one. Read on when it has ended.
	ErrSettlementFull = errors.New("partitions: as many deliveries as allowed wait for the oldest unfinished one")
	// ErrSettlementOrder: the position does not lie behind the last one delivered.
	ErrSettlementOrder = errors.New("partitions: a delivery does not follow the one before it in the log")
)

// NewSettlement makes the tracker of a partition. The term tells this life of the tracker from earlier ones (the incarnation, or the
// fence token): tickets of another term are void. It must not be 0. A capacity below 1 counts as 1.
func NewSettlement(partition int32, term uint64, capacity int) *Settlement {
	return &Settlement{partition: partition, term: term, capacity: max(capacity, 1)}
}

// Deliver adds a record in order of arrival.
func (s *Settlement) Deliver(p record.Position) (Ticket, error) {
	if (s.known || s.next > 0) && p.Cmp(s.last) <= 0 {
		return Ticket{}, ErrSettlementOrder
	}
	n := s.InFlight()
	if n == s.capacity {
		return Ticket{}, ErrSettlementFull
	}
	if n == len(s.ring) {
		s.grow()
	}
	*s.at(s.next) = p
	*s.word(s.next) &^= 1 << (s.next & 63)
	t := Ticket{term: s.term, number: s.next, rewind: s.rewinds, partition: s.partition}
	s.next++
	s.last = p
	return t, nil
}

// Done takes a completion. Committed has moved when it returns SettledMoved, and only then.
func (s *Settlement) Done(t Ticket) Settled {
	state := s.state(t)
	if state != deliveryRunning {
		return settledBy[state]
	}
	*s.word(t.number) |= 1 << (t.number & 63)
	if t.number != s.first {
		return settledBy[deliveryRunning]
	}
	for s.first < s.next && s.isDone(s.first) {
		s.first++
	}
	s.committed, s.known = *s.at(s.first - 1), true
	if len(s.bulks) > 0 {
		s.pass()
	}
	return SettledMoved
}

func (s *Settlement) state(t Ticket) deliveryState {
	switch {
	case t.term == 0 || t.partition != s.partition:
		return deliveryUnknown
	case t.term != s.term || t.rewind != s.rewinds:
		return deliveryVoid
	case t.number >= s.next:
		return deliveryUnknown
	case t.number < s.first:
		return deliveryPassed
	case s.isDone(t.number):
		return deliveryDone
	}
	return deliveryRunning
}

// Committed is the last record of the contiguous done run. It is false when there is none: nothing was done yet, and none was named
// by Rewind.
func (s *Settlement) Committed() (record.Position, bool) { return s.committed, s.known }

// Rewind says that reading starts again behind the committed record (known false: at the start). Every delivery so far is void: its
// completion changes nothing, so that a late one does not take the committed position back to where the rewind came from.
func (s *Settlement) Rewind(committed record.Position, known bool) {
	s.rewinds++
	s.first, s.next = 0, 0
	s.bulks, s.passed, s.records, s.bytes = s.bulks[:0], 0, 0, 0
	s.committed, s.last, s.known = committed, committed, known
	if !known {
		s.committed, s.last = record.Position{}, record.Position{}
	}
}

// Oldest is the unfinished record that holds the committed position; false when nothing is in flight.
func (s *Settlement) Oldest() (record.Position, bool) {
	if s.Drained() {
		return record.Position{}, false
	}
	return s.Flight().Oldest, true
}

// Last is the newest position delivered, or the committed one that Rewind named; false when there is none.
func (s *Settlement) Last() (record.Position, bool) { return s.last, s.known || s.next > 0 }

// InFlight is the number of deliveries from the oldest unfinished one to the newest, those done in between included: what the capacity
// bounds.
func (s *Settlement) InFlight() int { return int(s.next - s.first) }

// Passed is the number of deliveries that the committed position has passed since the last Rewind.
func (s *Settlement) Passed() uint64 { return s.first }

// Full says that Deliver would refuse.
func (s *Settlement) Full() bool { return s.InFlight() == s.capacity }

// Drained says that every delivery is done: only then may a closed partition be called finished.
func (s *Settlement) Drained() bool { return s.first == s.next }

func (s *Settlement) at(number uint64) *record.Position {
	return &s.ring[number&uint64(len(s.ring)-1)]
}

// word holds the bit of a delivery.
func (s *Settlement) word(number uint64) *uint64 {
	return &s.done[number>>6&uint64(len(s.done)-1)]
}

func (s *Settlement) isDone(number uint64) bool { return *s.word(number)>>(number&63)&1 != 0 }

// grow doubles the ring; it is never longer than the power of two that holds the capacity, and at least 64.
func (s *Settlement) grow() {
	old := *s
	s.ring = make([]record.Position, max(2*len(old.ring), 64))
	s.done = make([]uint64, len(s.ring)/64)
	for n := s.first; n < s.next; n++ {
		*s.at(n) = *old.at(n)
		if old.isDone(n) {
			*s.word(n) |= 1 << (n & 63)
		}
	}
}
