package actors

import (
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// settling is the settlement of the partitions of an incarnation: the same tracker as under a consumer with a handler, used in bulk. What the
// reader hands out between two barriers is one delivery of a partition, however many batches it comes in; the commit of the epoch settles it.
//
//	reader                       deliver ──▶ ┌──────┐
//	reader, before a barrier     seal    ──▶ │ open │ ─▶ sealed
//	commit, before the journal   covers      └──────┘      │       a cut that passes what was handed out, or goes back, is not written
//	commit, once it stands       settle  ────────────────▶ done    the committed position moves
//	                             moved   ──▶ what the group is told: each position once it has moved, and again only if that failed
//
// A restore makes a new one, under the incarnation as its term: what was delivered before is void with the tickets of the old one. It costs a lock and
// a few words for each batch, and nothing for a record.
type settling struct {
	mu    sync.Mutex
	parts map[int32]*settled
	// failed is why no epoch may be committed any more.
	failed error
}

// settled is the settlement of one partition.
type settled struct {
	tracker *partitions.Settlement
	// open is what was handed out since the last barrier, while isOpen; sealed is before it.
	open   partitions.Ticket
	isOpen bool
	sealed []partitions.Ticket
	// handed is up to where the last barrier has sealed; some: there is something.
	handed record.Position
	some   bool
	// untold: the group does not know the committed position, as far as we know.
	untold bool
}

// bulksUnderWay bounds the deliveries of a partition: the open one, and one for each epoch that is not committed. There is one of these at a time.
const bulksUnderWay = 8

// newSettling begins where the journal stands. What the machines were moved on by before anything is read (an inherited state, an accepted gap) is
// delivered with the first epoch.
func newSettling(in *incarnation) *settling {
	s := &settling{parts: make(map[int32]*settled, len(in.header.Partitions))}
	for _, n := range in.header.Partitions {
		p := &settled{tracker: partitions.NewSettlement(n, in.number, bulksUnderWay)}
		cut, known := in.state.Cuts[n]
		next := cut.Next
		p.untold = known
		if next != (record.Position{}) {
			p.tracker.Rewind(next.Prev(), true)
			p.handed, p.some = next.Prev(), true
		}
		s.parts[n] = p
		if m := in.machines[n]; m != nil && m.Next().Cmp(next) > 0 {
			last := m.Next().Prev()
			s.deliver(n, partitions.Bulk{First: last, Last: last})
		}
	}
	return s
}

// deliver notes what is handed out to a partition.
func (s *settling) deliver(n int32, b partitions.Bulk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.parts[n], error(nil)
	if p.isOpen {
		err = p.tracker.ExtendBulk(p.open, b)
	} else {
		b.At = record.EventTime(time.Now().UnixNano())
		p.open, err = p.tracker.DeliverBulk(b)
		p.isOpen = err == nil
	}
	if err != nil && s.failed == nil {
		s.failed = codes.New(codes.Internal, "partition %d was handed %s to %s: %w", n, b.First, b.Last, err)
	}
}

// deliverPart is deliver for a part of a batch. One that moves nothing is none.
func (s *settling) deliverPart(n int32, p *part) {
	b := partitions.Bulk{First: p.first, Last: p.batch.Next.Prev(), Records: p.records, Bytes: p.bytes}
	if len(p.batch.Records) == 0 {
		b.First = b.Last
		if s.passes(n, b.Last) {
			return
		}
	}
	s.deliver(n, b)
}

// passes says that nothing new lies at a position.
func (s *settling) passes(n int32, at record.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, some := s.parts[n].tracker.Last()
	return some && at.Cmp(last) <= 0
}

// seal is the place of a barrier among what is handed out.
func (s *settling) seal(n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[n]
	if p.isOpen {
		p.sealed, p.isOpen = append(p.sealed, p.open), false
		p.handed, p.some = p.tracker.Last()
	}
}

// covers refuses an epoch whose positions are not what was handed out before its barrier: one that passes it would leave records out, one that goes
// back would have them processed again on a state that has them.
func (s *settling) covers(c control.Commit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.Partitions {
		cut := &c.Partitions[i].Cut
		p := s.parts[cut.Partition]
		want := record.Position{}
		if p.some {
			want = p.handed.Next()
		}
		if cut.Next != want && s.failed == nil {
			s.failed = codes.New(codes.Internal, "the cut of partition %d in epoch %d stands at %s, and what was handed out before it ends at %s; it is not committed", cut.Partition, c.Epoch, cut.Next, want)
		}
	}
	return s.failed
}

// settle takes an epoch that stands.
func (s *settling) settle(c control.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.Partitions {
		cut := &c.Partitions[i].Cut
		p := s.parts[cut.Partition]
		for _, t := range p.sealed {
			p.untold = p.tracker.DoneThrough(t, cut.Next.Prev()) == partitions.SettledMoved || p.untold
		}
		p.sealed = p.sealed[:0]
	}
}

// untold are the committed positions that the group does not know, as where each partition is read next.
func (s *settling) untold() map[int32]record.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[int32]record.Position{}
	for n, p := range s.parts {
		if p.untold {
			next[n] = record.Position{}
			if at, known := p.tracker.Committed(); known {
				next[n] = at.Next()
			}
		}
	}
	return next
}

// told says that the group knows these.
func (s *settling) told(next map[int32]record.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range next {
		s.parts[n].untold = false
	}
}

// flight is what is under way of a partition: handed out, and not committed.
func (s *settling) flight(n int32) partitions.Flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[n].tracker.Flight()
}

// fly fills in what is under way of a queue.
func (s *settling) fly(q *Queue) {
	f := s.flight(q.Partition)
	q.Undone = Undone{Records: f.Records, Bytes: f.Bytes}
	if f.Deliveries > 0 {
		q.Undone.Oldest, q.Undone.Since = f.Oldest, time.Unix(0, int64(f.At)).UTC()
	}
}
