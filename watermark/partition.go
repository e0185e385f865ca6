package watermark

import (
	"time"

	"github.com/weirstream/weir/record"
)

// Partition is the watermark of one partition. It is not safe for concurrent use.
//
//	W = max(W so far, min(max event time - lateness, anchor of the oldest open gap))
//
// The subtraction saturates at the earliest real time, so that no event time and no lateness makes W wrap around. W never moves
// backwards. An event is late when its time is strictly below W.
type Partition struct {
	// quiet is the highest time that Observe can ignore: max, or record.NoTime while W moved without Observe having said so.
	quiet record.EventTime
	w     record.EventTime
	max   record.EventTime
	// told is the W that the last Observe left behind.
	told     record.EventTime
	lateness record.EventTime
	gapHold  record.EventTime

	input     input
	polls     int
	idleAfter int

	gaps gaps
}

// NewPartition makes the watermark of an empty partition: ACTIVE, no watermark, no gap. A negative lateness or gap hold counts
// as 0. A gap hold that is not longer than the lateness never holds anything, since W stays that far behind anyway.
func NewPartition(lateness, gapHold time.Duration) *Partition {
	p := &Partition{
		quiet: record.NoTime, w: record.NoTime, max: record.NoTime, told: record.NoTime,
		lateness: record.EventTime(max(lateness, 0)),
		gapHold:  record.EventTime(max(gapHold, 0)),
	}
	p.gaps.init()
	return p
}

// Observe takes the event time of a record that is selected, readable, no duplicate and not in the future. It returns true when
// W has moved since the last Observe, whether by this record or by a gap that closed in between.
func (p *Partition) Observe(t record.EventTime) bool {
	if t <= p.quiet {
		return false
	}
	return p.advance(t)
}

func (p *Partition) advance(t record.EventTime) bool {
	p.max = max(p.max, t)
	if p.gaps.open() > 0 {
		p.gaps.expire(p.max, p.gapHold)
	}
	p.raise()
	moved := p.w != p.told
	p.told, p.quiet = p.w, p.max
	return moved
}

// raise moves W as far as max event time and the oldest gap allow.
func (p *Partition) raise() {
	if p.max == record.NoTime {
		return
	}
	p.w = max(p.w, min(minus(p.max, p.lateness), p.gaps.hold()))
}

// regain is raise outside of Observe: it leaves a mark so that the next Observe reports the move.
func (p *Partition) regain() {
	p.raise()
	if p.w != p.told {
		p.quiet = record.NoTime
	}
}

// IsLate says whether an event of time t is older than the watermark. Nothing is late before the first Observe.
func (p *Partition) IsLate(t record.EventTime) bool { return t < p.w }

// Watermark is W, or record.NoTime before the first Observe. Finish leaves it where it is.
func (p *Partition) Watermark() record.EventTime { return p.w }

// MaxEventTime is the highest time observed, or record.NoTime.
func (p *Partition) MaxEventTime() record.EventTime { return p.max }

// minus is a - d for d >= 0, at least the earliest real time.
func minus(a, d record.EventTime) record.EventTime {
	if a < record.NoTime+1+d {
		return record.NoTime + 1
	}
	return a - d
}

// plus is a + d for d >= 0, at most record.MaxTime.
func plus(a, d record.EventTime) record.EventTime {
	if a > record.MaxTime-d {
		return record.MaxTime
	}
	return a + d
}
