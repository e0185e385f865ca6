package partitions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/record"
)

// TestSettlementScript runs testdata/settlement.txt: deliver POSITION..., done POSITION, keep (the tickets so far), old POSITION
// (a completion of a kept ticket), rewind POSITION|start, zero (a completion of the zero ticket).
func TestSettlementScript(t *testing.T) {
	t.Parallel()
	s := &settlementScript{tickets: map[string]Ticket{}, kept: map[string]Ticket{}}
	datadriven.RunTest(t, "testdata/settlement.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "new" {
			var partition, term, capacity int
			d.ScanArgs(t, "partition", &partition)
			d.ScanArgs(t, "term", &term)
			d.ScanArgs(t, "capacity", &capacity)
			s.s = NewSettlement(int32(partition), uint64(term), capacity)
			s.tickets = map[string]Ticket{}
			return s.state()
		}
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			f := strings.Fields(line)
			fmt.Fprintf(&b, "%-22s %s\n", strings.TrimSpace(line), s.line(t, f))
		}
		return b.String()
	})
}

type settlementScript struct {
	s             *Settlement
	tickets, kept map[string]Ticket
}

func (s *settlementScript) line(t *testing.T, f []string) string {
	switch f[0] {
	case "deliver":
		for _, text := range f[1:] {
			ticket, err := s.s.Deliver(settlementPosition(t, text))
			if err != nil {
				return text + ": " + err.Error()
			}
			s.tickets[text] = ticket
		}
		return s.state()
	case "done":
		return s.s.Done(s.tickets[f[1]]).String() + "; " + s.state()
	case "old":
		return s.s.Done(s.kept[f[1]]).String() + "; " + s.state()
	case "zero":
		return s.s.Done(Ticket{}).String() + "; " + s.state()
	case "keep":
		s.kept, s.tickets = s.tickets, map[string]Ticket{}
		return s.state()
	case "rewind":
		if f[1] == "start" {
			s.s.Rewind(record.Offset(99), false)
		} else {
			s.s.Rewind(settlementPosition(t, f[1]), true)
		}
		return s.state()
	}
	t.Fatalf("unknown line %q", f)
	return ""
}

func (s *settlementScript) state() string {
	out := "committed none"
	if p, known := s.s.Committed(); known {
		out = "committed " + p.String()
	}
	if p, known := s.s.Oldest(); known {
		out += ", held by " + p.String()
	}
	return fmt.Sprintf("%s, %d in flight, full %v, drained %v", out, s.s.InFlight(), s.s.Full(), s.s.Drained())
}

func settlementPosition(t *testing.T, text string) record.Position {
	p, err := record.ParsePosition(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSettlementEqualsNaive delivers, completes and rewinds at random and compares with a list that is searched from its start. The
// committed position never moves backwards within a rewind and never passes a record in flight.
func TestSettlementEqualsNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0x77656972))
			n := &naiveSettlement{s: NewSettlement(3, 1, 1+r.IntN(100)), committed: -1}
			for range 3000 {
				n.step(t, r)
			}
		})
	}
}

type naiveSettlement struct {
	s         *Settlement
	list      []naiveDelivery
	stale     []Ticket
	committed int64
	position  int64
}

type naiveDelivery struct {
	ticket   Ticket
	position int64
	done     bool
}

func (n *naiveSettlement) step(t *testing.T, r *rand.Rand) {
	switch k := r.IntN(200); {
	case k == 0:
		for _, d := range n.list {
			n.stale = append(n.stale, d.ticket)
		}
		n.list, n.committed = nil, int64(r.IntN(int(n.position)+1))
		n.position = n.committed
		n.s.Rewind(record.Offset(n.committed), true)
	case k < 20 && len(n.stale) > 0:
		if got := n.s.Done(n.stale[r.IntN(len(n.stale))]); got != SettledStale {
			t.Fatalf("a completion from before a rewind: %s", got)
		}
	case k < 100:
		n.deliver(t, r)
	case len(n.list) > 0:
		n.done(t, r.IntN(len(n.list)))
	}
	n.check(t)
}

func (n *naiveSettlement) deliver(t *testing.T, r *rand.Rand) {
	next := n.position + 1 + int64(r.IntN(3))
	ticket, err := n.s.Deliver(record.Offset(next))
	if len(n.flying()) == n.s.capacity {
		if !errors.Is(err, ErrSettlementFull) {
			t.Fatalf("delivered beyond the capacity: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	n.position = next
	n.list = append(n.list, naiveDelivery{ticket: ticket, position: next})
}

func (n *naiveSettlement) done(t *testing.T, i int) {
	before := n.committed
	twice := n.list[i].done
	n.list[i].done = true
	for _, d := range n.list {
		if !d.done {
			break
		}
		n.committed = d.position
	}
	want := SettledHeld
	switch {
	case twice:
		want = SettledTwice
	case n.committed != before:
		want = SettledMoved
	}
	if got := n.s.Done(n.list[i].ticket); got != want {
		t.Fatalf("completion of %d: %s, want %s", n.list[i].position, got, want)
	}
	if n.committed < before {
		t.Fatalf("committed moved backwards from %d to %d", before, n.committed)
	}
}

// flying is the list from the oldest unfinished delivery on.
func (n *naiveSettlement) flying() []naiveDelivery {
	for i, d := range n.list {
		if !d.done {
			return n.list[i:]
		}
	}
	return nil
}

func (n *naiveSettlement) check(t *testing.T) {
	t.Helper()
	got, known := n.s.Committed()
	if known != (n.committed >= 0) || (known && got != record.Offset(n.committed)) {
		t.Fatalf("committed %s, %v, want %d", got, known, n.committed)
	}
	flying := n.flying()
	oldest, held := n.s.Oldest()
	if n.s.InFlight() != len(flying) || held != (len(flying) > 0) || n.s.Drained() == held {
		t.Fatalf("%d in flight, held %v, want %d", n.s.InFlight(), held, len(flying))
	}
	if held && (oldest != record.Offset(flying[0].position) || (known && got.Cmp(oldest) >= 0)) {
		t.Fatalf("committed %s, oldest in flight %s, want %d", got, oldest, flying[0].position)
	}
}

// TestSettlementAllocates nothing once its ring has grown, however much goes through.
func TestSettlementAllocates(t *testing.T) {
	s := NewSettlement(0, 1, 1000)
	position := int64(0)
	var tickets [700]Ticket
	round := func() {
		for i := range tickets {
			ticket, err := s.Deliver(record.Offset(position))
			if err != nil {
				t.Fatal(err)
			}
			tickets[i] = ticket
			position++
		}
		for i := range tickets {
			// 431 has no factor in common with 700: every ticket is met once, in a scattered order.
			s.Done(tickets[i*431%len(tickets)])
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations in %d deliveries", n, len(tickets))
	}
	if !s.Drained() || len(s.ring) > 1024 {
		t.Errorf("drained %v, ring of %d", s.Drained(), len(s.ring))
	}
}

func TestSettledNames(t *testing.T) {
	t.Parallel()
	for s, want := range map[Settled]string{SettledMoved: "MOVED", SettledHeld: "HELD", SettledTwice: "TWICE", SettledStale: "STALE", SettledForeign: "FOREIGN", 9: "UNKNOWN"} {
		if s.String() != want {
			t.Errorf("Settled(%d) is %q, want %q", s, s, want)
		}
	}
}

// BenchmarkSettlement is one delivery and its completion, in order with 512 in flight.
func BenchmarkSettlement(b *testing.B) {
	s := NewSettlement(0, 1, 1024)
	var flying [512]Ticket
	for n := int64(0); b.Loop(); n++ {
		if n >= 512 {
			s.Done(flying[n%512])
		}
		t, err := s.Deliver(record.Offset(n))
		if err != nil {
			b.Fatal(err)
		}
		flying[n%512] = t
	}
}
