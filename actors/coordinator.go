package actors

import (
	"context"
	"maps"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// coordinatorActor makes epochs: it asks for a cut, commits it, and ends the run with the last one. One cut is under way at a time, from
// its request to the journal's answer; data flows on meanwhile.
//
//	        tick, epochDue                      all aligned
//	┌──────┐ ────────────▶ ┌─────────┐ cutRequest ┌──────────┐ Commit  ┌────────────┐
//	│ idle │               │ aligning│ ─ ─ ─ ─ ─▶ │          │ ──────▶ │ committing │
//	└──────┘ ◀──────────── └─────────┘            └──────────┘         └────────────┘
//	    ▲      unchanged                                      done           │
//	    └────────────────────────────────────────────────────────────────────┘
//
// When the intake has ended, the cut under way is awaited, then the last one is asked for: an open one at once, a FINISHED one after what operators
// have chosen stands (orders_end.go), and the maximum event time of all partitions is known.
type coordinatorActor struct {
	in    *incarnation
	state control.RunState

	// busy: a cut is under way. due and force: another was asked for meanwhile.
	busy, due, force bool
	queues           []Queue
	// commit is the one under way.
	commit control.Commit
	timer  *time.Timer

	ending, last bool
	mode         endMode
	// stood: what this incarnation was to take of operators' choices is cut. asked: the run actor knows that the last cut is due.
	stood, asked bool
}

func newCoordinator(in *incarnation) *coordinatorActor {
	s := in.state
	s.Watermark = in.watermark()
	return &coordinatorActor{in: in, state: s}
}

// Receive handles one message.
func (a *coordinatorActor) Receive(_ *shell.Context, m toCoordinator) error {
	switch m := m.(type) {
	case begin:
		a.arm()
	case tick:
		a.arm()
		a.ask(false)
	case epochDue:
		a.ask(m.force)
	case barrierSent:
		a.queues = m.queues
	case unchanged:
		a.settled()
	case aligned:
		a.aligned(m)
	case commitDone:
		return a.committed(m)
	case intakeEnded:
		a.ending, a.mode = true, m.mode
		a.proceed()
	case mayFinish:
		if m.open {
			a.mode = endAgain
		}
		a.proceed()
	case through:
		a.last = true
		shell.Send(a.in.reader, toReader(finish{m.stamp, a.state.Epoch + 1, m.time}))
	}
	return nil
}

func (a *coordinatorActor) arm() {
	a.timer = after(a.in.cfg.EpochEvery, a.in.coordinator, toCoordinator(tick{a.in.stamp()}))
}

// ask asks for a cut now, or after the one under way.
func (a *coordinatorActor) ask(force bool) {
	if a.ending {
		return
	}
	if a.busy {
		a.due, a.force = true, a.force || force
		return
	}
	a.busy, a.due = true, false
	force, a.force = force || a.force, false
	shell.Send(a.in.reader, toReader(cutRequest{stamp: a.in.stamp(), epoch: a.state.Epoch + 1, force: force}))
}

// settled ends a cut: the next one, the last one, or none.
func (a *coordinatorActor) settled() {
	a.busy = false
	switch {
	case a.last:
		shell.Send(a.in.run, toRun(ended{a.in.stamp(), a.mode}))
	case a.ending:
		a.proceed()
	case a.due:
		a.ask(false)
	}
}

// proceed begins the last cut as soon as none is under way.
func (a *coordinatorActor) proceed() {
	if a.busy || a.choicesFirst() {
		return
	}
	a.busy = true
	if a.mode == endFinish {
		shell.Send(a.in.reader, toReader(gather{a.in.stamp()}))
		return
	}
	a.last = true
	shell.Send(a.in.reader, toReader(cutRequest{stamp: a.in.stamp(), epoch: a.state.Epoch + 1, force: true, always: a.mode == endHandOn}))
}

func (a *coordinatorActor) aligned(m aligned) {
	a.commit = control.Commit{RunID: a.in.cfg.RunID, Epoch: m.epoch, Status: control.RunOpen, Watermark: m.watermark, Partitions: m.partitions}
	if a.last && (a.mode == endFinish || a.mode == endHandOn) {
		a.commit.Status = control.RunFinished
		a.in.lastEpoch.Store(m.epoch)
	}
	commit, queues, seen := a.commit, a.queues, m.seen
	state := a.after(commit)
	a.in.workers.Go(func() {
		err := protect(func() error { return a.in.commit(commit, state, queues, seen) })
		shell.Send(a.in.coordinator, toCoordinator(commitDone{m.stamp, err}))
	})
}

// after is the state of the journal once the commit stands.
func (a *coordinatorActor) after(c control.Commit) control.RunState {
	s := a.state
	s.Epoch, s.Status, s.Watermark, s.Cuts = c.Epoch, c.Status, c.Watermark, make(map[int32]partitions.Cut, len(a.state.Cuts))
	maps.Copy(s.Cuts, a.state.Cuts) // those of blocked partitions stay
	for _, p := range c.Partitions {
		cut := p.Cut
		cut.Put, cut.Delete = nil, nil
		s.Cuts[cut.Partition] = cut
	}
	return s
}

func (a *coordinatorActor) committed(m commitDone) error {
	if m.err != nil {
		// Unless the journal refused, nobody knows whether the epoch stands: the next incarnation asks.
		return m.err
	}
	a.state = a.after(a.commit)
	shell.Send(a.in.run, toRun(committed{m.stamp, a.state}))
	for _, p := range a.commit.Partitions {
		if cap(p.Rows.Data) > 0 && !a.last {
			shell.Send(a.in.refs[p.Cut.Partition], toPartition(recycle{m.stamp, p.Rows.Data}))
		}
	}
	a.commit = control.Commit{}
	a.settled()
	return nil
}

// Stopping stops the timer.
func (a *coordinatorActor) Stopping(*shell.Context) error {
	if a.timer != nil {
		a.timer.Stop()
	}
	return nil
}

// Stopped does nothing.
func (a *coordinatorActor) Stopped(*shell.Context) error { return nil }

// commit writes one epoch and then does what may only come after it. It runs in a goroutine, with the context of the whole run: a commit
// is never cut off because an actor failed, since its answer would be lost for nothing. It is cut off when the lease is lost.
func (in *incarnation) commit(c control.Commit, after control.RunState, queues []Queue, seen []PartitionProgress) error {
	ctx := in.effects
	p := Point{Name: BeforeCommit, Actor: coordinatorName, Incarnation: in.number, Epoch: c.Epoch}
	if err := in.cfg.Hooks.at(ctx, p); err != nil {
		return err
	}
	if err := in.settling.covers(c); err != nil {
		return err
	}
	journal, err := in.journal()
	if err != nil {
		in.tellRefused(control.EffectCommit, "", err)
		return err
	}
	first := in.journalFirst(c)
	if !first {
		if err := in.publish(ctx, c); err != nil {
			return err
		}
	}
	told := in.lateFirst(c)
	if told {
		if err := in.publishLate(ctx, c); err != nil {
			return err
		}
	}
	if err := in.join(ctx, c); err != nil {
		return err
	}
	began := time.Now()
	if err := journal.Commit(ctx, c); err != nil {
		return err
	}
	took := time.Since(began)
	in.settling.settle(c)
	if first {
		if err := in.publish(ctx, c); err != nil {
			return err
		}
	}
	if !told {
		if err := in.publishLate(ctx, c); err != nil {
			return err
		}
	}
	p.Name = AfterCommit
	if err := in.cfg.Hooks.at(ctx, p); err != nil {
		return err
	}
	in.courtesy(ctx)
	p.Name = AfterOffsets
	if err := in.cfg.Hooks.at(ctx, p); err != nil {
		return err
	}
	if in.cfg.OnProgress != nil && in.holds() {
		in.cfg.OnProgress(progressOf(in, c, after, took, queues, seen))
	}
	return nil
}

// courtesy tells the consumer group the committed positions that have moved, as long as this run may act.
func (in *incarnation) courtesy(ctx context.Context) {
	if in.cfg.CommitOffsets == nil || !in.holds() {
		return
	}
	next := in.settling.untold()
	if len(next) == 0 {
		return
	}
	told := ctx
	if l := in.lease.Load(); l != nil {
		var cancel context.CancelFunc
		told, cancel = context.WithDeadline(ctx, l.Deadline)
		defer cancel()
	}
	err := in.cfg.CommitOffsets(told, next)
	if err == nil {
		in.settling.told(next)
	} else if ctx.Err() == nil {
		in.log.Warn("the group's offsets were not written; the journal has them", "group", in.cfg.Group, "code", codeName(err), "cause", err.Error())
	}
}

func codeName(err error) string {
	if c := codes.Of(err); c != nil {
		return c.Name
	}
	return ""
}

func progressOf(in *incarnation, c control.Commit, s control.RunState, took time.Duration, queues []Queue, seen []PartitionProgress) Progress {
	p := Progress{Epoch: c.Epoch, Incarnation: in.number, Status: c.Status, Watermark: c.Watermark, CommitTime: took, Queues: queues, Partitions: seen}
	p.Blocked = in.blockedResults(s)
	for i := range p.Queues {
		in.settling.fly(&p.Queues[i])
	}
	for _, pc := range c.Partitions {
		p.Rows += pc.Rows.Count
	}
	for _, cut := range s.Cuts {
		p.Counts = addCounts(p.Counts, cut.Counts)
	}
	return p
}
