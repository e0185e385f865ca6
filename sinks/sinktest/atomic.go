package sinktest

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// Atomic is a journal of the run of this suite, with a sink whose rows are part of its transactions. It begins without rows.
type Atomic struct {
	Place
	// Take makes us the owner of the run, whoever was, and gives our token.
	Take func(t testing.TB) uint64
	// Commit commits rows as the next epoch that the owner with that token knows of. hook is called between any two steps; what it returns ends the commit there.
	Commit func(t testing.TB, token uint64, batches []sinks.Rows, hook func(step string) error) error
	// Rows is how many rows of each partition the journal holds.
	Rows func(t testing.TB) map[int32]int64
}

// RunAtomic checks what AtomicWithJournal says: killed at any step, of handing rows over or of the journal's commit, and taken over by another owner at any step,
// what stands in the target is what stands in the journal.
func RunAtomic(t *testing.T, open func(t testing.TB) Atomic) {
	for _, c := range []struct {
		name string
		run  func(t testing.TB, a Atomic)
	}{{"AtomicKilled", atomicKilled}, {"AtomicTakenOver", atomicTakenOver}, {"AtomicFilled", atomicFilled}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			if !a.Sink(nil).Features().AtomicWithJournal {
				t.Fatal("the sink does not declare AtomicWithJournal")
			}
			c.run(t, a)
		})
	}
}

// epoch opens the sink, hands ten more rows of both partitions over and commits them.
func (a Atomic) epoch(t testing.TB, token uint64, base int64, hook func(string) error) error {
	if hook == nil {
		hook = func(string) error { return nil }
	}
	w, err := a.Sink(hook).Open(t.Context(), target(token, 0, 1))
	if err != nil {
		return err
	}
	defer w.Close()
	j, can := w.(sinks.Joiner)
	if !can {
		t.Fatal("the writer cannot join")
	}
	batches := []sinks.Rows{a.batch(0, base, base+10), a.batch(1, base, base+10)}
	if err := j.Join(t.Context(), batches); err != nil {
		return err
	}
	return a.Commit(t, token, batches, hook)
}

// agree compares target and journal, and says where they stand.
func (a Atomic) agree(t testing.TB, when string) int64 {
	t.Helper()
	journal, seen := a.Rows(t), look(t, a.Place, when)
	if !maps.Equal(journal, seen) || journal[0] != journal[1] {
		t.Fatalf("%s: the journal holds %v rows and the target %v", when, journal, seen)
	}
	return journal[0]
}

// stepsOf counts the steps of an epoch.
func (a Atomic) stepsOf(t testing.TB) int {
	t.Helper()
	count := &steps{at: -1}
	if err := a.epoch(t, a.Take(t), 0, count.hook); err != nil {
		t.Fatal(err)
	}
	if a.agree(t, "whole") != 10 {
		t.Fatal("the epoch is not there")
	}
	return count.calls
}

func atomicKilled(t testing.TB, a Atomic) {
	n := a.stepsOf(t)
	for k := 1; k <= n; k++ {
		base := a.agree(t, "before")
		var where string
		s := &steps{at: k, do: func(step string) error { where = step; return errKilled }}
		err := a.epoch(t, a.Take(t), base, s.hook)
		when := fmt.Sprintf("killed at step %d (%s)", k, where)
		if !s.done || err == nil {
			t.Errorf("%s: the step came: %v, and the error is %v", when, s.done, err)
		}
		at := a.agree(t, when)
		if err := a.epoch(t, a.Take(t), at, nil); err != nil {
			t.Fatalf("%s: the heir: %v", when, err)
		}
		if a.agree(t, when) != at+10 {
			t.Fatalf("%s: the heir's epoch is not there", when)
		}
	}
}

func atomicTakenOver(t testing.TB, a Atomic) {
	n := a.stepsOf(t)
	for k := 1; k <= n; k++ {
		base := a.agree(t, "before")
		var where string
		var heir error
		s := &steps{at: k, do: func(step string) error {
			where = step
			a.stopped(t)
			heir = a.epoch(t, a.Take(t), a.agree(t, "taken over"), nil)
			return nil
		}}
		err := a.epoch(t, a.Take(t), base, s.hook)
		when := fmt.Sprintf("taken over at step %d (%s)", k, where)
		// An owner whose transaction is under way is waited for; nobody takes over in its middle.
		waited := codes.Has(heir, codes.LeaseHeld) || codes.Has(heir, codes.SinkUnavailable)
		if err == nil && heir == nil && a.agree(t, when) != base+20 && a.agree(t, when) != base+10 {
			t.Errorf("%s: both went on", when)
		}
		if err != nil && !errors.Is(err, errKilled) && codes.Of(err) == nil {
			t.Errorf("%s: %v", when, err)
		}
		if heir != nil && !waited {
			t.Errorf("%s: the heir: %v", when, heir)
		}
		a.agree(t, when)
	}
}

// atomicFilled: rows that the journal holds and the target lacks are published by themselves, and joining goes on behind them.
func atomicFilled(t testing.TB, a Atomic) {
	token := a.Take(t)
	if err := a.Commit(t, token, []sinks.Rows{a.batch(0, 0, 10), a.batch(1, 0, 10)}, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, a.Sink(nil), target(token, 0, 1))
	mustPublish(t, w, a.batch(0, 0, 10), a.batch(1, 0, 10))
	mustClose(t, w)
	if a.agree(t, "filled") != 10 {
		t.Error("the target was not filled")
	}
	left := mustOpen(t, a.Sink(nil), target(token, 0, 1)).(sinks.Joiner)
	if err := left.Join(t.Context(), []sinks.Rows{a.batch(0, 10, 20), a.batch(1, 10, 20)}); err != nil {
		t.Fatal(err)
	}
	if a.agree(t, "handed over") != 10 {
		t.Error("rows are visible before the journal's commit")
	}
	mustClose(t, left)
	if err := a.epoch(t, token, 10, nil); err != nil {
		t.Fatal(err)
	}
	if a.agree(t, "gone on") != 20 {
		t.Error("the epoch behind is not there")
	}
}
