package actors

import (
	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/watermark"
)

// partitionActor is the thin shell around one partitions.Machine: a message becomes an event, Step, and the effects are kept until the
// next barrier. It is spawned with a machine that is restored already, so no record can reach it before its state does.
type partitionActor struct {
	in        *incarnation
	partition int32
	machine   *partitions.Machine

	eff partitions.Effects
	// spare is the memory of rows that are committed.
	spare []byte
	// weighed is the number of quarantined records that weight knows of.
	weighed int
	weight  int64
	// withheld is credit that is given back only at the next barrier, since too many results wait for the journal.
	withheld struct{ records, bytes int64 }
	dueAsked bool
}

// Receive handles one message.
func (a *partitionActor) Receive(_ *shell.Context, m toPartition) error {
	switch m := m.(type) {
	case deliver:
		return a.deliver(m)
	case emptyPoll:
		return a.emptyPoll(m.stamp)
	case barrier:
		return a.cut(m)
	case askMaxTime:
		shell.Send(a.in.fanIn, toFanIn(maxTime{m.stamp, a.machine.MaxEventTime()}))
	case endOfSource:
		return a.machine.Step(partitions.EndOfSource{Through: m.through}, &a.eff)
	case recycle:
		a.spare = m.rows[:0]
	}
	return nil
}

func (a *partitionActor) at(name Failpoint, p *part) Point {
	return Point{Name: name, Actor: partitionName(a.partition), Incarnation: a.in.number, Partition: a.partition, Position: p.first}
}

func (a *partitionActor) deliver(m deliver) error {
	b := &m.part.batch
	defer b.Done()
	hooks := a.in.cfg.Hooks
	if err := hooks.at(a.in.ctx, a.at(BeforeStep, m.part)); err != nil {
		return err
	}
	if err := a.machine.Step(partitions.Deliver{Batch: b}, &a.eff); err != nil {
		return err
	}
	if err := hooks.at(a.in.ctx, a.at(AfterStep, m.part)); err != nil {
		return err
	}
	b.Done()
	a.progressed(m.stamp)
	a.giveBack(m.stamp, m.part.records, m.part.bytes)
	return nil
}

// progressed lets the reader align event times.
func (a *partitionActor) progressed(s stamp) {
	if a.in.cfg.MaxSkew > 0 {
		idle := a.machine.Status() == watermark.Idle || a.machine.Finished()
		shell.Send(a.in.reader, toReader(progressed{s, a.partition, a.machine.MaxEventTime(), idle}))
	}
}

// giveBack returns the credit of a batch, at once or, when the results that wait for the journal are many, with the next barrier.
func (a *partitionActor) giveBack(s stamp, records, bytes int64) {
	if a.weigh() < a.in.cfg.EpochBytes {
		shell.Send(a.in.reader, toReader(credit{s, a.partition, records, bytes}))
		return
	}
	a.withheld.records += records
	a.withheld.bytes += bytes
	if !a.dueAsked {
		a.withhold(true)
		shell.Send(a.in.reader, toReader(buffered{s, a.partition, a.weigh()}))
		shell.Send(a.in.coordinator, toCoordinator(epochDue{stamp: s}))
	}
}

// quarantineBytes is a quarantined record without its bytes, roughly.
const quarantineBytes = 200

// weigh is the memory that the effects take.
func (a *partitionActor) weigh() int64 {
	for ; a.weighed < len(a.eff.Quarantine); a.weighed++ {
		a.weight += int64(quarantineBytes + a.eff.Quarantine[a.weighed].Size())
	}
	return a.weight + int64(len(a.eff.Rows.Data))
}

// emptyPoll counts towards the idle policy. Only a decision makes something to commit.
func (a *partitionActor) emptyPoll(s stamp) error {
	before := len(a.eff.Decisions)
	if err := a.machine.Step(partitions.EmptyPoll{}, &a.eff); err != nil {
		return err
	}
	if len(a.eff.Decisions) > before {
		a.progressed(s)
		shell.Send(a.in.coordinator, toCoordinator(epochDue{stamp: s, force: true}))
	}
	return nil
}

// cut answers a barrier with everything since the last one.
func (a *partitionActor) cut(m barrier) error {
	commit := control.PartitionCommit{Cut: a.machine.Cut(), Rows: a.eff.Rows, Quarantine: a.eff.Quarantine, Decisions: a.eff.Decisions}
	p := Point{Name: AfterCut, Actor: partitionName(a.partition), Incarnation: a.in.number, Epoch: m.epoch, Partition: a.partition, Position: commit.Cut.Next}
	if err := a.in.cfg.Hooks.at(a.in.ctx, p); err != nil {
		return err
	}
	a.eff = partitions.Effects{Rows: partitions.Rows{Data: a.spare}}
	a.spare, a.weighed, a.weight = nil, 0, 0
	if a.dueAsked {
		a.withhold(false)
		shell.Send(a.in.reader, toReader(buffered{m.stamp, a.partition, 0}))
	}
	if a.withheld.records > 0 || a.withheld.bytes > 0 {
		shell.Send(a.in.reader, toReader(credit{m.stamp, a.partition, a.withheld.records, a.withheld.bytes}))
		a.withheld.records, a.withheld.bytes = 0, 0
	}
	shell.Send(a.in.fanIn, toFanIn(cutTaken{m.stamp, m.epoch, a.machine.Status(), commit, a.progress(commit.Cut, commit.Quarantine)}))
	return nil
}
