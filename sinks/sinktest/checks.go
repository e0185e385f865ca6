package sinktest

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// publishes: rows of several partitions over several calls are seen as given, nothing comes from closing, and who opens next reads back what stands.
func publishes(t testing.TB, p Place) {
	s := p.Sink(nil)
	f := s.Features()
	if f.Once && !f.ReadBack {
		t.Error("Once is declared without ReadBack: nobody would know what to leave out")
	}
	w := mustOpen(t, s, target(1, 0, 3, 11))
	readBack(t, f, "empty", w, map[int32]int64{0: 0, 3: 0, 11: 0})
	mustPublish(t, w)
	mustPublish(t, w, sinks.Rows{Partition: 3})
	expect(t, p, "nothing published", nil)
	mustPublish(t, w, p.batch(0, 0, 5), p.batch(3, 0, 1))
	expect(t, p, "first call", map[int32]int64{0: 5, 3: 1})
	mustPublish(t, w, p.batch(3, 1, 40), p.batch(0, 5, 6), p.batch(0, 6, 9))
	ends := map[int32]int64{0: 9, 3: 40, 11: 0}
	readBack(t, f, "own", w, ends)
	mustClose(t, w)
	expect(t, p, "closed", ends)
	next := mustOpen(t, p.Sink(nil), target(2, 0, 3, 11))
	readBack(t, f, "next owner", next, ends)
	mustPublish(t, next, p.batch(11, 0, 7), p.batch(0, 9, 10))
	mustClose(t, next)
	expect(t, p, "next owner", map[int32]int64{0: 10, 3: 40, 11: 7})
	if s.Features() != f {
		t.Error("the features changed")
	}
}

// readBack compares what a writer tells with what stands. A sink that cannot read back may tell nothing, and never anything wrong.
func readBack(t testing.TB, f sinks.Features, when string, w sinks.Writer, want map[int32]int64) {
	t.Helper()
	got := w.Published()
	for partition, n := range got {
		if n != want[partition] {
			t.Errorf("%s: partition %d is told to stand at row %d, want %d", when, partition, n, want[partition])
		}
	}
	if !f.ReadBack {
		return
	}
	for partition, n := range want {
		if _, known := got[partition]; !known && n > 0 {
			t.Errorf("%s: nothing is told of partition %d", when, partition)
		}
	}
	got[99] = 1
	if maps.Equal(got, w.Published()) {
		t.Errorf("%s: the map of Published is shared", when)
	}
}

// otherBoundaries: rows that are given again, in other pieces, by the same writer and by others, are left out.
func otherBoundaries(t testing.TB, p Place) {
	rng := rand.New(rand.NewPCG(7, 7))
	ends := map[int32]int64{0: 0, 1: 0}
	for round := range uint64(12) {
		w := mustOpen(t, p.Sink(nil), target(1+round/3, 0, 1))
		// Of a writer that was told nothing, the first rows say where a partition stands.
		at := maps.Clone(ends)
		for range 3 {
			var batches []sinks.Rows
			for _, partition := range []int32{1, 0} {
				from := rng.Int64N(at[partition] + 1)
				to := from + 1 + rng.Int64N(30)
				batches = append(batches, p.split(partition, from, to, rng)...)
				if at[partition] = max(at[partition], to); !p.Sink(nil).Features().ReadBack {
					at[partition] = to
				}
				ends[partition] = max(ends[partition], to)
			}
			mustPublish(t, w, batches...)
		}
		mustClose(t, w)
	}
	expect(t, p, "given again", ends)
}

// holes: rows that would leave others out are refused, and so are damaged ones; nothing of the call stands where a sink knows what is there.
func holes(t testing.TB, p Place) {
	s := p.Sink(nil)
	for name, wrong := range map[string]func() sinks.Rows{
		"hole":      func() sinks.Rows { return p.batch(0, 4, 6) },
		"cut short": func() sinks.Rows { b := p.batch(0, 3, 6); b.Data = b.Data[:len(b.Data)-1]; return b },
		"too long":  func() sinks.Rows { b := p.batch(0, 3, 6); b.Data = append(b.Data, 0); return b },
	} {
		w := mustOpen(t, s, target(1, 0))
		if err := w.Publish(t.Context(), []sinks.Rows{p.batch(0, 0, 3)}); err != nil {
			t.Fatal(err)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{wrong()}); !codes.Has(err, codes.Internal) {
			t.Errorf("%s: %v, want INTERNAL", name, err)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{p.batch(0, 3, 4)}); err == nil {
			t.Errorf("%s: the writer goes on after an error", name)
		}
		mustClose(t, w)
		if ends := look(t, p, name); ends[0] != 3 {
			t.Errorf("%s: %d rows are seen, want 3", name, ends[0])
		}
	}
}

// runsApart: two runs in one target do not meet, whatever their names.
func runsApart(t testing.TB, p Place) {
	names := []string{runID, runID + "/0", "x", "X", "..", "a%2Fb", "a/b", "Ærø\u202e", "run/1 of a"}
	for i, run := range names {
		to := target(uint64(i+1), 0)
		to.RunID = run
		w := mustOpen(t, p.Sink(nil), to)
		readBack(t, p.Sink(nil).Features(), run, w, map[int32]int64{0: 0})
		mustPublish(t, w, p.batch(0, 0, int64(i+2)))
		mustClose(t, w)
	}
	for i, run := range names {
		if got := p.Seen(t, run); len(got) != i+2 {
			t.Errorf("run %q shows %d rows, want %d", run, len(got), i+2)
		}
	}
}

// laterPartitions: a run that gets more partitions goes on with them, and one that is opened with fewer leaves the others alone.
func laterPartitions(t testing.TB, p Place) {
	drive(t, p.Sink(nil), target(1, 0), []sinks.Rows{p.batch(0, 0, 4)})
	drive(t, p.Sink(nil), target(1, 0, 1), []sinks.Rows{p.batch(0, 0, 6), p.batch(1, 0, 3)})
	drive(t, p.Sink(nil), target(2, 1), []sinks.Rows{p.batch(1, 1, 5)})
	w := mustOpen(t, p.Sink(nil), target(2, 0, 1))
	readBack(t, p.Sink(nil).Features(), "both", w, map[int32]int64{0: 6, 1: 5})
	mustClose(t, w)
	expect(t, p, "more partitions", map[int32]int64{0: 6, 1: 5})
}

// many: so many rows that a sink has to cut them into pieces.
func many(t testing.TB, p Place) {
	const n = 3000
	w := mustOpen(t, p.Sink(nil), target(1, 0, 1))
	mustPublish(t, w, p.batch(0, 0, n), p.batch(1, 0, n/2), p.batch(1, n/2, n))
	mustClose(t, w)
	expect(t, p, "many rows", map[int32]int64{0: n, 1: n})
}
