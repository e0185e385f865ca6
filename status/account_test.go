package status

import (
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Unix(1_800_000_000, 0).UTC()

// Whatever happens to a partition, and with a clock that is set back now and then, the times in its states add up to its wall time exactly.
func TestTimesInStatesAddUp(t *testing.T) {
	t.Parallel()
	states := States()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := NewAccount(states[rng.IntN(len(states))], start)
		now, furthest := start, start
		for range rng.IntN(100) {
			now = now.Add(time.Duration(rng.Int64N(int64(time.Hour))) - 10*time.Minute)
			if now.After(furthest) {
				furthest = now
			}
			a.To(states[rng.IntN(len(states))], now)
			spent, began := a.Spent(now)
			sum := time.Duration(0)
			for _, d := range spent {
				if d < 0 {
					t.Fatalf("seed %d: a state has lasted %v", seed, d)
				}
				sum += d
			}
			if sum != furthest.Sub(began) {
				t.Fatalf("seed %d: the states add up to %v, and %v have passed", seed, sum, furthest.Sub(began))
			}
		}
	}
}

// Every combination of facts makes one of the states, and each state is made by some: none is out of reach.
func TestFactsMakeOneState(t *testing.T) {
	t.Parallel()
	seen := map[State]int{}
	for _, phase := range []Phase{PhaseRunning, PhaseWaiting, PhaseRecoveryBlocked, PhaseStopped} {
		for _, wait := range []Wait{"", WaitLease, WaitBackoff, WaitStart, WaitEnd} {
			for bits := range 1 << 7 {
				on := func(i int) bool { return bits>>i&1 == 1 }
				f := Facts{Phase: phase, Wait: wait, Finished: on(0), Blocked: on(1), Idle: on(2), Withheld: on(3), Held: on(4), Aside: on(5), Busy: on(6)}
				seen[f.State()]++
			}
		}
	}
	for _, s := range States() {
		if seen[s] == 0 {
			t.Errorf("nothing makes %s", s)
		}
		delete(seen, s)
	}
	if len(seen) > 0 {
		t.Errorf("states that are not listed: %v", seen)
	}
}
