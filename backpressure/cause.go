package backpressure

import (
	"fmt"
	"strings"
	"time"
)

// Reason says why a transition happened. Reasons are stable names.
type Reason string

// The reasons. The first five pause, the next five are their ends, then the blocks of recovery and their end.
const (
	LagHigh    Reason = "LAG_HIGH"
	BytesHigh  Reason = "BYTES_HIGH"
	DiskLow    Reason = "DISK_LOW"
	BufferFull Reason = "BUFFER_FULL"
	// TimeAhead: the others have to catch up in event time.
	TimeAhead Reason = "EVENT_TIME_AHEAD"

	LagDrained    Reason = "LAG_DRAINED"
	BytesDrained  Reason = "BYTES_DRAINED"
	DiskFreed     Reason = "DISK_FREED"
	BufferDrained Reason = "BUFFER_DRAINED"
	TimeAligned   Reason = "EVENT_TIME_ALIGNED"

	// RetentionLost: the source has removed input that the journal still needs. Measured is the first position there is,
	// threshold the one needed.
	RetentionLost Reason = "RETENTION_LOST"
	// RetentionNear: the source is about to. Measured is what is left, threshold the margin.
	RetentionNear Reason = "RETENTION_NEAR"
	// TopicRecreated: the input is another one of the same name.
	TopicRecreated Reason = "TOPIC_RECREATED"
	// FenceRegression: a sink has seen a higher fence token (measured) than the store has (threshold).
	FenceRegression Reason = "FENCE_REGRESSION"

	OperatorChoice Reason = "OPERATOR_CHOICE"
)

// ChoiceKind is what an operator may decide about a block.
type ChoiceKind string

// The kinds of choice.
const (
	// Restored: the cause is gone (records restored, retention extended, store restored); the run goes on where it was.
	Restored ChoiceKind = "RESTORED"
	// AcceptLoss: what is missing is given up; the run goes on at the first record there is.
	AcceptLoss ChoiceKind = "ACCEPT_LOSS"
	// AdoptTopic: the new topic is read from its start.
	AdoptTopic ChoiceKind = "ADOPT_TOPIC"
	// RaiseFence: the store's token is raised above the one that the sink has seen.
	RaiseFence ChoiceKind = "RAISE_FENCE"
)

// blockTable says which choices end which block, in the order in which blocks are shown.
var blockTable = [...]struct {
	reason  Reason
	choices []ChoiceKind
}{
	{RetentionLost, []ChoiceKind{Restored, AcceptLoss}},
	{RetentionNear, []ChoiceKind{Restored, AcceptLoss}},
	{TopicRecreated, []ChoiceKind{Restored, AdoptTopic}},
	{FenceRegression, []ChoiceKind{Restored, RaiseFence}},
}

const blocks = len(blockTable)

func blockOf(r Reason) (int, bool) {
	for i := range blockTable {
		if blockTable[i].reason == r {
			return i, true
		}
	}
	return 0, false
}

// Choice is an operator's decision about one block.
type Choice struct {
	// Settles names the block: RetentionLost, RetentionNear, TopicRecreated or FenceRegression.
	Settles Reason
	Kind    ChoiceKind
	// Who decided, and why; both are required, at most 1,000 bytes each.
	Who, Why string
}

// Cause is one reason that stands.
type Cause struct {
	Reason Reason
	// Since is when it arose.
	Since time.Time
	// Measured is the last value, Threshold the one that was crossed. Unit names theirs; it is "" for a block, whose detail does.
	Measured, Threshold int64
	Unit                string
	// Detail is what the reporter of a block said, "" for a gauge.
	Detail string
	// Release says in words what would end it.
	Release string
}

func (c Cause) String() string {
	text := fmt.Sprintf("%s since %s: measured %d, threshold %d", c.Reason, c.Since.UTC().Format(time.RFC3339), c.Measured, c.Threshold)
	if c.Unit != "" {
		text += " " + c.Unit
	}
	if c.Detail != "" {
		text += " (" + c.Detail + ")"
	}
	return text + "; ends " + c.Release
}

// Transition is one change of the state, or of the causes behind a state that stays (From equals To).
type Transition struct {
	At       time.Time
	From, To State
	Reason   Reason
	// Measured is the value that made the change, Threshold the one that it crossed.
	Measured, Threshold int64
	// Detail is what the reporter of a block said, "" otherwise.
	Detail string
	// Choice is the operator's, when Reason is OperatorChoice.
	Choice Choice
	// Release says in words what would make the run flow again; "" when it flows.
	Release string
}

func (t Transition) String() string {
	text := fmt.Sprintf("%s %s -> %s %s measured %d threshold %d", t.At.UTC().Format(time.RFC3339), t.From, t.To, t.Reason, t.Measured, t.Threshold)
	if t.Detail != "" {
		text += " (" + t.Detail + ")"
	}
	if t.Reason == OperatorChoice {
		text += fmt.Sprintf(" %s of %s by %s: %s", t.Choice.Kind, t.Choice.Settles, t.Choice.Who, t.Choice.Why)
	}
	if t.Release != "" {
		text += "; flows again " + t.Release
	}
	return text
}

func gaugeRelease(g Gauge, b Band) string {
	if gaugeTable[g].falling {
		return fmt.Sprintf("when %s is at or above %d %s", gaugeTable[g].name, b.High, gaugeTable[g].unit)
	}
	return fmt.Sprintf("when %s is at or below %d %s", gaugeTable[g].name, b.Low, gaugeTable[g].unit)
}

func blockRelease(i int) string {
	names := make([]string, len(blockTable[i].choices))
	for k, c := range blockTable[i].choices {
		names[k] = string(c)
	}
	return fmt.Sprintf("by an operator's choice on %s: %s", blockTable[i].reason, strings.Join(names, " or "))
}
