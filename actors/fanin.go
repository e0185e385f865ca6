package actors

import (
	"cmp"
	"slices"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// fanInActor brings the partitions together: their answers to one barrier make an aligned cut with one merged watermark.
type fanInActor struct {
	in *incarnation
	// watermark is the merged one, which never goes back: after a restore it is what the journal says.
	watermark record.EventTime

	epoch   uint64
	answers []cutTaken
	times   int
	through record.EventTime
}

func newFanIn(in *incarnation) *fanInActor {
	return &fanInActor{in: in, watermark: in.watermark(), through: record.NoTime}
}

// Receive handles one message.
func (a *fanInActor) Receive(_ *shell.Context, m toFanIn) error {
	switch m := m.(type) {
	case cutTaken:
		return a.cutTaken(m)
	case maxTime:
		a.times++
		a.through = max(a.through, m.time)
		if a.times == len(a.in.partitions) {
			shell.Send(a.in.coordinator, toCoordinator(through{m.stamp, a.through}))
		}
	}
	return nil
}

func (a *fanInActor) cutTaken(m cutTaken) error {
	if len(a.answers) == 0 {
		a.epoch = m.epoch
	}
	if m.epoch != a.epoch {
		return codes.New(codes.Internal, "partition %d answers the barrier of epoch %d while epoch %d is being aligned", m.commit.Cut.Partition, m.epoch, a.epoch)
	}
	a.answers = append(a.answers, m)
	if len(a.answers) < len(a.in.partitions) {
		return nil
	}
	out := aligned{stamp: m.stamp, epoch: m.epoch, watermark: a.merge()}
	for _, c := range a.answers {
		out.partitions = append(out.partitions, c.commit)
		out.seen = append(out.seen, c.seen)
	}
	slices.SortFunc(out.partitions, func(x, y control.PartitionCommit) int { return cmp.Compare(x.Cut.Partition, y.Cut.Partition) })
	slices.SortFunc(out.seen, func(x, y PartitionProgress) int { return cmp.Compare(x.Partition, y.Partition) })
	a.answers = nil
	shell.Send(a.in.coordinator, toCoordinator(out))
	return nil
}

// merge is a function of the cut alone, whatever the order of the answers: a fresh merge has no value before the last partition
// is in, so that no order in which they go idle or come back makes a value in between. A blocked partition stands where its cut stands.
func (a *fanInActor) merge() record.EventTime {
	m := watermark.NewMerge(a.in.header.Partitions)
	for p := range a.in.blocked {
		w := record.NoTime
		if cut, ok := a.in.state.Cuts[p]; ok {
			w = cut.Watermark
		}
		m.Update(p, watermark.Active, w)
	}
	for _, c := range a.answers {
		m.Update(c.commit.Cut.Partition, c.status, c.commit.Cut.Watermark)
	}
	a.watermark = max(a.watermark, m.Watermark())
	return a.watermark
}
