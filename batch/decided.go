package batch

import (
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// decided are the decisions of a run that this one makes again in one partition: those that no record makes, in their order.
type decided struct {
	left []partitions.Decision
	// aside is what was set aside so far, if a decision is about it.
	aside []partitions.Quarantined
	keeps bool
}

// decidedOf takes those of one partition.
func decidedOf(all []partitions.Decision, partition int32) (d decided) {
	for _, one := range all {
		if one.Partition != partition {
			continue
		}
		if _, again := one.Event(); again {
			d.left = append(d.left, one)
			_, about := one.Aside()
			d.keeps = d.keeps || about
		}
	}
	return d
}

// took keeps what was set aside.
func (d *decided) took(q partitions.Quarantined) {
	if d.keeps {
		d.aside = append(d.aside, q)
	}
}

// from is where the machine stood when a decision was made: for a loss that was accepted, before what was lost.
func from(d partitions.Decision) (record.Position, error) {
	if d.Kind != partitions.DecisionLossAccepted {
		return d.Position, nil
	}
	rest, ok := strings.CutPrefix(d.Detail, "from ")
	text, _, more := strings.Cut(rest, " ")
	at, err := record.ParsePosition(text)
	if !ok || !more || err != nil {
		return at, codes.New(codes.JournalCorrupt, "partition %d: the decision %s at %s does not say where it was made: %.80q", d.Partition, d.Kind, d.Position, d.Detail)
	}
	return at, nil
}

// GivenUp is what a decision has given up of its partition: the positions from one to before the other. It is false for a decision that gave up nothing.
func GivenUp(d partitions.Decision) (first, next record.Position, ok bool, err error) {
	if d.Kind != partitions.DecisionLossAccepted {
		return first, next, false, nil
	}
	first, err = from(d)
	return first, d.Position, err == nil, err
}

// pieces gives a batch to the machine in pieces, with the decisions between them. Records that a decision has given up are left out.
func (l *lane) pieces(b *record.Batch, step func(partitions.Event) error) error {
	if len(l.decided.left) == 0 {
		return step(partitions.Deliver{Batch: b})
	}
	records := b.Records
	for len(l.decided.left) > 0 {
		d := l.decided.left[0]
		at, err := from(d)
		if err != nil {
			return err
		}
		n := slices.IndexFunc(records, func(r record.Record) bool { return r.Position.Cmp(at) >= 0 })
		if n < 0 {
			if b.Next.Cmp(at) < 0 {
				break // it comes later
			}
			n = len(records)
		}
		if err := l.upTo(at, b.Partition, records[:n], step); err != nil {
			return err
		}
		records = records[n:]
		if d.Kind == partitions.DecisionLossAccepted {
			given := slices.IndexFunc(records, func(r record.Record) bool { return r.Position.Cmp(d.Position) >= 0 })
			if given < 0 && b.Next.Cmp(d.Position) < 0 {
				return nil // all of the rest was given up, and there is more to come of it
			}
			if given < 0 {
				given = len(records)
			}
			records = records[given:]
		}
		if err := l.decide(step); err != nil {
			return err
		}
	}
	if len(records) == 0 && l.machine.Next().Cmp(b.Next) >= 0 {
		return nil
	}
	return step(partitions.Deliver{Batch: &record.Batch{Partition: b.Partition, Records: records, Next: b.Next}})
}

// upTo brings the machine to where a decision was made.
func (l *lane) upTo(at record.Position, partition int32, records []record.Record, step func(partitions.Event) error) error {
	if len(records) == 0 && l.machine.Next().Cmp(at) >= 0 {
		return nil
	}
	return step(partitions.Deliver{Batch: &record.Batch{Partition: partition, Records: records, Next: at}})
}

// decide makes the next decision again.
func (l *lane) decide(step func(partitions.Event) error) error {
	d := l.decided.left[0]
	l.decided.left = l.decided.left[1:]
	ev, _ := d.Event()
	ev, err := partitions.Again(ev, l.decided.aside)
	if err != nil {
		return codes.New(codes.JournalCorrupt, "%w", err)
	}
	return step(ev)
}

// rest makes the decisions that were made where the log ends, or beyond its last record.
func (l *lane) rest(partition int32, step func(partitions.Event) error) error {
	for len(l.decided.left) > 0 {
		at, err := from(l.decided.left[0])
		if err != nil {
			return err
		}
		if err := l.upTo(at, partition, nil, step); err != nil {
			return err
		}
		if err := l.decide(step); err != nil {
			return err
		}
	}
	return nil
}
