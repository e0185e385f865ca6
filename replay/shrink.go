package replay

import (
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/sources/logfile"
)

// MaxShrinkTries bounds how often Shrink calls its test.
const MaxShrinkTries = 1000

// Shrink looks for a small schedule that still fails: first fewer faults (delta debugging), then shorter delays and waits, smaller
// counts and fewer values. s must fail and is not changed. When it ends before MaxShrinkTries calls of fails, no single fault can be
// left out of the result.
func Shrink(s *Schedule, fails func(*Schedule) bool) *Schedule {
	k := &shrinker{seed: s.Seed, file: s.file, fails: fails, best: slices.Clone(s.Faults)}
	k.fewer()
	k.simpler()
	return k.schedule(k.best)
}

type shrinker struct {
	seed  uint64
	file  string
	fails func(*Schedule) bool
	best  []Fault // the smallest that fails
	tries int
}

func (k *shrinker) schedule(faults []Fault) *Schedule {
	return &Schedule{Seed: k.seed, Faults: slices.Clone(faults), file: k.file}
}

// try takes a candidate over if it fails.
func (k *shrinker) try(candidate []Fault) bool {
	if k.tries == MaxShrinkTries {
		return false
	}
	k.tries++
	if !k.fails(k.schedule(candidate)) {
		return false
	}
	k.best = candidate
	return true
}

// fewer leaves faults out: all of them, then halves, quarters and so on, down to one.
func (k *shrinker) fewer() {
	if len(k.best) == 0 || k.try(nil) {
		return
	}
	for size := (len(k.best) + 1) / 2; size > 0; {
		removed := false
		for at := 0; at < len(k.best); {
			end := min(at+size, len(k.best))
			if end-at < len(k.best) && k.try(append(slices.Clone(k.best[:at]), k.best[end:]...)) {
				removed = true
			} else {
				at = end
			}
		}
		switch {
		case k.tries == MaxShrinkTries, size == 1 && !removed:
			return
		case size > 1:
			size = (size + 1) / 2
		}
	}
}

// simpler makes the parameters of one fault after the other smaller.
func (k *shrinker) simpler() {
	for i := range k.best {
		k.lower(i, k.best[i].Delay.Milliseconds(), 0, func(f *Fault, n int64) { f.Delay = time.Duration(n) * time.Millisecond })
		k.lower(i, k.best[i].Wait.Milliseconds(), 0, func(f *Fault, n int64) { f.Wait = time.Duration(n) * time.Millisecond })
		if k.best[i].Kind == logfile.Burst {
			k.lower(i, k.best[i].Count, 1, func(f *Fault, n int64) { f.Count = n })
		}
		for _, name := range slices.Sorted(maps.Keys(k.best[i].Values)) {
			k.change(i, func(f *Fault) {
				f.Values = maps.Clone(f.Values)
				delete(f.Values, name)
			})
		}
	}
}

// lower looks for the least value that fails, as if every value above it did too.
func (k *shrinker) lower(i int, now, least int64, set func(*Fault, int64)) {
	for now > least && k.tries < MaxShrinkTries {
		middle := least + (now-least)/2
		if k.change(i, func(f *Fault) { set(f, middle) }) {
			now = middle
		} else {
			least = middle + 1
		}
	}
}

// change tries one fault with a change.
func (k *shrinker) change(i int, change func(*Fault)) bool {
	candidate := slices.Clone(k.best)
	change(&candidate[i])
	return k.try(candidate)
}
