package invariant

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Truth is what an undisturbed reading of a log gives: the machines in a loop, one partition after the other. It does not change.
type Truth struct {
	Plan *flow.Plan
	// Log is what was written, by partition in ascending order of positions.
	Log map[int32][]record.Record
	// Identity tells which event the id of a row stands for. Nil: the id itself.
	Identity func(id []byte) string
	// Hash is that of the values, as another way of reading the log gives it; "" when there is none to compare with.
	Hash string

	Rows       map[int32][]byte
	Quarantine []partitions.Quarantined
	Decisions  []partitions.Decision
	Counts     map[int32]partitions.Counts
	// Through is the maximum event time over all partitions, at which their ends are.
	Through record.EventTime
	// sizes are the bytes of results and of what is set aside for each record.
	sizes map[int32][]int64
}

// NewTruth reads the log. An error says that the flow cannot take it.
func NewTruth(plan *flow.Plan, log map[int32][]record.Record) (*Truth, error) {
	t := &Truth{Plan: plan, Log: log, Rows: map[int32][]byte{}, Counts: map[int32]partitions.Counts{}, Through: record.NoTime, sizes: map[int32][]int64{}}
	machines := map[int32]*partitions.Machine{}
	for _, p := range t.Partitions() {
		m := partitions.New(plan, p)
		for i := range log[p] {
			if err := t.step(m, p, partitions.Deliver{Batch: t.batch(p, i, i+1)}); err != nil {
				return nil, fmt.Errorf("record %d of partition %d: %w", i, p, err)
			}
		}
		machines[p] = m
		t.Through = max(t.Through, m.MaxEventTime())
	}
	for _, p := range t.Partitions() {
		if err := t.step(machines[p], p, partitions.EndOfSource{Through: t.Through}); err != nil {
			return nil, fmt.Errorf("the end of partition %d: %w", p, err)
		}
		t.Counts[p] = machines[p].Counts()
	}
	// A journal gives them in the order of positions, the end of a partition among them.
	slices.SortStableFunc(t.Decisions, func(a, b partitions.Decision) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), a.Position.Cmp(b.Position))
	})
	return t, nil
}

func (t *Truth) step(m *partitions.Machine, p int32, ev partitions.Event) error {
	var eff partitions.Effects
	if err := m.Step(ev, &eff); err != nil {
		return err
	}
	t.sizes[p] = append(t.sizes[p], weight(eff.Rows, eff.Quarantine))
	t.Rows[p] = append(t.Rows[p], eff.Rows.Data...)
	t.Quarantine = append(t.Quarantine, eff.Quarantine...)
	t.Decisions = append(t.Decisions, eff.Decisions...)
	return nil
}

// Partitions in ascending order.
func (t *Truth) Partitions() []int32 {
	var ps []int32
	for p := range t.Log {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}

// weight is the memory of results and of what is set aside, roughly, as the engine reckons it.
func weight(rows partitions.Rows, aside []partitions.Quarantined) int64 {
	n := int64(len(rows.Data))
	for _, q := range aside {
		n += int64(200 + q.Size())
	}
	return n
}

// MostIn is the most that so many records in a row give, in bytes of results and of what is set aside. The end of a partition is not among
// them.
func (t *Truth) MostIn(window int64) (most int64) {
	for p, sizes := range t.sizes {
		sizes = sizes[:len(t.Log[p])]
		sum := int64(0)
		for i, n := range sizes {
			sum += n
			if int64(i) >= window {
				sum -= sizes[int64(i)-window]
			}
			most = max(most, sum)
		}
	}
	return most
}

func (t *Truth) batch(p int32, from, to int) *record.Batch {
	b := &record.Batch{Partition: p, Records: t.Log[p][from:to]}
	if to > from {
		b.Next = b.Records[to-from-1].Position.Next()
	}
	return b
}

// Before is the number of records of a partition before a position.
func (t *Truth) Before(p int32, at record.Position) int64 {
	n, _ := slices.BinarySearchFunc(t.Log[p], at, func(r record.Record, at record.Position) int { return r.Position.Cmp(at) })
	return int64(n)
}

// End is the position after the last record.
func (t *Truth) End(p int32) record.Position {
	if n := len(t.Log[p]); n > 0 {
		return t.Log[p][n-1].Position.Next()
	}
	return record.Position{}
}

// At is the machine of a partition that has read up to a position, and the end of the source if finished.
func (t *Truth) At(p int32, next record.Position, finished bool) (*partitions.Machine, error) {
	m := partitions.New(t.Plan, p)
	var eff partitions.Effects
	b := t.batch(p, 0, int(t.Before(p, next)))
	if b.Next = next; next != (record.Position{}) {
		if err := m.Step(partitions.Deliver{Batch: b}, &eff); err != nil {
			return nil, err
		}
	}
	if finished {
		if err := m.Step(partitions.EndOfSource{Through: t.Through}, &eff); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// identity is the event that a row stands for.
func (t *Truth) identity(id []byte) string {
	if t.Identity != nil {
		return t.Identity(id)
	}
	return string(id)
}

// each decodes encoded rows.
func (t *Truth) each(data []byte, fn func(r *partitions.Row)) error {
	var row partitions.Row
	for len(data) > 0 {
		var err error
		if data, err = partitions.DecodeRow(data, len(t.Plan.Outputs), &row); err != nil {
			return err
		}
		fn(&row)
	}
	return nil
}
