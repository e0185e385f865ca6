package control

import (
	"context"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// RunStatus says whether a run can be resumed.
type RunStatus string

// The states of a stream run. OPEN → FINISHED is the only transition, made by a Commit with Status RunFinished.
const (
	RunOpen     RunStatus = "OPEN"
	RunFinished RunStatus = "FINISHED"
)

// RunHeader is what must stay the same over the life of a run. Opening a run under another header is refused; CheckHeader has the
// rule.
type RunHeader struct {
	// RunID names the run: 1 to 200 bytes of UTF-8 without control characters.
	RunID string
	// Fingerprint is that of the flow's plan.
	Fingerprint string
	// Source, SourceID and Partitions name the log that the run reads, Group its consumer group (a courtesy).
	// SourceID is the identity that a topic or file does not share with a later one of the same name; "" when the source has none.
	Source, SourceID, Group string
	// Partitions of the source, each at least 0, without repetition. A journal returns them sorted.
	Partitions []int32
}

// RunState is the committed progress of a run.
type RunState struct {
	// Header as it stands: when partitions were added, with them.
	Header RunHeader
	Status RunStatus
	// Epoch is the last committed epoch; 0 for a new run.
	Epoch uint64
	// Cuts by partition, without blobs. A partition that was never committed is absent.
	Cuts map[int32]partitions.Cut
	// Watermark is the merged watermark, or record.NoTime.
	Watermark record.EventTime
	// Fence is the highest token under which the run was opened or committed; 0 if never under a lease.
	Fence FenceToken
	// Created is when the run was made in this journal, and the same for ever; zero where a journal does not tell.
	Created time.Time
}

// Commit is one epoch: positions, state and outputs of one consistent moment.
type Commit struct {
	RunID string
	// Epoch is the epoch before plus one. A journal at any other epoch refuses with codes.JournalConflict.
	Epoch uint64
	// Status RunFinished ends the run with this epoch.
	Status RunStatus
	// Watermark is the merged watermark. It never goes back.
	Watermark record.EventTime
	// Partitions that have something to say in this epoch, each at most once, in any order. The cut of any other one stays as it is.
	Partitions []PartitionCommit
}

// PartitionCommit is one partition's share of an epoch. Cut names the partition; Deletes of the cut are applied before its puts, and of
// two puts of one name the last one counts. The partition fields of Quarantine and Decisions are those of the cut.
type PartitionCommit struct {
	Cut        partitions.Cut
	Rows       partitions.Rows
	Quarantine []partitions.Quarantined
	Decisions  []partitions.Decision
}

// Journal keeps cuts. Commit is atomic: after a kill at any moment either the whole epoch stands or nothing of it. All methods may be
// called from several goroutines.
//
// Errors carry a code: StoreUnavailable (try again), JournalCorrupt, or a refusal (see Refused). A cancelled context comes back as
// an error that wraps the context's own, without a code. Whatever fn returns ends the reading and comes back unchanged.
type Journal interface {
	// OpenRun creates the run or returns its committed state. It refuses with RunMismatch or TopicRecreated when the run was started
	// under another header, and with RunFinished when it has ended; the state comes with that last error, so that a caller can
	// write an ended run's result again. Partitions that the run did not have before are added to it (they have no cut yet and start
	// at the beginning of their log). A run that is new is refused with RunMismatch beside the runs of its own partitions, or beside the run of
	// which it is a partition (CheckScope).
	OpenRun(ctx context.Context, h RunHeader) (RunState, error)
	// Commit writes one epoch in one transaction and keeps nothing of c. After a refusal nothing of the epoch stands. After any other
	// error it is unknown whether the epoch stands (an answer may be lost after the fact): read back by OpenRun before going on.
	Commit(ctx context.Context, c Commit) error
	// LoadBlobs calls fn with every state blob of a partition that stands, in the order of names. Data is valid during the call.
	LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error
	// Outputs calls fn with a partition's rows, once for each epoch that has any, in the order of epochs; data is valid during the call.
	// Everything comes from one consistent moment, also while epochs are committed. If an error is returned, what fn was given may be
	// incomplete.
	Outputs(ctx context.Context, runID string, partition int32, fn func(rows partitions.Rows) error) error
	// Quarantine calls fn with every record set aside, in (partition, position) order. Bytes belong to fn.
	Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error
	// Decisions calls fn with every recorded decision in (partition, position) order.
	Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error
	Close() error
}

// RunInfo is one line of a listing of runs.
type RunInfo struct {
	Header    RunHeader
	Status    RunStatus
	Epoch     uint64
	Watermark record.EventTime
	// Counts are summed over the partitions.
	Counts partitions.Counts
	// Created and Committed are wall times of the store, for people; nothing depends on them. Committed is zero before the first epoch.
	Created, Committed time.Time
}

// RunLister is what a journal offers to commands that show runs.
type RunLister interface {
	// Runs lists every run, ordered by run id.
	Runs(ctx context.Context) ([]RunInfo, error)
}
