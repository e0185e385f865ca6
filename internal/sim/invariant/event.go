package invariant

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Event is something that happened. String is one line for people.
type Event interface{ String() string }

// Hold is the right under which something is written. Token 0 is none.
type Hold struct {
	Lease, Owner string
	Token        control.FenceToken
}

// HoldOf is the hold that a lease gives.
func HoldOf(l control.Lease) Hold { return Hold{Lease: l.Name, Owner: l.Owner, Token: l.Token} }

// What a store did, recorded under the lock that orders its effects. Now is the store's clock.
type (
	// Granted is a lease row that was written: created, taken over or renewed.
	Granted struct {
		Row control.LeaseRow
		Now time.Time
	}
	// Released is a term that was ended by its holder.
	Released struct {
		Hold Hold
		Now  time.Time
	}
	// Written is an effect that took place: opening a run, a commit, a pointer, a clean-up.
	Written struct {
		What string
		Hold Hold
		Now  time.Time
	}
	// Opened is a run that was opened, and what the store said it holds.
	Opened struct{ State control.RunState }
	// Committed is an epoch that was applied. ID is that of the attempt.
	Committed struct {
		ID     int64
		Commit control.Commit
		Token  control.FenceToken
	}
	// Loaded are the state blobs of a partition that were given to who restores.
	Loaded struct {
		Partition int32
		Blobs     []partitions.StateBlob
	}
	// BlobKept and BlobDropped are blobs of checkpoints that stand from now on, or no longer.
	BlobKept    struct{ Name string }
	BlobDropped struct{ Name string }
	// PointerKept is a checkpoint that became visible; Needs are all blobs that it refers to, as far as can be told.
	PointerKept struct {
		Pointer control.Pointer
		Needs   []string
	}
	// PointerDropped is one that is no longer kept.
	PointerDropped struct{ Epoch uint64 }
)

// What a process was told.
type (
	// Sent is an attempt to commit that left its process.
	Sent struct {
		ID    int64
		Epoch uint64
	}
	// Answered is what the process heard of it.
	Answered struct {
		ID      int64
		Epoch   uint64
		Outcome Outcome
	}
	// LeaseTold is what the process believes of its lease from now on.
	LeaseTold struct {
		Holds bool
		What  string
	}
	// LeaseBelieved is until when the process may act, by its own clock, since the beginning of the history.
	LeaseBelieved struct{ Until time.Duration }
	// Woken is a process that goes on after it was stopped.
	Woken struct{}
	// Backpressure is a partition that the process holds from now on (Reads false), or reads again.
	Backpressure struct {
		Partition int
		Reads     bool
	}
	// Started and Ended are the life of a process. Err is why it ended, or "".
	Started struct{}
	Ended   struct{ Err string }
)

// Outcome is what a process knows of a write.
type Outcome string

// The outcomes.
const (
	Stands  Outcome = "stands"
	Refused Outcome = "refused"
	Unknown Outcome = "unknown"
)

// OutcomeOf is what an answer says.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Stands
	case control.Refused(err):
		return Refused
	}
	return Unknown
}

// Span is a batch without its records.
type Span struct {
	Partition      int32
	First, Next    record.Position
	Records, Bytes int64
}

// What a process did with its source and its records. Reader tells the readers of all processes apart.
type (
	// SourceOpened is a reader that was asked for, and from where.
	SourceOpened struct {
		Reader int
		From   map[int32]record.Position
	}
	// PollBegan and Polled are a question and its answer.
	PollBegan struct{ Reader int }
	Polled    struct {
		Reader  int
		Batches []Span
	}
	// Paused and Resumed are in force once they are recorded.
	Paused  struct{ Reader, Partition int }
	Resumed struct{ Reader, Partition int }
	// Given is a batch whose memory was given back.
	Given struct {
		Reader int
		Span   Span
	}
	// OffsetsTold is what a consumer group is told, as a courtesy.
	OffsetsTold struct{ Next map[int32]record.Position }
	// Restored is a process whose state is complete again.
	Restored struct{ Incarnation uint64 }
	// Stepped is a batch that is about to be processed.
	Stepped struct {
		Incarnation uint64
		Partition   int32
		Position    record.Position
	}
)

// What stands in the end, and what was done to get there.
type (
	// Published is what a reader finds in the store when all is over.
	Published struct {
		State      control.RunState
		Rows       map[int32][]byte
		Quarantine []partitions.Quarantined
		Decisions  []partitions.Decision
		// Hash is that of the values, by whoever reads them.
		Hash string
	}
	// CheckpointRead is one partition of a checkpoint as it is read back.
	CheckpointRead struct {
		Epoch     uint64
		Partition int32
		Blobs     []partitions.StateBlob
		// Err is why it cannot be read, or "".
		Err string
	}
	// Injected is a fault that took place.
	Injected struct{ Kind, Detail string }
)

func (e Granted) String() string {
	return fmt.Sprintf("granted %s to %s, token %d, for %s", e.Row.Name, e.Row.Owner, e.Row.Token, e.Row.Until.Sub(e.Now))
}
func (e Released) String() string { return fmt.Sprintf("released token %d", e.Hold.Token) }
func (e Written) String() string {
	return fmt.Sprintf("wrote %s under token %d", e.What, e.Hold.Token)
}
func (e Opened) String() string {
	return fmt.Sprintf("opened at epoch %d, %s", e.State.Epoch, e.State.Status)
}
func (e Committed) String() string {
	rows := 0
	for _, p := range e.Commit.Partitions {
		rows += p.Rows.Count
	}
	return fmt.Sprintf("attempt %d applied: epoch %d, %s, %d rows, token %d", e.ID, e.Commit.Epoch, e.Commit.Status, rows, e.Token)
}
func (e Loaded) String() string {
	return fmt.Sprintf("loaded %d blobs of partition %d", len(e.Blobs), e.Partition)
}
func (e BlobKept) String() string    { return "kept blob " + short(e.Name) }
func (e BlobDropped) String() string { return "dropped blob " + short(e.Name) }
func (e PointerKept) String() string {
	return fmt.Sprintf("kept the pointer of epoch %d to %s", e.Pointer.Epoch, short(e.Pointer.Manifest))
}
func (e PointerDropped) String() string {
	return fmt.Sprintf("dropped the pointer of epoch %d", e.Epoch)
}
func (e Sent) String() string     { return fmt.Sprintf("attempt %d sent: epoch %d", e.ID, e.Epoch) }
func (e Answered) String() string { return fmt.Sprintf("attempt %d answered: %s", e.ID, e.Outcome) }
func (e LeaseTold) String() string {
	return "lease " + e.What
}
func (e LeaseBelieved) String() string { return "believes to hold the lease until " + e.Until.String() }
func (e Woken) String() string         { return "goes on" }
func (e Backpressure) String() string {
	return fmt.Sprintf("partition %d is read: %t", e.Partition, e.Reads)
}
func (e Started) String() string { return "started" }
func (e Ended) String() string {
	if e.Err == "" {
		return "ended in order"
	}
	return "ended: " + e.Err
}
func (e SourceOpened) String() string { return fmt.Sprintf("reader %d opened at %v", e.Reader, e.From) }
func (e PollBegan) String() string    { return fmt.Sprintf("reader %d asked", e.Reader) }
func (e Polled) String() string       { return fmt.Sprintf("reader %d answered %v", e.Reader, e.Batches) }
func (s Span) String() string         { return fmt.Sprintf("%d:[%s,%s)", s.Partition, s.First, s.Next) }
func (e Paused) String() string {
	return fmt.Sprintf("reader %d: partition %d paused", e.Reader, e.Partition)
}
func (e Resumed) String() string {
	return fmt.Sprintf("reader %d: partition %d resumed", e.Reader, e.Partition)
}
func (e Given) String() string       { return fmt.Sprintf("reader %d: %s given back", e.Reader, e.Span) }
func (e OffsetsTold) String() string { return fmt.Sprintf("told the group %v", e.Next) }
func (e Restored) String() string    { return fmt.Sprintf("incarnation %d restored", e.Incarnation) }
func (e Stepped) String() string {
	return fmt.Sprintf("incarnation %d steps partition %d at %s", e.Incarnation, e.Partition, e.Position)
}
func (e Published) String() string {
	return fmt.Sprintf("published: epoch %d, %s, %s", e.State.Epoch, e.State.Status, e.Hash)
}
func (e CheckpointRead) String() string {
	return fmt.Sprintf("checkpoint of epoch %d, partition %d read: %d blobs %s", e.Epoch, e.Partition, len(e.Blobs), e.Err)
}
func (e Injected) String() string { return "FAULT " + e.Kind + " " + e.Detail }

// short is enough of a hash to tell blobs apart.
func short(name string) string { return name[:min(len(name), 12)] }
