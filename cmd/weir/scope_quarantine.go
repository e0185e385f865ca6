package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// endApart says how a run that is shared out has ended here. When it was told to stop it leaves, with --artifacts, what each partition that it worked
// on has set aside: RUN-ID/N.quarantine.jsonl, as a run of its own does.
func (a *app) endApart(ctx context.Context, o runOptions, store *runStore, stands *standing, err error) error {
	if o.artifacts != "" && errors.Is(err, actors.ErrInterrupted) && a.signal == syscall.SIGTERM {
		if left := a.leaveApart(context.WithoutCancel(ctx), o, store, stands.partitions()); left != nil {
			return left
		}
	}
	return a.finishApart(o, stands, err)
}

// partitions are those that this process has brought on.
func (s *standing) partitions() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.last))
}

// errWorkedOn keeps a file from being written.
var errWorkedOn = errors.New("another process works on the partition")

// leaveApart writes the files of partitions that nobody works on any more: who works on one now will know more of it, and writes it in its turn.
func (a *app) leaveApart(ctx context.Context, o runOptions, store *runStore, partitions []int32) error {
	if err := os.MkdirAll(o.artifacts, 0o700); err != nil {
		return codes.New(codes.OutputUnwritable, "--artifacts: %w", err)
	}
	for _, p := range partitions {
		part := o
		part.runID = group.RunID(o.runID, p)
		err := a.leaveQuarantine(ctx, part, store, func() error {
			lease, known, err := store.LookupLease(ctx, control.StreamLease(part.runID))
			if err == nil && known && lease.Valid {
				return errWorkedOn
			}
			return err
		})
		if err != nil && !errors.Is(err, errWorkedOn) {
			return err
		}
	}
	return nil
}
