package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Orders about entries of the quarantine: their records are read from the journal and given to the machines, one by one in the order of (partition,
// position), before anything of the log is read. An entry that was replayed or dropped before, or is no record that waits for a choice, is left out.

// asideOrder is an order about entries, and what has become of them.
type asideOrder struct {
	control.Intervention
	// left are entries that stand there no more, outcomes those that were decided about.
	left     int
	outcomes map[string]int
}

// entryOf names an entry of the run.
type entryOf struct {
	partition int32
	number    int64
}

// applyAside steps the orders about the quarantine into the machines.
func (in *incarnation) applyAside(orders []control.Intervention) error {
	if len(orders) == 0 {
		return nil
	}
	all := make([]*asideOrder, 0, len(orders))
	of := map[entryOf]*asideOrder{}
	for _, i := range orders {
		m := in.machines[i.Partition]
		if m == nil || m.Finished() {
			_, in.outcomes[i.ID] = orderOf(i, m)
			continue
		}
		o := &asideOrder{Intervention: i, left: len(i.Entries), outcomes: map[string]int{}}
		all = append(all, o)
		for _, n := range i.Entries {
			if e := (entryOf{i.Partition, n}); of[e] == nil {
				of[e] = o // the first one that asks for it
			}
		}
	}
	var stand partitions.Asides
	err := in.cfg.Journal.Decisions(in.ctx, in.cfg.RunID, func(d partitions.Decision) error { stand.Add(d); return nil })
	if err != nil {
		return err
	}
	err = in.cfg.Journal.Quarantine(in.ctx, in.cfg.RunID, func(q partitions.Quarantined) error {
		o := of[entryOf{q.Partition, q.Number}]
		if o == nil || !partitions.Replayable(q.Reason) || stand.Of(q.Partition, q.Number).State != partitions.AsideStands {
			return nil
		}
		return in.stepAside(o, q)
	})
	if err != nil {
		return err
	}
	for _, o := range all {
		in.outcomes[o.ID] = o.settled(in.state.Epoch + 1)
	}
	return nil
}

// stepAside decides about one entry.
func (in *incarnation) stepAside(o *asideOrder, q partitions.Quarantined) error {
	var ev partitions.Event = partitions.Reinstate{Entry: q, Why: reasonOf(o.Intervention)}
	if o.Kind == control.DropAside {
		ev = partitions.Discard{Entry: q, Why: reasonOf(o.Intervention)}
	}
	eff := in.begun[q.Partition]
	decided := len(eff.Decisions)
	if err := in.machines[q.Partition].Step(ev, &eff); err != nil {
		return &orderError{o.ID, err}
	}
	in.begun[q.Partition] = eff
	for _, d := range eff.Decisions[decided:] {
		if a, ok := d.Aside(); ok {
			o.left--
			o.outcomes[a.Outcome]++
		}
	}
	return nil
}

// settled says what became of the order as a whole.
func (o *asideOrder) settled(epoch uint64) settlement {
	if len(o.outcomes) == 0 {
		return dismissed("none of these %d entries of partition %d is set aside any more, or can be decided about", len(o.Entries), o.Partition)
	}
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(o.outcomes)) {
		parts = append(parts, fmt.Sprintf("%s %d", outcome, o.outcomes[outcome]))
	}
	note := strings.Join(parts, ", ")
	if o.left > 0 {
		note += fmt.Sprintf("; %d entries were decided about before, or cannot be", o.left)
	}
	return settlement{outcome: control.Applied, epoch: epoch, note: note[:min(len(note), control.MaxInterventionText)]}
}
