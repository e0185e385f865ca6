package controltest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// memoryPlane is the part of a Memory beside the journal. Rows are values, so that a change that is rolled back leaves no trace in them.
type memoryPlane struct {
	leases       map[string]control.LeaseRow
	admitted     map[string]memoryAdmitted
	scopes       map[scope]string
	events       map[int64]control.OutboxEvent
	publications map[string]memoryPublication
	nextRun      int64
	nextEvent    int64
	// interventions by id.
	interventions    map[int64]control.Intervention
	nextIntervention int64
	// refusals by id.
	refusals    []control.Refusal
	nextRefusal int64
	watchers    map[chan struct{}]bool
	// undo is what takes back the call under way.
	undo []func()
	// wakes says that events became pending in it.
	wakes      bool
	afterWrite func() error
}

type scope struct{ principal, operation, key string }

type memoryAdmitted struct {
	n   int64
	run control.BatchRun
}

type memoryPublication struct {
	publication control.Publication
	digest      string
}

func newMemoryPlane() memoryPlane {
	return memoryPlane{leases: map[string]control.LeaseRow{}, admitted: map[string]memoryAdmitted{}, scopes: map[scope]string{},
		events: map[int64]control.OutboxEvent{}, publications: map[string]memoryPublication{}, interventions: map[int64]control.Intervention{}, watchers: map[chan struct{}]bool{}}
}

// set changes a row and notes how to take that back.
func set[K comparable, V any](p *memoryPlane, rows map[K]V, k K, v V) {
	before, had := rows[k]
	p.undo = append(p.undo, func() {
		if had {
			rows[k] = before
		} else {
			delete(rows, k)
		}
	})
	rows[k] = v
}

func (m *Memory) now() time.Time {
	if m.Now == nil {
		return time.Now().Round(0)
	}
	return m.Now().Round(0)
}

// change runs a write of the plane as one transaction: whole or not at all.
func (m *Memory) change(ctx context.Context, op Op, fn func(p *memoryPlane) error) error {
	err := m.do(ctx, op, func() error { return m.apply(fn) })
	if err != nil {
		return err
	}
	return m.written()
}

func (m *Memory) apply(fn func(p *memoryPlane) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.transact(fn)
}

// transact runs fn whole or not at all. mu is held.
func (m *Memory) transact(fn func(p *memoryPlane) error) error {
	p := &m.plane
	p.undo, p.wakes = nil, false
	if err := fn(p); err != nil {
		for _, back := range slices.Backward(p.undo) {
			back()
		}
		return err
	}
	if p.wakes {
		for c := range p.watchers {
			ring(c)
		}
	}
	return nil
}

// AfterWrite calls fn once, after the next write of leases, effects, runs or events has taken effect and before its caller hears of it. An error of
// fn takes the answer's place.
func (m *Memory) AfterWrite(fn func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plane.afterWrite = fn
}

func (m *Memory) written() error {
	m.mu.Lock()
	fn := m.plane.afterWrite
	m.plane.afterWrite = nil
	m.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn()
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look runs a reader of the plane.
func (m *Memory) look(ctx context.Context, op Op, fn func(p *memoryPlane) error) error {
	return m.do(ctx, op, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		return fn(&m.plane)
	})
}

// Acquire is control.Leases'. A take-over waits for effects under way.
func (m *Memory) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	sent := time.Now()
	var next control.LeaseRow
	err := m.do(ctx, OpAcquire, func() error {
		if err := control.CheckAcquire(name, owner, ttl); err != nil {
			return err
		}
		for {
			var held *hold
			err := m.apply(func(p *memoryPlane) (err error) {
				row := p.leases[name]
				if next, err = row.Acquired(name, owner, m.now(), ttl); err != nil {
					return err
				}
				if held = m.holds[name]; held == nil || next.Token == row.Token {
					held = nil
					set(p, p.leases, name, next)
				}
				return nil
			})
			if err != nil || held == nil {
				return err
			}
			select {
			case <-held.free:
			case <-ctx.Done():
				return fmt.Errorf("control/controltest: %s: %w", OpAcquire, ctx.Err())
			}
		}
	})
	if err == nil {
		err = m.written()
	}
	if err != nil {
		return control.Lease{}, err
	}
	return next.Granted(sent, ttl), nil
}

// Renew is control.Leases'.
func (m *Memory) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	sent := time.Now()
	var row control.LeaseRow
	err := m.change(ctx, OpRenew, func(p *memoryPlane) error {
		if err := control.CheckRenew(l); err != nil {
			return err
		}
		now := m.now()
		row = p.leases[l.Name]
		if err := row.CheckHolder(l, now); err != nil {
			return err
		}
		row.Until = now.Add(l.TTL)
		set(p, p.leases, l.Name, row)
		return nil
	})
	if err != nil {
		return control.Lease{}, err
	}
	return row.Granted(sent, l.TTL), nil
}

// Release is control.Leases'.
func (m *Memory) Release(ctx context.Context, l control.Lease) error {
	return m.change(ctx, OpRelease, func(p *memoryPlane) error {
		row := p.leases[l.Name]
		if err := row.CheckHolder(l, m.now()); err != nil {
			return err
		}
		row.Until = time.Time{}
		set(p, p.leases, l.Name, row)
		return nil
	})
}

// ListLeases is control.Leases'.
func (m *Memory) ListLeases(ctx context.Context) (out []control.LeaseInfo, err error) {
	err = m.look(ctx, OpLookupLease, func(p *memoryPlane) error {
		for _, name := range slices.Sorted(maps.Keys(p.leases)) {
			out = append(out, p.leases[name].Info(m.now()))
		}
		return nil
	})
	return out, err
}

// LookupLease is control.Leases'.
func (m *Memory) LookupLease(ctx context.Context, name string) (info control.LeaseInfo, ok bool, err error) {
	err = m.look(ctx, OpLookupLease, func(p *memoryPlane) error {
		var row control.LeaseRow
		if row, ok = p.leases[name]; ok {
			info = row.Info(m.now())
		}
		return nil
	})
	return info, ok, err
}

// ExpireLease sets the end of a lease's term into the past.
func (m *Memory) ExpireLease(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.plane.leases[name]; ok {
		row.Until = m.now().Add(-time.Second)
		m.plane.leases[name] = row
	}
}

// SetLeaseToken changes the token of a lease, as a store that lost what it knew would.
func (m *Memory) SetLeaseToken(name string, token control.FenceToken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.plane.leases[name]; ok {
		row.Token = token
		m.plane.leases[name] = row
	}
}

// Fenced is control.Effects'.
func (m *Memory) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	return m.effect(ctx, OpFenced, l, func() error { return control.CheckEffects(l, effects) }, nil, func() error {
		return m.transact(func(p *memoryPlane) error {
			for _, e := range effects {
				if err := p.effect(e, m.now()); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (p *memoryPlane) effect(e control.Effect, now time.Time) error {
	switch e := e.(type) {
	case control.Publish:
		return p.publish(e.Publications)
	case control.StartRun:
		return p.startRun(e, now)
	case control.FinishRun:
		return p.finishRun(e, now)
	case control.Deliver:
		return p.deliver(e.EventIDs)
	}
	return codes.New(codes.Internal, "the effect %T is not known", e)
}

func (p *memoryPlane) publish(all []control.Publication) error {
	for _, pub := range all {
		digest := record.Hash(pub.Value)
		if stands, ok := p.publications[pub.Key]; ok {
			if stands.digest != digest {
				return control.Conflict(pub.Key, stands.digest, digest)
			}
			continue
		}
		pub.Value = bytes.Clone(pub.Value)
		set(p, p.publications, pub.Key, memoryPublication{publication: pub, digest: digest})
	}
	return nil
}

func (p *memoryPlane) run(id string) (memoryAdmitted, error) {
	a, ok := p.admitted[id]
	if !ok {
		return a, codes.New(codes.RunUnknown, "the store holds no batch run %q", id)
	}
	return a, nil
}

func (p *memoryPlane) startRun(e control.StartRun, now time.Time) error {
	a, err := p.run(e.RunID)
	if err != nil {
		return err
	}
	if a.run.Phase, err = control.Started(e.RunID, a.run.Phase, a.run.CancelRequested); err != nil {
		return err
	}
	if e.Moved != nil {
		*e.Moved = a.run.Phase
	}
	a.run.Updated = now
	set(p, p.admitted, e.RunID, a)
	return nil
}

func (p *memoryPlane) finishRun(e control.FinishRun, now time.Time) error {
	a, err := p.run(e.RunID)
	if err != nil {
		return err
	}
	if err := control.CheckFinish(e.RunID, a.run.Phase); err != nil {
		return err
	}
	a.run.Phase, a.run.Updated = e.Phase, now
	a.run.Revision++
	if e.Phase == control.Succeeded {
		a.run.ResultRefs = slices.Clone(e.ResultRefs)
	} else {
		a.run.Error = control.RunError(e.Error)
	}
	set(p, p.admitted, e.RunID, a)
	return nil
}

func (p *memoryPlane) deliver(ids []int64) error {
	for _, id := range ids {
		e, ok := p.events[id]
		if !ok {
			return codes.New(codes.Internal, "the outbox has no event %d", id)
		}
		e.Delivered = true
		set(p, p.events, id, e)
	}
	return nil
}

// Publications is control.Reconciler's.
func (m *Memory) Publications(ctx context.Context, prefix string, fn func(p control.Publication, digest string) error) error {
	var all []memoryPublication
	err := m.look(ctx, OpPublications, func(p *memoryPlane) error {
		for _, key := range slices.Sorted(maps.Keys(p.publications)) {
			if strings.HasPrefix(key, prefix) {
				pub := p.publications[key]
				pub.publication.Value = bytes.Clone(pub.publication.Value)
				all = append(all, pub)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(ctx, all, func(p memoryPublication) error { return fn(p.publication, p.digest) })
}
