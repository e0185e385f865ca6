package controltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// wrongPlane is a store with one defect.
type wrongPlane struct {
	*Memory
	acquire   func(m *Memory, ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error)
	renew     func(m *Memory, ctx context.Context, l control.Lease) (control.Lease, error)
	release   func(m *Memory, ctx context.Context, l control.Lease) error
	fenced    func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error
	admit     func(m *Memory, ctx context.Context, r control.Request) (control.BatchRun, bool, error)
	cancel    func(m *Memory, ctx context.Context, id string) (control.BatchRun, error)
	claim     func(m *Memory, ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error)
	relEvents func(m *Memory, ctx context.Context, claimant string, ids []int64, ignored bool) error
	reconcile func(m *Memory, ctx context.Context, repair bool, stale time.Duration) ([]control.Damage, error)
	list      func(m *Memory, ctx context.Context, f control.RunFilter) ([]control.BatchRun, string, error)
	wake      func(m *Memory, ctx context.Context) <-chan struct{}
}

func (w *wrongPlane) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	if w.acquire != nil {
		return w.acquire(w.Memory, ctx, name, owner, ttl)
	}
	return w.Memory.Acquire(ctx, name, owner, ttl)
}

func (w *wrongPlane) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	if w.renew != nil {
		return w.renew(w.Memory, ctx, l)
	}
	return w.Memory.Renew(ctx, l)
}

func (w *wrongPlane) Release(ctx context.Context, l control.Lease) error {
	if w.release != nil {
		return w.release(w.Memory, ctx, l)
	}
	return w.Memory.Release(ctx, l)
}

func (w *wrongPlane) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	if w.fenced != nil {
		return w.fenced(w.Memory, ctx, l, effects)
	}
	return w.Memory.Fenced(ctx, l, effects...)
}

func (w *wrongPlane) Admit(ctx context.Context, r control.Request) (control.BatchRun, bool, error) {
	if w.admit != nil {
		return w.admit(w.Memory, ctx, r)
	}
	return w.Memory.Admit(ctx, r)
}

func (w *wrongPlane) CancelRun(ctx context.Context, id string) (control.BatchRun, error) {
	if w.cancel != nil {
		return w.cancel(w.Memory, ctx, id)
	}
	return w.Memory.CancelRun(ctx, id)
}

func (w *wrongPlane) Claim(ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
	if w.claim != nil {
		return w.claim(w.Memory, ctx, claimant, limit)
	}
	return w.Memory.Claim(ctx, claimant, limit)
}

func (w *wrongPlane) ReleaseEvents(ctx context.Context, claimant string, ids []int64, ignored bool) error {
	if w.relEvents != nil {
		return w.relEvents(w.Memory, ctx, claimant, ids, ignored)
	}
	return w.Memory.ReleaseEvents(ctx, claimant, ids, ignored)
}

func (w *wrongPlane) Reconcile(ctx context.Context, repair bool, stale time.Duration) ([]control.Damage, error) {
	if w.reconcile != nil {
		return w.reconcile(w.Memory, ctx, repair, stale)
	}
	return w.Memory.Reconcile(ctx, repair, stale)
}

func (w *wrongPlane) ListRuns(ctx context.Context, f control.RunFilter) ([]control.BatchRun, string, error) {
	if w.list != nil {
		return w.list(w.Memory, ctx, f)
	}
	return w.Memory.ListRuns(ctx, f)
}

func (w *wrongPlane) Wake(ctx context.Context) <-chan struct{} {
	if w.wake != nil {
		return w.wake(w.Memory, ctx)
	}
	return w.Memory.Wake(ctx)
}

// under does something with the lease as it stands, whatever l says: the fence check is off.
func under(m *Memory, l control.Lease, fn func(l control.Lease) error) error {
	m.mu.Lock()
	row := m.plane.leases[l.Name]
	row.Name, row.Until = l.Name, time.Now().Add(time.Hour)
	row.Token = max(row.Token, 1)
	before, had := m.plane.leases[l.Name]
	m.plane.leases[l.Name] = row
	m.mu.Unlock()
	l.Owner, l.Token = row.Owner, row.Token
	err := fn(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	if had {
		m.plane.leases[l.Name] = before
	} else {
		delete(m.plane.leases, l.Name)
	}
	return err
}

var wrongPlanes = map[string]wrongPlane{
	"the fence check is off": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		return under(m, l, func(l control.Lease) error { return m.Fenced(ctx, l, effects...) })
	}},
	"only the token is compared": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		if info, _, _ := m.LookupLease(ctx, l.Name); info.Token == l.Token {
			l.Owner = info.Owner
		}
		return m.Fenced(ctx, l, effects...)
	}},
	"only the owner is compared": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		if info, _, _ := m.LookupLease(ctx, l.Name); info.Owner == l.Owner {
			l.Token = info.Token
		}
		return m.Fenced(ctx, l, effects...)
	}},
	"the fence is checked before the transaction": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		if err := m.Fenced(ctx, l); err != nil {
			return err
		}
		pass() // the transaction begins
		return under(m, l, func(l control.Lease) error { return m.Fenced(ctx, l, effects...) })
	}},
	"effects one by one": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		for _, e := range effects {
			if err := m.Fenced(ctx, l, e); err != nil {
				return err
			}
		}
		return m.Fenced(ctx, l)
	}},
	"publications overwrite": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		if err := m.Fenced(ctx, l); err != nil {
			return err
		}
		m.mu.Lock()
		for _, e := range effects {
			if p, ok := e.(control.Publish); ok {
				for _, pub := range p.Publications {
					delete(m.plane.publications, pub.Key)
				}
			}
		}
		m.mu.Unlock()
		return m.Fenced(ctx, l, effects...)
	}},
	"values are canonicalised": {fenced: func(m *Memory, ctx context.Context, l control.Lease, effects []control.Effect) error {
		for i, e := range effects {
			if p, ok := e.(control.Publish); ok {
				p.Publications = slices.Clone(p.Publications)
				for k := range p.Publications {
					p.Publications[k].Value = []byte(strings.TrimSpace(string(p.Publications[k].Value)))
				}
				effects[i] = p
			}
		}
		return m.Fenced(ctx, l, effects...)
	}},
	"a heartbeat revives": {renew: func(m *Memory, ctx context.Context, l control.Lease) (control.Lease, error) {
		if info, ok, _ := m.LookupLease(ctx, l.Name); ok && info.Owner == l.Owner && info.Token == l.Token {
			m.mu.Lock()
			row := m.plane.leases[l.Name]
			row.Until = time.Now().Add(term)
			m.plane.leases[l.Name] = row
			m.mu.Unlock()
		}
		return m.Renew(ctx, l)
	}},
	"the token stays at a take-over": {acquire: func(m *Memory, ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
		before, ok, _ := m.LookupLease(ctx, name)
		l, err := m.Acquire(ctx, name, owner, ttl)
		if err == nil && ok && !before.Valid && before.Owner == owner {
			m.mu.Lock()
			row := m.plane.leases[name]
			row.Token--
			m.plane.leases[name] = row
			m.mu.Unlock()
			l.Token--
		}
		return l, err
	}},
	"look, then take": {acquire: func(m *Memory, ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
		if info, ok, _ := m.LookupLease(ctx, name); !ok || !info.Valid {
			pass() // another one looks, too
			m.ExpireLease(name)
		}
		return m.Acquire(ctx, name, owner, ttl)
	}},
	"the deadline counts from the answer": {acquire: func(m *Memory, ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
		l, err := m.Acquire(ctx, name, owner, ttl)
		l.Deadline = time.Now().Add(ttl)
		return l, err
	}},
	"a stale release": {release: func(m *Memory, ctx context.Context, l control.Lease) error {
		m.ExpireLease(l.Name)
		return nil
	}},
	"a release keeps the term": {release: func(m *Memory, ctx context.Context, l control.Lease) error {
		_, err := m.Renew(ctx, l)
		return err
	}},
	"look, then admit": {admit: func(m *Memory, ctx context.Context, r control.Request) (control.BatchRun, bool, error) {
		run, created, err := m.Admit(ctx, r)
		return run, created || err == nil && run.Phase == control.Queued, err
	}},
	"another body gets the first run": {admit: func(m *Memory, ctx context.Context, r control.Request) (control.BatchRun, bool, error) {
		run, created, err := m.Admit(ctx, r)
		if codes.Has(err, codes.IdempotencyConflict) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.plane.admitted[m.plane.scopes[scope{r.Principal, r.Operation, r.Key}]].run, false, nil
		}
		return run, created, err
	}},
	"a run without its event": {admit: func(m *Memory, ctx context.Context, r control.Request) (control.BatchRun, bool, error) {
		run, created, err := m.Admit(ctx, r)
		if r.Key == "key-2" && created {
			m.mu.Lock()
			delete(m.plane.events, m.plane.nextEvent)
			m.mu.Unlock()
		}
		return run, created, err
	}},
	"a cancellation in the middle": {cancel: func(m *Memory, ctx context.Context, id string) (control.BatchRun, error) {
		m.mu.Lock()
		if a, ok := m.plane.admitted[id]; ok && a.run.Phase == control.Running {
			a.run.Phase = control.Cancelled
			m.plane.admitted[id] = a
		}
		m.mu.Unlock()
		return m.CancelRun(ctx, id)
	}},
	"a cancellation is forgotten": {cancel: func(m *Memory, ctx context.Context, id string) (control.BatchRun, error) {
		run, err := m.LookupRun(ctx, id)
		run.CancelRequested = run.Phase == control.Queued
		return run, err
	}},
	"claims are shared": {claim: func(m *Memory, ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
		events, err := m.Claim(ctx, claimant, limit)
		if len(events) > 1 {
			_ = m.ReleaseEvents(ctx, claimant, []int64{events[0].ID}, false)
		}
		return events, err
	}},
	"claims in the wrong order": {claim: func(m *Memory, ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
		events, err := m.Claim(ctx, claimant, limit)
		slices.Reverse(events)
		return events, err
	}},
	"attempts are not counted": {claim: func(m *Memory, ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
		events, err := m.Claim(ctx, claimant, limit)
		for i := range events {
			events[i].Attempt = 1
		}
		return events, err
	}},
	"anyone releases": {relEvents: func(m *Memory, ctx context.Context, _ string, ids []int64, ignored bool) error {
		return m.ReleaseEvents(ctx, "", ids, ignored)
	}},
	"a release of nothing is fine": {relEvents: func(m *Memory, ctx context.Context, claimant string, ids []int64, ignored bool) error {
		if err := m.ReleaseEvents(ctx, claimant, ids, ignored); !codes.Has(err, codes.EventNotClaimed) {
			return err
		}
		return nil
	}},
	"a dry run repairs": {reconcile: func(m *Memory, ctx context.Context, repair bool, stale time.Duration) ([]control.Damage, error) {
		found, err := m.Reconcile(ctx, true, stale)
		for i := range found {
			found[i].Repaired = found[i].Repaired && repair
		}
		return found, err
	}},
	"the age of claims is not looked at": {reconcile: func(m *Memory, ctx context.Context, repair bool, _ time.Duration) ([]control.Damage, error) {
		return m.Reconcile(ctx, repair, 0)
	}},
	"digests are not looked at": {reconcile: func(m *Memory, ctx context.Context, repair bool, stale time.Duration) ([]control.Damage, error) {
		found, err := m.Reconcile(ctx, repair, stale)
		return slices.DeleteFunc(found, func(d control.Damage) bool { return d.Kind == control.PublicationDigest }), err
	}},
	"leases are not looked at": {reconcile: func(m *Memory, ctx context.Context, repair bool, stale time.Duration) ([]control.Damage, error) {
		leases, _ := m.ListLeases(ctx)
		for _, l := range leases {
			m.ExpireLease(l.Name)
		}
		return m.Reconcile(ctx, repair, stale)
	}},
	"pages overlap": {list: func(m *Memory, ctx context.Context, f control.RunFilter) ([]control.BatchRun, string, error) {
		runs, next, err := m.ListRuns(ctx, f)
		if n, perr := control.ParseCursor(next); perr == nil && next != "" {
			next = fmt.Sprint(n + 1)
		}
		return runs, next, err
	}},
	"oldest first": {list: func(m *Memory, ctx context.Context, f control.RunFilter) ([]control.BatchRun, string, error) {
		runs, next, err := m.ListRuns(ctx, f)
		slices.Reverse(runs)
		return runs, next, err
	}},
	"the channel of Wake stays open": {wake: func(m *Memory, ctx context.Context) <-chan struct{} {
		ended := make(chan struct{}, 1)
		go func() {
			for range m.Wake(ctx) {
				ring(ended)
			}
		}()
		return ended
	}},
}

// verdict runs checks of the suite on a store, until one rejects it.
func verdict(t *testing.T, checks []controlCheck, open func(m *Memory) control.ControlStore) (rejecting string) {
	for _, c := range checks {
		m := NewMemory()
		p := &plane{ctx: t.Context(), Harness: memoryHarness(m, func() control.ControlStore { return open(m) })}
		if err := c.run(p); err != nil {
			return c.name
		}
	}
	return ""
}

// The suite rejects every store that is wrong in one point.
func TestControlRejects(t *testing.T) {
	t.Parallel()
	for name, w := range wrongPlanes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w.wake != nil {
				if err := openChannel(t, w); err == nil {
					t.Error("the suite accepts it")
				}
				return
			}
			checks := slices.DeleteFunc(controlChecks(), func(c controlCheck) bool { return c.name == "outbox: wake" }) // it would only wait
			if by := verdict(t, checks, func(m *Memory) control.ControlStore { w := w; w.Memory = m; return &w }); by == "" {
				t.Error("the suite accepts it")
			}
		})
	}
}

// openChannel runs the check of Wake with little patience.
func openChannel(t *testing.T, w wrongPlane) error {
	m := NewMemory()
	w.Memory = m
	p := &plane{ctx: t.Context(), Harness: memoryHarness(m, func() control.ControlStore { return &w }), patience: 50 * time.Millisecond}
	return checkWake(p)
}

// The model alone rejects what breaks the table of leases, in the recorded history of clients that run at the same time.
func TestHistoriesReject(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the fence check is off", "only the token is compared", "only the owner is compared", "a heartbeat revives", "the token stays at a take-over", "look, then take", "a stale release", "a release keeps the term"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ok := wrongPlanes[name]
			if !ok {
				t.Fatal("there is no such store")
			}
			m := NewMemory()
			w.Memory = m
			p := &plane{ctx: t.Context(), Harness: memoryHarness(m, func() control.ControlStore { return &w })}
			if err := checkLinearizable(p); err == nil || !strings.Contains(err.Error(), "has no order") {
				t.Errorf("the history is accepted: %v", err)
			}
		})
	}
}

// A harness that cannot do everything would make a suite that shows less than it says.
func TestIncompleteHarness(t *testing.T) {
	t.Parallel()
	if err := (&Harness{}).check(); err == nil {
		t.Error("an empty harness is accepted")
	}
	m := NewMemory()
	if err := memoryHarness(m, func() control.ControlStore { return m }).check(); err != nil {
		t.Error(err)
	}
}

// A call of a Memory that loses its answer stands, and the next one is not concerned.
func TestAfterWrite(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	lost := errors.New("lost")
	m.AfterWrite(func() error { return lost })
	if _, err := m.Acquire(t.Context(), "job", "a", time.Hour); err != lost {
		t.Errorf("got %v", err)
	}
	if l, err := m.Acquire(t.Context(), "job", "a", time.Hour); err != nil || l.Token != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
