package controltest

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/control"
)

// Orphans are mended without a look at what was published: what is damaged there is neither told nor in the way.
func checkOrphansOnly(p *plane) error {
	s := p.open()
	if err := p.orphans(s); err != nil {
		return fmt.Errorf("an empty store: %w", err)
	}
	done, l, err := p.running(s, 0)
	if err != nil {
		return err
	}
	events, err := s.Claim(p.ctx, "worker", 1)
	if err != nil || len(events) != 1 {
		return fmt.Errorf("claim: %v, %v", events, err)
	}
	if err := p.finish(s, done, l, events[0].ID); err != nil {
		return err
	}
	if err := p.SetPublication(control.ResultKey(done.ID), []byte(`{"rows":2}`)); err != nil {
		return err
	}
	orphan, held, err := p.running(s, 1)
	if err != nil {
		return err
	}
	if _, err := s.Claim(p.ctx, "dead", 1); err != nil {
		return err
	}
	if err := p.orphans(s); err != nil {
		return fmt.Errorf("its lease is held: %w", err)
	}
	if err := p.Expire(held.Name); err != nil {
		return err
	}
	if err := p.orphans(s, control.RunningOrphan, orphan.ID); err != nil {
		return err
	}
	run, err := s.LookupRun(p.ctx, orphan.ID)
	again, cerr := s.Claim(p.ctx, "worker", 50)
	if err := errors.Join(err, cerr); err != nil || run.Phase != control.Queued || len(again) != 1 || again[0].RunID != orphan.ID {
		return fmt.Errorf("the orphan is %s, and its events are %+v, %v", run.Phase, again, err)
	}
	if err := p.orphans(s, control.ClaimedUndelivered, orphan.ID); err != nil { // nobody holds its lease
		return err
	}
	if err := p.orphans(s); err != nil {
		return fmt.Errorf("mended: %w", err)
	}
	return p.reconcile(s, false, 0, control.PublicationDigest, done.ID)
}

// orphans mends them, whatever the age of claims, and checks what is found: pairs of kind and run id, in order.
func (p *plane) orphans(s control.ControlStore, want ...string) error {
	found, err := s.MendOrphans(p.ctx, 0)
	var got []string
	for _, d := range found {
		got = append(got, d.Kind, d.RunID)
		if !d.Repaired || d.Detail == "" {
			return fmt.Errorf("%+v", d)
		}
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("found %v, want %v, %w", got, want, err)
	}
	return nil
}
