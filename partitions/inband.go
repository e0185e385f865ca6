package partitions

import (
	"fmt"

	"github.com/weirstream/weir/record"
)

// A control record travels in the log with the data, and says something about its own partition: it has the header HeaderControl. It is no data, has
// no event time and no identity, and is counted as filtered. Since it stands in the log, a replay meets it at the same place.
//
//	weir-control: idle    the partition is idle until its next record: IDLE_CONFIRMED
//	weir-control: end     the partition has ended: everything held is released, and its input is FINISHED: END_OF_BOUNDED_SOURCE. With a
//	                      clock, its keys tick as far as its own last event. What comes after it is set aside (AFTER_END).
//
// Any other value is set aside as unreadable. Who writes a control record may write to the topic already: it is no more trusted than data is.
const HeaderControl = "weir-control"

const controlSays = "a control record says so"

// ReasonAfterEnd is a record that came after the end of its partition.
const ReasonAfterEnd = "AFTER_END"

// control is the value of the header HeaderControl.
func control(r *record.Record) (value []byte, is bool) {
	for i := range r.Headers {
		if r.Headers[i].Key == HeaderControl {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// obey takes a control record.
func (m *Machine) obey(r *record.Record, what []byte, eff *Effects) error {
	switch string(what) {
	case "idle":
		m.counts.Filtered++
		if m.wm.Idle() {
			m.decide(eff, r.Position, DecisionIdle, controlSays)
		}
	case "end":
		m.counts.Filtered++
		m.inBand = true
		return m.endAt(r.Position, record.NoTime, controlSays+"; ", eff)
	default:
		m.omit(r, eff, ReasonUnreadable, fmt.Sprintf("the header %s says %.40q, which is neither idle nor end", HeaderControl, what))
	}
	return nil
}

// afterEnd takes an event that comes after a record has ended the partition.
func (m *Machine) afterEnd(ev Event, eff *Effects) error {
	switch ev := ev.(type) {
	case Deliver:
		return m.deliver(ev.Batch, eff)
	case EmptyPoll, IdleConfirmed, CloseGap:
		return nil
	default:
		return m.internal("%T after the end of the partition", ev)
	}
}
