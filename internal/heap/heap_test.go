package heap

import (
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		live, floor int64
		want        int
	}{
		{0, 128 * mib, 100}, {1 * mib, 128 * mib, 800}, {16 * mib, 128 * mib, 700}, {32 * mib, 128 * mib, 300}, {64 * mib, 128 * mib, 100},
		{100 * mib, 128 * mib, 100}, {200 * mib, 128 * mib, 100}, {10 * mib, 0, 100},
	} {
		if got := percentFor(c.live, c.floor); got != c.want {
			t.Errorf("%d MiB live, floor %d MiB: %d, want %d", c.live/mib, c.floor/mib, got, c.want)
		}
	}
}

func TestTuner(t *testing.T) {
	t.Parallel()
	var set []int
	u := &tuner{floor: 1000, percent: defaultPercent, set: func(p int) { set = append(set, p) }}
	for _, live := range []int64{250, 255, 400, 400, 900, 900} {
		if !u.collected(live) {
			t.Fatal("it has stopped by itself")
		}
	}
	u.stop()
	u.stop()
	if u.collected(10) {
		t.Error("it goes on")
	}
	if want := []int{300, 150, 100, 100}; !slices.Equal(set, want) {
		t.Errorf("GOGC was set to %v, want %v", set, want)
	}
}

// The real collector is tuned after a collection, and is as it was once that has ended.
func TestFloor(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "off")
			Floor(1 << 40)()
			if got := gogc(); got != defaultPercent {
				t.Errorf("GOGC is %d", got)
			}
		})
	}
	if n := gogc(); n != defaultPercent {
		t.Skipf("GOGC is %d in this environment", n)
	}
	stop := Floor(1 << 40)
	defer stop()
	for range 1000 {
		runtime.GC()
		if gogc() == mostPercent {
			break
		}
	}
	if got := gogc(); got != mostPercent {
		t.Errorf("GOGC is %d, want %d", got, mostPercent)
	}
	stop()
	if got := gogc(); got != defaultPercent {
		t.Errorf("GOGC is %d", got)
	}
}

// gogc is what GOGC stands at.
func gogc() int {
	n := debug.SetGCPercent(defaultPercent)
	debug.SetGCPercent(n)
	return n
}
