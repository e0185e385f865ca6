package controltest

import (
	"context"
	"maps"
	"slices"

	"github.com/weirstream/weir/control"
)

var _ control.Beginner = (*Memory)(nil)

// BeginRun is control.Beginner's.
func (m *Memory) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	return m.beginRun(ctx, nil, h, c)
}

// BeginRun is control.Beginner's, under the lease.
func (u *memoryUnder) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	return u.beginRun(ctx, &u.lease, h, c)
}

func (m *Memory) beginRun(ctx context.Context, l *control.Lease, h control.RunHeader, c control.Commit) error {
	return m.writeRun(ctx, OpCommit, l, h.RunID, func() error { return control.CheckBegin(h, c) }, func(token control.FenceToken) error {
		if m.runs[h.RunID] != nil {
			return control.IsThere(h.RunID)
		}
		if err := control.CheckScope(h.RunID, slices.Collect(maps.Keys(m.runs))); err != nil {
			return err
		}
		r := newMemoryRun(h, m.now())
		if err := r.check(c); err != nil {
			return err
		}
		m.runs[h.RunID] = r
		r.take(c, token, m.now())
		return nil
	})
}
