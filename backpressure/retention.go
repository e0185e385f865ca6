package backpressure

import (
	"fmt"
	"time"
)

// Risk is what a log is about to remove although a run still needs it. Positions count records, or nearly so.
type Risk struct {
	// Start is the first position that the log has, Next the one that the run needs next, End where the log ends.
	Start, Next, End int64
	// Left is what lies between Start and Next: processed, and not yet removed.
	Left int64
	// Removed and Read are positions a second, over Window. Step is the most that was removed between two looks.
	Removed, Read float64
	Step          int64
	Window        time.Duration
	// In is when the log reaches Next at these rates; 0 when the next removal of the size of Step would.
	In time.Duration
}

func (r Risk) String() string {
	when := fmt.Sprintf("in about %s", r.In.Round(time.Second))
	if r.In == 0 {
		when = "with its next removal"
	}
	return fmt.Sprintf("the log begins at %d and the run needs %d (%d behind its end): %d positions are left, the log removes %.1f a second (at most %d at once) and the run reads %.1f; records are lost %s",
		r.Start, r.Next, r.End-r.Next, r.Left, r.Removed, r.Step, r.Read, when)
}

// Retention predicts of one partition that its log removes what a run still needs, before it happens: from how fast the beginning of the log moves,
// how much it moves at once, and how fast the run reads. A run that has read everything is never at risk, nor one whose log removes
// nothing. Not safe for concurrent use.
type Retention struct {
	horizon, window time.Duration
	// last is the last look but one, steps are those that saw a removal.
	last  look
	steps []step
}

type look struct {
	at          time.Time
	start, next int64
}

// step is a look that saw a removal, and how much that was.
type step struct {
	look
	by int64
}

// maxSteps is about how many removals are remembered, at most twice as many.
const maxSteps = 64

// NewRetention warns of losses that are nearer than a horizon, judging by what was seen within a window. Both must be more than 0.
func NewRetention(horizon, window time.Duration) *Retention {
	return &Retention{horizon: horizon, window: window}
}

// Look takes what the log has (from start to before end) and what the run needs next at a moment, and says whether that is at risk. Moments
// must not go back.
func (r *Retention) Look(at time.Time, start, next, end int64) (Risk, bool) {
	r.keep(look{at, start, next})
	risk := Risk{Start: start, Next: next, End: end, Left: next - start}
	if len(r.steps) > 0 {
		// From one removal on, not counting it: a log that removes much at once, and seldom, would seem to be fast just after it.
		first := r.steps[0]
		if risk.Window = at.Sub(first.at); risk.Window > 0 {
			s := risk.Window.Seconds()
			risk.Removed, risk.Read = float64(start-first.start)/s, float64(next-first.next)/s
		}
	}
	for _, s := range r.steps {
		risk.Step = max(risk.Step, s.by)
	}
	if next >= end || risk.Step == 0 {
		return Risk{}, false
	}
	if risk.Left < risk.Step {
		return risk, true
	}
	closing := risk.Removed - risk.Read
	if closing <= 0 || float64(risk.Left)/closing >= r.horizon.Seconds() {
		return Risk{}, false
	}
	risk.In = time.Duration(float64(risk.Left) / closing * float64(time.Second))
	return risk, true
}

// keep remembers what was removed since the last look. Removals that are nearer to each other than the window has room for become one.
func (r *Retention) keep(l look) {
	before := r.last
	r.last = l
	for len(r.steps) > 0 && l.at.Sub(r.steps[0].at) > r.window {
		r.steps = r.steps[1:]
	}
	if before.at.IsZero() || l.start <= before.start {
		return
	}
	s := step{l, l.start - before.start}
	if k := len(r.steps); k > 1 && l.at.Sub(r.steps[k-2].at) < r.window/maxSteps {
		r.steps[k-1] = step{l, max(s.by, r.steps[k-1].by)}
		return
	}
	r.steps = append(r.steps, s)
}
