package partitions

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/record"
)

// holder is the record that the watermark trails: the first one with the greatest event time. It is part of the state, so that a late verdict reads the same
// after a restart. A partition that has taken its watermark over from parents, or from a state that did not know it, has none until its next.
type holder struct {
	at    record.Position
	known bool
}

// holderFlag marks a core that has a holder.
const holderFlag = 0x10

// holds notes the record that has moved the greatest event time on.
func (m *Machine) hold(r *record.Record) {
	m.holder = holder{at: r.Position, known: true}
	if m.standIn != nil { // the record is one that was set aside there
		m.holder.at = m.standIn.Position
	}
}

const (
	lateBy     = "event time is "
	lateThan   = " older than the watermark "
	lateHolder = ", which the record at "
	lateTime   = " holds, with the event time "
)

func (m *Machine) lateDetail(at record.EventTime) string {
	w := m.wm.Watermark()
	detail := lateBy + distance(at, w).String() + lateThan + w.String()
	if m.holder.known {
		detail += fmt.Sprintf("%s%s%s%s", lateHolder, m.holder.at, lateTime, m.wm.MaxEventTime())
	}
	return detail
}

// Late says why an event was late.
type Late struct {
	// By is how much older than the watermark it was.
	By time.Duration
	// Watermark of its partition at that moment.
	Watermark record.EventTime
	// Holder is where in the same partition the record stands that the watermark trailed, and HolderTime its event time. Known is false where nobody
	// knows: the watermark was taken over from another partition, or the verdict is that of an earlier version.
	Holder     record.Position
	HolderTime record.EventTime
	Known      bool
}

// Late reads the verdict on an entry that was set aside as ReasonLate. It is false for any other.
func (q *Quarantined) Late() (l Late, ok bool) {
	rest, found := strings.CutPrefix(q.Detail, lateBy)
	by, rest, than := strings.Cut(rest, lateThan)
	if q.Reason != ReasonLate || !found || !than {
		return l, false
	}
	w, rest, known := strings.Cut(rest, lateHolder)
	var err error
	if l.By, err = time.ParseDuration(by); err != nil {
		return l, false
	}
	if l.Watermark, err = record.ParseTime([]byte(w)); err != nil {
		return l, false
	}
	if !known {
		return l, true
	}
	at, event, found := strings.Cut(rest, lateTime)
	if l.Holder, err = record.ParsePosition(at); err != nil || !found {
		return l, false
	}
	if l.HolderTime, err = record.ParseTime([]byte(event)); err != nil {
		return l, false
	}
	l.Known = true
	return l, true
}
