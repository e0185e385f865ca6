package partitions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirstream/weir/record"
)

// TestSettlementBulkEqualsNaive delivers single records and runs of them, extends, completes in whole and in part, and rewinds at random, and
// compares with a list of positions that is searched from its start: the committed position never passes one that is not done, never goes back
// within a rewind, and is told as moved exactly when it moves.
func TestSettlementBulkEqualsNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0x62756c6b))
			m := &bulkModel{s: NewSettlement(3, 1, 1+r.IntN(40)), r: r, committed: -1, last: -1}
			for range 3000 {
				m.step(t)
			}
			if m.moves == 0 {
				t.Error("the committed position never moved")
			}
		})
	}
}

type bulkModel struct {
	s *Settlement
	r *rand.Rand
	// flying are the deliveries since the rewind, those that are done included.
	flying []*modelled
	stale  []Ticket
	// committed and last are -1 for none.
	committed, last int64
	moves           int
}

// modelled is a delivery: every position from first to last, of which those up to through are done.
type modelled struct {
	ticket               Ticket
	first, last, through int64
	records, bytes       int64
	at                   record.EventTime
	single               bool
}

func (d *modelled) done() bool { return d.through >= d.last }

func (m *bulkModel) step(t *testing.T) {
	switch k := m.r.IntN(200); {
	case k == 0:
		m.rewind()
	case k < 15 && len(m.stale) > 0:
		old := m.stale[m.r.IntN(len(m.stale))]
		if got := m.s.DoneThrough(old, record.Offset(m.last+5)); got != SettledStale {
			t.Fatalf("a completion from before a rewind: %s", got)
		}
		if err := m.s.ExtendBulk(old, m.bulk()); !errors.Is(err, ErrSettlementOrder) {
			t.Fatalf("a delivery from before a rewind was extended: %v", err)
		}
	case k < 60:
		m.deliver(t)
	case k < 90:
		m.extend(t)
	case len(m.flying) > 0:
		m.complete(t)
	}
	m.check(t)
}

func (m *bulkModel) rewind() {
	for _, d := range m.flying {
		m.stale = append(m.stale, d.ticket)
	}
	to := int64(m.r.IntN(int(m.last)+2)) - 1
	m.flying, m.committed, m.last = nil, to, to
	m.s.Rewind(record.Offset(max(to, 0)), to >= 0)
}

// bulk draws the next run.
func (m *bulkModel) bulk() Bulk {
	first := m.last + 1 + int64(m.r.IntN(3))
	last := first + int64(m.r.IntN(5))
	return Bulk{First: record.Offset(first), Last: record.Offset(last), Records: 1 + int64(m.r.IntN(5)), Bytes: int64(m.r.IntN(99)), At: record.EventTime(first)}
}

func (m *bulkModel) deliver(t *testing.T) {
	b, single := m.bulk(), m.r.IntN(3) == 0
	var ticket Ticket
	var err error
	if single {
		b.Last, b.Records, b.Bytes, b.At = b.First, 1, 0, record.NoTime
		ticket, err = m.s.Deliver(b.First)
	} else {
		ticket, err = m.s.DeliverBulk(b)
	}
	if m.s.Full() && err != nil {
		if !errors.Is(err, ErrSettlementFull) {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	first, _ := b.First.Int64()
	m.last, _ = b.Last.Int64()
	m.flying = append(m.flying, &modelled{ticket: ticket, first: first, last: m.last, through: first - 1, records: b.Records, bytes: b.Bytes, at: b.At, single: single})
}

func (m *bulkModel) extend(t *testing.T) {
	if len(m.flying) == 0 {
		return
	}
	i := len(m.flying) - 1 - m.r.IntN(min(len(m.flying), 2))
	d, more := m.flying[i], m.bulk()
	err := m.s.ExtendBulk(d.ticket, more)
	if may := i == len(m.flying)-1 && !d.single && d.through < d.first; may != (err == nil) {
		t.Fatalf("extending a delivery of %d to %d, done up to %d, newest %v: %v", d.first, d.last, d.through, i == len(m.flying)-1, err)
	}
	if err == nil {
		m.last, _ = more.Last.Int64()
		d.last = m.last
		d.records += more.Records
		d.bytes += more.Bytes
	}
}

func (m *bulkModel) complete(t *testing.T) {
	d := m.flying[m.r.IntN(len(m.flying))]
	through := d.last
	if m.r.IntN(2) == 0 {
		through = max(d.first-1+int64(m.r.IntN(int(d.last-d.first)+3)), 0)
	}
	before, want := m.committed, SettledHeld
	switch {
	case d.done():
		want = SettledTwice
	case through < d.first:
	case through <= d.through:
		want = SettledTwice
	default:
		d.through = min(through, d.last)
	}
	m.committed = m.contiguous()
	if m.committed != before {
		want = SettledMoved
		m.moves++
	}
	if m.committed < before {
		t.Fatalf("committed goes back from %d to %d", before, m.committed)
	}
	got := SettledForeign
	if through == d.last && m.r.IntN(2) == 0 {
		got = m.s.Done(d.ticket)
	} else {
		got = m.s.DoneThrough(d.ticket, record.Offset(through))
	}
	if got != want {
		t.Fatalf("completion of %d to %d through %d: %s, want %s", d.first, d.last, through, got, want)
	}
}

// contiguous is the last position of the contiguous done run.
func (m *bulkModel) contiguous() int64 {
	at := m.committed
	for _, d := range m.flying {
		if d.through >= d.first {
			at = max(at, d.through)
		}
		if !d.done() {
			break
		}
	}
	return at
}

func (m *bulkModel) check(t *testing.T) {
	t.Helper()
	got, known := m.s.Committed()
	if known != (m.committed >= 0) || known && got != record.Offset(m.committed) {
		t.Fatalf("committed %s, %v, want %d", got, known, m.committed)
	}
	want := Flight{At: record.NoTime}
	for i, d := range m.flying {
		if want.Deliveries == 0 {
			if d.done() {
				continue
			}
			want.Oldest, want.At = record.Offset(max(d.through+1, d.first)), d.at
		}
		want.Deliveries = len(m.flying) - i
		break
	}
	for _, d := range m.flying[len(m.flying)-want.Deliveries:] {
		want.Records += d.records
		want.Bytes += d.bytes
	}
	if f := m.s.Flight(); f != want {
		t.Fatalf("in flight %+v, want %+v", f, want)
	}
	oldest, held := m.s.Oldest()
	if held != (want.Deliveries > 0) || held && (oldest != want.Oldest || known && got.Cmp(oldest) >= 0) {
		t.Fatalf("oldest %s, %v, committed %s, want %s", oldest, held, got, want.Oldest)
	}
}

// TestSettlementBulkAllocates nothing once it has grown, in deliveries, extensions and completions.
func TestSettlementBulkAllocates(t *testing.T) {
	s := NewSettlement(0, 1, 1000)
	at := int64(0)
	next := func() Bulk {
		at += 1024
		return Bulk{First: record.Offset(at - 1024), Last: record.Offset(at - 1), Records: 1024, Bytes: 1 << 17}
	}
	var tickets [300]Ticket
	round := func() {
		for i := range tickets {
			var err error
			if tickets[i], err = s.DeliverBulk(next()); err == nil {
				err = s.ExtendBulk(tickets[i], next())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range tickets {
			s.Done(tickets[i*7%len(tickets)])
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations in %d deliveries", n, len(tickets))
	}
	if f := s.Flight(); f != (Flight{At: record.NoTime}) || !s.Drained() {
		t.Errorf("in flight %+v", f)
	}
}

// BenchmarkSettlementBulk is what a batch of a flow costs the tracker: it extends the delivery between two cuts, which is settled every 64th time.
func BenchmarkSettlementBulk(b *testing.B) {
	s := NewSettlement(0, 1, 4)
	at := int64(0)
	next := func() Bulk {
		at += 1024
		return Bulk{First: record.Offset(at - 1024), Last: record.Offset(at - 1), Records: 1024, Bytes: 1 << 17}
	}
	var open Ticket
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		var err error
		if n%64 == 0 {
			if n > 0 && s.DoneThrough(open, record.Offset(at-1)) != SettledMoved {
				b.Fatal("not moved")
			}
			open, err = s.DeliverBulk(next())
		} else {
			err = s.ExtendBulk(open, next())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
