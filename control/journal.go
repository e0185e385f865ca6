// Package control is the port of the control plane. This version holds the journal: the committed cut a run resumes from.
package control

import (
	"context"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// RunStatus says whether a run can be resumed.
type RunStatus string

// The states of a stream run.
const (
	RunOpen     RunStatus = "OPEN"
	RunFinished RunStatus = "FINISHED"
)

// RunHeader is what must stay the same over the life of a run. Opening a run under another header is refused.
type RunHeader struct {
	RunID       string
	Fingerprint string
	// Source, SourceID and Partitions name the log that the run reads, Group its consumer group (a courtesy).
	Source, SourceID, Group string
	Partitions              []int32
}

// RunState is the committed progress of a run.
type RunState struct {
	Header RunHeader
	Status RunStatus
	// Epoch is the last committed epoch; 0 for a new run.
	Epoch uint64
	// Cuts by partition, without blobs. A partition that was never committed is absent.
	Cuts map[int32]partitions.Cut
	// Watermark is the merged watermark, or record.NoTime.
	Watermark record.EventTime
}

// Commit is one epoch: positions, state and outputs of one consistent moment.
type Commit struct {
	RunID string
	// Epoch is the epoch before plus one. A journal at any other epoch refuses with CodeJournalConflict.
	Epoch      uint64
	Status     RunStatus
	Watermark  record.EventTime
	Partitions []PartitionCommit
}

// PartitionCommit is one partition's share of an epoch.
type PartitionCommit struct {
	Cut        partitions.Cut
	Rows       partitions.Rows
	Quarantine []partitions.Quarantined
	Decisions  []partitions.Decision
}

// Journal keeps cuts. Commit is atomic: after a kill at any moment either the whole epoch stands or nothing of it.
type Journal interface {
	// OpenRun creates the run or returns its committed state.
	OpenRun(ctx context.Context, h RunHeader) (RunState, error)
	// Commit writes one epoch in one transaction. An error other than a refusal means unknown: read back by OpenRun before going on.
	Commit(ctx context.Context, c Commit) error
	// LoadBlobs calls fn with every state blob of a partition that stands.
	LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error
	// Outputs calls fn with the stored row runs of every partition in (partition, epoch) order; data is valid during the call.
	Outputs(ctx context.Context, runID string, partition int32, fn func(rows partitions.Rows) error) error
	// Quarantine calls fn with every record set aside, in (partition, position) order.
	Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error
	// Decisions calls fn with every recorded decision in (partition, position) order.
	Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error
	Close() error
}
