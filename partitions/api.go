package partitions

import (
	"github.com/weirstream/weir/record"
)

// Event is what happens to a partition: Deliver, EndOfSource, IdleConfirmed, EmptyPoll, CloseGap, and for a history that the log continues
// BeginHistory, Backfill, Seam. Time arrives as an event.
type Event interface{ event() }

// Deliver hands a batch over in log order. The machine keeps nothing that aliases it.
type Deliver struct{ Batch *record.Batch }

// EndOfSource is END_OF_BOUNDED_SOURCE: everything held is released and the partition is FINISHED. Through is the maximum event
// time over all partitions of the run: a grid clock ticks every key up to the interval that holds it, so that the number of
// partitions does not matter. record.NoTime when no partition has seen an event.
type EndOfSource struct{ Through record.EventTime }

// IdleConfirmed is a recorded decision that the partition is idle.
type IdleConfirmed struct{ Reason string }

// EmptyPoll says that the source was asked and had nothing for this partition.
type EmptyPoll struct{}

// CloseGap is an operator's recorded decision to close the gap of a key at a sequence number.
type CloseGap struct {
	Key      string
	Sequence int64
	Reason   string
}

func (Deliver) event()       {}
func (EndOfSource) event()   {}
func (IdleConfirmed) event() {}
func (EmptyPoll) event()     {}
func (CloseGap) event()      {}

// Counts are cumulative over the run of a partition and part of its cut. Every record is counted in exactly one of
// Consumed, Filtered, Omitted, Duplicates, Late and Future.
type Counts struct {
	Records, Consumed, Filtered, Omitted, Duplicates, Late, Future, Outputs int64
}

// Reason codes of a quarantined record and of a decision.
const (
	ReasonUnreadable = "UNREADABLE"
	ReasonTombstone  = "TOMBSTONE"
	ReasonLate       = "LATE"
	ReasonFuture     = "FUTURE"
	// ReasonRevisionLate is a revision that came after its event was decided: counted as a duplicate, kept aside.
	ReasonRevisionLate = "REVISION_AFTER_DECISION"
	// ReasonRevised is a decision, not a quarantine: a revision was taken in, as the first delivery of its event or in the place of another one.
	ReasonRevised = "REVISED"
)

// Quarantined is a record set aside, or an accepted one that parity must know of (ReasonRevised). Bytes are copies.
type Quarantined struct {
	Partition int32
	Position  record.Position
	// Number counts what a partition of a run has set aside, from 0 in the order of its journal: with run and partition it is the identity of an
	// entry. A journal gives it to whoever reads; nothing that is written has to have it.
	Number int64
	// Sub numbers the records of one position, see record.Record.
	Sub    uint32
	Reason string
	// Detail says in words what was wrong.
	Detail string
	// EventID is "" when it could not be read, not even from the headers.
	EventID   string
	EventTime record.EventTime
	// Arrival is the log's own timestamp of the record, or NoTime.
	Arrival    record.EventTime
	Key, Value []byte
	// Headers in the order of the log. Nil says that they were not kept (by a journal of an earlier version, or in an envelope within Value);
	// a record without headers has an empty list.
	Headers []record.Header
}

// Kinds of a decision.
const (
	DecisionEndOfSource = "END_OF_BOUNDED_SOURCE"
	DecisionIdle        = "IDLE_CONFIRMED"
	DecisionGapOpened   = "GAP_OPENED"
	DecisionGapFilled   = "GAP_FILLED"
	// DecisionGapExpired: event time moved on by the gap hold. DecisionGapForced: there were too many open gaps.
	DecisionGapExpired = "GAP_EXPIRED"
	DecisionGapForced  = "GAP_FORCED"
	// DecisionGapClosed is an operator's choice.
	DecisionGapClosed = "GAP_CLOSED"
)

// Decision is a recorded decision: idle confirmed, gap opened or closed, end of source.
type Decision struct {
	Partition int32
	Position  record.Position
	Kind      string
	Detail    string
}

// Effects collects what Step asks for. Step appends; the caller performs the effects and calls Reset.
type Effects struct {
	Rows       Rows
	Quarantine []Quarantined
	Decisions  []Decision
}

// Reset empties the effects and keeps the memory of the rows. What was set aside stays with whoever took it.
func (e *Effects) Reset() {
	e.Rows.Reset()
	e.Quarantine, e.Decisions = nil, nil
}

// StateBlob is one named piece of a partition's state.
type StateBlob struct {
	Name string
	Data []byte
}

// Cut is a consistent moment of one partition, as a delta on the cut before: blobs to put and names to delete.
// A machine restored from all blobs that stand is byte-identical to the one that was cut.
type Cut struct {
	Partition int32
	Next      record.Position
	Watermark record.EventTime
	Finished  bool
	Counts    Counts
	Put       []StateBlob
	Delete    []string
}
