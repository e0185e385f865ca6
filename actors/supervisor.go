package actors

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// phase is where the run actor stands.
//
//	          opened                ended
//	┌───────┐ ──────▶ ┌───────┐ ────────────▶ ┌──────┐  the run is over  ┌──────┐
//	│opening│         │running│               │ending│ ────────────────▶ │ over │
//	└───────┘ ─────▶  └───────┘ ────────────▶ └──────┘                   └──────┘
//	    ▲    failed                failed        │ quiet, and not over
//	    │     ┌───────┐                          │
//	    └──── │waiting│ ◀────────────────────────┘
//	    retry └───────┘
//
//	         opened   failed    ended    quiet            retry     interrupt                  kill
//	opening  running  ending    -        -                -         ending when opened         ending when opened
//	running  -        ending    ending   -                -         asks the reader to stop    ending
//	ending   -        noted     -        waiting or over  -         over when quiet            over when quiet
//	waiting  -        -         -        -                opening   over                       over
//	over     -        -         -        -                -         -                          -
type phase uint8

const (
	opening phase = iota
	running
	ending
	waiting
	over
)

// outcome is what Run returns.
type outcome struct {
	result Result
	err    error
}

// cause tells failures apart for MaxFailures: the code, or whether it was a panic or an error where there is none, in one actor. Neither
// the position nor the text is part of it: a source may cut its batches differently the next time, and a text may hold a port or a time,
// so that the same failure would never be recognised.
type cause struct{ actor, what string }

// supervisor is the run actor. It opens an incarnation, is told of its failures, ends it as a whole and opens the next one from the last
// cut, until the run is over.
type supervisor struct {
	e       *engine
	outcome chan<- outcome
	publish func(Result)

	phase phase
	cur   *incarnation
	began time.Time
	timer *time.Timer

	// state is what the journal is known to hold. uncertain: a commit may stand that is not in it.
	state     control.RunState
	header    control.RunHeader
	all       []int32
	uncertain bool
	// lastEpoch is the epoch of a FINISHED commit that was tried, or 0.
	lastEpoch uint64

	failures []Failure
	counts   map[cause]int
	inRow    int
	// standing is the last failure when no commit has followed it: what was processed since the last commit is in no journal.
	standing *Failure
	// reached is the greatest number of records, over the whole life of the run, that any incarnation has handed out.
	reached int64

	// stop is why the run is over once the incarnation is quiet; done says that it is.
	done bool
	stop error
	// interrupted and killed remember what was asked for.
	interrupted, killed bool
}

// Receive handles one message.
func (s *supervisor) Receive(c *shell.Context, m toRun) error {
	switch m := m.(type) {
	case start:
		s.open()
		return nil
	case interrupt:
		s.interrupt()
		return nil
	case kill:
		s.kill()
		return nil
	default:
		if s.phase == over || m.incarnation() != s.cur.number {
			return nil
		}
	}
	switch m := m.(type) {
	case opened:
		s.opened(c, m.err)
	case committing:
		s.lastEpoch = m.epoch
	case committed:
		s.committed(m.state)
	case ended:
		s.ended(m.mode)
	case quiet:
		s.quiet()
	case retry:
		if s.phase == waiting {
			s.open()
		}
	case readBack:
		s.readBack(m)
	}
	return nil
}

// Failed ends the incarnation to which the child belongs.
func (s *supervisor) Failed(_ *shell.Context, f shell.Failed) error {
	if s.phase == over || f.Incarnation != s.cur.number {
		return nil
	}
	failure := Failure{Incarnation: f.Incarnation, Actor: f.Child.Name(), Partition: -1, Cause: f.Cause}
	if d, ok := f.Message.(deliver); ok {
		failure.Partition, failure.Position = d.part.batch.Partition, d.part.first
	}
	s.fail(failure)
	return nil
}

// Stopping does nothing.
func (s *supervisor) Stopping(*shell.Context) error { return nil }

// Stopped clears up behind a run actor that failed itself: what it leaves open is nobody else's.
func (s *supervisor) Stopped(*shell.Context) error {
	if s.phase == running {
		s.e.background.Go(s.cur.end)
	}
	return nil
}

// open starts the next incarnation: a goroutine restores it and answers with opened.
func (s *supervisor) open() {
	number := uint64(1)
	if s.cur != nil {
		number = s.cur.number + 1
	}
	in := newIncarnation(s.e, number)
	s.cur, s.phase, s.began = in, opening, time.Now()
	s.e.background.Go(func() {
		err := protect(in.restore)
		shell.Send(s.e.run, toRun(opened{in.stamp(), err}))
	})
}

func (s *supervisor) opened(c *shell.Context, err error) {
	in := s.cur
	if in.state.Header.RunID != "" {
		s.know(in.state)
		s.header, s.all, s.uncertain = in.header, in.partitions, false
	}
	switch {
	case err != nil && codes.Has(err, codes.RunFinished) && s.lastEpoch > 0 && in.state.Epoch == s.lastEpoch:
		// The answer to our own last commit was lost.
		s.over(nil)
	case err != nil && !s.stopping():
		s.fail(Failure{Incarnation: in.number, Actor: runName, Partition: -1, Cause: err})
		return
	case err == nil && !s.stopping():
		if err = in.spawn(c); err != nil {
			s.fail(Failure{Incarnation: in.number, Actor: runName, Partition: -1, Cause: err})
			return
		}
		s.phase = running
		s.e.log.Info("running", "run", s.e.cfg.RunID, "incarnation", in.number, "epoch", in.state.Epoch)
		return
	}
	s.end()
}

func (s *supervisor) stopping() bool { return s.interrupted || s.killed }

// know takes a newer state of the journal. Progress forgives what failed before.
func (s *supervisor) know(state control.RunState) {
	advanced := state.Epoch > s.state.Epoch
	if advanced {
		s.counts, s.inRow = make(map[cause]int), 0
	}
	n := recordsOf(state)
	s.reached = max(s.reached, n)
	if advanced && n == s.reached {
		// A commit whose answer was lost, and which holds all that was handed out.
		s.standing = nil
	}
	s.state = state
	s.state.Cuts = maps.Clone(state.Cuts)
	s.publish(s.result())
}

// recordsOf is the number of records that the cuts of a state stand behind.
func recordsOf(state control.RunState) (n int64) {
	for _, cut := range state.Cuts {
		n += cut.Counts.Records
	}
	return n
}

func (s *supervisor) committed(state control.RunState) {
	s.know(state)
	s.standing = nil
}

func (s *supervisor) ended(mode endMode) {
	if s.phase != running {
		return
	}
	switch mode {
	case endShort:
		n, _ := s.e.cfg.limit()
		s.over(codes.New(codes.SourceEnded, "the log ended after %d of %d records; the run stays open at epoch %d", s.result().Counts.Records, n, s.state.Epoch))
	case endInterrupt:
		if s.reached == recordsOf(s.state) {
			// There was nothing to commit, and no earlier incarnation had been further.
			s.standing = nil
		}
		s.over(ErrInterrupted)
	case endFinish, endUntil:
		s.over(nil)
	}
	s.end()
}

// over says that the run is over once its incarnation is quiet.
func (s *supervisor) over(err error) {
	if !s.done {
		s.done, s.stop = true, err
	}
}

// fail notes a failure and ends the incarnation. Only its first failure counts; what follows from it is noise.
func (s *supervisor) fail(f Failure) {
	if s.phase != opening && s.phase != running {
		s.e.log.Debug("failed while ending", "actor", f.Actor, "cause", f.Cause.Error())
		return
	}
	if s.e.ctx.Err() != nil {
		// Killed: contexts end everywhere, and that is no failure.
		s.end()
		return
	}
	if s.phase == running && time.Since(s.began) >= s.e.cfg.Backoff.Healthy {
		s.counts, s.inRow = make(map[cause]int), 0
	}
	s.uncertain = s.uncertain || s.phase == running
	s.failures = append(s.failures, f)
	if n := len(s.failures); n > maxFailuresKept {
		s.failures = s.failures[n-maxFailuresKept:]
	}
	s.inRow++
	s.standing = &f
	key := cause{f.Actor, kindOf(f.Cause)}
	if s.further() && ofSource(f) {
		maps.DeleteFunc(s.counts, func(c cause, _ int) bool { return c.what == key.what })
	}
	s.counts[key]++
	switch {
	case fatal(f.Cause):
		s.over(f.Cause)
	case s.counts[key] >= s.e.cfg.MaxFailures:
		s.over(gaveUp(f, s.counts[key], s.state.Epoch))
	}
	s.log(f)
	s.end()
}

const maxFailuresKept = 100

// further notes how far the incarnation has read, and says whether that is further than any has before.
func (s *supervisor) further() bool {
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
		s.e.log.Warn("failed; the run goes on from its last commit", append(args, "pause", s.e.cfg.Backoff.Pause(s.inRow))...)
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

// end stops the incarnation; quiet tells when it has ended.
func (s *supervisor) end() {
	in := s.cur
	s.phase = ending
	s.e.background.Go(func() {
		in.end()
		shell.Send(s.e.run, toRun(quiet{in.stamp()}))
	})
}

func (s *supervisor) quiet() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.further()
	s.settleStop()
	switch {
	case s.done && s.uncertain && !s.killed:
		s.askBack()
	case s.done:
		s.finish()
	default:
		s.phase = waiting
		s.timer = after(s.e.cfg.Backoff.Pause(max(s.inRow, 1)), s.e.run, toRun(retry{s.cur.stamp()}))
	}
}

// settleStop makes what was asked for from outside the reason of the end, unless there is one.
func (s *supervisor) settleStop() {
	switch {
	case s.killed:
		s.over(ErrKilled)
	case s.interrupted:
		s.over(ErrInterrupted)
	}
}

// askBack reads the journal once more before the end, since a commit whose answer nobody has may stand.
func (s *supervisor) askBack() {
	in := s.cur
	s.phase, s.uncertain = ending, false
	s.e.background.Go(func() {
		m := readBack{stamp: in.stamp()}
		m.err = protect(func() (err error) {
			m.state, err = s.e.cfg.Journal.OpenRun(s.e.ctx, s.header)
			return err
		})
		shell.Send(s.e.run, toRun(m))
	})
}

func (s *supervisor) readBack(m readBack) {
	if m.state.Header.RunID != "" {
		s.know(m.state)
	}
	if codes.Has(m.err, codes.RunFinished) && s.lastEpoch > 0 && m.state.Epoch == s.lastEpoch {
		s.stop = nil
	}
	s.finish()
}

func (s *supervisor) interrupt() {
	s.interrupted = true
	switch s.phase {
	case opening:
		s.cur.cancel()
	case running:
		shell.Send(s.cur.reader, toReader(stopIntake{s.cur.stamp()}))
	case waiting:
		s.quiet()
	case ending, over:
	}
}

func (s *supervisor) kill() {
	s.killed = true
	switch s.phase {
	case opening:
		s.cur.cancel()
	case running:
		s.end()
	case waiting:
		s.quiet()
	case ending, over:
	}
}

func (s *supervisor) finish() {
	s.phase = over
	if errors.Is(s.stop, ErrInterrupted) && s.standing != nil {
		s.stop = interruptedAfter(*s.standing, s.state.Epoch)
	}
	s.outcome <- outcome{s.result(), s.stop}
}

func (s *supervisor) result() Result {
	r := resultOf(s.state, s.all)
	r.Incarnations = int(s.cur.number)
	r.Failures = append([]Failure(nil), s.failures...)
	return r
}

// newSupervisor makes a run actor that answers on out.
func newSupervisor(e *engine, out chan<- outcome, publish func(Result)) *supervisor {
	return &supervisor{e: e, outcome: out, publish: publish, counts: make(map[cause]int)}
}

func newEngine(ctx context.Context, cfg Config) *engine {
	e := &engine{cfg: cfg, log: cfg.Logger, background: new(sync.WaitGroup)}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return e
}
