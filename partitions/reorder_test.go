package partitions

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

type plainRecord struct {
	at    record.EventTime
	id    string
	key   int32
	input float64
}

func comparePlain(a, b plainRecord) int {
	if a.at != b.at {
		if a.at < b.at {
			return -1
		}
		return 1
	}
	return strings.Compare(a.id, b.id)
}

// sameNumber compares with NaN equal to NaN.
func sameNumber(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// releaseBelow takes what is older than w out of a buffer and out of the model, and compares.
func releaseBelow(t *testing.T, where string, r *reorder, model []plainRecord, w record.EventTime) []plainRecord {
	t.Helper()
	slices.SortFunc(model, comparePlain)
	for {
		ref, fromHeap, ok := r.first()
		if !ok || ref.at >= w {
			break
		}
		if len(model) == 0 {
			t.Fatalf("%s: %q is released, nothing waits", where, r.idOf(ref.slot))
		}
		want := model[0]
		model = model[1:]
		got := plainRecord{at: ref.at, id: string(r.idOf(ref.slot)), key: r.slots[ref.slot].key, input: r.inputsOf(ref.slot)[1]}
		if got.at != want.at || got.id != want.id || got.key != want.key || !sameNumber(got.input, want.input) {
			t.Fatalf("%s: released %v, want %v", where, got, want)
		}
		r.remove(fromHeap)
		r.done(ref.slot)
	}
	if len(model) > 0 && model[0].at < w || len(model) != r.len() {
		t.Fatalf("%s: %d records wait, the model has %d", where, r.len(), len(model))
	}
	return model
}

func TestReorderAgainstModel(t *testing.T) {
	t.Parallel()
	disorders := map[string]func(rng *rand.Rand, step int) int64{
		"in order": func(_ *rand.Rand, step int) int64 { return int64(step) },
		"ties":     func(_ *rand.Rand, step int) int64 { return int64(step / 16) },
		"slight":   func(rng *rand.Rand, step int) int64 { return int64(step) - rng.Int64N(8) },
		"wild":     func(rng *rand.Rand, step int) int64 { return int64(step) - rng.Int64N(1000) },
		"outliers": func(rng *rand.Rand, step int) int64 {
			if rng.IntN(50) == 0 {
				return int64(step) + 900
			}
			return int64(step) + rng.Int64N(3)
		},
		"backwards": func(_ *rand.Rand, step int) int64 { return int64(step/500)*500 + 500 - int64(step%500) },
	}
	for name, at := range disorders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 3; seed++ {
				reorderAgainstModel(t, seed, at)
			}
		})
	}
}

func reorderAgainstModel(t *testing.T, seed uint64, at func(*rand.Rand, int) int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	r := newReorder(2, 0)
	l := &ledger{}
	stand := standing{}
	var model []plainRecord
	w := record.NoTime
	for step := range 4_000 {
		p := plainRecord{at: record.EventTime(at(rng, step)), id: fmt.Sprintf("%s%d", strings.Repeat("x", rng.IntN(40)), step), key: int32(rng.IntN(5)), input: rng.Float64()}
		if rng.IntN(200) == 0 {
			p.id += strings.Repeat("y", rng.IntN(3*chunkBytes)) // longer than a chunk, now and then
		}
		if rng.IntN(9) == 0 {
			p.input = math.NaN()
		}
		if p.at < w {
			continue
		}
		in := r.push(p.at, []byte(p.id), p.key)
		in[0], in[1] = 1, p.input
		model = append(model, p)
		where := fmt.Sprintf("seed %d, step %d", seed, step)
		if rng.IntN(20) == 0 {
			w = max(w, record.EventTime(step-1000))
			model = releaseBelow(t, where, r, model, w)
		}
		if rng.IntN(50) != 0 {
			continue
		}
		model = releaseBelow(t, where, r, model, w)
		r.cut(w, l)
		put, dropped := settle(l)
		stand.apply(t, put, dropped)
		if count, sum := stand.account(); count != l.count || sum != l.sum || count > 4*levelBlobs {
			t.Fatalf("%s: %d blobs stand, the ledger says %d", where, count, l.count)
		}
		back, backLedger := restoreReorder(t, stand, w, l.seq)
		if !bytes.Equal(back.state(), r.state()) {
			t.Fatalf("%s: the restored buffer differs", where)
		}
		if rng.IntN(2) == 0 {
			r, l = back, backLedger
		}
	}
	releaseBelow(t, "end", r, model, record.MaxTime)
	r.cut(w, l)
	put, dropped := settle(l)
	if stand.apply(t, put, dropped); len(stand) != 0 {
		t.Fatalf("seed %d: %d blobs stand for an empty buffer", seed, len(stand))
	}
}

func restoreReorder(t *testing.T, stand standing, w record.EventTime, seq uint64) (*reorder, *ledger) {
	t.Helper()
	r, l := newReorder(2, 0), &ledger{seq: seq}
	for name, data := range stand {
		if err := r.load(StateBlob{Name: name, Data: data}, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.loaded(w, w, 5); err != nil {
		t.Fatal(err)
	}
	return r, l
}

// Single ids that wait long must not pin the memory of all that came and went around them.
func TestReorderMemoryWithPinnedIDs(t *testing.T) {
	t.Parallel()
	r := newReorder(1, 0)
	waits := 0
	for step := range 60_000 {
		at := record.EventTime(step)
		if step%500 == 0 {
			at += 1 << 40
			waits++
		}
		r.push(at, fmt.Appendf(nil, "%064d", step), 0)[0] = 1
		for {
			ref, fromHeap, ok := r.first()
			if !ok || ref.at > record.EventTime(step) {
				break
			}
			r.remove(fromHeap)
			r.done(ref.slot)
		}
	}
	if r.len() != waits {
		t.Fatalf("%d records wait, want %d", r.len(), waits)
	}
	if bound := looseBytes + looseFactor*waits*64 + chunkBytes; r.ids.held > bound {
		t.Errorf("%d bytes are held for %d ids of 64 bytes, bound %d", r.ids.held, waits, bound)
	}
	if len(r.journal.fresh) > 3*waits+2*minFresh {
		t.Errorf("%d slots are noted for the next cut, %d records wait", len(r.journal.fresh), waits)
	}
}
