package actors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// What operators ask for (Config.Interventions) is read every so often, apart from the data path, and takes effect between two incarnations: the
// first ends in order, with a last cut; the next steps the choice into the restored machine before anything is read, and the decision that this
// makes is committed with its first cut. A kill between any two steps leaves the choice pending and not in the journal, or in the journal: the
// decision names the intervention, and whoever finds it pending looks there first. What is pending when an incarnation begins is taken by it at once
// (takePending), and nothing is left behind by the end of an input (orders_end.go).

// ordersTimeout bounds a question for interventions, and the answer to one.
const ordersTimeout = 10 * time.Second

// orders is what the run actor knows of interventions.
type orders struct {
	timer *time.Timer
	armed bool
	// seen are those that were looked for in the journal. taken are on their way into it, settled are those whose outcome is known.
	seen    map[int64]bool
	taken   map[int64]control.Intervention
	settled map[int64]settlement
	// end is how far the question before a FINISHED cut has come; swept: what was left at the end of the run is settled.
	end   endQuestion
	swept bool
}

// settlement is what became of an intervention.
type settlement struct {
	outcome control.InterventionOutcome
	epoch   uint64
	note    string
}

func dismissed(format string, args ...any) settlement {
	note := fmt.Sprintf(format, args...)
	return settlement{outcome: control.Dismissed, note: note[:min(len(note), control.MaxInterventionText)]}
}

func newOrders() orders {
	return orders{seen: map[int64]bool{}, taken: map[int64]control.Intervention{}, settled: map[int64]settlement{}}
}

// marker names an intervention at the end of the reason of its decision.
func marker(id int64) string { return fmt.Sprintf(" (intervention %d)", id) }

func reasonOf(i control.Intervention) string { return "by " + i.Who + ": " + i.Why + marker(i.ID) }

// watchOrders begins to ask for interventions.
func (s *supervisor) watchOrders() {
	if s.e.cfg.Interventions == nil || s.orders.armed {
		return
	}
	s.orders.armed = true
	s.orders.timer = after(s.e.cfg.InterventionsEvery, s.e.run, toRun(ordersDue{}))
}

// askOrders reads what is pending, and finds out which of it stands in the journal already.
func (s *supervisor) askOrders() {
	if s.phase == over || s.phase == releasing || s.gone {
		return
	}
	s.readOrders(ordersRead{})
}

func (s *supervisor) readOrders(m ordersRead) {
	seen, blocked := maps.Clone(s.orders.seen), maps.Clone(s.blocked)
	s.e.background.Go(func() {
		m.err = protect(func() (err error) {
			ctx, cancel := context.WithTimeout(s.e.effects, ordersTimeout)
			defer cancel()
			if m.pending, err = s.e.cfg.Interventions.ListInterventions(ctx, s.e.cfg.RunID, true); err != nil {
				return err
			}
			fresh := slices.DeleteFunc(slices.Clone(m.pending), func(i control.Intervention) bool { return seen[i.ID] })
			if m.stand, err = s.e.standing(ctx, fresh); err == nil {
				m.log = s.e.lookForGaps(s.e.effects, m.pending, blocked)
			}
			return err
		})
		shell.Send(s.e.run, toRun(m))
	})
}

// standing says which interventions are decisions in the journal.
func (e *engine) standing(ctx context.Context, all []control.Intervention) (map[int64]bool, error) {
	stand := map[int64]bool{}
	if len(all) == 0 {
		return stand, nil
	}
	err := e.cfg.Journal.Decisions(ctx, e.cfg.RunID, func(d partitions.Decision) error {
		for _, i := range all {
			if d.Partition == i.Partition && strings.HasSuffix(d.Detail, marker(i.ID)) {
				stand[i.ID] = true
			}
		}
		return nil
	})
	return stand, err
}

func (s *supervisor) ordersRead(m ordersRead) {
	switch {
	case m.last:
		s.lastOrders(m)
		return
	case m.met:
		s.judgeMet(m)
		return
	}
	s.orders.armed = false
	s.watchOrders()
	if m.err != nil {
		s.e.log.Debug("interventions were not read", "run", s.e.cfg.RunID, "code", codeName(m.err), "cause", m.err.Error())
		return
	}
	if s.phase != running && s.phase != halted || s.orders.end != endNotDue {
		return // at the next time, or before the end
	}
	if s.considerAll(m) {
		s.restart()
	}
}

// considerAll settles what needs no incarnation, and says whether there is something for another one.
func (s *supervisor) considerAll(m ordersRead) (again bool) {
	for _, i := range m.pending {
		o, took := s.consider(i, m.stand[i.ID], m.log)
		again = again || took
		if o.outcome != "" {
			s.settleOrder(i.ID, o)
		}
	}
	return again
}

// consider says what becomes of an intervention: an outcome, or that the next incarnation takes it. Neither: it waits.
func (s *supervisor) consider(i control.Intervention, stands bool, log *logSeen) (o settlement, again bool) {
	if o, ok := s.orders.settled[i.ID]; ok {
		return o, false // its settling got lost
	}
	if _, ok := s.orders.taken[i.ID]; ok {
		return o, false
	}
	s.orders.seen[i.ID] = true
	if stands {
		return settlement{outcome: control.Applied, epoch: s.state.Epoch, note: "it stood in the journal already"}, false
	}
	b, blocked := s.blocked[i.Partition]
	switch i.Kind {
	case control.RetryBlocked:
		return s.retryBlocked(i)
	case control.AcceptGap:
		if o, ready := s.considerGap(i, b, blocked, log); !ready {
			return o, false
		}
		s.unblock(i.Partition)
	case control.ConfirmIdle, control.CloseGap, control.ReplayAside, control.DropAside:
		if blocked {
			return dismissed("partition %d is blocked (%s): end that first", i.Partition, codeName(b.cause)), false
		}
	default:
		return dismissed("this version does not know the kind %q", i.Kind), false
	}
	s.orders.taken[i.ID] = i
	return o, true
}

// considerGap says whether a gap may be accepted now. It has to be where it was asked for, what was read before it has to be committed, and the log has
// to have the position behind it.
func (s *supervisor) considerGap(i control.Intervention, b blockedAt, blocked bool, log *logSeen) (o settlement, ready bool) {
	next := s.state.Cuts[i.Partition].Next
	switch code := codes.Of(b.cause); {
	case next != i.From:
		return dismissed("partition %d stands at %s by now, and the gap was to be accepted from %s", i.Partition, next, i.From), false
	case !blocked:
		return o, false // it may come to it, in the place that was named
	case code != codes.OffsetLost && code != codes.PoisonBatch:
		return dismissed("partition %d is blocked by %s, which no accepted gap ends", i.Partition, codeName(b.cause)), false
	case b.block.Need.Cmp(next) > 0:
		return o, false
	}
	return s.judgeGap(i, b, log)
}

func (s *supervisor) retryBlocked(i control.Intervention) (o settlement, again bool) {
	what := "the run"
	switch {
	case i.Partition >= 0:
		what = fmt.Sprintf("partition %d", i.Partition)
		_, again = s.blocked[i.Partition]
		s.unblock(i.Partition)
	default:
		again = s.barred != nil || len(s.blocked) > 0
		s.barred, s.blockedChanged = nil, true
		clear(s.blocked)
	}
	if !again {
		return dismissed("%s is not blocked", what), false
	}
	return settlement{outcome: control.Applied, note: "read again"}, true
}

func (s *supervisor) unblock(p int32) {
	delete(s.blocked, p)
	maps.DeleteFunc(s.counts, func(c cause, _ int) bool { q, ok := c.ofPartition(); return ok && q == p })
	s.blockedChanged = true
}

// restart ends the incarnation in order, if there is one, and opens the next.
func (s *supervisor) restart() {
	switch s.phase {
	case running:
		s.again = true
		shell.Send(s.cur.reader, toReader(stopIntake{s.cur.stamp(), endAgain}))
	case halted:
		s.standing, s.again, s.phase = nil, true, waiting
		s.timer = after(0, s.e.run, toRun(retry{stamp{s.number()}}))
	default: // the next one comes anyway
	}
}

// settleOrder writes down what became of an intervention.
func (s *supervisor) settleOrder(id int64, o settlement) {
	delete(s.orders.taken, id)
	s.orders.settled[id] = o
	s.e.log.Info("an operator's choice is settled", "run", s.e.cfg.RunID, "intervention", id, "outcome", string(o.outcome), "note", o.note, "epoch", o.epoch)
	l := s.e.lease.Load()
	if l == nil {
		return
	}
	s.e.background.Go(func() {
		err := protect(func() error {
			ctx, cancel := context.WithTimeout(s.e.effects, ordersTimeout)
			defer cancel()
			return s.e.cfg.Interventions.SettleIntervention(ctx, *l, s.e.cfg.RunID, id, o.outcome, o.epoch, o.note)
		})
		if err != nil {
			s.e.log.Debug("an operator's choice was not settled; it is tried again", "intervention", id, "cause", err.Error())
		}
	})
}

// applyOrders steps what operators have chosen into the restored machines, one after the other.
func (in *incarnation) applyOrders() error {
	if len(in.orders) == 0 {
		return nil
	}
	stand, err := in.standing(in.ctx, in.orders)
	if err != nil {
		return err
	}
	asides := asideRound{in: in, of: map[entryOf]*asideOrder{}, last: map[int32]int64{}}
	takes := func(i control.Intervention) bool {
		m := in.machines[i.Partition]
		return (i.Kind == control.ReplayAside || i.Kind == control.DropAside) && m != nil && !m.Finished() && asides.add(i)
	}
	for _, i := range in.orders {
		if stand[i.ID] {
			in.outcomes[i.ID] = settlement{outcome: control.Applied, epoch: in.state.Epoch, note: "it stood in the journal already"}
			continue
		}
		if takes(i) {
			continue
		}
		if err := asides.step(); err != nil {
			return err
		}
		if takes(i) {
			continue
		}
		if err := in.applyOrder(i); err != nil {
			return err
		}
	}
	return asides.step()
}

// applyOrder steps a choice that is about no entries of the quarantine, or none that is read.
func (in *incarnation) applyOrder(i control.Intervention) error {
	m := in.machines[i.Partition]
	ev, no := orderOf(i, m)
	if ev == nil {
		in.outcomes[i.ID] = no
		return nil
	}
	eff := in.begun[i.Partition]
	if err := m.Step(ev, &eff); err != nil {
		return &orderError{i.ID, err}
	}
	in.begun[i.Partition] = eff
	in.outcomes[i.ID] = settlement{outcome: control.Applied, epoch: in.state.Epoch + 1}
	return nil
}

// orderError is a choice that a machine could not take.
type orderError struct {
	id  int64
	err error
}

func (e *orderError) Error() string { return fmt.Sprintf("intervention %d: %v", e.id, e.err) }
func (e *orderError) Unwrap() error { return e.err }

// orderOf is the event that an intervention makes, or why it makes none.
func orderOf(i control.Intervention, m *partitions.Machine) (ev partitions.Event, no settlement) {
	switch {
	case m == nil:
		return nil, dismissed("partition %d is not read", i.Partition)
	case m.Finished():
		return nil, dismissed("partition %d has ended", i.Partition)
	}
	switch i.Kind {
	case control.AcceptGap:
		if m.Next() != i.From {
			return nil, dismissed("partition %d stands at %s by now, and the gap was to be accepted from %s", i.Partition, m.Next(), i.From)
		}
		return partitions.AcceptGap{Next: i.To, Reason: reasonOf(i)}, no
	case control.ConfirmIdle:
		if m.Status() == watermark.Idle {
			return nil, dismissed("partition %d is idle already", i.Partition)
		}
		return partitions.IdleConfirmed{Reason: reasonOf(i)}, no
	default:
		if !m.Missing(i.Key, i.Sequence) {
			return nil, dismissed("number %d of key %.200q is not missing in partition %d", i.Sequence, i.Key, i.Partition)
		}
		return partitions.CloseGap{Key: i.Key, Sequence: i.Sequence, Reason: reasonOf(i)}, no
	}
}

// ordersOpened settles what needs no commit, ordersCommitted what was committed with the first cut of the incarnation.
func (s *supervisor) ordersOpened() {
	for id, o := range s.cur.outcomes {
		if o.epoch != s.cur.state.Epoch+1 {
			s.settleOrder(id, o)
		}
	}
}

func (s *supervisor) ordersCommitted(epoch uint64) {
	for id, o := range s.cur.outcomes {
		if _, open := s.orders.taken[id]; open && o.epoch == epoch {
			s.settleOrder(id, o)
		}
	}
}

// ordersOf are the interventions for the next incarnation, in the order in which they were asked for.
func (s *supervisor) ordersOf() (out []control.Intervention) {
	for _, id := range slices.Sorted(maps.Keys(s.orders.taken)) {
		out = append(out, s.orders.taken[id])
	}
	return out
}

// positions is where the machines are to be read on.
func (in *incarnation) positions() map[int32]record.Position {
	from := make(map[int32]record.Position, len(in.partitions))
	for _, n := range in.partitions {
		from[n] = in.machines[n].Next()
	}
	return from
}
