package actors

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// ErrInterrupted is what Run returns (wrapped) when its context was cancelled and the last cut is committed, ErrKilled when
// Config.Kill ended it without one. Both carry the code INTERRUPTED. A run that was cancelled while a failure stood, after which nothing
// has been committed, returns neither but an error with the code of that failure.
var (
	ErrInterrupted error = codes.New(codes.Interrupted, "the run was stopped, and can be resumed from its last commit")
	ErrKilled      error = codes.New(codes.Interrupted, "the run was stopped at once, without a last commit; it can be resumed from the one before")
)

// Result is what stands in the journal when a run ends, as far as Run knows it. Outputs are read from the journal.
type Result struct {
	Status control.RunStatus
	// Epoch is the last committed epoch.
	Epoch uint64
	// Watermark is the merged watermark of that epoch, or record.NoTime.
	Watermark record.EventTime
	// Counts are summed over the partitions.
	Counts partitions.Counts
	// Partitions in ascending order, those that are blocked among them. One without a cut has no counts and stands at the beginning of its log.
	Partitions []PartitionResult
	// Incarnations is the number of times that the run was started from its last cut; 1 when nothing failed.
	Incarnations int
	// Failures in the order in which they happened, at most the last 100.
	Failures []Failure
}

// PartitionResult is what stands of one partition.
type PartitionResult struct {
	Partition int32
	Next      record.Position
	Watermark record.EventTime
	Finished  bool
	Counts    partitions.Counts
	// Status says whether the partition was read to the end of the run; Cause is why it is blocked, and Block what an operator needs to know of it.
	Status PartitionStatus
	Cause  error
	Block  *Block
}

// PartitionStatus says whether a partition is read.
type PartitionStatus string

// The states of a partition.
const (
	PartitionRead PartitionStatus = "READ"
	// PartitionBlocked: it failed MaxFailures times without getting any further, or in a way that does not pass, or the log has lost what is to be
	// read of it. The others go on without it; its cut stays where it is, and it holds the merged watermark.
	PartitionBlocked PartitionStatus = "BLOCKED"
)

// Positions are the next positions by partition.
func (r Result) Positions() map[int32]record.Position {
	m := make(map[int32]record.Position, len(r.Partitions))
	for _, p := range r.Partitions {
		m[p.Partition] = p.Next
	}
	return m
}

// Failure is why an incarnation ended.
type Failure struct {
	Incarnation uint64
	// Actor is the name of the actor that failed, such as "run/partition/3", or "run" when there were no others yet.
	Actor string
	// Partition is -1 when the failure was not one of a partition; otherwise Position is where the batch in hand began.
	Partition int32
	Position  record.Position
	Cause     error
}

func (f Failure) place() string {
	if f.Partition < 0 {
		return f.Actor
	}
	return fmt.Sprintf("%s, in the batch at position %s", f.Actor, f.Position)
}

// Progress is told after every commit.
type Progress struct {
	Epoch       uint64
	Incarnation uint64
	Status      control.RunStatus
	Watermark   record.EventTime
	Counts      partitions.Counts
	// Rows is the number of results in this epoch, CommitTime how long the journal took.
	Rows       int
	CommitTime time.Duration
	// Blocked are the partitions that are not read any more, and why.
	Blocked []PartitionResult
	// Partitions that were cut, in ascending order.
	Partitions []PartitionProgress
	// Queues, one a partition in ascending order, are as they were when the cut was asked for; what is Undone is as it is after the commit.
	Queues []Queue
}

// Queue is what is under way between the source and one partition.
type Queue struct {
	Partition int32
	// Records and Bytes are handed out and not yet processed; the window is their limit.
	Records, Bytes             int64
	WindowRecords, WindowBytes int64
	// Aside is the number of records that were fetched and wait for credit.
	Aside int64
	// State says whether the source is read.
	State backpressure.State
	// Undone is what was handed out and is not committed.
	Undone Undone
}

// Undone is what of a partition was handed out and is not committed: what would be processed again after a crash.
type Undone struct {
	Records, Bytes int64
	// Oldest holds the committed position since Since, when it was handed out; Since is zero when there is nothing.
	Oldest record.Position
	Since  time.Time
}

// result makes a Result of a committed state.
func resultOf(s control.RunState, all []int32, blocked map[int32]blockedAt) Result {
	r := Result{Status: s.Status, Epoch: s.Epoch, Watermark: s.Watermark}
	if r.Status == "" {
		r.Status, r.Watermark = control.RunOpen, record.NoTime
	}
	for _, p := range all {
		pr := partitionResult(s, p, blocked)
		r.Partitions = append(r.Partitions, pr)
		r.Counts = addCounts(r.Counts, pr.Counts)
	}
	return r
}

func partitionResult(s control.RunState, p int32, blocked map[int32]blockedAt) PartitionResult {
	pr := PartitionResult{Partition: p, Watermark: record.NoTime, Status: PartitionRead}
	if cut, ok := s.Cuts[p]; ok {
		pr.Next, pr.Watermark, pr.Finished, pr.Counts = cut.Next, cut.Watermark, cut.Finished, cut.Counts
	}
	if b, ok := blocked[p]; ok {
		pr.Status, pr.Cause, pr.Block = PartitionBlocked, b.cause, b.block
	}
	return pr
}

func addCounts(a, b partitions.Counts) partitions.Counts {
	return partitions.Counts{
		Records: a.Records + b.Records, Consumed: a.Consumed + b.Consumed, Filtered: a.Filtered + b.Filtered,
		Omitted: a.Omitted + b.Omitted, Duplicates: a.Duplicates + b.Duplicates, Late: a.Late + b.Late,
		Future: a.Future + b.Future, Outputs: a.Outputs + b.Outputs,
	}
}
