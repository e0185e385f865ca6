package actors

import (
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// RunState is what a run is doing, as OnState tells it.
type RunState string

// The states, in the order of phase.
const (
	StateLeasing   RunState = "LEASING"          // asks for the lease, or stands by
	StateOpening   RunState = "OPENING"          // restores the last cut, waits for sinks that are down, and opens the source
	StateRunning   RunState = "RUNNING"          // reads and processes
	StateEnding    RunState = "ENDING"           // stops an incarnation
	StateBackoff   RunState = "BACKOFF"          // waits before the next incarnation
	StateBlocked   RunState = "RECOVERY_BLOCKED" // reads nothing until an operator has chosen: the run, or every partition of it, is blocked
	StateSaving    RunState = "SAVING"           // makes the last checkpoint
	StateReleasing RunState = "RELEASING"        // gives the lease back
	StateOver      RunState = "OVER"             // Run returns
)

var runStates = [...]RunState{
	leasing: StateLeasing, opening: StateOpening, running: StateRunning, ending: StateEnding, waiting: StateBackoff, halted: StateBlocked,
	sweeping: StateEnding, saving: StateSaving, releasing: StateReleasing, over: StateOver,
}

// StateChange tells of a new state.
type StateChange struct {
	State       RunState
	Incarnation uint64
	// Result is what stands in the journal as far as the run knows, with the failures there were and the partitions that are blocked.
	Result Result
	// Pause is how long StateBackoff lasts.
	Pause time.Duration
	// Block is why the whole run is blocked, in StateBlocked; nil if its partitions are, each for a reason of its own (PartitionResult.Block).
	Block *Block
	// Restored are the partitions as an incarnation begins with them, where it begins: what a run that is started again knows before its first commit.
	Restored []PartitionProgress
}

// tell tells a state that is new, and a partition that is blocked or not any more. It is called after every message, so that no way from one
// phase to another can forget it.
func (s *supervisor) tell() {
	state := runStates[s.phase]
	if s.phase == running && s.stands() {
		state = StateBlocked
	}
	if s.e.cfg.OnState == nil || s.phase == idle || state == s.toldState && !s.blockedChanged {
		return
	}
	change := StateChange{State: state, Incarnation: s.number(), Result: s.result()}
	if s.phase == running && state != s.toldState {
		change.Restored = s.cur.restored
	}
	s.toldState, s.blockedChanged = state, false
	switch state {
	case StateBackoff:
		change.Pause = s.pause()
	case StateBlocked:
		change.Block = s.barred
	}
	s.e.cfg.OnState(change)
}

// PartitionProgress is a partition at the moment of a cut.
type PartitionProgress struct {
	Partition int32
	Next      record.Position
	Watermark record.EventTime
	// MaxEventTime is the highest event time that was accepted, or record.NoTime.
	MaxEventTime record.EventTime
	// Input is what is known about the input.
	Input  watermark.Status
	Counts partitions.Counts
	// OpenGaps is the number of open gaps; Gap is the one that holds the watermark, when there is any.
	OpenGaps int
	Gap      watermark.Gap
	// Held are the keys that wait for records that are set aside.
	Held partitions.Held
	// SetAside are the records of this epoch that were set aside, by reason.
	SetAside map[string]int64
}

// progressOfRestored are the partitions as they were restored, with what operators have chosen.
func (in *incarnation) progressOfRestored() (all []PartitionProgress) {
	for _, n := range in.partitions {
		if cut, has := in.state.Cuts[n]; has {
			all = append(all, progressOfMachine(in.machines[n], cut))
		}
	}
	return all
}

func progressOfMachine(m *partitions.Machine, cut partitions.Cut) PartitionProgress {
	p := PartitionProgress{
		Partition: cut.Partition, Next: cut.Next, Watermark: cut.Watermark, MaxEventTime: m.MaxEventTime(),
		Input: m.Status(), Counts: cut.Counts, OpenGaps: m.OpenGaps(), Held: m.Held(),
	}
	p.Gap, _ = m.OldestGap()
	return p
}

func (a *partitionActor) progress(cut partitions.Cut, aside []partitions.Quarantined) PartitionProgress {
	p := progressOfMachine(a.machine, cut)
	for i := range aside {
		if p.SetAside == nil {
			p.SetAside = make(map[string]int64)
		}
		p.SetAside[aside[i].Reason]++
	}
	return p
}

// withhold tells that results wait for the journal, so that the partition gets no more, or that they do not any more.
func (a *partitionActor) withhold(on bool) {
	if a.dueAsked = on; a.in.cfg.OnWithheld != nil {
		a.in.cfg.OnWithheld(a.partition, on)
	}
}

// tell tells a queue that has become another one: in what is processed, waits or is held, not in every number.
func (l *lane) tell() {
	if l.in.cfg.OnQueue == nil {
		return
	}
	records, bytes := l.credits.Outstanding()
	now := laneState{busy: records > 0 || bytes > 0, aside: len(l.aside) > 0, state: l.machine.State(), known: true}
	if now != l.told {
		l.told = now
		l.in.cfg.OnQueue(l.queue())
	}
}
