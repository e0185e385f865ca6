package partitions

import (
	"github.com/weirstream/weir/record"
)

// Settler decides how the deliveries of one partition end, over a Settlement: which are done, for which a copy or a dead letter has to be
// written first, and where the committed position stands. It is pure: whoever drives it publishes, waits and writes.
//
//	                 Settle: done                      ┌──────────┐
//	┌─────────┐ ─────────────────────────────────────▶ │   DONE   │
//	│ RUNNING │      Settle: a copy, after a delay     └──────────┘
//	└─────────┘ ──▶ ┌─────────┐   Due                       ▲
//	  ▲    │        │ WAITING │ ─────────┐                  │ Published
//	  └────┘        └─────────┘          ▼                  │
//	 refused      Settle: a copy   ┌────────────┐           │
//	       └─────────────────────▶ │ PUBLISHING │ ──────────┘
//	                               └────────────┘
//	every state ── Rewind, or another term ──▶ VOID
//
// A refused outcome changes nothing: the delivery may be settled in another way. A delivery that is WAITING or PUBLISHING is decided: another
// outcome for it is SettledTwice.
//
// A record of the log may carry several (an aggregate): they are settled one by one, and it is done when all of them are.
//
// Not safe for concurrent use.
type Settler struct {
	*Settlement
	terms Terms
	// decided are the parts whose copy or dead letter is not confirmed yet.
	decided map[part]decision
	// torn are the records with several parts that are not done yet, by number.
	torn map[uint64]*parts
}

// Token names one delivery: a ticket, and which of the records behind its position is meant.
type Token struct {
	Ticket
	Sub uint32
}

type part struct {
	number uint64
	sub    uint32
}

type decision struct {
	outcome Outcome
	// waiting for its delay.
	waiting bool
}

type parts struct {
	done []bool
	left int
}

// Step is what settling did and asks for.
type Step struct {
	Verdict
	// Settled is what it did to the committed position: written to the store when it is SettledMoved, and only then. SettledHeld while a copy or
	// dead letter is to be written, when other parts of the record are not done, and after a refusal.
	Settled Settled
}

// NewSettler makes the settler of a partition; see NewSettlement.
func NewSettler(partition int32, term uint64, capacity int, terms Terms) *Settler {
	return &Settler{Settlement: NewSettlement(partition, term, capacity), terms: terms, decided: map[part]decision{}, torn: map[uint64]*parts{}}
}

// DeliverParts adds a record of the log that carries n records, in order of arrival; n below 1 counts as 1.
func (s *Settler) DeliverParts(p record.Position, n int) (Ticket, error) {
	t, err := s.Settlement.Deliver(p)
	if err == nil && n > 1 {
		s.torn[t.number] = &parts{done: make([]bool, n), left: n}
	}
	return t, err
}

// Settle takes the outcome of an attempt.
func (s *Settler) Settle(t Token, o Outcome, attempt int) Step {
	if len(s.torn) == 0 && len(s.decided) == 0 && t.Sub == 0 && o.kind == outcomeAck {
		// Nothing but the tracker has a say.
		settled := s.Settlement.Done(t.Ticket)
		if settled > SettledHeld {
			return Step{Settled: settled}
		}
		return Step{Verdict: Verdict{Action: ActDone}, Settled: settled}
	}
	if state, open := s.open(t); !open {
		return Step{Settled: state}
	}
	return s.follow(t, o, s.terms.Judge(o, attempt))
}

// GiveUp ends a delivery as if its attempts were exhausted, whatever limit was declared.
func (s *Settler) GiveUp(t Token, o Outcome) Step {
	if state, open := s.open(t); !open {
		return Step{Settled: state}
	}
	terms := s.terms
	terms.MaxAttempts = 1
	return s.follow(t, o, terms.Judge(o, 1))
}

// TooLarge says that the copy of a delivery is larger than the retry target takes.
func (s *Settler) TooLarge(t Token) Step {
	state := s.state(t.Ticket)
	d, has := s.decided[part{t.number, t.Sub}]
	if state != deliveryRunning || !has {
		return Step{Settled: settledTooLate(state)}
	}
	delete(s.decided, part{t.number, t.Sub})
	return s.follow(t, d.outcome, s.terms.TooLarge(d.outcome))
}

func (s *Settler) follow(t Token, o Outcome, v Verdict) Step {
	switch v.Action {
	case ActDone:
		return Step{Verdict: v, Settled: s.finish(t)}
	case ActCopy, ActBury:
		s.decided[part{t.number, t.Sub}] = decision{outcome: o, waiting: v.Delay > 0}
	case ActNothing:
	}
	return Step{Verdict: v, Settled: SettledHeld}
}

// Due says that the delay of a copy has passed. False: it is not to be written any more (a rewind, another term).
func (s *Settler) Due(t Token) bool {
	key := part{t.number, t.Sub}
	d, has := s.decided[key]
	if !has || !d.waiting || s.state(t.Ticket) != deliveryRunning {
		return false
	}
	d.waiting = false
	s.decided[key] = d
	return true
}

// Published says that the copy or dead letter of a delivery stands.
func (s *Settler) Published(t Token) Settled {
	key := part{t.number, t.Sub}
	state := s.state(t.Ticket)
	d, has := s.decided[key]
	if state != deliveryRunning || !has || d.waiting {
		return settledTooLate(state)
	}
	delete(s.decided, key)
	return s.finish(t)
}

// settledTooLate is the answer about a delivery for which nothing was decided.
func settledTooLate(state deliveryState) Settled {
	if state == deliveryRunning {
		return SettledForeign
	}
	return settledBy[state]
}

// open says whether a delivery may still be settled; if not, what it is.
func (s *Settler) open(t Token) (Settled, bool) {
	state := s.state(t.Ticket)
	if state != deliveryRunning {
		return settledBy[state], false
	}
	if p, has := s.torn[t.number]; has {
		switch {
		case int(t.Sub) >= len(p.done):
			return SettledForeign, false
		case p.done[t.Sub]:
			return SettledTwice, false
		}
	} else if t.Sub > 0 {
		return SettledForeign, false
	}
	if len(s.decided) > 0 {
		if _, has := s.decided[part{t.number, t.Sub}]; has {
			return SettledTwice, false
		}
	}
	return SettledHeld, true
}

// finish marks a part as done.
func (s *Settler) finish(t Token) Settled {
	if p, has := s.torn[t.number]; has {
		p.done[t.Sub] = true
		if p.left--; p.left > 0 {
			return SettledHeld
		}
		delete(s.torn, t.number)
	}
	return s.Settlement.Done(t.Ticket)
}

// Undecided is the number of copies and dead letters that are not confirmed.
func (s *Settler) Undecided() int { return len(s.decided) }

// Rewind is Settlement.Rewind: what waits or is being written is void too.
func (s *Settler) Rewind(committed record.Position, known bool) {
	s.Settlement.Rewind(committed, known)
	clear(s.decided)
	clear(s.torn)
}
