package partitions

import (
	"slices"

	"github.com/weirstream/weir/record"
)

// Bulk is a run of records of one partition that is delivered as one, and ends as one or up to some position within it: what a machine of a flow
// is handed between two cuts. It costs the tracker as much as a single record, and takes one place of its capacity.
type Bulk struct {
	// First is the first record. Last is the last position that ends with it, which need not hold a record (compaction, transaction markers).
	First, Last record.Position
	// Records and Bytes are what it carries. They count as in flight until all of it is done.
	Records, Bytes int64
	// At is when it was delivered, by the word of whoever delivers.
	At record.EventTime
}

// Flight is what was delivered and is not behind the committed position.
type Flight struct {
	// Deliveries from the oldest unfinished one to the newest, a bulk counted as one; Records and Bytes that they carry. Single deliveries have no
	// bytes here.
	Deliveries     int
	Records, Bytes int64
	// Oldest holds the committed position, while Deliveries is not 0: the first record that is not known to be done. At is when it was delivered if it
	// belongs to a bulk, and record.NoTime otherwise.
	Oldest record.Position
	At     record.EventTime
}

// bulk is one that the committed position has not passed.
type bulk struct {
	Bulk
	number uint64
	// through is up to where it is done, while begun.
	through record.Position
	begun   bool
}

// DeliverBulk adds a run of records in order of arrival.
func (s *Settlement) DeliverBulk(b Bulk) (Ticket, error) {
	if b.Last.Cmp(b.First) < 0 || (s.known || s.next > 0) && b.First.Cmp(s.last) <= 0 {
		return Ticket{}, ErrSettlementOrder
	}
	t, err := s.Deliver(b.Last)
	if err != nil {
		return t, err
	}
	if s.passed > 0 && s.passed >= len(s.bulks)/2 {
		s.bulks = slices.Delete(s.bulks, 0, s.passed)
		s.passed = 0
	}
	s.bulks = append(s.bulks, bulk{Bulk: b, number: t.number})
	s.records += b.Records
	s.bytes += b.Bytes
	return t, nil
}

// ExtendBulk adds to the newest delivery, which has to be a bulk of which nothing is done, so that what is delivered in pieces between two cuts is one
// delivery, however many pieces there are. First has to lie behind it; At is not needed.
func (s *Settlement) ExtendBulk(t Ticket, more Bulk) error {
	b := s.bulk(t)
	if b == nil || b.begun || t.number+1 != s.next || more.First.Cmp(s.last) <= 0 || more.Last.Cmp(more.First) < 0 {
		return ErrSettlementOrder
	}
	b.Last, s.last, *s.at(t.number) = more.Last, more.Last, more.Last
	b.Records += more.Records
	b.Bytes += more.Bytes
	s.records += more.Records
	s.bytes += more.Bytes
	return nil
}

// DoneThrough takes the completion of a bulk up to a position, all of it if that is its last one or behind. Of what lies before it nothing is said:
// the committed position waits for earlier deliveries as ever. A position at which it was done before is SettledTwice, one before its first
// record changes nothing (SettledHeld).
func (s *Settlement) DoneThrough(t Ticket, p record.Position) Settled {
	b := s.bulk(t)
	switch {
	case b == nil, p.Cmp(b.Last) >= 0:
		if b == nil && s.state(t) == deliveryRunning && p.Cmp(*s.at(t.number)) < 0 {
			return SettledHeld // a single record behind p
		}
		return s.Done(t)
	case p.Cmp(b.First) < 0:
		return SettledHeld
	case b.begun && p.Cmp(b.through) <= 0:
		return SettledTwice
	}
	b.through, b.begun = p, true
	if t.number != s.first {
		return SettledHeld
	}
	s.committed, s.known = p, true
	return SettledMoved
}

// Flight tells what is in flight.
func (s *Settlement) Flight() Flight {
	f := Flight{Deliveries: s.InFlight(), Records: s.records + int64(s.InFlight()-(len(s.bulks)-s.passed)), Bytes: s.bytes, At: record.NoTime}
	if f.Deliveries == 0 {
		return f
	}
	f.Oldest = *s.at(s.first)
	if b := s.front(); b != nil {
		f.Oldest, f.At = b.First, b.At
		if b.begun {
			f.Oldest = b.through.Next()
		}
	}
	return f
}

// bulk is that of a ticket that is running, or nil.
func (s *Settlement) bulk(t Ticket) *bulk {
	if s.state(t) != deliveryRunning {
		return nil
	}
	live := s.bulks[s.passed:]
	i, found := slices.BinarySearchFunc(live, t.number, func(b bulk, number uint64) int {
		switch {
		case b.number < number:
			return -1
		case b.number > number:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &live[i]
}

// front is the bulk at which the committed position stands, or nil.
func (s *Settlement) front() *bulk {
	if s.passed == len(s.bulks) || s.bulks[s.passed].number != s.first {
		return nil
	}
	return &s.bulks[s.passed]
}

// pass forgets the bulks that the committed position has passed, and moves it on into one that is done in part. There is one at least.
func (s *Settlement) pass() {
	for s.passed < len(s.bulks) && s.bulks[s.passed].number < s.first {
		b := &s.bulks[s.passed]
		s.records -= b.Records
		s.bytes -= b.Bytes
		s.passed++
	}
	if b := s.front(); b != nil && b.begun {
		s.committed = b.through
	}
	if s.passed == len(s.bulks) {
		s.bulks, s.passed = s.bulks[:0], 0
	}
}
