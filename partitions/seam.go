package partitions

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// BeginHistory makes a machine that has seen nothing ready for a history: a bounded set of earlier records of this partition, handed over
// by Backfill in (event time, event id) order, which the log continues from Next on. ID names the history, such as the hash of its file.
//
// Until Seam the machine takes nothing but the history, and Restore refuses its cuts, so that a history of which only a part was taken in
// is never continued by the log.
type BeginHistory struct {
	ID   string
	Next record.Position
}

// Backfill hands records of a history over. They are tried like those of the log and counted with them; the position of the partition
// does not move. Their own positions number the history, ascending within the batch; what is set aside and decided names those.
type Backfill struct{ Batch *record.Batch }

// Seam says that the log is read on at Next: the position moves there, and nothing else does, no clock and no count. It ends a history. It is
// refused when the position would go back, and after the end of the source.
type Seam struct{ Next record.Position }

func (BeginHistory) event() {}
func (Backfill) event()     {}
func (Seam) event()         {}

// Kinds of the decisions of a hand-over.
const (
	DecisionHistory = "HISTORY_BEGUN"
	DecisionSeam    = "SEAM"
)

// HistoryBlob is the name of the state blob that stands while a history is being taken in, and only then.
const HistoryBlob = "history"

const historyVersion = 1

// history is what a machine knows of the history that it takes in.
type history struct {
	// id is "" when no history is open.
	id string
	// ref is the blob that stands, without a name when there is none.
	ref blobRef
}

func (h *history) open() bool { return h.id != "" }

// cut puts the blob once, and deletes it once the history has ended.
//
//	version 1 │ id (length, text)
func (h *history) cut(l *ledger) {
	switch {
	case h.open() && h.ref.name == "":
		h.ref = l.write(HistoryBlob, h.body())
	case !h.open() && h.ref.name != "":
		l.drop(h.ref)
		h.ref = blobRef{}
	}
}

func (h *history) body() []byte { return appendText([]byte{historyVersion}, h.id) }

func (h *history) load(b StateBlob, l *ledger) error {
	body, ref, err := unseal(b)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version, id := in.byte(), string(in.text())
	switch {
	case h.open():
		return damaged(b.Name, "stands twice")
	case !in.whole() || version != historyVersion || id == "":
		return damaged(b.Name, fmt.Sprintf("is no history of version %d", historyVersion))
	}
	h.id, h.ref = id, ref
	l.stands(ref)
	return nil
}

// History is the id of the history that is being taken in, or "".
func (m *Machine) History() string { return m.history.id }

// RestoreHistory is Restore for who takes a history in: a machine whose history is open comes back too.
func RestoreHistory(plan *flow.Plan, partition int32, load func(yield func(StateBlob) error) error) (*Machine, error) {
	return restoreMachine(plan, partition, load)
}

// inHistory is the error of a cut that the log must not continue.
func (m *Machine) inHistory() error {
	return codes.New(codes.HandoverUnfinished, "partition %d has taken in %d records of the history %.80q, which has not ended: the log cannot be read on yet",
		m.partition, m.counts.Records, m.history.id)
}

func (m *Machine) beginHistory(ev BeginHistory, eff *Effects) error {
	switch {
	case ev.ID == "":
		return m.internal("a history has no id")
	case m.history.open() || m.counts != Counts{} || m.next != record.Position{}:
		return m.internal("a history begins before everything else, the partition stands at %s after %d records", m.next, m.counts.Records)
	}
	m.history.id, m.next = ev.ID, ev.Next
	m.decide(eff, ev.Next, DecisionHistory, fmt.Sprintf("history %s; the log is to be read on at %s", ev.ID, ev.Next))
	return nil
}

// backfill delivers beside the position: the batch is numbered on its own.
func (m *Machine) backfill(b *record.Batch, eff *Effects) error {
	at := m.next
	m.next = record.Position{}
	err := m.deliver(b, eff)
	m.next = at
	return err
}

const seamFormat = "after %d records of the history %s the log is read on at %s"

// SeamDetail is the detail of the decision with which a history of so many records of this partition ends.
func SeamDetail(records int64, id string, next record.Position) string {
	return fmt.Sprintf(seamFormat, records, id, next)
}

// HistoryOf says which history a decision has ended, and how many records of it the partition has. It is false for a decision that ended none.
func HistoryOf(d Decision) (id string, records int64, ok bool) {
	if d.Kind != DecisionSeam {
		return "", 0, false
	}
	head, rest, _ := strings.Cut(strings.TrimPrefix(d.Detail, "after "), " records of the history ")
	records, err := strconv.ParseInt(head, 10, 64)
	id = strings.TrimSuffix(rest, " the log is read on at "+d.Position.String())
	return id, records, err == nil && d.Detail == SeamDetail(records, id, d.Position)
}

func (m *Machine) seam(ev Seam, eff *Effects) error {
	if ev.Next.Cmp(m.next) < 0 {
		return m.internal("the log would be read on at %s, the partition stands at %s", ev.Next, m.next)
	}
	detail := fmt.Sprintf("from %s the log is read on at %s", m.next, ev.Next)
	if m.history.open() {
		detail = SeamDetail(m.counts.Records, m.history.id, ev.Next)
	}
	m.decide(eff, ev.Next, DecisionSeam, detail)
	m.next, m.history.id = ev.Next, ""
	return nil
}
