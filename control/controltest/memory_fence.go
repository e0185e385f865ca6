package controltest

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/control"
)

// hold is a lease that effects under way keep from being taken over.
type hold struct {
	effects int
	// free is closed when the last of them has ended.
	free chan struct{}
}

// memoryUnder is a Memory as the holder of a lease sees it.
type memoryUnder struct {
	*Memory
	lease control.Lease
}

// Under is control.Fencer's.
func (m *Memory) Under(l control.Lease) control.Journal { return &memoryUnder{Memory: m, lease: l} }

// OpenRun is control.Journal's.
func (u *memoryUnder) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return u.openRun(ctx, &u.lease, h)
}

// Commit is control.Journal's.
func (u *memoryUnder) Commit(ctx context.Context, c control.Commit) error {
	return u.commit(ctx, &u.lease, c)
}

// Close does nothing: the view belongs to nobody.
func (u *memoryUnder) Close() error { return nil }

// SetHook sets what is called between the steps of a write under a lease: "begin", before anything was done; "commit", inside the transaction
// with the lease locked against take-over; "committed", when it stands and nobody has heard of it. An error takes the call's place. nil is none.
func (m *Memory) SetHook(fn func(step string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = fn
}

func (m *Memory) step(name string) error {
	m.mu.Lock()
	fn := m.hook
	m.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(name)
}

// writeRun runs a write of the journal: check looks at what is asked by itself, act changes the run while mu is held. Without a lease (nil)
// the token is 0.
func (m *Memory) writeRun(ctx context.Context, op Op, l *control.Lease, runID string, check func() error, act func(token control.FenceToken) error) error {
	if l == nil {
		return m.do(ctx, op, func() error {
			if err := check(); err != nil {
				return err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return act(0)
		})
	}
	return m.effect(ctx, op, *l, func() error {
		if err := check(); err != nil {
			return err
		}
		return control.CheckUnder(runID, *l)
	}, nil, func() error { return act(l.Token) })
}

// effect runs a write under a lease. check looks at what is asked by itself; prepare, if it is not nil, runs with the lease held and may take its
// time; act changes what is kept, whole or not at all, while mu is held.
func (m *Memory) effect(ctx context.Context, op Op, l control.Lease, check, prepare, act func() error) error {
	err := m.call(ctx, op, func(call int) error {
		if err := check(); err != nil {
			return err
		}
		if err := m.step("begin"); err != nil {
			return err
		}
		if err := m.holding(ctx, op, call, l, prepare, act); err != nil {
			return err
		}
		return m.step("committed")
	})
	if err != nil {
		return err
	}
	return m.written()
}

// holding verifies the lease, keeps it from being taken over, and runs act.
func (m *Memory) holding(ctx context.Context, op Op, call int, l control.Lease, prepare, act func() error) error {
	free, err := m.grip(l)
	if err != nil {
		return err
	}
	defer free() // also when a fault panics or ends its goroutine
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	if err := m.fault(op, call, within); err != nil {
		return err
	}
	if err := m.step("commit"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("control/controltest: %s: %w", op, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return act()
}

// grip verifies a lease and adds one effect to those that hold it. free is to be called once.
func (m *Memory) grip(l control.Lease) (free func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.plane.leases[l.Name].CheckHolder(l, m.now()); err != nil {
		return nil, err
	}
	h := m.holds[l.Name]
	if h == nil {
		h = &hold{free: make(chan struct{})}
		m.holds[l.Name] = h
	}
	h.effects++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if h.effects--; h.effects == 0 {
			delete(m.holds, l.Name)
			close(h.free)
		}
	}, nil
}
