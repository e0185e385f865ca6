package partitions

import (
	"fmt"

	"github.com/weirstream/weir/record"
)

// end releases everything and finishes the partition. A second end changes nothing.
func (m *Machine) end(ev EndOfSource, eff *Effects) error {
	if m.finished {
		return nil
	}
	return m.endAt(m.next, ev.Through, "", eff)
}

func (m *Machine) endAt(at record.Position, through record.EventTime, why string, eff *Effects) error {
	through = max(through, m.wm.MaxEventTime())
	m.decide(eff, at, DecisionEndOfSource, fmt.Sprintf("%sevent time ends at %s", why, through))
	if m.grid != nil && through != record.NoTime {
		if err := m.tick(m.grid.end(through), record.MaxTime, eff); err != nil {
			return m.limited(err)
		}
	}
	m.letAllGo(eff)
	m.release(record.MaxTime, eff)
	if m.past != nil {
		m.past.giveUp(m)
	}
	m.wm.Finish()
	m.finished = true
	return nil
}

// idle records that the partition is idle, unless it is already.
func (m *Machine) idle(reason string, eff *Effects) {
	if m.wm.Idle() {
		m.decide(eff, m.next, DecisionIdle, reason)
	}
}

// closeGap records an operator's decision. A number that is not missing (any more) is left alone.
func (m *Machine) closeGap(ev CloseGap, eff *Effects) error {
	before := m.wm.Watermark()
	if !m.wm.CloseGap(ev.Key, ev.Sequence) {
		return nil
	}
	m.decide(eff, m.next, DecisionGapClosed, gapDetail(ev.Key, ev.Sequence, ev.Sequence)+": "+ev.Reason)
	if m.wm.Watermark() == before {
		return nil
	}
	if err := m.moved(eff); err != nil {
		return m.limited(err)
	}
	return m.limited(m.settle(eff))
}
