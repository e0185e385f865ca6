package partitions

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/record"
)

// TestSettlerScript runs testdata/settle.txt. "new" takes max=N, dead, target, capacity=N. The lines of "run": deliver POSITION[xPARTS]...,
// settle POSITION[.SUB] OUTCOME [DELAY] [attempt=N], due, published, large and giveup POSITION[.SUB], rewind POSITION; a line that begins with "old" means a
// delivery from before the last rewind. A position that the store would be written with is shown as "write".
func TestSettlerScript(t *testing.T) {
	t.Parallel()
	s := &settleScript{}
	datadriven.RunTest(t, "testdata/settle.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "new" {
			s.make(t, d)
			return fmt.Sprintf("%+v", s.s.terms)
		}
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			fmt.Fprintf(&b, "%-30s %s\n", strings.TrimSpace(line), s.line(t, strings.Fields(line)))
		}
		return b.String()
	})
}

type settleScript struct {
	s            *Settler
	tickets, old map[string]Ticket
}

func (s *settleScript) make(t *testing.T, d *datadriven.TestData) {
	terms, capacity := Terms{DeadLetter: d.HasArg("dead"), RetryTarget: d.HasArg("target")}, 100
	if d.HasArg("max") {
		d.ScanArgs(t, "max", &terms.MaxAttempts)
	}
	if d.HasArg("capacity") {
		d.ScanArgs(t, "capacity", &capacity)
	}
	s.s, s.tickets = NewSettler(1, 7, capacity, terms), map[string]Ticket{}
}

func (s *settleScript) line(t *testing.T, f []string) string {
	tickets := s.tickets
	if f[0] == "old" {
		tickets, f = s.old, f[1:]
	}
	switch f[0] {
	case "deliver":
		for _, text := range f[1:] {
			at, n, _ := strings.Cut(text, "x")
			count, _ := strconv.Atoi(n)
			ticket, err := s.s.DeliverParts(settlementPosition(t, at), count)
			if err != nil {
				return at + ": " + err.Error()
			}
			s.tickets[at] = ticket
		}
		return s.state()
	case "rewind":
		s.s.Rewind(settlementPosition(t, f[1]), true)
		s.old, s.tickets = s.tickets, map[string]Ticket{}
		return s.state()
	}
	at, sub, _ := strings.Cut(f[1], ".")
	n, _ := strconv.Atoi(sub)
	token := Token{Ticket: tickets[at], Sub: uint32(n)}
	switch f[0] {
	case "settle":
		o, attempt := scriptedOutcome(t, f[2:])
		return s.step(s.s.Settle(token, o, attempt))
	case "large":
		return s.step(s.s.TooLarge(token))
	case "giveup":
		return s.step(s.s.GiveUp(token, Retry("poison")))
	case "published":
		return s.settled(s.s.Published(token)) + "; " + s.state()
	case "due":
		return fmt.Sprintf("%v", s.s.Due(token))
	}
	t.Fatalf("unknown line %q", f)
	return ""
}

func scriptedOutcome(t *testing.T, f []string) (Outcome, int) {
	attempt := 1
	if text, is := strings.CutPrefix(f[len(f)-1], "attempt="); is {
		attempt, _ = strconv.Atoi(text)
		f = f[:len(f)-1]
	}
	switch f[0] {
	case "ack":
		return Ack(), attempt
	case "drop":
		return Drop("broken"), attempt
	case "retry":
		return Retry("busy"), attempt
	case "after":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		return RetryAfter(d, "busy"), attempt
	}
	return Outcome{}, attempt
}

func (s *settleScript) settled(v Settled) string {
	if v != SettledMoved {
		return v.String()
	}
	p, _ := s.s.Committed()
	return "write " + p.String()
}

func (s *settleScript) step(v Step) string {
	out := v.Action.String()
	switch {
	case v.Err != nil && errors.Is(v.Err, ErrUnsupported):
		return out + " " + v.Settled.String() + ": " + v.Err.Error() + "; " + s.state()
	case v.Action == ActCopy:
		out += fmt.Sprintf(" attempt %d", v.Attempt)
	}
	if v.Delay > 0 {
		out += " after " + v.Delay.String()
	}
	if v.Exhausted {
		out += " exhausted"
	}
	if v.Omitted {
		out += " omitted"
	}
	return out + " " + s.settled(v.Settled) + "; " + s.state()
}

func (s *settleScript) state() string {
	out := "at none"
	if p, known := s.s.Committed(); known {
		out = "at " + p.String()
	}
	if p, known := s.s.Oldest(); known {
		out += ", held by " + p.String()
	}
	return out
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	header := func(values ...string) (out []record.Header) {
		for _, v := range values {
			out = append(out, record.Header{Key: HeaderRetryCount, Value: []byte(v)})
		}
		return append(out, record.Header{Key: "other", Value: []byte("9")})
	}
	for want, values := range map[int][][]string{
		1:             {{}, {""}, {"0"}, {"x"}, {"-1"}, {"1.0"}, {"99999999999999999999"}, {"2147483647"}},
		2:             {{"1"}, {"1", "0"}, {"0", "1"}, {"1", "x"}},
		2_147_483_647: {{"2147483646"}},
	} {
		for _, v := range values {
			if got := Attempt(header(v...)); got != want {
				t.Errorf("%q: attempt %d, want %d", v, got, want)
			}
		}
	}
	copied := WithAttempt(header("1", "x"), 3)
	if len(copied) != 2 || copied[0].Key != "other" || Attempt(copied) != 3 || string(copied[1].Value) != "2" {
		t.Errorf("headers of a copy: %q", copied)
	}
}

// TestSettlerProperty settles single records, parts of them and runs of records, publishes and rewinds in any order and holds a settler to what it promises: the committed position never passes an
// undone delivery, never goes back within a rewind, and the store is written exactly when it moves.
func TestSettlerProperty(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0x736574))
			terms := Terms{MaxAttempts: r.IntN(4), DeadLetter: r.IntN(2) == 0, RetryTarget: r.IntN(3) > 0}
			p := &settlerModel{s: NewSettler(1, 1, 1+r.IntN(60), terms), r: r, undone: map[int64]map[uint32]string{}, tickets: map[int64]Ticket{}, written: -1}
			for range 4000 {
				p.step(t)
			}
			if p.writes == 0 {
				t.Error("nothing was ever written")
			}
		})
	}
}

type settlerModel struct {
	s *Settler
	r *rand.Rand
	// undone are the states of the parts not done, by position; tickets of all in the generation; void those from before rewinds.
	undone  map[int64]map[uint32]string
	tickets map[int64]Ticket
	void    []Token
	// position is the last delivered one, written what the store has, -1 for nothing.
	position, written int64
	writes            int
}

func (m *settlerModel) step(t *testing.T) {
	switch k := m.r.IntN(100); {
	case k == 0:
		m.rewind()
	case k < 5 && len(m.void) > 0:
		m.late(t)
	case k < 40:
		m.deliver(t)
	case len(m.undone) > 0:
		m.complete(t)
	}
	want := m.position
	if len(m.undone) > 0 {
		want = slices.Min(slices.Collect(maps.Keys(m.undone))) - 1
	}
	// Positions are dense here, so the contiguous done run ends just before the oldest undone delivery.
	if m.written > want {
		t.Fatalf("the store has %d, the oldest undone delivery is %d", m.written, want+1)
	}
	if p, known := m.s.Committed(); known != (m.written >= 0) || known && p != record.Offset(m.written) {
		t.Fatalf("committed %s (%v), the store has %d", p, known, m.written)
	}
	if m.written >= 0 && m.written != want {
		t.Fatalf("the store has %d, everything up to %d is done", m.written, want)
	}
}

func (m *settlerModel) rewind() {
	for at, subs := range m.undone {
		for sub := range subs {
			m.void = append(m.void, Token{m.tickets[at], sub})
		}
	}
	// The journal never goes back: what is read again lies behind what it has.
	m.position = max(m.written, 0) + int64(m.r.IntN(int(m.position-max(m.written, 0))+1))
	m.written = m.position
	m.undone, m.tickets = map[int64]map[uint32]string{}, map[int64]Ticket{}
	m.s.Rewind(record.Offset(m.position), true)
}

func (m *settlerModel) late(t *testing.T) {
	token := m.void[m.r.IntN(len(m.void))]
	step := m.s.Settle(token, Ack(), 1)
	if step.Settled != SettledStale || step.Action != ActNothing || m.s.Due(token) || m.s.Published(token) != SettledStale || m.s.TooLarge(token).Settled != SettledStale {
		t.Fatalf("a completion from before a rewind: %+v", step)
	}
}

func (m *settlerModel) deliver(t *testing.T) {
	if m.r.IntN(6) == 0 {
		m.deliverBulk(t)
		return
	}
	n := max(1, m.r.IntN(6)-2)
	ticket, err := m.s.DeliverParts(record.Offset(m.position+1), n)
	if errors.Is(err, ErrSettlementFull) && m.s.Full() {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.position++
	m.tickets[m.position], m.undone[m.position] = ticket, map[uint32]string{}
	for sub := range uint32(n) {
		m.undone[m.position][sub] = "running"
	}
}

// deliverBulk delivers several records as one, which end up to some position.
func (m *settlerModel) deliverBulk(t *testing.T) {
	n := 1 + int64(m.r.IntN(4))
	ticket, err := m.s.DeliverBulk(Bulk{First: record.Offset(m.position + 1), Last: record.Offset(m.position + n), Records: n})
	if errors.Is(err, ErrSettlementFull) && m.s.Full() {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		m.position++
		m.tickets[m.position], m.undone[m.position] = ticket, map[uint32]string{0: "bulk"}
	}
}

func (m *settlerModel) completeBulk(t *testing.T, through int64) {
	ticket := m.tickets[through]
	settled := m.s.DoneThrough(ticket, record.Offset(through))
	for at := through - 1; m.tickets[at] == ticket && m.undone[at] != nil; at-- {
		delete(m.undone, at)
	}
	m.done(t, through, Token{Ticket: ticket}, settled)
}

func (m *settlerModel) complete(t *testing.T) {
	at := slices.Sorted(maps.Keys(m.undone))[m.r.IntN(len(m.undone))]
	subs := slices.Sorted(maps.Keys(m.undone[at]))
	sub := subs[m.r.IntN(len(subs))]
	token := Token{m.tickets[at], sub}
	switch m.undone[at][sub] {
	case "bulk":
		m.completeBulk(t, at)
	case "running":
		o := [...]Outcome{Ack(), Ack(), Ack(), Drop("d"), Retry("r"), RetryAfter(time.Second, "r"), RetryAfter(-1, "r"), {}}[m.r.IntN(8)]
		m.settle(t, at, token, m.s.Settle(token, o, 1+m.r.IntN(4)))
	case "waiting":
		if m.s.Published(token) != SettledForeign || m.s.Settle(token, Ack(), 1).Settled != SettledTwice {
			t.Fatal("a copy that waits was ended")
		}
		if !m.s.Due(token) || m.s.Due(token) {
			t.Fatal("the delay of a copy does not end once")
		}
		m.undone[at][sub] = "publishing"
	case "publishing":
		if m.r.IntN(4) == 0 {
			m.settle(t, at, token, m.s.TooLarge(token))
			return
		}
		m.done(t, at, token, m.s.Published(token))
	}
}

func (m *settlerModel) settle(t *testing.T, at int64, token Token, step Step) {
	switch {
	case step.Action == ActDone:
		m.done(t, at, token, step.Settled)
	case step.Settled != SettledHeld:
		t.Fatalf("%+v", step)
	case step.Action == ActNothing && errors.Is(step.Err, ErrUnsupported):
		m.undone[at][token.Sub] = "running"
	case step.Action == ActCopy && step.Delay > 0:
		m.undone[at][token.Sub] = "waiting"
	default:
		m.undone[at][token.Sub] = "publishing"
	}
}

func (m *settlerModel) done(t *testing.T, at int64, token Token, settled Settled) {
	delete(m.undone[at], token.Sub)
	if len(m.undone[at]) == 0 {
		delete(m.undone, at)
	}
	if settled == SettledMoved {
		p, _ := m.s.Committed()
		n, _ := p.Int64()
		if n <= m.written {
			t.Fatalf("the store would be written with %d after %d", n, m.written)
		}
		m.written = n
		m.writes++
	} else if settled != SettledHeld {
		t.Fatalf("%d: %s", at, settled)
	}
}

// BenchmarkSettlerRandom is one delivery and its completion with 100,000 in flight, completions in random order.
func BenchmarkSettlerRandom(b *testing.B) {
	const flying = 100_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(flying)
	s := NewSettler(0, 1, flying, Terms{MaxAttempts: 3, RetryTarget: true})
	tickets := make([]Ticket, flying)
	at := int64(0)
	round := func() {
		for i := range tickets {
			t, err := s.DeliverParts(record.Offset(at), 1)
			if err != nil {
				b.Fatal(err)
			}
			tickets[i] = t
			at++
		}
		moved := 0
		for _, i := range order {
			if s.Settle(Token{Ticket: tickets[i]}, Ack(), 1).Settled == SettledMoved {
				moved++
			}
		}
		if !s.Drained() || moved == 0 {
			b.Fatal("not everything is done")
		}
	}
	round() // the ring has grown
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += flying {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64((b.N+flying-1)/flying*flying), "ns/delivery")
}
