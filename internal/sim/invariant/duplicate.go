package invariant

import (
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// NoDuplicate: no event has two results and no record stands aside twice, neither in what was committed nor in what is read.
type NoDuplicate struct {
	truth *Truth
	// rows and aside are by partition and name: the number committed.
	rows  map[int32]map[string]int
	aside map[string]int
}

// NewNoDuplicate makes the checker.
func NewNoDuplicate(t *Truth) *NoDuplicate {
	return &NoDuplicate{truth: t, rows: map[int32]map[string]int{}, aside: map[string]int{}}
}

// Name is no-duplicate.
func (*NoDuplicate) Name() string { return "no-duplicate" }

// See implements Checker.
func (c *NoDuplicate) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Committed:
		for _, p := range ev.Commit.Partitions {
			c.commit(p, r)
		}
	case Published:
		for p, data := range ev.Rows {
			c.count(map[string]int{}, p, data, r)
		}
		aside := map[string]int{}
		for _, q := range ev.Quarantine {
			if name := asideName(q); aside[name] > 0 {
				r.Add("read twice aside: %s", name)
			} else {
				aside[name]++
			}
		}
	}
}

func (c *NoDuplicate) commit(p control.PartitionCommit, r *Report) {
	n := p.Cut.Partition
	if c.rows[n] == nil {
		c.rows[n] = map[string]int{}
	}
	c.count(c.rows[n], n, p.Rows.Data, r)
	for _, q := range p.Quarantine {
		q.Partition = n
		if name := asideName(q); c.aside[name] > 0 {
			r.Add("committed twice aside: %s", name)
		} else {
			c.aside[name]++
		}
	}
}

func (c *NoDuplicate) count(rows map[string]int, p int32, data []byte, r *Report) {
	err := c.truth.each(data, func(row *partitions.Row) {
		name := rowName(c.truth, row)
		if rows[name]++; rows[name] == 2 {
			r.Add("partition %d: two results of %s", p, name)
		}
	})
	if err != nil {
		r.Add("partition %d: %v", p, err)
	}
}

// End implements Checker.
func (*NoDuplicate) End(*Report) {}
