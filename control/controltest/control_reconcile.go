package controltest

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

var reconcileChecks = []controlCheck{
	{"reconciler: nothing is wrong", checkReconcileHealthy},
	{"reconciler: finds and repairs", checkReconcileRepairs},
	{"reconciler: the age of claims", checkReconcileAge},
	{"reconciler: reports what it does not repair", checkReconcileReports},
	{"reconciler: a crash and its recovery", checkReconcileCrash},
	{"reconciler: several at once", checkReconcileTogether},
	{"reconciler: lost answer", checkReconcileLost},
	{"reconciler: orphans only", checkOrphansOnly},
}

// reconcile runs it and checks what is found: pairs of kind and run id, in order.
func (p *plane) reconcile(s control.ControlStore, repair bool, stale time.Duration, want ...string) error {
	found, err := s.Reconcile(p.ctx, repair, stale)
	if err != nil {
		return err
	}
	var got []string
	for _, d := range found {
		got = append(got, d.Kind, d.RunID)
		mends := d.Kind != control.PublicationDigest && d.Kind != control.ResultMissing
		if d.Detail == "" || d.Repaired != (repair && mends) {
			return fmt.Errorf("repair %t: %+v", repair, d)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("found %v, want %v", got, want)
	}
	return nil
}

// finish ends a running run as a worker does.
func (p *plane) finish(s control.ControlStore, run control.BatchRun, l control.Lease, event int64) error {
	result := publish(control.ResultKey(run.ID), `{"rows":1}`)
	result.Publications[0].RunID = run.ID
	return s.Fenced(p.ctx, l, result, control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: []string{"sha256:1"}}, control.Deliver{EventIDs: []int64{event}})
}

func checkReconcileHealthy(p *plane) error {
	s := p.open()
	if err := p.reconcile(s, true, 0); err != nil {
		return fmt.Errorf("an empty store: %w", err)
	}
	// One run in each state that a worker passes through, and its lease held throughout.
	var runs []control.BatchRun
	var leases []control.Lease
	for n := range 6 {
		run, l, err := p.queued(s, n)
		if err != nil {
			return err
		}
		runs, leases = append(runs, run), append(leases, l)
	}
	events, err := s.Claim(p.ctx, "worker", 5)
	if err != nil || len(events) != 5 {
		return fmt.Errorf("claim: %v, %v", events, err)
	}
	start := func(i int) control.Effect { return control.StartRun{RunID: runs[i].ID} }
	_, cerr := s.CancelRun(p.ctx, runs[4].ID)
	err = errors.Join(cerr,
		s.Fenced(p.ctx, leases[1], start(1)),
		s.Fenced(p.ctx, leases[2], start(2)), p.finish(s, runs[2], leases[2], events[2].ID),
		s.Fenced(p.ctx, leases[3], start(3)), s.Fenced(p.ctx, leases[3], control.FinishRun{RunID: runs[3].ID, Phase: control.Failed, Error: "x"}, control.Deliver{EventIDs: []int64{events[3].ID}}),
		s.Fenced(p.ctx, leases[4], start(4)), s.Fenced(p.ctx, leases[4], control.Deliver{EventIDs: []int64{events[4].ID}}))
	if err != nil {
		return err
	}
	return p.untouched(s, func() error { return p.reconcile(s, true, 0) })
}

// Each damage for itself: found, left alone by a dry run and under a valid lease, repaired, and then gone.
func checkReconcileRepairs(p *plane) error {
	s := p.open()
	for n, c := range []struct {
		kind        string
		phase       control.RunPhase
		claimant    string
		delivered   bool
		deleteEvent bool
		end         control.RunPhase
	}{
		{kind: control.RunningOrphan, phase: control.Running, claimant: "dead", end: control.Queued},
		{kind: control.RunningOrphan, phase: control.Running, claimant: "dead", delivered: true, end: control.Queued},
		{kind: control.RunningOrphan, phase: control.Running, end: control.Queued},
		{kind: control.RunningOrphan, phase: control.Running, deleteEvent: true, end: control.Queued},
		{kind: control.QueuedDelivered, phase: control.Queued, claimant: "dead", delivered: true, end: control.Queued},
		{kind: control.QueuedDelivered, phase: control.Queued, delivered: true, end: control.Queued},
		{kind: control.QueuedDelivered, phase: control.Queued, deleteEvent: true, end: control.Queued},
		{kind: control.ClaimedUndelivered, phase: control.Queued, claimant: "dead", end: control.Queued},
		{kind: control.ClaimedUndelivered, phase: control.Failed, claimant: "dead", end: control.Failed},
		{kind: control.ClaimedUndelivered, phase: control.Cancelled, claimant: "dead", end: control.Cancelled},
	} {
		run, l, err := p.queued(s, n)
		if err != nil {
			return err
		}
		events, err := p.events(s)
		if err != nil {
			return err
		}
		id := events[run.ID].ID
		plant := p.SetEvent(id, c.claimant, time.Minute, c.delivered)
		if c.deleteEvent {
			plant = p.DeleteEvent(id)
		}
		if err := errors.Join(plant, p.SetPhase(run.ID, c.phase)); err != nil {
			return err
		}
		what := fmt.Sprintf("damage %d (%+v)", n, c)
		if err := p.untouched(s, func() error { return p.reconcile(s, true, 0) }); err != nil {
			return fmt.Errorf("%s under a valid lease: %w", what, err)
		}
		if err := p.Expire(l.Name); err != nil {
			return err
		}
		if err := p.untouched(s, func() error { return p.reconcile(s, false, 0, c.kind, run.ID) }); err != nil {
			return fmt.Errorf("%s, dry run: %w", what, err)
		}
		if err := p.reconcile(p.open(), true, 0, c.kind, run.ID); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := p.reconcile(s, true, 0); err != nil {
			return fmt.Errorf("%s, once more: %w", what, err)
		}
		if _, err := p.phase(s, run.ID, c.end, 0); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		claimed, err := s.Claim(p.ctx, "next", 10)
		if err != nil || len(claimed) != 1 || claimed[0].RunID != run.ID || (claimed[0].ID != id) != c.deleteEvent {
			return fmt.Errorf("%s: its event is not pending again: %+v, %v", what, claimed, err)
		}
		if err := s.ReleaseEvents(p.ctx, "next", ids(claimed), true); err != nil {
			return err
		}
		if err := p.SetPhase(run.ID, control.Cancelled); err != nil { // out of the way of the next one
			return err
		}
	}
	return nil
}

func checkReconcileAge(p *plane) error {
	s := p.open()
	young, err := p.admit(s, 1)
	if err != nil {
		return err
	}
	old, err := p.admit(s, 2)
	if err != nil {
		return err
	}
	events, err := s.Claim(p.ctx, "dead", 2)
	if err != nil || len(events) != 2 {
		return fmt.Errorf("claim: %v, %v", events, err)
	}
	if err := p.SetEvent(events[1].ID, "dead", 2*time.Hour, false); err != nil {
		return err
	}
	if err := p.reconcile(s, false, 3*time.Hour); err != nil {
		return err
	}
	if err := p.reconcile(s, true, time.Hour, control.ClaimedUndelivered, old.ID); err != nil {
		return err
	}
	got, err := p.events(s)
	if err != nil {
		return err
	}
	if got[young.ID].Claimant != "dead" || got[old.ID].Claimant != "" || !got[old.ID].ClaimedAt.IsZero() {
		return fmt.Errorf("after the repair: %+v", got)
	}
	return p.reconcile(s, true, 0, control.ClaimedUndelivered, young.ID)
}

func checkReconcileReports(p *plane) error {
	s := p.open()
	var runs []control.BatchRun
	for n := range 3 {
		run, l, err := p.running(s, n)
		if err != nil {
			return err
		}
		events, err := s.Claim(p.ctx, "worker", 1)
		if err != nil || len(events) != 1 {
			return fmt.Errorf("claim: %v, %v", events, err)
		}
		if err := p.finish(s, run, l, events[0].ID); err != nil {
			return err
		}
		runs = append(runs, run)
	}
	changed, gone := control.ResultKey(runs[0].ID), control.ResultKey(runs[1].ID)
	if err := errors.Join(p.SetPublication(changed, []byte(`{"rows":2}`)), p.DeletePublication(gone)); err != nil {
		return err
	}
	for _, repair := range []bool{false, true, true} { // told every time
		err := p.untouched(s, func() error {
			return p.reconcile(s, repair, 0, control.PublicationDigest, runs[0].ID, control.ResultMissing, runs[1].ID)
		})
		if err != nil {
			return err
		}
	}
	found, err := s.Reconcile(p.ctx, false, 0)
	if err != nil || found[0].Key != changed || found[1].Key != gone {
		return fmt.Errorf("the keys of %+v, %v", found, err)
	}
	err = s.Publications(p.ctx, changed, func(pub control.Publication, digest string) error {
		if string(pub.Value) != `{"rows":2}` || digest != record.Hash([]byte(`{"rows":1}`)) {
			return fmt.Errorf("the listing hides the damage: %+v, %s", pub, digest)
		}
		return nil
	})
	return err
}

// A worker dies in the middle. Its run is found, done by another one, and published once; what the dead one still tries is refused.
func checkReconcileCrash(p *plane) error {
	s, other := p.open(), p.open()
	run, dead, err := p.running(s, 1)
	if err != nil {
		return err
	}
	events, err := s.Claim(p.ctx, dead.Owner, 1)
	if err != nil || len(events) != 1 {
		return fmt.Errorf("claim: %v, %v", events, err)
	}
	if err := p.reconcile(other, true, 0); err != nil {
		return fmt.Errorf("while its lease is valid: %w", err)
	}
	if err := p.Expire(dead.Name); err != nil {
		return err
	}
	if err := p.reconcile(other, true, 0, control.RunningOrphan, run.ID); err != nil {
		return err
	}
	again, err := other.Claim(p.ctx, "second", 1)
	if err != nil || len(again) != 1 || again[0].ID != events[0].ID || again[0].Attempt != 2 {
		return fmt.Errorf("the event: %+v, %v", again, err)
	}
	l, err := p.take(other, dead.Name, "second")
	if err != nil || l.Token != dead.Token+1 {
		return fmt.Errorf("the lease: %+v, %v", l, err)
	}
	zombie := func() error { return p.finish(s, run, dead, events[0].ID) }
	if err := p.unchanged(s, "the dead worker before the start", codes.StaleFence, zombie); err != nil {
		return err
	}
	if err := other.Fenced(p.ctx, l, control.StartRun{RunID: run.ID}); err != nil {
		return err
	}
	if err := p.unchanged(s, "the dead worker after the start", codes.StaleFence, zombie); err != nil {
		return err
	}
	if err := p.finish(other, run, l, again[0].ID); err != nil {
		return err
	}
	if err := p.unchanged(s, "the dead worker after the end", codes.StaleFence, zombie); err != nil {
		return err
	}
	if _, err := p.phase(s, run.ID, control.Succeeded, 1); err != nil {
		return err
	}
	return p.reconcile(s, true, 0)
}

func checkReconcileTogether(p *plane) error {
	const runs, clients = 12, 4
	stores := p.opens(clients)
	for n := range runs {
		run, l, err := p.running(stores[0], n)
		if err != nil {
			return err
		}
		if n%3 == 0 {
			continue // its owner is at work
		}
		if err := p.Expire(l.Name); err != nil {
			return err
		}
		if n%3 == 1 {
			if err := p.SetPhase(run.ID, control.Queued); err != nil {
				return err
			}
			events, err := p.events(stores[0])
			if err != nil {
				return err
			}
			if err := p.SetEvent(events[run.ID].ID, "dead", time.Minute, true); err != nil {
				return err
			}
		}
	}
	repaired := make([]int, clients)
	errs := together(clients, func(i int) error {
		found, err := stores[i].Reconcile(p.ctx, true, 0)
		for _, d := range found {
			if d.Repaired {
				repaired[i]++
			}
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	total := 0
	for _, n := range repaired {
		total += n
	}
	if total != runs/3*2 {
		return fmt.Errorf("%d repairs of %d damages: each is mended by one", total, runs/3*2)
	}
	if err := p.reconcile(stores[0], true, 0); err != nil {
		return err
	}
	events, err := stores[0].Claim(p.ctx, "next", 100)
	if err != nil || len(events) != runs {
		return fmt.Errorf("%d events are pending, %v", len(events), err)
	}
	return nil
}

func checkReconcileLost(p *plane) error {
	s := p.open()
	run, l, err := p.running(s, 1)
	if err != nil {
		return err
	}
	if err := p.Expire(l.Name); err != nil {
		return err
	}
	if err := p.lost(s, "repair", func() error { _, err := s.Reconcile(p.ctx, true, 0); return err }); err != nil {
		return err
	}
	if _, err := p.phase(s, run.ID, control.Queued, 0); err != nil {
		return err
	}
	return p.reconcile(s, true, 0)
}
