package actors

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// phase is where the run actor stands.
//
//	           granted            opened              ended             the run is over      saved            given back
//	┌─────────┐ ─────▶ ┌─────────┐ ────▶ ┌─────────┐ ──────▶ ┌────────┐ ──────▶ ┌────────┐ ──────▶ ┌───────────┐ ──▶ ┌──────┐
//	│ leasing │        │ opening │       │ running │         │ ending │         │ saving │         │ releasing │     │ over │
//	└─────────┘        └─────────┘ ────▶ └─────────┘ ──────▶ └────────┘         └────────┘         └───────────┘     └──────┘
//	     ▲  │ failed      ▲       failed              failed    │ quiet, and not over
//	     │  └───────────┐ │                                     │
//	     │              ▼ │ retry, the lease is held            │
//	     │         ┌─────────┐                                  │
//	     └──────── │ waiting │ ◀────────────────────────────────┘
//	        retry  └─────────┘
//
//	           granted  opened   failed   ended   quiet              retry               interrupt                kill
//	leasing    opening  -        waiting  -       -                  -                   saving                   over
//	opening    -        running  ending   -       -                  -                   ending when opened       ending when opened
//	running    -        -        ending   ending  -                  -                   asks the reader to stop  ending
//	ending     -        -        noted    -       waiting or saving  -                   saving when quiet        over when quiet
//	waiting    -        -        -        -       -                  leasing or opening  saving                   over
//	halted     -        -        -        -       -                  -                   saving                   over
//	saving     -        -        noted    -       -                  -                   for a moment more        over
//	releasing  -        -        over     -       -                  -                   -                        over
//	over       -        -        -        -       -                  -                   -                        -
//
// Between ending and saving a run that has come to its end in order settles what operators have asked for (sweeping, orders_end.go), which behaves as
// saving does. A run whose recovery is blocked goes from ending to halted instead of waiting, and on only when an operator has chosen (recovery.go).
//
// The lease is taken once and kept over incarnations. When it is lost, the run is over in every phase: nothing more is written, an open
// incarnation is ended without a last cut, and nothing is given back. Without Fencing, leasing and releasing are passed over; without a
// Checkpointer, or when there is nothing to save, so is saving.
//
// A failure of the run actor itself ends the incarnation too; the next run actor goes on with its state, from waiting.
type phase uint8

const (
	idle phase = iota
	leasing
	opening
	running
	ending
	waiting
	halted
	sweeping
	saving
	releasing
	over
)

// outcome is what Run returns.
type outcome struct {
	result Result
	err    error
}

// supervisor is the run actor. It opens an incarnation, is told of its failures, ends it as a whole and opens the next one from the last
// cut, until the run is over.
type supervisor struct {
	e       *engine
	outcome chan<- outcome
	publish func(Result)

	phase phase
	// toldState is the last one that OnState was told of; blockedChanged: not with the partitions that are blocked now.
	toldState      RunState
	blockedChanged bool
	cur            *incarnation
	began          time.Time
	timer          *time.Timer

	// state is what the journal is known to hold. uncertain: a commit may stand that is not in it.
	state     control.RunState
	header    control.RunHeader
	all       []int32
	uncertain bool
	// lease is the actor of the lease, gen counts those there were. held is the lease that it has; gone: it is lost.
	lease shell.Ref[toLease]
	gen   uint64
	held  *control.Lease
	gone  bool
	// broken is a failure from outside an incarnation that is still being opened.
	broken *Failure

	saves saves

	orders    orders
	observing observing
	// again: the incarnation ends only so that another begins.
	again bool

	failures []Failure
	counts   map[cause]int
	// inRow is the number of failures without a commit in between, those of single partitions not counted.
	inRow int
	// blocked are the partitions that are not read any more. barred is why the whole run is blocked.
	blocked map[int32]blockedAt
	barred  *Block
	// standing is the last failure when no commit has followed it: what was processed since the last commit is in no journal.
	standing *Failure
	// reached is the greatest number of records, over the whole life of the run, that any incarnation has handed out.
	reached int64

	// stop is why the run is over once the incarnation is quiet; done says that it is.
	// orderly: the last cut was committed as the incarnation wanted.
	done, orderly bool
	stop          error
	// revivals is how often the run actor has failed after that.
	revivals int
	// interrupted and killed remember what was asked for.
	interrupted, killed bool
}

// Receive handles one message.
func (s *supervisor) Receive(c *shell.Context, m toRun) error {
	defer s.tell()
	switch m := m.(type) {
	case start:
		s.open(c)
	case resume:
		s.quiet()
	case interrupt:
		s.interrupt()
	case kill:
		s.kill()
	case leaseNews:
		if s.phase != over && m.inc == s.gen {
			s.leaseNews(m)
		}
	case saved:
		if s.phase != over {
			s.saved(m)
		}
	case observeDue:
		s.look()
	case ordersDue:
		s.askOrders()
	case ordersRead:
		s.ordersRead(m)
	case ordersSwept:
		s.ordersSwept()
	case saveDue:
		s.saveWhenDue()
	case saveGraceOver:
		if s.phase == saving {
			s.saves.cancel()
		}
	default:
		if s.phase != over && m.incarnation() == s.number() {
			s.ofIncarnation(c, m)
		}
	}
	return nil
}

// ofIncarnation handles a message of the incarnation there is.
func (s *supervisor) ofIncarnation(c *shell.Context, m toRun) {
	switch m := m.(type) {
	case opened:
		s.opened(c, m.err)
	case committed:
		s.committed(m.state)
	case ended:
		s.ended(m.mode)
	case partitionFault:
		s.partitionFault(m)
	case observed:
		s.observed(m)
	case finishing:
		s.finishing()
	case quiet:
		s.quiet()
	case retry:
		if s.phase == waiting {
			s.open(c)
		}
	case readBack:
		s.told(m.state, m.err)
		s.finish()
	}
}

// Failed ends the incarnation to which the child belongs.
func (s *supervisor) Failed(_ *shell.Context, f shell.Failed) error {
	defer s.tell()
	if s.phase == over {
		return nil
	}
	if f.Child == s.lease.Address {
		s.leaseFailed(f.Cause)
		return nil
	}
	if f.Incarnation != s.number() {
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

// Stopped does nothing.
func (s *supervisor) Stopped(*shell.Context) error { return nil }

// revive clears up behind a run actor that has failed itself, and makes its state fit for the next one: nothing of the incarnation lives on,
// and the run goes on as after any failure. It is false when there is to be no next one. No actor may be using the state.
func (s *supervisor) revive(reason error) bool {
	<-s.e.run.Done()
	for _, t := range []*time.Timer{s.timer, s.saves.due, s.saves.grace, s.orders.timer, s.observing.timer} {
		stopTimer(t)
	}
	if s.phase == opening {
		s.cur.cancel()
	}
	s.e.background.Wait()
	if s.phase == opening || s.phase == running {
		s.cur.end()
	}
	s.uncertain = s.uncertain || s.header.RunID != "" && (s.phase == running || s.phase == ending)
	if s.phase == over {
		return true // its outcome is there
	}
	s.orders.armed, s.observing.armed, s.again = false, false, false
	s.saves.dirty, s.saves.busy, s.saves.final = s.saves.dirty || s.saves.busy, false, false
	s.lease, s.held, s.broken, s.phase = shell.Ref[toLease]{}, nil, nil, ending
	if s.done {
		s.revivals++
	}
	s.note(Failure{Incarnation: s.number(), Actor: runName, Partition: -1, Cause: reason})
	if s.revivals < s.e.cfg.MaxFailures {
		return true
	}
	if s.uncertain && !s.killed && !s.gone {
		s.told(s.e.ask(s.header))
	}
	if l := s.e.lease.Load(); l != nil && !s.killed && !s.gone {
		if err := s.e.release(*l); err != nil {
			s.e.log.Debug("the lease was not given back", "cause", err.Error())
		}
	}
	return false
}

// number is that of the incarnation, or 0 before the first.
func (s *supervisor) number() uint64 {
	if s.cur == nil {
		return 0
	}
	return s.cur.number
}

// open starts the next incarnation, once the lease is held.
func (s *supervisor) open(c *shell.Context) {
	if s.e.cfg.Fencing == nil || s.held != nil {
		s.incarnate()
		return
	}
	s.askLease(c)
}

// leased says whether the run may act, as far as its lease goes.
func (s *supervisor) leased() bool { return s.e.cfg.Fencing == nil || s.held != nil }

// incarnate opens an incarnation: a goroutine restores it and answers with opened.
func (s *supervisor) incarnate() {
	s.meetAgain()
	if s.stands() {
		s.phase = halted
		return
	}
	in := newIncarnation(s.e, s.number()+1)
	in.blocked, in.orders, s.again = maps.Clone(s.blocked), s.ordersOf(), false
	in.settled, s.orders.end = maps.Clone(s.orders.settled), endNotDue
	in.blockedNow.Store(&in.blocked)
	s.cur, s.phase = in, opening
	s.e.background.Go(func() {
		err := protect(in.restore)
		shell.Send(s.e.run, toRun(opened{in.stamp(), err}))
	})
}

func (s *supervisor) opened(c *shell.Context, err error) {
	in := s.cur
	if in.state.Header.RunID != "" {
		s.know(in.state)
		s.header, s.all, s.uncertain = in.header, in.header.Partitions, false
	}
	if s.broken != nil && !s.stopping() {
		s.fail(*s.broken)
		return
	}
	switch {
	case err != nil && codes.Has(err, codes.RunFinished) && s.isLast(in.state):
		// The answer to our own last commit was lost.
		s.over(nil)
	case err != nil && !s.stopping():
		s.fail(s.ofOpening(err))
		return
	case err == nil && !s.stopping():
		if err = in.spawn(c); err != nil {
			s.fail(Failure{Incarnation: in.number, Actor: runName, Partition: -1, Cause: err})
			return
		}
		s.phase, s.began = running, time.Now()
		s.ordersTaken()
		s.ordersOpened()
		s.watchLog()
		s.e.log.Info("running", "run", s.e.cfg.RunID, "incarnation", in.number, "epoch", in.state.Epoch)
		return
	}
	s.end()
}

// isLast says whether a finished state is what our own last commit was to make.
func (s *supervisor) isLast(state control.RunState) bool {
	last := s.e.lastEpoch.Load()
	return last > 0 && state.Epoch == last
}

func (s *supervisor) stopping() bool { return s.interrupted || s.killed || s.gone }

// know takes a newer state of the journal. Progress forgives what failed before.
func (s *supervisor) know(state control.RunState) {
	advanced := state.Epoch > s.state.Epoch
	if advanced {
		before := s.state.Cuts
		s.forgive(func(p int32) bool { return state.Cuts[p].Next.Cmp(before[p].Next) > 0 })
	}
	first := s.state.Header.RunID == ""
	n := recordsOf(state)
	s.reached = max(s.reached, n)
	if advanced && n == s.reached {
		// A commit whose answer was lost, and which holds all that was handed out.
		s.standing = nil
	}
	s.state = state
	s.state.Cuts = maps.Clone(state.Cuts)
	s.publish(s.result())
	if advanced && !first {
		s.dirtied()
	}
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
	s.ordersCommitted(state.Epoch)
}

func (s *supervisor) ended(mode endMode) {
	if s.phase != running {
		return
	}
	if mode == endAgain && !s.interrupted {
		s.end()
		return
	}
	s.orderly = true
	switch mode {
	case endBlocked:
		s.over(s.blockedEnd())
	case endShort:
		n, _ := s.e.cfg.limit()
		s.over(codes.New(codes.SourceEnded, "the log ended after %d of %d records; the run stays open at epoch %d", s.result().Counts.Records, n, s.state.Epoch))
	case endInterrupt, endAgain:
		if s.reached == recordsOf(s.state) {
			// There was nothing to commit, and no earlier incarnation had been further.
			s.standing = nil
		}
		s.over(ErrInterrupted)
	case endFinish, endHandOn, endUntil:
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

// end stops the incarnation; quiet tells when it has ended.
func (s *supervisor) end() {
	if s.phase == leasing {
		s.quiet() // there is none
		return
	}
	in := s.cur
	s.phase, s.broken = ending, nil
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
	_, gap := s.metGap()
	if !gap {
		s.meetAgain()
	}
	s.settleStop()
	switch {
	case s.done && s.uncertain && !s.killed && !s.gone:
		s.askBack()
	case s.done:
		s.finish()
	case gap:
		s.phase = halted
		s.readOrders(ordersRead{stamp: s.cur.stamp(), met: true})
	case s.stands() && s.leased():
		s.phase = halted
	default:
		s.phase = waiting
		s.timer = after(s.pause(), s.e.run, toRun(retry{stamp{s.number()}}))
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
	header, m := s.header, readBack{stamp: s.cur.stamp()}
	s.phase, s.uncertain = ending, false
	s.e.background.Go(func() {
		m.state, m.err = s.e.ask(header)
		shell.Send(s.e.run, toRun(m))
	})
}

// ask is what the journal says.
func (e *engine) ask(header control.RunHeader) (state control.RunState, err error) {
	err = protect(func() error {
		journal, err := e.journal()
		if err != nil {
			return err
		}
		state, err = journal.OpenRun(e.effects, header)
		return err
	})
	return state, err
}

func (s *supervisor) told(state control.RunState, err error) {
	if state.Header.RunID != "" {
		s.know(state)
	}
	if codes.Has(err, codes.RunFinished) && s.isLast(state) {
		s.stop = nil
	}
}

func (s *supervisor) interrupt() {
	s.interrupted = true
	switch s.phase {
	case opening:
		s.cur.cancel()
	case running:
		shell.Send(s.cur.reader, toReader(stopIntake{s.cur.stamp(), endInterrupt}))
		s.endOpen()
	case leasing, waiting, halted:
		s.quiet()
	case saving:
		s.boundSave()
	case idle, ending, sweeping, releasing, over:
	}
}

func (s *supervisor) kill() {
	s.killed = true
	switch s.phase {
	case opening:
		s.cur.cancel()
	case running:
		s.end()
	case leasing, waiting, halted:
		s.quiet()
	case sweeping, saving, releasing:
		s.close()
	case idle, ending, over:
	}
}

// finish is the end of what the run does. What is left is to settle what was asked for, the last checkpoint, and to give the lease back.
func (s *supervisor) finish() {
	if s.sweepOrders() || s.saveAtEnd() {
		return
	}
	lease := s.e.lease.Load()
	switch {
	case s.killed || s.gone || s.lease.IsZero() && lease == nil:
		s.close()
	case lease != nil && codes.Has(s.stop, codes.JournalConflict):
		// Whoever commits passes the fence too: a process with our owner id, which the lease is left to.
		shell.Send(s.lease, toLease(dropLease{}))
		s.close()
	case s.lease.IsZero():
		// Its actor has failed.
		s.phase = releasing
		s.e.background.Go(func() {
			err := s.e.release(*lease)
			shell.Send(s.e.run, toRun(leaseNews{stamp: stamp{s.gen}, lease: *lease, err: err, ended: true}))
		})
	default:
		s.phase = releasing
		shell.Send(s.lease, toLease(endLease{}))
	}
}

func (s *supervisor) close() {
	switch {
	case !errors.Is(s.stop, ErrInterrupted):
	case s.standing != nil:
		s.stop = interruptedAfter(*s.standing, s.state.Epoch)
	case len(s.blocked) > 0:
		s.stop = s.blockedEnd()
	}
	o := outcome{s.result(), s.stop}
	s.phase = over
	s.outcome <- o
}

func (s *supervisor) result() Result {
	r := resultOf(s.state, s.all, s.blocked)
	r.Incarnations = int(s.number())
	r.Failures = append([]Failure(nil), s.failures...)
	return r
}

// newSupervisor makes a run actor that answers on out.
func newSupervisor(e *engine, out chan<- outcome, publish func(Result)) *supervisor {
	return &supervisor{e: e, outcome: out, publish: publish, counts: make(map[cause]int), blocked: make(map[int32]blockedAt),
		saves: saves{last: time.Now()}, orders: newOrders(),
		observing: observing{retention: make(map[int32]*backpressure.Retention), risky: make(map[int32]bool)}}
}

func newEngine(ctx context.Context, cfg Config) *engine {
	e := &engine{cfg: cfg, log: cfg.Logger, background: new(sync.WaitGroup)}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.inherited.Store(-1)
	e.effects, e.revoke = context.WithCancelCause(e.ctx)
	return e
}
