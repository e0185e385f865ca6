package sinktest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// RunSequence checks a sink that reads back: a target that holds one sequence (sinks.Target.Sequence) refuses another and stays as it was, whoever is killed or
// comes between two steps. The error has to name both.
func RunSequence(t *testing.T, open func(t testing.TB) Place) {
	for _, c := range sequences {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

var sequences = []check{
	{"Sequence", sequenceStays}, {"SequenceFirst", sequenceFirst}, {"SequenceKilled", sequenceKilled}, {"SequenceRaced", sequenceRaced},
	{"SequenceOfAnInput", sequenceOfAnInput},
}

func sequenceTarget(token uint64, name string, parts ...int32) sinks.Target {
	to := target(token, parts...)
	to.Sequence = name
	return to
}

// publishAs opens with a sequence and publishes.
func publishAs(t testing.TB, s sinks.Sink, to sinks.Target, batches ...sinks.Rows) error {
	t.Helper()
	w, err := s.Open(t.Context(), to)
	if err != nil {
		return err
	}
	err = w.Publish(t.Context(), batches)
	mustClose(t, w)
	return err
}

// refuses checks that a sequence cannot be opened over another one, and says so to somebody.
func refuses(t testing.TB, p Place, when string, to sinks.Target, stands string) {
	t.Helper()
	w, err := p.Sink(nil).Open(t.Context(), to)
	if err == nil {
		mustClose(t, w)
	}
	if !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("%s: a target of %q takes %q: %v, want SINK_INVALID", when, stands, to.Sequence, err)
		return
	}
	for _, name := range []string{stands, to.Sequence} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not name %q: %v", when, name, err)
		}
	}
}

// sequenceStays: another sequence is refused, changes nothing and takes nothing over; the same one goes on, and so does "", which is not compared. Runs
// do not meet.
func sequenceStays(t testing.TB, p Place) {
	if !p.Sink(nil).Features().ReadBack {
		t.Fatal("the sink does not declare ReadBack: there is nothing to compare")
	}
	w := mustOpen(t, p.Sink(nil), sequenceTarget(1, "rows one", 0, 1))
	mustPublish(t, w, p.batch(0, 0, 5), p.batch(1, 0, 2))
	refuses(t, p, "while it is written", sequenceTarget(1, "late two", 0, 1), "rows one")
	mustPublish(t, w, p.batch(0, 5, 6))
	mustClose(t, w)
	for token, parts := range [][]int32{{0, 1}, {1}} {
		refuses(t, p, fmt.Sprintf("partitions %v", parts), sequenceTarget(uint64(token+2), "late two", parts...), "rows one")
	}
	expect(t, p, "refused", map[int32]int64{0: 6, 1: 2})
	next := mustOpen(t, p.Sink(nil), sequenceTarget(5, "rows one", 0, 1))
	readBack(t, p.Sink(nil).Features(), "after a refusal", next, map[int32]int64{0: 6, 1: 2})
	mustPublish(t, next, p.batch(0, 6, 7))
	mustClose(t, next)
	unnamed := mustOpen(t, p.Sink(nil), sequenceTarget(6, "", 0, 1))
	readBack(t, p.Sink(nil).Features(), "unnamed", unnamed, map[int32]int64{0: 7, 1: 2})
	mustPublish(t, unnamed, p.batch(0, 7, 8))
	mustClose(t, unnamed)
	refuses(t, p, "after an unnamed one", sequenceTarget(7, "late two", 0, 1), "rows one")
	refuses(t, p, "from a store that counts its tokens anew", sequenceTarget(1, "late two", 0, 1), "rows one")
	expect(t, p, "in the end", map[int32]int64{0: 8, 1: 2})
	other := sequenceTarget(1, "late two", 0)
	other.RunID = "another run"
	if err := publishAs(t, p.Sink(nil), other, p.batch(0, 0, 3)); err != nil {
		t.Errorf("another run cannot have another sequence: %v", err)
	}
}

// sequenceFirst: a target that has kept none, as former releases left it, takes the first that comes, and keeps it.
func sequenceFirst(t testing.TB, p Place) {
	for step, to := range []sinks.Target{sequenceTarget(1, "", 0), sequenceTarget(2, "rows one", 0), sequenceTarget(3, "rows one", 0)} {
		if err := publishAs(t, p.Sink(nil), to, p.batch(0, 0, int64(step+1))); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	refuses(t, p, "after the first", sequenceTarget(4, "late two", 0), "rows one")
	expect(t, p, "after the first", map[int32]int64{0: 3})
}

// sequenceOfAnInput: a sequence that names its input is refused over that of another, and goes on over the name that former releases gave it.
func sequenceOfAnInput(t testing.TB, p Place) {
	for step, name := range []string{"rows one of a", "rows one of a"} {
		if err := publishAs(t, p.Sink(nil), sequenceTarget(uint64(step+1), name, 0), p.batch(0, 0, int64(step+1))); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	refuses(t, p, "of another input", sequenceTarget(3, "rows one of b", 0), "rows one of a")
	expect(t, p, "of another input", map[int32]int64{0: 2})
	for step, name := range []string{"rows one", "rows one of a", "rows one of a", "rows one"} { // the last is an owner of that release, in a group that is not upgraded as a whole
		to := stepTarget(0, uint64(step+1), name)
		if err := publishAs(t, p.Sink(nil), to, p.batch(0, 0, int64(step+1))); err != nil {
			t.Fatalf("over a former release, step %d: %v", step, err)
		}
	}
	refuses(t, p, "over a former release", stepTarget(0, 5, "rows two of a"), "rows one")
}

// sequenceSteps counts the steps of opening and publishing.
func sequenceSteps(t testing.TB, p Place) int {
	t.Helper()
	count := &steps{at: -1}
	to := sequenceTarget(1, "rows one", 0, 1)
	to.RunID = "counted"
	if err := publishAs(t, p.Sink(count.hook), to, p.batch(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	return count.calls
}

// stepTarget is a run of its own for each step.
func stepTarget(k int, token uint64, name string) sinks.Target {
	to := sequenceTarget(token, name, 0, 1)
	to.RunID = fmt.Sprintf("step %d", k)
	return to
}

// sequenceKilled: whoever dies between two steps, no rows stand without their sequence.
func sequenceKilled(t testing.TB, p Place) {
	n := sequenceSteps(t, p)
	for k := 1; k <= n; k++ {
		var where string
		s := &steps{at: k, do: func(step string) error { where = step; return errKilled }}
		err := publishAs(t, p.Sink(s.hook), stepTarget(k, 1, "rows one"), p.batch(0, 0, 3))
		when := fmt.Sprintf("killed at step %d (%s)", k, where)
		if err == nil && s.done {
			t.Errorf("%s: no error", when)
		}
		stood := len(p.Seen(t, stepTarget(k, 0, "").RunID)) > 0
		if stood {
			refuses(t, p, when, stepTarget(k, 2, "late two"), "rows one")
		}
		drive(t, p.Sink(nil), stepTarget(k, 3, "rows one"), []sinks.Rows{p.batch(0, 0, 5)})
		refuses(t, p, when+", and its heir came", stepTarget(k, 4, "late two"), "rows one")
		if seen := p.Seen(t, stepTarget(k, 0, "").RunID); len(seen) != 5 {
			t.Errorf("%s: %d rows are seen, want 5", when, len(seen))
		}
	}
}

// sequenceRaced: while one owner stands between two steps, another comes with another sequence; rows of one of them stand in the end, not of both. They
// publish to partitions of their own, so that nothing else tells them that they meet.
func sequenceRaced(t testing.TB, p Place) {
	n := sequenceSteps(t, p)
	for k := 1; k <= n; k++ {
		var where string
		var second error
		s := &steps{at: k, do: func(step string) error {
			where = step
			p.stopped(t)
			second = publishAs(t, p.Sink(nil), stepTarget(k, 2, "late two"), p.batch(1, 0, 3))
			return nil
		}}
		first := publishAs(t, p.Sink(s.hook), stepTarget(k, 1, "rows one"), p.batch(0, 0, 3))
		when := fmt.Sprintf("another came at step %d (%s)", k, where)
		seen := map[int32]int{}
		for _, row := range p.Seen(t, stepTarget(k, 0, "").RunID) {
			seen[row.Partition]++
		}
		if len(seen) > 1 {
			t.Errorf("%s: rows of both sequences are seen: %v", when, seen)
		}
		if first == nil && s.done && second == nil {
			t.Errorf("%s: both went on", when)
		}
		for _, err := range []error{first, second} {
			if err != nil && codes.Of(err) == nil {
				t.Errorf("%s: %v has no code", when, err)
			}
		}
	}
}
