package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Orders about entries of the quarantine: their records are read from the journal and given to the machines, before anything of the log is read. Each
// order meets what those before it left: orders whose entries come after one another are stepped in one reading of the quarantine, in the order of
// (partition, position), and one that goes back to an entry before that begins another reading.

// asideOrder is an order about entries, and what has become of them.
type asideOrder struct {
	control.Intervention
	// open are entries that were not met yet, left how many there are that nothing was decided about, by why; outcomes those that were decided about.
	open     int
	left     map[string]int
	outcomes map[string]int
}

// entryOf names an entry of the run.
type entryOf struct {
	partition int32
	number    int64
}

// asideRound is a reading of the quarantine for orders one after the other. stand is where the entries stand now.
type asideRound struct {
	in     *incarnation
	stand  *partitions.Asides
	orders []*asideOrder
	of     map[entryOf]*asideOrder
	last   map[int32]int64
}

// add takes an order into the round. It is false when the order goes back to before an entry that the round has.
func (r *asideRound) add(i control.Intervention) bool {
	if last, has := r.last[i.Partition]; has && i.Entries[0] <= last {
		return false
	}
	o := &asideOrder{Intervention: i, open: len(i.Entries), left: map[string]int{}, outcomes: map[string]int{}}
	for _, n := range i.Entries {
		r.of[entryOf{i.Partition, n}] = o
	}
	r.orders, r.last[i.Partition] = append(r.orders, o), i.Entries[len(i.Entries)-1]
	return true
}

// step steps the orders of the round into the machines, and empties it.
func (r *asideRound) step() error {
	if len(r.orders) == 0 {
		return nil
	}
	in := r.in
	if r.stand == nil {
		r.stand = &partitions.Asides{}
		if err := in.cfg.Journal.Decisions(in.ctx, in.cfg.RunID, func(d partitions.Decision) error { r.stand.Add(d); return nil }); err != nil {
			return err
		}
	}
	err := in.cfg.Journal.Quarantine(in.ctx, in.cfg.RunID, func(q partitions.Quarantined) error {
		if o := r.of[entryOf{q.Partition, q.Number}]; o != nil {
			return r.entry(o, q)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range r.orders {
		in.outcomes[o.ID] = o.settled(in.state.Epoch + 1)
	}
	r.orders = nil
	clear(r.of)
	clear(r.last)
	return nil
}

// entry decides about one entry, if it still waits for a choice.
func (r *asideRound) entry(o *asideOrder, q partitions.Quarantined) error {
	in := r.in
	o.open--
	state := r.stand.Of(q.Partition, q.Number).State
	switch {
	case !partitions.Replayable(q.Reason):
		o.left["nothing to decide about ("+q.Reason+")"]++
		return nil
	case state != partitions.AsideStands:
		o.left[string(state)+" before"]++
		return nil
	}
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
		r.stand.Add(d)
		if a, ok := d.Aside(); ok {
			o.outcomes[a.Outcome]++
		}
	}
	return nil
}

// settled says what became of the order as a whole.
func (o *asideOrder) settled(epoch uint64) settlement {
	if o.open > 0 {
		o.left["not in the quarantine"] = o.open
	}
	left := tally(o.left, "%[2]d %[1]s")
	if len(o.outcomes) == 0 {
		return dismissed("of these entries of partition %d, %s", o.Partition, left)
	}
	note := tally(o.outcomes, "%s %d")
	if left != "" {
		note += "; " + left
	}
	return settlement{outcome: control.Applied, epoch: epoch, note: note[:min(len(note), control.MaxInterventionText)]}
}

// tally writes numbers by name, in the order of the names.
func tally(numbers map[string]int, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf(format, name, numbers[name]))
	}
	return strings.Join(parts, ", ")
}
