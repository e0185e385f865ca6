package invariant

import (
	"fmt"

	"github.com/weirstream/weir/partitions"
)

// NoLoss: in the end every event of the log has its result, or stands aside with its reason.
type NoLoss struct {
	truth *Truth
	seen  bool
}

// NewNoLoss makes the checker.
func NewNoLoss(t *Truth) *NoLoss { return &NoLoss{truth: t} }

// Name is no-loss.
func (*NoLoss) Name() string { return "no-loss" }

// See implements Checker.
func (c *NoLoss) See(e Entry, r *Report) {
	ev, ok := e.Event.(Published)
	if !ok {
		return
	}
	c.seen = true
	for _, p := range c.truth.Partitions() {
		there := map[string]bool{}
		mark := func(row *partitions.Row) { there[rowName(c.truth, row)] = true }
		if err := c.truth.each(ev.Rows[p], mark); err != nil {
			r.Add("partition %d: %v", p, err)
		}
		lost, first := 0, ""
		// The truth decoded well when it was made.
		_ = c.truth.each(c.truth.Rows[p], func(row *partitions.Row) {
			if name := rowName(c.truth, row); !there[name] {
				if lost++; lost == 1 {
					first = name
				}
			}
		})
		if lost > 0 {
			r.Add("partition %d: %d results are missing, the first is %s", p, lost, first)
		}
	}
	aside := map[string]bool{}
	for _, q := range ev.Quarantine {
		aside[asideName(q)] = true
	}
	for _, q := range c.truth.Quarantine {
		if !aside[asideName(q)] {
			r.Add("what should stand aside is missing: %s", asideName(q))
		}
	}
}

// End implements Checker.
func (c *NoLoss) End(r *Report) {
	if !c.seen {
		r.Add("nobody has read what was published")
	}
}

func rowName(t *Truth, row *partitions.Row) string {
	name := fmt.Sprintf("event %s of %s at %s", t.identity(row.ID), row.Key, row.Time)
	if t.Plan.Revised {
		name += fmt.Sprintf(", revision %v", row.Values[len(row.Values)-1].F)
	}
	return name
}

func asideName(q partitions.Quarantined) string {
	return fmt.Sprintf("%d@%s %s", q.Partition, q.Position, q.Reason)
}
