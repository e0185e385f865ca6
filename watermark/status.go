package watermark

// Status is what is known about a partition's input. The four are never merged into one another: an idle input is left out of
// the merged watermark, a paused one is not, and a finished one never comes back.
//
//	             idle confirmed                 finish
//	  ┌────────┐ ─────────────▶ ┌────────┐ ───────────────┐
//	  │ ACTIVE │                │  IDLE  │                ▼
//	  └────────┘ ◀───────────── └────────┘          ┌──────────┐
//	    │    ▲       record       │    ▲            │ FINISHED │
//	pause    resume           pause    resume       └──────────┘
//	    ▼    │                    ▼    │                  ▲
//	  ┌────────┐     record     ┌────────┐    finish      │
//	  │ PAUSED │ ◀───────────── │ PAUSED │ ───────────────┤
//	  │(active)│                │ (idle) │                │
//	  └────────┘ ─────────────────────────────────────────┤
//	  ACTIVE ─────────────────────────────────────────────┘
//
// PAUSED remembers what it interrupted, so that resume takes no decision of its own: an input that was confirmed idle is idle
// again afterwards, unless a record that was still in flight arrived in between.
//
//	           record     idle     pause      resume  finish
//	ACTIVE     -          IDLE     PAUSED(a)  -       FINISHED
//	IDLE       ACTIVE     -        PAUSED(i)  -       FINISHED
//	PAUSED(a)  -          -        -          ACTIVE  FINISHED
//	PAUSED(i)  PAUSED(a)  -        -          IDLE    FINISHED
//	FINISHED   -          -        -          -       -
//
// "-" changes nothing: being paused by us is not idleness, so idle cannot be confirmed then, and the end is the end.
type Status uint8

// The input statuses.
const (
	Active Status = iota
	// Idle is confirmed by a recorded decision, never by mere silence.
	Idle
	// Paused by us: the input may well have records.
	Paused
	Finished
)

var statusNames = [...]string{Active: "ACTIVE", Idle: "IDLE", Paused: "PAUSED", Finished: "FINISHED"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "UNKNOWN"
}

// Holds says whether a partition of this status holds the merged watermark.
func (s Status) Holds() bool { return s == Active || s == Paused }

// input is the status with what PAUSED interrupted; a row of the table.
type input uint8

const (
	active input = iota
	idle
	pausedActive
	pausedIdle
	finished
	inputs
)

type inputEvent uint8

const (
	onRecord inputEvent = iota
	onIdle
	onPause
	onResume
	onFinish
	inputEvents
)

// transitions is the table above; what has no effect stays in its row.
var transitions = [inputs][inputEvents]input{
	active:       {onRecord: active, onIdle: idle, onPause: pausedActive, onResume: active, onFinish: finished},
	idle:         {onRecord: active, onIdle: idle, onPause: pausedIdle, onResume: idle, onFinish: finished},
	pausedActive: {onRecord: pausedActive, onIdle: pausedActive, onPause: pausedActive, onResume: active, onFinish: finished},
	pausedIdle:   {onRecord: pausedActive, onIdle: pausedIdle, onPause: pausedIdle, onResume: idle, onFinish: finished},
	finished:     {onRecord: finished, onIdle: finished, onPause: finished, onResume: finished, onFinish: finished},
}

var statusOf = [inputs]Status{active: Active, idle: Idle, pausedActive: Paused, pausedIdle: Paused, finished: Finished}

func (p *Partition) move(e inputEvent) bool {
	from := p.input
	p.input = transitions[from][e]
	return p.input != from
}

// Status is the input's status.
func (p *Partition) Status() Status { return statusOf[p.input] }

// Record says that a record arrived, whatever its verdict: an idle input is active again and the count of empty polls starts
// over. It returns true when the status changed.
func (p *Partition) Record() bool {
	if p.input == active && p.polls == 0 {
		return false
	}
	return p.returned()
}

func (p *Partition) returned() bool {
	p.polls = 0
	before := p.Status()
	p.move(onRecord)
	return p.Status() != before
}

// Idle confirms the input idle: a decision that the caller has recorded. It returns false, and changes nothing, unless the input
// is ACTIVE.
func (p *Partition) Idle() bool {
	moved := p.move(onIdle)
	if moved {
		p.polls = 0
	}
	return moved
}

// Pause says that we stopped reading. It returns true when the status changed.
func (p *Partition) Pause() bool { return p.move(onPause) }

// Resume says that we read again; the input is what it was before Pause. It returns true when the status changed.
func (p *Partition) Resume() bool { return p.move(onResume) }

// Finish says that the input has ended (a recorded END_OF_BOUNDED_SOURCE). It returns true when the status changed.
func (p *Partition) Finish() bool { return p.move(onFinish) }

// IdleAfterPolls switches the policy on that proposes IDLE after n consecutive polls that were answered empty; 0 is off, which
// is the default.
func (p *Partition) IdleAfterPolls(n int) { p.idleAfter = max(n, 0) }

// EmptyPoll says that the source was asked for this partition and had nothing. It returns true when the policy calls for Idle:
// the caller records that decision and then calls Idle. Only an ACTIVE input counts: while PAUSED the count stands still, neither
// growing nor starting over.
func (p *Partition) EmptyPoll() bool {
	if p.idleAfter == 0 || p.input != active {
		return false
	}
	p.polls = min(p.polls+1, p.idleAfter)
	return p.polls == p.idleAfter
}
