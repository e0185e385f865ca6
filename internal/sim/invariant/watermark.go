package invariant

import (
	"maps"

	"github.com/weirstream/weir/record"
)

// WatermarkMonotone: the merged watermark never goes back, over restores and take-overs too, and never passes the slowest partition.
// It holds for flows without an idle policy, where every partition counts.
type WatermarkMonotone struct {
	merged record.EventTime
	each   map[int32]record.EventTime
	// all are the partitions of the run.
	all int
}

// NewWatermarkMonotone makes the checker.
func NewWatermarkMonotone() *WatermarkMonotone {
	return &WatermarkMonotone{merged: record.NoTime, each: map[int32]record.EventTime{}}
}

// Name is watermark-monotone.
func (*WatermarkMonotone) Name() string { return "watermark-monotone" }

// See implements Checker.
func (c *WatermarkMonotone) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Opened:
		c.all = len(ev.State.Header.Partitions)
		if ev.State.Epoch > 0 && ev.State.Watermark != c.merged {
			r.Add("opened with watermark %s; %s was committed", ev.State.Watermark, c.merged)
		}
	case Committed:
		for _, p := range ev.Commit.Partitions {
			if c.each[p.Cut.Partition] = p.Cut.Watermark; p.Cut.Finished {
				c.each[p.Cut.Partition] = record.MaxTime
			}
		}
		w := ev.Commit.Watermark
		if w < c.merged {
			r.Add("epoch %d: the merged watermark goes back from %s to %s", ev.Commit.Epoch, c.merged, w)
		}
		if slowest := c.slowest(); w > max(slowest, c.merged) {
			r.Add("epoch %d: the merged watermark %s passes the slowest partition's %s", ev.Commit.Epoch, w, slowest)
		}
		c.merged = max(c.merged, w)
	}
}

func (c *WatermarkMonotone) slowest() record.EventTime {
	if len(c.each) < c.all {
		return record.NoTime
	}
	slowest := record.MaxTime
	for w := range maps.Values(c.each) {
		slowest = min(slowest, w)
	}
	return slowest
}

// End implements Checker.
func (*WatermarkMonotone) End(*Report) {}
