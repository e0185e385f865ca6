package actors

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Nothing can be decided about a run that has FINISHED, so an input that ends must not end the run past a choice that was asked for:
//
//	when an incarnation begins     it takes what is pending, before it asks whether there is anything to read
//	before a FINISHED cut          what was taken is committed with an open one; what came meanwhile is asked for once more, and taken by another
//	                               incarnation, over the same end of the input
//	after it                       what came while it was committed, or cannot be taken any more, is dismissed with that reason
//
// A kill after the FINISHED cut leaves the last to the next process, which finds the run FINISHED and does just that.

// sweepTimeout bounds the settling of what is left when a run ends.
const sweepTimeout = 5 * time.Second

// endQuestion is how far the question before a FINISHED cut has come.
type endQuestion uint8

const (
	endNotDue endQuestion = iota
	endAsked
	endAnswered
)

// choicesFirst says whether the last cut has to wait: for a cut of what operators have chosen, or for the answer whether there is more of it.
func (a *coordinatorActor) choicesFirst() bool {
	if a.mode != endFinish && a.mode != endHandOn || a.in.cfg.Interventions == nil {
		return false
	}
	switch {
	case !a.stood && a.state.Epoch == a.in.state.Epoch && a.in.chose():
		a.stood, a.busy = true, true
		shell.Send(a.in.reader, toReader(cutRequest{stamp: a.in.stamp(), epoch: a.state.Epoch + 1, force: true}))
	case !a.asked:
		a.asked = true
		shell.Send(a.in.run, toRun(finishing{a.in.stamp()}))
	default:
		return false
	}
	return true
}

// chose says whether operators' choices belong to the first cut of the incarnation.
func (in *incarnation) chose() bool {
	for _, o := range in.outcomes {
		if o.epoch == in.state.Epoch+1 {
			return true
		}
	}
	return false
}

// takePending adds to the choices of the incarnation those that are pending and can be stepped into a machine. Gaps and what is blocked are judged when
// they are met.
func (in *incarnation) takePending() error {
	if in.cfg.Interventions == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(in.ctx, ordersTimeout)
	defer cancel()
	pending, err := in.cfg.Interventions.ListInterventions(ctx, in.cfg.RunID, true)
	if err != nil {
		return in.unreadOrders(err)
	}
	for _, i := range pending {
		_, blocked := in.blocked[i.Partition]
		_, settled := in.settled[i.ID]
		taken := slices.ContainsFunc(in.orders, func(o control.Intervention) bool { return o.ID == i.ID })
		if !blocked && !settled && !taken && stepped(i.Kind) {
			in.orders = append(in.orders, i)
		}
	}
	slices.SortFunc(in.orders, func(a, b control.Intervention) int { return int(a.ID - b.ID) })
	return nil
}

// stepped says whether a choice is an event of a partition wherever that stands.
func stepped(k control.InterventionKind) bool {
	switch k {
	case control.ConfirmIdle, control.CloseGap, control.ReplayAside, control.DropAside:
		return true
	}
	return false
}

// unreadOrders is the failure of a question for choices, or nil if asking again would give the same: a damaged choice stops no run.
func (e *engine) unreadOrders(err error) error {
	if fatal(err) {
		e.log.Warn("what operators have asked for cannot be read; the run goes on without it", "run", e.cfg.RunID, "code", codeName(err), "cause", err.Error())
		return nil
	}
	return err
}

// ordersTaken notes what the incarnation that has opened took by itself.
func (s *supervisor) ordersTaken() {
	for _, i := range s.cur.orders {
		s.orders.seen[i.ID], s.orders.taken[i.ID] = true, i
	}
}

// finishing asks for choices a last time before a FINISHED cut.
func (s *supervisor) finishing() {
	if s.phase != running {
		return
	}
	s.orders.end = endAsked
	if s.again || s.interrupted {
		s.endOpen()
		return
	}
	s.readOrders(ordersRead{stamp: s.cur.stamp(), last: true})
}

// endOpen lets an incarnation that was about to finish the run end with an open cut.
func (s *supervisor) endOpen() {
	if s.orders.end == endAsked {
		s.answerEnd(true)
	}
}

func (s *supervisor) answerEnd(open bool) {
	s.orders.end = endAnswered
	shell.Send(s.cur.coordinator, toCoordinator(mayFinish{s.cur.stamp(), open}))
}

func (s *supervisor) lastOrders(m ordersRead) {
	if m.inc != s.number() || s.phase != running || s.orders.end != endAsked {
		return
	}
	if m.err != nil {
		if err := s.e.unreadOrders(m.err); err != nil {
			s.fail(Failure{Incarnation: s.number(), Actor: runName, Partition: -1, Cause: err})
			return
		}
	}
	if s.considerAll(m) {
		s.again = true
	}
	s.answerEnd(s.again)
}

// sweepOrders says whether the end of the run waits until what operators have asked for is settled: what was applied or dismissed, and once the run has
// FINISHED, everything. In a run that is open the rest waits for the next process, which is told.
func (s *supervisor) sweepOrders() bool {
	lease := s.e.lease.Load()
	finished := s.state.Status == control.RunFinished
	if s.e.cfg.Interventions == nil || lease == nil || s.orders.swept || s.killed || s.gone || !finished && !s.orderly || codes.Has(s.stop, codes.JournalConflict) {
		return false
	}
	stopTimer(s.orders.timer)
	s.phase = sweeping
	sweep := sweep{e: s.e, lease: *lease, finished: finished, epoch: s.state.Epoch, known: maps.Clone(s.orders.settled)}
	s.e.background.Go(func() {
		sweep.run()
		shell.Send(s.e.run, toRun(ordersSwept{}))
	})
	return true
}

func (s *supervisor) ordersSwept() {
	if s.phase == sweeping {
		s.orders.swept = true
		s.finish()
	}
}

// sweep settles what is left when a run ends. The run actor waits for it.
type sweep struct {
	e        *engine
	lease    control.Lease
	finished bool
	epoch    uint64
	known    map[int64]settlement
}

func (w *sweep) run() {
	ctx, cancel := context.WithTimeout(w.e.effects, sweepTimeout)
	defer cancel()
	for n := 1; ; n++ {
		err := protect(func() error { return w.once(ctx) })
		if err == nil {
			return
		}
		pause := time.NewTimer(w.e.cfg.Backoff.Pause(n))
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		if fatal(err) || ctx.Err() != nil {
			w.e.log.Warn("what operators have asked for is not settled; the next process that runs it does it", "run", w.e.cfg.RunID, "code", codeName(err), "cause", err.Error())
			return
		}
	}
}

func (w *sweep) once(ctx context.Context) error {
	pending, err := w.e.cfg.Interventions.ListInterventions(ctx, w.e.cfg.RunID, true)
	if err != nil {
		return err
	}
	stand, err := w.e.standing(ctx, pending)
	if err != nil {
		return err
	}
	left := 0
	for _, i := range pending {
		o, known := w.known[i.ID]
		switch {
		case stand[i.ID] && o.outcome != control.Applied:
			o = settlement{outcome: control.Applied, epoch: w.epoch, note: "it stood in the journal already"}
		case known:
		case w.finished:
			o = w.tooLate(i)
		default:
			left++
			continue
		}
		w.e.log.Info("an operator's choice is settled", "run", w.e.cfg.RunID, "intervention", i.ID, "outcome", string(o.outcome), "note", o.note, "epoch", o.epoch)
		if err := w.e.cfg.Interventions.SettleIntervention(ctx, w.lease, w.e.cfg.RunID, i.ID, o.outcome, o.epoch, o.note); err != nil {
			return err
		}
	}
	if left > 0 {
		w.e.log.Warn("operators' choices were not taken by this process, and stay pending for the next one that runs it", "run", w.e.cfg.RunID, "choices", left)
	}
	return nil
}

// tooLate is why a choice about a run that has FINISHED was not taken.
func (w *sweep) tooLate(i control.Intervention) settlement {
	switch i.Kind {
	case control.AcceptGap:
		return dismissed("the run has finished, with epoch %d: partition %d was read to the end of its input, and nothing was missing at %s", w.epoch, i.Partition, i.From)
	case control.RetryBlocked:
		return dismissed("the run has finished, with epoch %d: nothing of it is blocked", w.epoch)
	}
	return dismissed("the run has finished, with epoch %d, and no process that ran it took this before the last epoch was being committed; nothing can be decided about it any more", w.epoch)
}
