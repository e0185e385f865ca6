package controltest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Admit is control.Admission's.
func (m *Memory) Admit(ctx context.Context, r control.Request) (run control.BatchRun, created bool, err error) {
	err = m.change(ctx, OpAdmit, func(p *memoryPlane) error {
		if err := r.Validate(); err != nil {
			return err
		}
		s := scope{r.Principal, r.Operation, r.Key}
		if id, ok := p.scopes[s]; ok {
			run = copied(p.admitted[id].run)
			return control.CheckAdmitted(id, r)
		}
		created = true
		p.nextRun++
		a := memoryAdmitted{n: p.nextRun, run: control.NewRun(r, m.now())}
		set(p, p.scopes, s, a.run.ID)
		set(p, p.admitted, a.run.ID, a)
		p.insertEvent(a.run.ID, a.run.Created)
		run = copied(a.run)
		return nil
	})
	if err != nil {
		return control.BatchRun{}, false, err
	}
	return run, created, nil
}

func (p *memoryPlane) insertEvent(runID string, at time.Time) {
	p.nextEvent++
	p.wakes = true
	set(p, p.events, p.nextEvent, control.OutboxEvent{ID: p.nextEvent, Kind: control.EventRequested, RunID: runID, Created: at})
}

func copied(run control.BatchRun) control.BatchRun {
	run.Body, run.ResultRefs = bytes.Clone(run.Body), slices.Clone(run.ResultRefs)
	return run
}

// LookupRun is control.Admission's.
func (m *Memory) LookupRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = m.look(ctx, OpLookupRun, func(p *memoryPlane) error {
		a, err := p.run(id)
		run = copied(a.run)
		return err
	})
	return run, err
}

// ListRuns is control.Admission's.
func (m *Memory) ListRuns(ctx context.Context, f control.RunFilter) (runs []control.BatchRun, next string, err error) {
	err = m.look(ctx, OpListRuns, func(p *memoryPlane) error {
		before, err := control.ParseCursor(f.Cursor)
		if err != nil {
			return err
		}
		all := slices.SortedFunc(maps.Values(p.admitted), func(a, b memoryAdmitted) int { return cmp.Compare(b.n, a.n) })
		last := int64(0)
		for _, a := range all {
			if a.n >= before || f.Principal != "" && a.run.Principal != f.Principal || f.Phase != "" && a.run.Phase != f.Phase {
				continue
			}
			if len(runs) == f.PageSize() {
				next = strconv.FormatInt(last, 10)
				break
			}
			runs, last = append(runs, copied(a.run)), a.n
		}
		return nil
	})
	return runs, next, err
}

// CancelRun is control.Admission's.
func (m *Memory) CancelRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = m.change(ctx, OpCancel, func(p *memoryPlane) error {
		a, err := p.run(id)
		if err != nil {
			return err
		}
		if a.run.Phase == control.Queued && !a.run.CancelRequested {
			a.run.CancelRequested, a.run.Updated = true, m.now()
			set(p, p.admitted, id, a)
		}
		run = copied(a.run)
		return nil
	})
	return run, err
}

// ordered are all events in order.
func (p *memoryPlane) ordered() []control.OutboxEvent {
	return slices.SortedFunc(maps.Values(p.events), func(a, b control.OutboxEvent) int { return cmp.Compare(a.ID, b.ID) })
}

// Claim is control.Outbox's.
func (m *Memory) Claim(ctx context.Context, claimant string, limit int) (out []control.OutboxEvent, err error) {
	err = m.change(ctx, OpClaim, func(p *memoryPlane) error {
		if err := control.CheckClaimant(claimant); err != nil {
			return err
		}
		for _, e := range p.ordered() {
			if len(out) == control.ClaimSize(limit) {
				break
			}
			if e.Claimant == "" && !e.Delivered {
				e.Claimant, e.ClaimedAt = claimant, m.now()
				e.Attempt++
				set(p, p.events, e.ID, e)
				out = append(out, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ReleaseEvents is control.Outbox's.
func (m *Memory) ReleaseEvents(ctx context.Context, claimant string, ids []int64, ignored bool) error {
	var not []int64
	err := m.change(ctx, OpRelEvents, func(p *memoryPlane) error {
		for _, id := range ids {
			e, ok := p.events[id]
			switch {
			case !ok || e.Delivered || e.Claimant == "" || claimant != "" && e.Claimant != claimant:
				not = append(not, id)
			case ignored:
				e.Delivered = true
				set(p, p.events, id, e)
			default:
				p.pend(e)
			}
		}
		return nil
	})
	if err == nil && len(not) > 0 {
		return control.NotClaimed(claimant, not)
	}
	return err
}

// pend makes an event pending again.
func (p *memoryPlane) pend(e control.OutboxEvent) {
	e.Claimant, e.ClaimedAt, e.Delivered = "", time.Time{}, false
	p.wakes = true
	set(p, p.events, e.ID, e)
}

// ListEvents is control.Outbox's.
func (m *Memory) ListEvents(ctx context.Context, delivered bool, limit int) (out []control.OutboxEvent, err error) {
	err = m.look(ctx, OpListEvents, func(p *memoryPlane) error {
		for _, e := range p.ordered() {
			if (delivered || !e.Delivered) && (limit < 1 || len(out) < limit) {
				out = append(out, e)
			}
		}
		return nil
	})
	return out, err
}

// Wake is control.Outbox's.
func (m *Memory) Wake(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	m.mu.Lock()
	m.plane.watchers[c] = true
	m.mu.Unlock()
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.plane.watchers, c)
		close(c)
	})
	return c
}

// Reconcile is control.Reconciler's.
func (m *Memory) Reconcile(ctx context.Context, repair bool, staleClaims time.Duration) (found []control.Damage, err error) {
	err = m.change(ctx, OpReconcile, func(p *memoryPlane) error {
		found = p.orphans(m.now(), repair, staleClaims)
		for key, pub := range p.publications {
			if has := record.Hash(pub.publication.Value); has != pub.digest {
				found = append(found, control.DigestDamage(pub.publication.RunID, key, pub.digest, has))
			}
		}
		for id, a := range p.admitted {
			if _, ok := p.publications[control.ResultKey(id)]; !ok && a.run.Phase == control.Succeeded {
				found = append(found, control.MissingDamage(id))
			}
		}
		control.SortDamages(found)
		return nil
	})
	return found, err
}

// MendOrphans is control.Reconciler's.
func (m *Memory) MendOrphans(ctx context.Context, staleClaims time.Duration) (found []control.Damage, err error) {
	err = m.change(ctx, OpReconcile, func(p *memoryPlane) error {
		found = p.orphans(m.now(), true, staleClaims)
		control.SortDamages(found)
		return nil
	})
	return found, err
}

func (p *memoryPlane) orphans(now time.Time, repair bool, staleClaims time.Duration) (found []control.Damage) {
	for _, st := range p.standings() {
		d, ok := st.Diagnose(now, staleClaims)
		if !ok {
			continue
		}
		if repair {
			p.repair(st, d, now)
			d.Repaired = true
		}
		found = append(found, d)
	}
	return found
}

// standings of every run that is admitted or has an event.
func (p *memoryPlane) standings() map[string]control.Standing {
	all := map[string]control.Standing{}
	for id, a := range p.admitted {
		all[id] = control.Standing{RunID: id, Phase: a.run.Phase, Lease: p.leases[control.RunLease(id)]}
	}
	for _, e := range p.events {
		st := all[e.RunID]
		st.RunID, st.Lease, st.Event = e.RunID, p.leases[control.RunLease(e.RunID)], &e
		all[e.RunID] = st
	}
	return all
}

func (p *memoryPlane) repair(st control.Standing, d control.Damage, now time.Time) {
	if d.Kind == control.RunningOrphan {
		a := p.admitted[st.RunID]
		a.run.Phase, a.run.Updated = control.Queued, now
		set(p, p.admitted, st.RunID, a)
	}
	if st.Event == nil {
		p.insertEvent(st.RunID, now)
		return
	}
	p.pend(*st.Event)
}
