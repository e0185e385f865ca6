package controltest

import (
	"context"
	"maps"
	"slices"

	"github.com/weirstream/weir/control"
)

// Intervene is control.Interventions'.
func (m *Memory) Intervene(ctx context.Context, i control.Intervention) (out control.Intervention, err error) {
	err = m.change(ctx, OpIntervene, func(p *memoryPlane) error {
		if err := i.Validate(); err != nil {
			return err
		}
		r, err := m.run(i.RunID)
		if err != nil {
			return err
		}
		if err := control.CheckIntervene(i, r.status, slices.Collect(maps.Keys(r.partitions))); err != nil {
			return err
		}
		p.nextIntervention++ // an id that was given to a call that failed is not given again
		i.ID, i.Created, i.Outcome, i.Epoch, i.Note = p.nextIntervention, m.now(), control.Pending, 0, ""
		set(p, p.interventions, i.ID, i)
		out = i
		return nil
	})
	if err != nil {
		return control.Intervention{}, err
	}
	return out, nil
}

// ListInterventions is control.Interventions'.
func (m *Memory) ListInterventions(ctx context.Context, runID string, pending bool) (out []control.Intervention, err error) {
	err = m.look(ctx, OpListInterventions, func(p *memoryPlane) error {
		for _, id := range slices.Sorted(maps.Keys(p.interventions)) {
			if i := p.interventions[id]; i.RunID == runID && (!pending || i.Outcome == control.Pending) {
				out = append(out, i)
			}
		}
		return nil
	})
	return out, err
}

// SettleIntervention is control.Interventions'.
func (m *Memory) SettleIntervention(ctx context.Context, l control.Lease, runID string, id int64, outcome control.InterventionOutcome, epoch uint64, note string) error {
	check := func() error { return control.CheckSettle(l, runID, outcome, note) }
	return m.effect(ctx, OpSettleIntervention, l, check, nil, func() error {
		return m.transact(func(p *memoryPlane) error {
			i, ok := p.interventions[id]
			if !ok || i.RunID != runID {
				return control.InterventionUnknown(runID, id)
			}
			if i.Outcome == control.Pending {
				i.Outcome, i.Epoch, i.Note, i.Settled = outcome, epoch, note, m.now()
				set(p, p.interventions, id, i)
			}
			return nil
		})
	})
}
