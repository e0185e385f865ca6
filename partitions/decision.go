package partitions

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir/record"
)

// AcceptGap is an operator's recorded decision to give up what the log has lost, or a batch that cannot be read: the log is read on at Next, and
// nothing else moves. It is refused when nothing would be given up, and after the end of the source.
type AcceptGap struct {
	Next   record.Position
	Reason string
}

func (AcceptGap) event() {}

// DecisionLossAccepted is the kind of the decision that AcceptGap makes.
const DecisionLossAccepted = "LOSS_ACCEPTED"

const lossFormat = "from %s the log is read on at %s: "

func (m *Machine) acceptGap(ev AcceptGap, eff *Effects) error {
	if ev.Next.Cmp(m.next) <= 0 {
		return m.internal("the log would be read on at %s, the partition stands at %s", ev.Next, m.next)
	}
	m.decide(eff, ev.Next, DecisionLossAccepted, fmt.Sprintf(lossFormat, m.next, ev.Next)+ev.Reason)
	m.next = ev.Next
	return nil
}

// Missing says whether a number of a key is an open gap, which CloseGap would close.
func (m *Machine) Missing(key string, sequence int64) bool { return m.wm.Missing(key, sequence) }

// Finished says whether the partition has ended: with the source, or by a record that says so.
func (m *Machine) Finished() bool { return m.finished }

// Chosen says whether an operator's choice made the decision, of those that rows may follow from: it stands in the journal alone.
func (d Decision) Chosen() bool {
	switch d.Kind {
	case DecisionGapClosed, DecisionLossAccepted, DecisionReplayed, DecisionDropped:
		return true
	}
	return false
}

// Event is what makes this decision again in a replay of the log: stepped when the machine stands at Position (for a loss that was accepted: when
// the log has nothing before Position); for one about an entry of the quarantine, once Again has filled it in. It is false for decisions that the records themselves make, and for those about a
// history.
func (d Decision) Event() (Event, bool) {
	switch d.Kind {
	case DecisionIdle:
		return IdleConfirmed{Reason: d.Detail}, d.Detail != controlSays
	case DecisionLossAccepted:
		_, reason, ok := strings.Cut(d.Detail, ": ")
		return AcceptGap{Next: d.Position, Reason: reason}, ok
	case DecisionGapClosed:
		return closedGap(d.Detail)
	case DecisionReplayed, DecisionRefused, DecisionDropped:
		if a, ok := d.Aside(); ok {
			return a.event(), true
		}
	case DecisionSeam:
		if _, _, ended := HistoryOf(d); !ended {
			return Seam{Next: d.Position}, true
		}
	}
	return nil, false
}

// closedGap reads what closeGap wrote: key "k", sequence 7: reason.
func closedGap(detail string) (Event, bool) {
	rest, ok := strings.CutPrefix(detail, "key ")
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return nil, false
	}
	key, err := strconv.Unquote(quoted)
	if err != nil {
		return nil, false
	}
	number, reason, ok := strings.Cut(strings.TrimPrefix(rest[len(quoted):], ", sequence "), ": ")
	n, err := strconv.ParseInt(number, 10, 64)
	return CloseGap{Key: key, Sequence: n, Reason: reason}, ok && err == nil
}
