package controltest

import (
	"context"

	"github.com/weirstream/weir/control"
)

// NoteRefusal is control.Refusals'.
func (m *Memory) NoteRefusal(ctx context.Context, r control.Refusal) error {
	r, err := r.Fit()
	if err != nil {
		return err
	}
	return m.change(ctx, OpNoteRefusal, func(p *memoryPlane) error {
		before, last := p.refusals, p.nextRefusal
		p.undo = append(p.undo, func() { p.refusals = before })
		p.nextRefusal = last + 1
		r.ID, r.At, r.MetOwner, r.MetToken = last+1, m.now(), p.leases[r.Lease].Owner, p.leases[r.Lease].Token
		n := 0
		for _, other := range before {
			if other.Lease == r.Lease {
				n++
			}
		}
		p.refusals = nil
		for _, other := range before {
			if other.Lease == r.Lease && n >= control.MaxRefusals {
				n--
				continue
			}
			p.refusals = append(p.refusals, other)
		}
		p.refusals = append(p.refusals, r)
		return nil
	})
}

// ListRefusals is control.Refusals'.
func (m *Memory) ListRefusals(ctx context.Context, runID string) (out []control.Refusal, err error) {
	err = m.look(ctx, OpListRefusals, func(p *memoryPlane) error {
		for _, r := range p.refusals {
			if r.OfRun(runID) {
				out = append(out, r)
			}
		}
		return nil
	})
	return out, err
}
