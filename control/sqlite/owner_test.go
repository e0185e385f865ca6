package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

// forkOf is the run that an owner makes of its own in the end.
const forkOf = "fork"

// owns is what a child does that owns its run. It tells "acked N" when epoch N and its pointer stand, and N+1 for the fork.
func (t task) owns(ctx context.Context, cfg Config) error {
	hook, stopping := cfg.Hook, false
	cfg.Hook = func(step string) error {
		if stopping && step == "commit" {
			fmt.Println("step", step)
			stopSelf()
		}
		return hook(step)
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	l, err := s.Acquire(ctx, control.StreamLease(t.Workload.RunID), t.Owner, t.TTL)
	if err != nil {
		return err
	}
	j := s.Under(l)
	state, err := j.OpenRun(ctx, t.Workload.Header())
	if err != nil {
		return err
	}
	for epoch := state.Epoch + 1; epoch <= t.Until; epoch++ {
		stopping = epoch == t.StopAt
		if err := j.Commit(ctx, t.Workload.Commit(epoch)); err != nil {
			return err
		}
		stopping = false
		if err := s.KeepPointer(ctx, l, pointerTo(t.Workload, epoch)); err != nil {
			return err
		}
		fmt.Println("acked", epoch)
	}
	if err := t.forks(ctx, s); err != nil {
		return err
	}
	fmt.Println("acked", t.Until+1)
	return s.Close()
}

func (t task) forks(ctx context.Context, s *Store) error {
	f, err := t.Workload.Fork(ctx, t.Until, forkOf)
	if err != nil {
		return err
	}
	l, err := s.Acquire(ctx, control.StreamLease(forkOf), t.Owner, t.TTL)
	if err != nil {
		return err
	}
	return s.ForkRun(ctx, l, f)
}

func pointerTo(w controltest.Workload, epoch uint64) control.Pointer {
	return control.Pointer{RunID: w.RunID, Epoch: epoch, Manifest: fmt.Sprintf("%064x", epoch), Hash: fmt.Sprintf("sha256:%064x", epoch), Fingerprint: w.Header().Fingerprint}
}

// owned says whether what stands of an owner's work is whole: every epoch up to one, a pointer for each of them but perhaps the last, and the fork, or
// nothing of it. It returns how far the work was acknowledged at least.
func owned(ctx context.Context, s *Store, t task, fence control.FenceToken) (done uint64, err error) {
	epoch, err := t.Workload.CheckStored(ctx, s, fence)
	if codes.Has(err, codes.RunUnknown) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	pointers, err := s.ListPointers(ctx, t.Workload.RunID)
	if err != nil {
		return 0, err
	}
	done = uint64(len(pointers))
	if done != epoch && done+1 != epoch {
		return done, fmt.Errorf("%d pointers at epoch %d", done, epoch)
	}
	for i, p := range pointers {
		want := pointerTo(t.Workload, uint64(i+1))
		want.Token, want.Created = p.Token, p.Created
		if p != want || p.Token == 0 || p.Token > fence {
			return done, fmt.Errorf("pointer %+v, want %+v", p, want)
		}
	}
	fork := t.Workload
	fork.RunID = forkOf
	at, err := fork.CheckStored(ctx, s, 1)
	switch {
	case codes.Has(err, codes.RunUnknown):
		return done, nil
	case err != nil:
		return done, fmt.Errorf("the fork: %w", err)
	case at != t.Until:
		return done, fmt.Errorf("the fork stands at epoch %d", at)
	}
	return done + 1, nil
}

// succeeds does what is left of an owner's work, as the next owner, and checks all of it.
func succeeds(t *testing.T, s *Store, work task) error {
	ctx := t.Context()
	l, err := s.Acquire(ctx, control.StreamLease(work.Workload.RunID), "b", time.Minute)
	if err != nil {
		return err
	}
	j := s.Under(l)
	state, err := j.OpenRun(ctx, work.Workload.Header())
	if err != nil {
		return err
	}
	for epoch := uint64(1); epoch <= work.Until; epoch++ {
		if epoch > state.Epoch {
			if err := j.Commit(ctx, work.Workload.Commit(epoch)); err != nil {
				return err
			}
		}
		if err := s.KeepPointer(ctx, l, pointerTo(work.Workload, epoch)); err != nil {
			return err
		}
	}
	fork, err := s.Acquire(ctx, control.StreamLease(forkOf), "b", time.Minute)
	if err != nil {
		return err
	}
	f, err := work.Workload.Fork(ctx, work.Until, forkOf)
	if err != nil {
		return err
	}
	if err := s.ForkRun(ctx, fork, f); err != nil {
		return err
	}
	if _, err := work.Workload.CheckStored(ctx, s, l.Token); err != nil {
		return err
	}
	w := work.Workload
	w.RunID = forkOf
	_, err = w.CheckStored(ctx, s, fork.Token)
	return err
}
