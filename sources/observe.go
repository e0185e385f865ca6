package sources

import (
	"context"
	"time"

	"github.com/weirstream/weir/record"
)

// Observer says from outside of the reading how a log stands. A Source may be one, over a connection of its own, and so may a Reader,
// over the one it has; a Reader's may be called beside Poll, from another goroutine. It costs questions to the log: ask every few seconds,
// not with every record.
type Observer interface {
	// Observe asks the log. Errors as Source.Info; a log that was recreated is no error here: its ID is another one.
	Observe(ctx context.Context) (Observation, error)
}

// Observation is how a log stands at one moment. Its Info tells of partitions that were added, and of a log that was recreated.
type Observation struct {
	Info
	// Extents by partition: one for each of Info.Partitions that is not in Unanswered, or none at all for a log that has Lags.
	Extents map[int32]Extent
	// Lags, by partition that is read at present, of a log that does not say where it ends.
	Lags map[int32]Lag
	// Unanswered are the partitions of which the log could not say how they stand, with the reason, which has a code.
	Unanswered map[int32]error
}

// Lag is how far the reading of a partition is behind the end of its log, by the log's own word.
type Lag struct {
	// Behind is how far, in time, what was read last was behind the end. At is when the log said so, and Read the position behind what it had given
	// by then.
	Behind time.Duration
	At     time.Time
	Read   record.Position
}

// Extent is what a log has of one partition.
type Extent struct {
	// Start is the first position that the log still has.
	Start record.Position
	// Stable is up to where records can be delivered now: everything before it is committed. A run that has read up to it has no lag that
	// reading could remove.
	Stable record.Position
	// End is behind the last record, committed or not.
	End record.Position
	// Hold says what keeps Stable before End; nil if they are equal. It passes by itself as long as those who write do so.
	Hold *Hold
}

// HoldReason is a stable name of what keeps records from being delivered.
type HoldReason string

// LSOBlocked: a transaction is open, so that nothing behind its first record (Kafka's last stable offset) may be delivered.
const LSOBlocked HoldReason = "LSO_BLOCKED"

// Hold is something in the log itself that keeps records from being delivered.
type Hold struct {
	Reason HoldReason
	// Since is when the oldest of what holds began; zero if the log does not say.
	Since time.Time
	// By names who holds: a transactional id, or else a producer id; "" if the log does not say.
	By string
	// Ends is when the log ends it by itself; zero if it does not say or never will.
	Ends time.Time
}

// Fault is a failure of one partition, within the error of a Poll. The others can be read on: by the same reader once the partition is
// paused, or by a new one that is opened without it.
type Fault struct {
	Partition int32
	// Need is the position that is to be read next. After, when Known, is the first one behind it from which the log can be read on, or
	// where the log ends if that is before Need.
	Need, After record.Position
	Known       bool
	// Err is what happened, with its code.
	Err error
}

// Error is that of Err.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap gives Err.
func (f *Fault) Unwrap() error { return f.Err }
