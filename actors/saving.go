package actors

import (
	"context"
	"errors"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// saveGrace is how long a run that was interrupted waits for its last checkpoint. The journal has everything without it.
const saveGrace = 5 * time.Second

// saves is what the run actor knows of the checkpoints of its run. One is made at a time, in a goroutine, while commits go on; they belong to
// the run and not to an incarnation.
type saves struct {
	// dirty: something was committed since the last one began. last is when that was, at first the start of the run.
	dirty bool
	last  time.Time
	// busy: one is being made; cancel ends it. final: the one at the end of the run was tried.
	busy, final bool
	cancel      context.CancelFunc
	due, grace  *time.Timer
}

// To the run actor, of no incarnation.
type (
	// saveDue is the time for a checkpoint, saveGraceOver the end of the wait for the last one.
	saveDue       struct{ stamp }
	saveGraceOver struct{ stamp }
	// saved is what became of one.
	saved struct {
		stamp
		pointer control.Pointer
		err     error
	}
)

func (saveDue) forRun()       {}
func (saveGraceOver) forRun() {}
func (saved) forRun()         {}

// dirtied notes a commit.
func (s *supervisor) dirtied() {
	s.saves.dirty = true
	s.saveWhenDue()
}

func (s *supervisor) saveWhenDue() {
	v := &s.saves
	if s.e.cfg.Checkpointer == nil || v.busy || !v.dirty || s.done {
		return
	}
	stopTimer(v.due)
	if wait := s.e.cfg.CheckpointEvery - time.Since(v.last); wait > 0 {
		v.due = after(wait, s.e.run, toRun(saveDue{}))
		return
	}
	s.save()
}

func (s *supervisor) save() {
	v, lease := &s.saves, s.e.lease.Load()
	ctx, cancel := context.WithCancel(s.e.effects)
	v.busy, v.dirty, v.last, v.cancel = true, false, time.Now(), cancel
	s.e.background.Go(func() {
		defer cancel()
		var m saved
		m.err = protect(func() (err error) {
			m.pointer, err = s.e.cfg.Checkpointer.Save(ctx, *lease, s.e.cfg.RunID)
			return err
		})
		shell.Send(s.e.run, toRun(m))
	})
}

func (s *supervisor) saved(m saved) {
	v := &s.saves
	v.busy = false
	v.dirty = v.dirty || m.err != nil
	switch {
	case s.gone || s.killed:
	case codes.Has(m.err, codes.StaleFence):
		s.lose(m.err)
		s.stepDown()
		return
	default:
		s.tellCheckpoint(m)
	}
	if s.phase == saving {
		s.finish()
		return
	}
	s.saveWhenDue()
}

func (s *supervisor) tellCheckpoint(m saved) {
	if m.err != nil {
		s.e.log.Warn("no checkpoint was made; the journal is not touched by that", "run", s.e.cfg.RunID, "code", codeName(m.err), "cause", m.err.Error())
	} else {
		s.e.log.Info("checkpoint", "run", s.e.cfg.RunID, "epoch", m.pointer.Epoch, "blobs", m.pointer.Blobs, "bytes", m.pointer.Bytes, "new", m.pointer.NewBytes)
	}
	if f := s.e.cfg.OnCheckpoint; f != nil {
		f(m.pointer, m.err)
	}
}

// saveAtEnd says whether the end of the run waits for a checkpoint: one under way, or one of what was committed since, at an end in order.
func (s *supervisor) saveAtEnd() bool {
	v := &s.saves
	stopTimer(v.due)
	stopTimer(v.grace)
	if s.e.cfg.Checkpointer == nil || s.killed || s.gone || !s.orderly && s.stop != nil && !errors.Is(s.stop, ErrInterrupted) {
		return false
	}
	if !v.busy {
		if !v.dirty || v.final {
			return false
		}
		v.final = true
		s.save()
	}
	s.phase = saving
	if s.interrupted {
		s.boundSave()
	}
	return true
}

func (s *supervisor) boundSave() {
	s.saves.grace = after(saveGrace, s.e.run, toRun(saveGraceOver{}))
}
