package flow

import (
	"time"

	"github.com/weirstream/weir/flow/operators"
)

// TimeUnit says how the time field is written.
type TimeUnit uint8

// The units of a time field. RFC3339 is a string with a zone; the others are integers since the Unix epoch.
const (
	RFC3339 TimeUnit = iota
	Seconds
	Milliseconds
	Microseconds
	Nanoseconds
)

// Plan is a compiled flow: what will run. It is read-only and safe to share.
type Plan struct {
	// Name of the flow.
	Name string
	// Fingerprint is "sha256:" and the hex hash of the flow's normalised meaning: everything that decides what comes out. Name,
	// Limits, Sinks and LateSink are not part of it.
	Fingerprint string

	// IDField, KeyField and TimeField are always set. RevisionField and SequenceField are "" when the flow has none.
	IDField, KeyField, TimeField, RevisionField, SequenceField string
	TimeUnit                                                   TimeUnit

	// SelectField is "" when every record is selected; otherwise a record is selected when the field's text is one of SelectValues,
	// which are sorted.
	SelectField  string
	SelectValues []string

	// Lateness is the allowed lateness. MaxFutureSkew is 0 when switched off.
	Lateness, MaxFutureSkew time.Duration
	// DedupeHorizon is how far behind the watermark event ids are remembered (at least; at most an eighth more).
	DedupeHorizon time.Duration
	// GapHold is how far event time may move on past an open gap before the gap closes by itself.
	GapHold time.Duration
	// RevisionHorizon is how far behind the watermark a revision of an event that was decided is still taken in; 0 is not at all.
	RevisionHorizon time.Duration
	// Revised: results that a revision changes are published again, and the last of Outputs is the number of a row's revision.
	Revised bool
	// HoldKey is how many records may wait, in a partition, for one of their key that could not be read; 0 holds no key.
	HoldKey int
	// ClockEvery is the interval of a regular grid, or 0 for one tick per event.
	ClockEvery time.Duration
	// IdleAfterPolls confirms a partition idle after this many consecutive polls that were answered empty; 0 is off.
	IdleAfterPolls int

	// Inputs are the numeric fields that the operators read, sorted.
	Inputs []string
	// Nodes in an order in which every node comes after what it reads.
	Nodes []Node
	// Outputs of the flow in the order of the file; of a flow that is Revised, the number of a row's revision behind them.
	Outputs []Output
	// Limits bound the memory of one partition.
	Limits Limits

	// Sinks are where the rows are published, beside those that a command names; nil when the flow names none. They are not part of the fingerprint.
	Sinks []SinkSpec
	// LateSink names the one of Sinks that takes late events, and no rows; "" when none does.
	LateSink string
}

// Node is one operator of the plan.
type Node struct {
	Name, Type string
	// Field is the index in Plan.Inputs that the node reads, or -1 when it reads another node.
	Field int
	// From is the index in Plan.Nodes that the node reads, or -1 when it reads a field.
	From int
	// Args are the values of the type's parameters, defaults filled in.
	Args operators.Args
	// New makes the state of a new key.
	New func() operators.Operator
	// StateBytes bounds the memory of one key's state.
	StateBytes int

	declared operators.Type
}

// Output names a node whose values the flow publishes. Node is -1 for the number of a row's revision.
type Output struct {
	Name string
	Node int
}

// Limits bound the memory of one partition. Passing one stops the run with a clear error; nothing is dropped.
type Limits struct {
	// IDs is the number of event ids remembered, Keys the number of keys, Reorder the number of records waiting for the watermark.
	IDs, Keys, Reorder int
	// Ticks is the number of empty grid ticks that one advance of the watermark may make.
	Ticks int
	// History is the number of records behind the watermark that are kept for revisions; 0 in a flow that keeps none.
	History int
}
