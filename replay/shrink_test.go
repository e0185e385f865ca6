package replay

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/weirstream/weir/sources/logfile"
)

// manyFaults are n faults of as many events.
func manyFaults(n int) *Schedule {
	s := &Schedule{Seed: 9}
	for i := range n {
		f := Fault{EventID: fmt.Sprint(i), Kind: logfile.Kind(i % 7)}
		switch parameter(f.Kind) {
		case domainMember:
			f.Delay = 90 * time.Second
		case wallMember:
			f.Wait = 70 * time.Millisecond
		case countMember:
			f.Count = 5
		}
		if f.Kind == logfile.Revision {
			f.Values = map[string]any{"close": 1.5, "volume": 2.5}
		}
		s.Faults = append(s.Faults, f)
	}
	return s
}

func find(s *Schedule, id string) *Fault {
	for i := range s.Faults {
		if s.Faults[i].EventID == id {
			return &s.Faults[i]
		}
	}
	return nil
}

func TestShrinkFindsTheSmallest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(60)
		s := manyFaults(n)
		needed := map[string]bool{}
		for range rng.IntN(4) {
			needed[fmt.Sprint(rng.IntN(n))] = true
		}
		calls := 0
		got := Shrink(s, func(c *Schedule) bool {
			calls++
			for id := range needed {
				if find(c, id) == nil {
					return false
				}
			}
			return true
		})
		if len(got.Faults) != len(needed) || got.Seed != 9 || calls > MaxShrinkTries {
			t.Fatalf("seed %d: %d faults are left, want %d; %d calls", seed, len(got.Faults), len(needed), calls)
		}
		if !reflect.DeepEqual(s, manyFaults(n)) {
			t.Fatalf("seed %d: the schedule was changed", seed)
		}
		if _, err := got.Encode(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestShrinkSimplifiesParameters(t *testing.T) {
	t.Parallel()
	s := manyFaults(7)
	got := Shrink(s, func(c *Schedule) bool {
		delay, burst, revision, pause := find(c, "1"), find(c, "0"), find(c, "5"), find(c, "4")
		return delay != nil && delay.Delay > 1234*time.Millisecond && burst != nil && burst.Count >= 2 && revision != nil && revision.Values["volume"] != nil && pause != nil
	})
	want := []Fault{
		{EventID: "0", Kind: logfile.Burst, Count: 2},
		{EventID: "1", Kind: logfile.Delay, Delay: 1235 * time.Millisecond},
		{EventID: "4", Kind: logfile.Pause},
		{EventID: "5", Kind: logfile.Revision, Values: map[string]any{"volume": 2.5}},
	}
	if !reflect.DeepEqual(got.Faults, want) {
		t.Errorf("got %+v", got.Faults)
	}
	if !reflect.DeepEqual(s, manyFaults(7)) {
		t.Error("the schedule was changed")
	}
}

func TestShrinkGivesUpInTime(t *testing.T) {
	t.Parallel()
	const n = 600
	calls := 0
	got := Shrink(manyFaults(n), func(c *Schedule) bool {
		calls++
		return len(c.Faults) == n // nothing can go
	})
	if calls != MaxShrinkTries || len(got.Faults) != n {
		t.Errorf("%d calls, %d faults", calls, len(got.Faults))
	}
}

func TestShrinkOfAFailureWithoutFaults(t *testing.T) {
	t.Parallel()
	calls := 0
	if got := Shrink(manyFaults(50), func(*Schedule) bool { calls++; return true }); len(got.Faults) != 0 || calls != 1 {
		t.Errorf("%d faults after %d calls", len(got.Faults), calls)
	}
	if got := Shrink(&Schedule{}, func(*Schedule) bool { t.Error("nothing is to be tried"); return true }); len(got.Faults) != 0 {
		t.Errorf("%+v", got)
	}
}
