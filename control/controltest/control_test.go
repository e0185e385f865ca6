package controltest

import (
	"testing"
	"time"

	"github.com/weirstream/weir/control"
)

// memoryHarness drives a Memory; every handle is the same one.
func memoryHarness(m *Memory, open func() control.ControlStore) *Harness {
	locked := func(fn func(p *memoryPlane)) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		fn(&m.plane)
		return nil
	}
	return &Harness{
		Open:        open,
		AfterCommit: func(_ control.ControlStore, fn func() error) { m.AfterWrite(fn) },
		Hook:        func(_ control.ControlStore, fn func(step string) error) { m.SetHook(fn) },
		SetToken:    func(name string, token control.FenceToken) error { m.SetLeaseToken(name, token); return nil },
		Expire:      func(name string) error { m.ExpireLease(name); return nil },
		SetEvent: func(id int64, claimant string, age time.Duration, delivered bool) error {
			return locked(func(p *memoryPlane) {
				e := p.events[id]
				e.Claimant, e.ClaimedAt, e.Delivered = claimant, time.Time{}, delivered
				if claimant != "" {
					e.ClaimedAt = m.now().Add(-age)
				}
				p.events[id] = e
			})
		},
		DeleteEvent: func(id int64) error { return locked(func(p *memoryPlane) { delete(p.events, id) }) },
		SetPhase: func(id string, phase control.RunPhase) error {
			return locked(func(p *memoryPlane) {
				a := p.admitted[id]
				a.run.Phase = phase
				p.admitted[id] = a
			})
		},
		SetPublication: func(key string, value []byte) error {
			return locked(func(p *memoryPlane) {
				pub := p.publications[key]
				pub.publication.Value = value
				p.publications[key] = pub
			})
		},
		DeletePublication: func(key string) error { return locked(func(p *memoryPlane) { delete(p.publications, key) }) },
	}
}

func TestMemoryConformsAsControl(t *testing.T) {
	t.Parallel()
	Control(t, func(*testing.T) *Harness {
		m := NewMemory()
		return memoryHarness(m, func() control.ControlStore { return m })
	})
}
