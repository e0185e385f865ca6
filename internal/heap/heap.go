// Package heap tunes the garbage collector for daemons whose memory is bounded by something better than a ratio.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The bounds of GOGC: never less than its default, and never so much that a heap which grows between two collections goes far beyond the floor.
const (
	defaultPercent = 100
	mostPercent    = 800
)

// Floor lets the heap grow to so many bytes before it is collected, however little of it lives: what a collection costs depends on what lives, and how many there are
// on how much room is left, so that a process which holds half of the state would otherwise be collected as often as one that holds all of it, for half of the work. Above
// half of the floor it changes nothing. It returns what ends that, and does nothing where the environment has GOGC or GOMEMLIMIT: whoever sets these knows better.
func Floor(bytes int64) (stop func()) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return func() {}
		}
	}
	t := &tuner{floor: bytes, percent: defaultPercent, set: func(percent int) { debug.SetGCPercent(percent) }}
	t.arm()
	return t.stop
}

// tuner sets GOGC after every collection.
type tuner struct {
	floor int64
	set   func(percent int)

	mu      sync.Mutex
	percent int
	stopped bool
}

// mark is an object that nothing refers to: its end tells of a collection.
type mark struct{ _ *tuner }

func (t *tuner) arm() {
	runtime.AddCleanup(&mark{t}, func(t *tuner) {
		if t.collected(live()) {
			t.arm()
		}
	}, t)
}

// collected takes what lives after a collection, and says whether the next one matters.
func (t *tuner) collected(live int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	// Setting it stops the world for a moment, which is not worth a small difference.
	if want := percentFor(live, t.floor); want < t.percent*9/10 || want > t.percent*11/10 {
		t.percent = want
		t.set(want)
	}
	return true
}

func (t *tuner) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.stopped = true
		t.set(defaultPercent)
	}
}

// percentFor is the GOGC with which a heap of which so much lives is collected at the floor, or at twice of what lives if that is more.
func percentFor(live, floor int64) int {
	if live <= 0 {
		return defaultPercent
	}
	return int(min(max(100*(floor-live)/live, defaultPercent), mostPercent))
}

// live is what the last collection has found to live.
func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(sample[0].Value.Uint64())
}
