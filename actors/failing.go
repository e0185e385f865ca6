package actors

import (
	"errors"
	"maps"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
)

// cause tells failures apart for MaxFailures: the code, or whether it was a panic or an error where there is none, in one actor. Neither
// the position nor the text is part of it: a source may cut its batches differently the next time, and a text may hold a port or a time,
// so that the same failure would never be recognised.
type cause struct{ actor, what string }

// fail notes a failure and ends the incarnation. Only its first failure counts; what follows from it is noise.
func (s *supervisor) fail(f Failure) {
	if s.phase != leasing && s.phase != opening && s.phase != running {
		s.e.log.Debug("failed while ending", "actor", f.Actor, "cause", f.Cause.Error())
		return
	}
	if s.e.ctx.Err() != nil {
		// Killed: contexts end everywhere, and that is no failure.
		s.end()
		return
	}
	if s.e.cfg.Fencing != nil && codes.Has(f.Cause, codes.StaleFence) {
		s.lose(f.Cause)
		s.end()
		return
	}
	if s.phase == running && time.Since(s.began) >= s.e.cfg.Backoff.Healthy {
		s.forgive(func(int32) bool { return false })
	}
	s.uncertain, s.again = s.uncertain || s.phase == running, false
	if s.e.cfg.Fencing != nil && codes.Has(f.Cause, codes.JournalConflict) {
		f.Cause = codes.New(codes.JournalConflict, "two processes act as the owner %q of run %q: each needs an owner id of its own: %w", s.e.cfg.Fencing.Owner, s.e.cfg.RunID, f.Cause)
	}
	s.note(f)
	s.end()
}

// forgive starts the counts of causes again. Those of a partition stand until it has moved on itself: what others commit says nothing about
// a record on which it fails, and would let it fail for ever.
func (s *supervisor) forgive(moved func(partition int32) bool) {
	s.inRow = 0
	maps.DeleteFunc(s.counts, func(c cause, _ int) bool {
		p, ok := c.ofPartition()
		return !ok || moved(p)
	})
}

const maxFailuresKept = 100

// note keeps a failure, counts it, and decides whether it is the end, of the run or of reading one partition.
func (s *supervisor) note(f Failure) {
	s.failures = append(s.failures, f)
	if n := len(s.failures); n > maxFailuresKept {
		s.failures = s.failures[n-maxFailuresKept:]
	}
	s.standing = &f
	key := cause{f.Actor, kindOf(f.Cause)}
	if s.further() && ofSource(f) {
		maps.DeleteFunc(s.counts, func(c cause, _ int) bool { return c.what == key.what })
	}
	s.counts[key]++
	n := s.counts[key]
	tired := fatal(f.Cause) || n >= s.e.cfg.MaxFailures
	p, one := key.ofPartition()
	if !one {
		s.inRow++
	}
	switch {
	case s.bars(f, one):
		s.barRun(f)
		return
	case tired && one && s.e.cfg.unbounded():
		s.block(p, f, n)
		return
	case fatal(f.Cause):
		s.over(f.Cause)
	case tired:
		s.over(gaveUp(f, n, s.state.Epoch))
	}
	s.log(f)
}

// pause is the pause before the next incarnation. After the failure of one partition it is short: a partition depends on nothing that would
// need time, and the others wait for it.
func (s *supervisor) pause() time.Duration {
	if s.again {
		return 0
	}
	return s.e.cfg.Backoff.Pause(max(s.inRow, 1))
}

// further notes how far the incarnation has read, and says whether that is further than any has before.
func (s *supervisor) further() bool {
	if s.cur == nil {
		return false
	}
	n := s.cur.handed.Load()
	if n <= s.reached {
		return false
	}
	s.reached = n
	return true
}

// ofSource says whether the source failed in a way that may pass. When more was read before than ever, such a failure is a new one although
// nothing is committed yet: a log that fails now and then between two timed commits is slow, not broken. No loop without a commit goes on
// for ever that way: reading further takes an incarnation to its next commit in the end, and commits that fail are a cause of their own,
// which this does not forgive.
func ofSource(f Failure) bool {
	code := codes.Of(f.Cause)
	return f.Actor == readerName && kindOf(f.Cause) != panicKind && code != nil && code.Verdict == codes.Retry
}

func (s *supervisor) log(f Failure) {
	args := []any{"run", s.e.cfg.RunID, "incarnation", f.Incarnation, "at", f.place(), "code", codeName(f.Cause), "cause", f.Cause.Error(), "epoch", s.state.Epoch}
	if s.done || s.interrupted {
		// Run returns it, and who called it reports it.
		s.e.log.Info("failed; the run ends", args...)
	} else {
		s.e.log.Warn("failed; the run goes on from its last commit", append(args, "pause", s.pause())...)
	}
	var p *shell.PanicError
	if errors.As(f.Cause, &p) {
		s.e.log.Debug("stack", "at", f.place(), "stack", string(p.Stack))
	}
}

// fatal says whether trying again gives the same. A panic may have had a passing cause, whatever it carries.
func fatal(err error) bool {
	var p *shell.PanicError
	if errors.As(err, &p) {
		return false
	}
	c := codes.Of(err)
	return c != nil && c.Verdict != codes.Retry
}

const panicKind = "panic"

func kindOf(err error) string {
	var p *shell.PanicError
	if errors.As(err, &p) {
		return panicKind
	}
	if c := codes.Of(err); c != nil {
		return c.Name
	}
	return "error"
}

func codeOr(err error, otherwise *codes.Code) *codes.Code {
	if c := codes.Of(err); c != nil {
		return c
	}
	return otherwise
}

func gaveUp(f Failure, n int, epoch uint64) error {
	return codes.New(codeOr(f.Cause, codes.Internal), "%s failed %d times without a commit in between; the run stands at epoch %d, nothing beyond it was published: %w", f.place(), n, epoch, f.Cause)
}

// interruptedAfter is the end of a run that was interrupted while a failure stood. It does not wrap ErrInterrupted, which promises that
// everything processed is committed.
func interruptedAfter(f Failure, epoch uint64) error {
	return codes.New(codeOr(f.Cause, codes.Internal), "%s failed, and the run was interrupted before anything was committed again; what the journal holds "+
		"up to epoch %d stays, and the run can be resumed from there: %w", f.place(), epoch, f.Cause)
}
