package partitions

import (
	"fmt"
	"math"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// Machine is the pure machine of one partition. It is for one goroutine.
type Machine struct {
	plan      *flow.Plan
	partition int32

	ahead   ahead
	wm      *watermark.Partition
	ids     *dedupe
	waiting *reorder
	keys    *keyTable
	grid    *grid // nil when every event ticks
	history history
	past    *past  // nil when nothing is kept for revisions
	holds   *holds // nil when no key is held
	marks   marks
	ledger  ledger

	next     record.Position
	counts   Counts
	finished bool
	// defers: the records of an interval wait until it ticks, so that revisions can take their place.
	defers bool
	// standIn is the entry of the quarantine whose record is being taken in.
	standIn *Quarantined
	// holder is the record that the watermark trails.
	holder holder
	// inBand: a record has ended the partition.
	inBand bool
	failed error

	// read is the record on trial; the rest is scratch of one tick.
	read   *extracted
	values []operators.Value
	out    []operators.Value
	// results is how many of out are values of nodes.
	results int
	gaps    []float64
	name    []byte
}

// New makes the machine of a partition that has seen nothing. A limit of the plan that is 0 or less does not limit.
func New(plan *flow.Plan, partition int32) *Machine {
	m := &Machine{
		plan:      plan,
		partition: partition,
		wm:        watermark.NewPartition(plan.Lateness, plan.GapHold),
		ids:       newDedupe(plan.DedupeHorizon, plan.Lateness, plan.GapHold, plan.Limits.IDs),
		waiting:   newReorder(len(plan.Inputs), plan.Limits.Reorder),
		keys:      newKeyTable(plan),
		values:    make([]operators.Value, len(plan.Nodes)),
		out:       make([]operators.Value, len(plan.Outputs)),
		results:   plan.Results(),
		gaps:      make([]float64, len(plan.Inputs)),
	}
	if plan.Revised {
		m.out[m.results] = operators.Number(0)
	}
	m.ahead.init(newExtractor(plan), m.ids)
	m.wm.IdleAfterPolls(plan.IdleAfterPolls)
	if plan.HoldKey > 0 {
		m.holds = newHolds(len(plan.Inputs), plan.HoldKey)
	}
	for i := range m.gaps {
		m.gaps[i] = math.NaN()
	}
	if plan.ClockEvery > 0 {
		m.grid = newGrid(record.EventTime(plan.ClockEvery), len(plan.Inputs))
		m.defers = plan.RevisionField != ""
	}
	if plan.RevisionHorizon > 0 {
		m.past = newPast(m)
		m.keys.past = m.past
	}
	return m
}

// Watermark is W, or record.NoTime before the first selected record. The end of the source leaves it where it is.
func (m *Machine) Watermark() record.EventTime { return m.wm.Watermark() }

// MaxEventTime is the greatest event time that moved the watermark, or record.NoTime.
func (m *Machine) MaxEventTime() record.EventTime { return m.wm.MaxEventTime() }

// Status is the input status.
func (m *Machine) Status() watermark.Status { return m.wm.Status() }

// Next is where the partition is read on.
func (m *Machine) Next() record.Position { return m.next }

// Counts are the counts so far.
func (m *Machine) Counts() Counts { return m.counts }

// Waiting is the number of accepted records that the watermark has not passed.
func (m *Machine) Waiting() int { return m.waiting.len() }

// IDs is the number of event ids that are remembered.
func (m *Machine) IDs() int { return m.ids.living }

// Keys is the number of keys.
func (m *Machine) Keys() int { return len(m.keys.names) }

// EachKey calls fn with every key, in the order in which they were first accepted, until fn returns false.
func (m *Machine) EachKey(fn func(key string) bool) {
	for _, name := range m.keys.names {
		if !fn(name) {
			return
		}
	}
}

// Step takes one event and appends what it asks for to eff. An error is fatal: LIMIT_REACHED, or INTERNAL when the caller broke the
// protocol. The machine and eff are then of no use, and the run goes on from the last cut; Step returns the same error again.
func (m *Machine) Step(ev Event, eff *Effects) error {
	if m.failed != nil {
		return m.failed
	}
	rows := eff.Rows.Count
	err := m.step(ev, eff)
	m.counts.Outputs += int64(eff.Rows.Count - rows)
	m.failed = err
	return err
}

func (m *Machine) step(ev Event, eff *Effects) error {
	if m.history.open() {
		switch ev.(type) {
		case Backfill, Seam:
		default:
			return m.internal("%T while a history is being taken in", ev)
		}
	}
	if end, ok := ev.(EndOfSource); ok {
		return m.end(end, eff)
	}
	if m.finished && m.inBand {
		return m.afterEnd(ev, eff)
	}
	if m.finished {
		return m.internal("%T after the end of the source", ev)
	}
	switch ev := ev.(type) {
	case Deliver:
		return m.deliver(ev.Batch, eff)
	case IdleConfirmed:
		m.idle(ev.Reason, eff)
	case EmptyPoll:
		if m.wm.EmptyPoll() {
			m.idle(fmt.Sprintf("%d polls in a row were answered empty", m.plan.IdleAfterPolls), eff)
		}
	case CloseGap:
		return m.closeGap(ev, eff)
	case AcceptGap:
		return m.acceptGap(ev, eff)
	case Reinstate:
		return m.reinstate(ev, eff)
	case Discard:
		return m.discard(ev, eff)
	case BeginHistory:
		return m.beginHistory(ev, eff)
	case Backfill:
		if !m.history.open() {
			return m.internal("records of a history that has not begun")
		}
		return m.backfill(ev.Batch, eff)
	case Seam:
		return m.seam(ev, eff)
	default:
		return m.internal("unknown event %T", ev)
	}
	return nil
}

func (m *Machine) internal(format string, args ...any) error {
	return codes.New(codes.Internal, "partition %d: %s", m.partition, fmt.Sprintf(format, args...))
}

// limited names the partition in the error of a limit.
func (m *Machine) limited(err error) error {
	if e, ok := err.(*codes.Error); ok {
		return codes.New(e.Code, "partition %d: %s", m.partition, e.Msg)
	}
	return err
}

func (m *Machine) decide(eff *Effects, at record.Position, kind, detail string) {
	eff.Decisions = append(eff.Decisions, Decision{Partition: m.partition, Position: at, Kind: kind, Detail: detail})
}
