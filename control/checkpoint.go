package control

import (
	"context"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Pointer is the row that makes a manifest a retained checkpoint. A checkpoint is named by its run and epoch.
type Pointer struct {
	RunID string
	Epoch uint64
	// Manifest is the name of the manifest's blob, 64 hex digits; Hash is the manifest_hash that is written in it, "sha256:" and hex digits.
	Manifest, Hash string
	// Fingerprint is that of the flow's plan.
	Fingerprint string
	// Token under which the pointer was written.
	Token FenceToken
	// Blobs and Bytes are the number and size of what the manifest refers to; NewBytes is what had to be written for it.
	Blobs, Bytes, NewBytes int64
	// Pinned keeps it from being dropped.
	Pinned  bool
	Created time.Time
}

// BlobRef is a state blob of a journal without its data. Digest is the SHA-256 of the data.
type BlobRef struct {
	Name   string
	Digest [32]byte
	Size   int64
}

// JournalView is what a journal held at one moment. It is valid during the call of Snapshot that gave it; commits go on meanwhile.
type JournalView interface {
	State() RunState
	// Blobs calls fn with every state blob that stood, in the order of names.
	Blobs(ctx context.Context, partition int32, fn func(BlobRef) error) error
	// Load calls fn with the named blobs, in any order; data is valid during the call. A name that does not stand is JournalCorrupt.
	Load(ctx context.Context, partition int32, names []string, fn func(partitions.StateBlob) error) error
}

// Fork makes a new run that begins where a checkpoint of another stands. The results, quarantine and decisions of the other run up to that
// epoch become those of the new one, so that what the new run says in the end is whole.
type Fork struct {
	// From and Epoch name the checkpoint; From has to be in the journal and to stand at Epoch or later.
	From  string
	Epoch uint64
	// Header is that of the new run. Its run id must be new; source, partitions and fingerprint are what CheckFork allows.
	Header RunHeader
	// Mended: the fingerprint of Header is another than that of the run that it comes from, of a flow that takes up its state.
	Mended bool
	// Watermark and Cuts (without Put and Delete) are those of the checkpoint. The new run stands at Epoch.
	Watermark record.EventTime
	Cuts      map[int32]partitions.Cut
	// Load yields every state blob of a partition; data need be valid during the call only.
	Load func(partition int32, yield func(partitions.StateBlob) error) error
}

// Checkpoints is what a store offers beside its journal to who makes, keeps and restores checkpoints. Writing is an effect: a stale owner
// gets StaleFence and nothing runs.
type Checkpoints interface {
	// StoreID names the store itself, from its creation on: 32 hex digits. Folders of blobs are marked with it.
	StoreID(ctx context.Context) (string, error)
	// Snapshot calls fn with the run as it stands at one moment. RunUnknown when there is none. fn may take its time: it reads from one
	// transaction, and commits go on.
	Snapshot(ctx context.Context, runID string, fn func(JournalView) error) error
	// KeepPointer makes a checkpoint visible. One that is there with the same manifest is fine; with another one it is PublicationConflict.
	// The run has to stand at the epoch or later: JournalConflict.
	KeepPointer(ctx context.Context, l Lease, p Pointer) error
	// PinPointer pins or unpins; CheckpointUnknown when there is none.
	PinPointer(ctx context.Context, l Lease, runID string, epoch uint64, pinned bool) error
	// DropPointers removes pointers that are not pinned, and says which it removed. What is not there is removed already.
	DropPointers(ctx context.Context, l Lease, runID string, epochs []uint64) ([]uint64, error)
	// ListPointers lists checkpoints by run and epoch, of one run or ("") of all.
	ListPointers(ctx context.Context, runID string) ([]Pointer, error)
	// ForkRun makes the new run in one transaction under the new run's lease (StreamLease of its id). A run that is there already is
	// RunMismatch, unless it is this very fork and nothing was committed since: then it is fine, since an answer may have been lost, and the run
	// belongs to the term that asks now.
	ForkRun(ctx context.Context, l Lease, f Fork) error
}
