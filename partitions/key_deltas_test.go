package partitions

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

const (
	deltaFlow     = "lateness: 0s\ndedupe: {horizon: 0s}\n" + emaFlow
	deltaGridFlow = "lateness: 0s\ndedupe: {horizon: 0s}\nclock: {every: 1h}\noperators: [{name: l, type: last, input: x}]\noutputs: [l]\n"
	deltaKeys     = 40*chunkKeys + 17
)

// manyKeys is a partition with keys in 41 chunks, cut once.
func manyKeys(t *testing.T, flow string) (h *harness, change func(keys []int)) {
	t.Helper()
	h = newHarness(planOf(t, flow), 0)
	next := int64(0)
	change = func(keys []int) {
		t.Helper()
		var records []record.Record
		for _, k := range keys {
			v := fmt.Sprintf(`{"id":%d,"key":"key-%05d","at":%d,"x":%d}`, next, k, 1_000_000+next, next%97)
			records = append(records, record.Record{Position: record.Offset(next), Arrival: record.NoTime, Value: []byte(v)})
			next++
		}
		h.deliver(t, records)
		h.rows, h.decisions = nil, nil
	}
	all := make([]int, deltaKeys)
	for i := range all {
		all[i] = i
	}
	change(all)
	h.cut(t)
	return h, change
}

// Few keys of many chunks are written as deltas, which are folded into the chunks little by little. Whatever is written, the state that is
// restored is the one that was cut, and the cuts of the restored machine are those of one that was never given up.
func TestDeltasOfKeys(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]string{"every event": deltaFlow, "grid": deltaGridFlow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, 7))
			h, change := manyKeys(t, flow)
			steady, alongside := manyKeys(t, flow)
			whole := 0
			for _, data := range h.stand {
				whole += len(data)
			}
			deltas, most, dropped, written := 0, 0, 0, 0
			for cut := range 120 {
				keys := rng.Perm(deltaKeys)[:100]
				switch {
				case cut%17 == 3: // all of one chunk, as a burst makes them
					keys = nil
					for i := range chunkKeys {
						keys = append(keys, 5*chunkKeys+i)
					}
				case cut%29 == 5: // a few only
					keys = keys[:3]
				case cut%31 == 7: // new ones too
					keys = append(keys, deltaKeys+cut)
				}
				change(keys)
				alongside(keys)
				c := h.cut(t)
				sameCut(t, fmt.Sprint("cut ", cut), c, steady.cut(t))
				names, _ := putsOf(c, deltasPrefix)
				deltas += len(names)
				for _, d := range c.Delete {
					if strings.HasPrefix(d, deltasPrefix) {
						dropped++
					}
				}
				if len(keys) == 100 {
					_, n := putsOf(c, "")
					written = max(written, n)
				}
				most = max(most, len(h.m.keys.deltas))
				if cut%3 == 0 {
					before := h.m
					h.crash(t)
					sameState(t, "restored machine", h.m.FullState(), before.FullState())
				}
			}
			if deltas < 80 || dropped < 20 || most > maxDeltas || written > whole/10 {
				t.Errorf("%d deltas, %d dropped, at most %d at once, cuts of up to %d bytes of %d", deltas, dropped, most, written, whole)
			}
		})
	}
}

// However small the changes are, no delta outlives maxDeltas others.
func TestDeltasAreBounded(t *testing.T) {
	t.Parallel()
	h, change := manyKeys(t, deltaFlow)
	rng, most := rand.New(rand.NewPCG(8, 8)), 0
	for range 2 * maxDeltas {
		change(rng.Perm(deltaKeys)[:120])
		h.cut(t)
		n := len(h.m.keys.deltas)
		if n > maxDeltas {
			t.Fatalf("%d deltas", n)
		}
		most = max(most, n)
	}
	if most < 10 {
		t.Errorf("%d deltas only: the test shows nothing", most)
	}
	h.cutAndCrash(t)
}

func TestRestoreRefusesDeltas(t *testing.T) {
	t.Parallel()
	h, change := manyKeys(t, deltaFlow)
	rng := rand.New(rand.NewPCG(9, 9))
	for range 2 {
		change(rng.Perm(deltaKeys)[:100])
		h.cut(t)
	}
	first, second := h.m.keys.deltas[0].name, h.m.keys.deltas[1].name
	forged := func(name string, edit func(b []byte) []byte) func(s standing) {
		return func(s standing) {
			s[name] = reseal(name, edit(slices.Clone(s[name])))
			s.balance()
		}
	}
	for name, change := range map[string]func(s standing){
		"missing":        func(s standing) { delete(s, first) },
		"a flipped bit":  func(s standing) { b := slices.Clone(s[first]); b[30] ^= 1; s[first] = b },
		"empty":          func(s standing) { s[first] = nil },
		"cut short":      forged(first, func(b []byte) []byte { return b[:len(b)-4] }),
		"longer":         forged(first, func(b []byte) []byte { return append(b, 1, 2, 3) }),
		"later version":  forged(first, func(b []byte) []byte { b[0] = 9; return b }),
		"a number twice": forged(second, func([]byte) []byte { return slices.Clone(h.stand[first]) }),
		"no chunks": func(s standing) {
			for n := range s {
				if strings.HasPrefix(n, keysPrefix) {
					delete(s, n)
				}
			}
			s.balance()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := maps.Clone(h.stand)
			s[coreName] = slices.Clone(s[coreName])
			change(s)
			if m, err := Restore(h.plan, 0, (&harness{stand: s}).load); m != nil || !codes.Has(err, codes.JournalCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
