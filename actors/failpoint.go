package actors

import (
	"context"

	"github.com/weirstream/weir/record"
)

// Failpoint names a moment at which a test may interfere.
type Failpoint string

// The failpoints, in the order in which a run passes them.
const (
	// BeforeOpen: before the source and the journal are asked what there is to resume.
	BeforeOpen Failpoint = "before_open"
	// AfterRestore: the state of every partition is restored, the source is not open yet.
	AfterRestore Failpoint = "after_restore"
	// AfterPoll: the source has answered, nothing was handed out.
	AfterPoll Failpoint = "after_poll"
	// OnMessage: an actor is about to handle a message.
	OnMessage Failpoint = "on_message"
	// BeforeStep and AfterStep: around the processing of one batch.
	BeforeStep Failpoint = "before_step"
	AfterStep  Failpoint = "after_step"
	// AfterCut: a partition has made its cut and not answered the barrier yet.
	AfterCut Failpoint = "after_cut"
	// BeforeCommit: all partitions have answered, nothing is written.
	BeforeCommit Failpoint = "before_commit"
	// AfterCommit: the epoch stands, nobody knows it yet.
	AfterCommit Failpoint = "after_commit"
	// AfterOffsets: the group's offsets are told.
	AfterOffsets Failpoint = "after_offsets"
)

// Failpoints are all of them.
func Failpoints() []Failpoint {
	return []Failpoint{BeforeOpen, AfterRestore, AfterPoll, OnMessage, BeforeStep, AfterStep, AfterCut, BeforeCommit, AfterCommit, AfterOffsets}
}

// Point is where a run stands at a failpoint. What does not apply is zero.
type Point struct {
	Name        Failpoint
	Actor       string
	Incarnation uint64
	Epoch       uint64
	Partition   int32
	Position    record.Position
}

// Hooks let a test interfere.
type Hooks struct {
	// At is called at every failpoint, by the goroutine that passes it. An error or a panic is a failure there; it may also block
	// until ctx ends, or cancel Config.Kill to play a crash.
	At func(ctx context.Context, p Point) error
}

func (h Hooks) at(ctx context.Context, p Point) error {
	if h.At == nil {
		return nil
	}
	return h.At(ctx, p)
}
