package invariant

import "fmt"

// Checker watches over one promise. It sees a whole history once, in order.
type Checker interface {
	// Name is stable: negative controls and reports go by it.
	Name() string
	// See is shown one entry after the other; End comes after the last.
	See(e Entry, r *Report)
	End(r *Report)
}

// Violation is a promise that was broken.
type Violation struct {
	Checker string
	// N is the entry at which it showed, or -1 for the end.
	N    int
	What string
}

func (v Violation) String() string {
	if v.N < 0 {
		return fmt.Sprintf("%s: %s", v.Checker, v.What)
	}
	return fmt.Sprintf("%s: at %d: %s", v.Checker, v.N, v.What)
}

// Report takes what a checker finds. One that finds the same thing over and over is heard a few times only.
type Report struct {
	checker string
	n       int
	found   []Violation
}

// maxFound is how many violations of one checker are kept: what follows the first ones is mostly their consequence.
const maxFound = 5

// Add reports a violation at the entry in hand.
func (r *Report) Add(format string, args ...any) {
	if len(r.found) < maxFound {
		r.found = append(r.found, Violation{Checker: r.checker, N: r.n, What: fmt.Sprintf(format, args...)})
	}
}

// Check shows a history to every checker and returns all that they find.
func Check(entries []Entry, checkers ...Checker) []Violation {
	var all []Violation
	for _, c := range checkers {
		r := Report{checker: c.Name()}
		for _, e := range entries {
			r.n = e.N
			c.See(e, &r)
		}
		r.n = -1
		c.End(&r)
		all = append(all, r.found...)
	}
	return all
}

// All are fresh checkers of every promise, for a run over a log of which the truth is known.
func All(t *Truth, limits Limits) []Checker {
	return []Checker{
		NewFenceIncreases(), NewStaleSilent(), NewLeaseFirst(),
		NewJournalMonotone(t), NewWatermarkMonotone(), NewUnknownOnce(), NewOffsetsBehind(),
		NewNoLoss(t), NewNoDuplicate(t), NewSameAsUndisturbed(t),
		NewRestoreEqualsCut(t), NewCheckpointWhole(), NewRestoreBarrier(),
		NewPausedSilent(), NewMemoryBounded(limits),
	}
}
