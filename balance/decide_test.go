package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// world is members that look in turn at the same leases, without time.
type world struct {
	view
	mem   map[string]*memory
	moves map[int32]int
}

func newWorld(units int, members ...string) *world {
	w := &world{mem: map[string]*memory{}, moves: map[int32]int{}}
	w.claims, w.wishes = map[int32]string{}, map[int32]string{}
	for p := range units {
		w.units = append(w.units, int32(p))
	}
	for _, m := range members {
		w.join(m)
	}
	return w
}

func (w *world) join(m string) { w.members, w.mem[m] = append(w.members, m), &memory{} }

// leave ends a member as a crash does.
func (w *world) leave(m string) {
	for i, name := range w.members {
		if name == m {
			w.members = append(w.members[:i:i], w.members[i+1:]...)
		}
	}
	for _, leases := range []map[int32]string{w.claims, w.wishes} {
		for p, who := range leases {
			if who == m {
				delete(leases, p)
			}
		}
	}
}

func (w *world) claim(p int32, who string) {
	w.claims[p] = who
	w.moves[p]++
	if w.wishes[p] == who {
		delete(w.wishes, p)
	}
}

// look lets a member look and act. A partition that is handed over goes to who wished for it.
func (w *world) look(me string) (quiet bool) {
	m := decide(me, w.view, w.mem[me])
	for _, p := range m.letGo {
		delete(w.claims, p)
	}
	for _, p := range m.claim {
		w.claim(p, me)
	}
	if m.handOver != none {
		w.claim(m.handOver, w.wishes[m.handOver])
	}
	for _, p := range m.unwish {
		delete(w.wishes, p)
	}
	if m.wish != none {
		w.wishes[m.wish] = me
	}
	return len(m.unwish)+len(m.letGo)+len(m.claim) == 0 && m.handOver == none && m.wish == none
}

// settle lets all look, in any order, until nobody does anything for some rounds.
func (w *world) settle(t *testing.T, rng *rand.Rand) {
	t.Helper()
	for still, rounds := 0, 0; still < patience+2; rounds++ {
		if rounds > 1000 {
			t.Fatalf("%d units and %d members do not come to rest: %v", len(w.units), len(w.members), w.claims)
		}
		still++
		for _, i := range rng.Perm(len(w.members)) {
			if !w.look(w.members[i]) {
				still = 0
			}
		}
	}
}

// fair checks that everything is claimed and shares differ by at most one.
func (w *world) fair(t *testing.T, what string) {
	t.Helper()
	held := map[string]int{}
	for _, p := range w.units {
		if w.claims[p] == "" {
			t.Fatalf("%s: partition %d belongs to nobody", what, p)
		}
		held[w.claims[p]]++
	}
	least, most := len(w.units), 0
	for _, m := range w.members {
		least, most = min(least, held[m]), max(most, held[m])
	}
	if most-least > 1 {
		t.Fatalf("%s: shares are %v", what, held)
	}
	if len(w.wishes) > 0 {
		t.Fatalf("%s: the wishes %v are left", what, w.wishes)
	}
}

// Whoever joins and leaves, shares become fair, and then nothing moves any more.
func TestSharesBecomeFair(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(1+rng.IntN(40), "m0")
		for n := range 8 {
			w.settle(t, rng)
			w.fair(t, fmt.Sprintf("seed %d, step %d", seed, n))
			clear(w.moves)
			w.settle(t, rng)
			if len(w.moves) > 0 {
				t.Fatalf("seed %d, step %d: moved at rest: %v", seed, n, w.moves)
			}
			switch {
			case len(w.members) > 1 && rng.IntN(3) == 0:
				w.leave(w.members[rng.IntN(len(w.members))])
			case rng.IntN(4) == 0: // the units change
				w.units = nil
				for p := range int32(1 + rng.IntN(40)) {
					w.units = append(w.units, p*2)
				}
			default:
				w.join(fmt.Sprintf("m%d", n+1))
			}
		}
	}
}

// A member that joins takes its share and no partition moves twice.
func TestJoiningMovesEachAtMostOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(20, "a")
		w.settle(t, rng)
		clear(w.moves)
		w.join("b")
		w.settle(t, rng)
		for p, n := range w.moves {
			if n > 1 {
				t.Errorf("seed %d: partition %d moved %d times", seed, p, n)
			}
		}
		if len(w.moves) != 10 {
			t.Errorf("seed %d: %d partitions moved, want 10", seed, len(w.moves))
		}
	}
}

// One partition is asked for at a time, and only after a while.
func TestWishesAreDamped(t *testing.T) {
	t.Parallel()
	w := newWorld(4, "a", "b")
	for p := range int32(4) {
		w.claims[p] = "a"
	}
	mem := w.mem["b"]
	for look := 1; look < patience; look++ {
		if m := decide("b", w.view, mem); m.wish != none {
			t.Fatalf("wishes at look %d", look)
		}
	}
	m := decide("b", w.view, mem)
	if m.wish != 3 {
		t.Fatalf("wishes for %d", m.wish)
	}
	w.wishes[m.wish] = "b"
	if m := decide("b", w.view, mem); m.wish != none {
		t.Errorf("has two wishes at once")
	}
	if m := decide("a", w.view, w.mem["a"]); m.handOver != 3 {
		t.Errorf("hands over %d", m.handOver)
	}
	// A wish of somebody who would then have more than the holder is not granted.
	w.claims[2], w.claims[1] = "b", "b"
	if m := decide("a", w.view, w.mem["a"]); m.handOver != none {
		t.Errorf("hands over %d to one who has more", m.handOver)
	}
}
