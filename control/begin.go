package control

import (
	"context"

	"github.com/weirstream/weir/codes"
)

// Beginner is what a journal offers to who makes a run that must never be seen without its first epoch: one that begins with a history would otherwise,
// were its maker killed in between, be taken for a new one that begins at the start of its log.
type Beginner interface {
	// BeginRun makes a run and commits its first epoch, in one transaction: after a kill at any moment either both stand or neither. It refuses with
	// JournalConflict when the run is there, whatever it stands at, and otherwise as OpenRun and Commit do. After an error that is no refusal it is unknown whether
	// the run stands; RunLister tells, which makes none.
	BeginRun(ctx context.Context, h RunHeader, c Commit) error
}

// BeginRun makes a run with its first epoch, in a journal that is a Beginner; Internal if it is none.
func BeginRun(ctx context.Context, j Journal, h RunHeader, c Commit) error {
	b, ok := j.(Beginner)
	if !ok {
		return codes.New(codes.Internal, "%T cannot begin a run with its first epoch", j)
	}
	return b.BeginRun(ctx, h, c)
}

// CheckBegin is the rule of BeginRun for what is asked by itself.
func CheckBegin(h RunHeader, c Commit) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if h.RunID != c.RunID {
		return codes.New(codes.Internal, "run %q would begin with an epoch of run %q", h.RunID, c.RunID)
	}
	return nil
}

// IsThere is the refusal of BeginRun for a run that is there.
func IsThere(id string) error {
	return codes.New(codes.JournalConflict, "run %q is there already: another process has begun it", id)
}
