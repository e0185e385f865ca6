package sinktest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// StagingPlace is a target of its own, for one check of a sinks.Staging.
type StagingPlace struct {
	// Staging describes the target. hook is called between any two steps, with the step's name; what it returns ends the call there. nil is no hook.
	Staging func(hook func(step string) error) sinks.Staging
	// Seen is what a reader of the target sees of a run, in the order of the rows. Their partition is 0.
	Seen func(t testing.TB, run string) []Seen
	// PlainText is for a target that takes no ids and keys with control characters or broken UTF-8.
	PlainText bool
}

// RunStaging runs the suite of a sinks.Staging. open makes a new, empty place for each check.
func RunStaging(t *testing.T, open func(t testing.TB) StagingPlace) {
	for _, c := range []struct {
		name string
		run  func(t testing.TB, p StagingPlace)
	}{
		{"Shows", stagingShows}, {"Kills", stagingKills}, {"Drops", stagingDrops}, {"Many", stagingMany}, {"Refuses", stagingRefuses},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			if err := p.Staging(nil).Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.run(t, p)
		})
	}
}

func (p StagingPlace) result(run, artifact string, n int64) (sinks.Staged, func(func(*partitions.Row) error) error) {
	return sinks.Staged{StagedName: sinks.StagedName{RunID: run, Artifact: artifact}, Outputs: Outputs, Rows: n}, func(fn func(*partitions.Row) error) error {
		for i := range n {
			row := Row(0, i, !p.PlainText)
			if err := fn(&row); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p StagingPlace) stage(t testing.TB, s sinks.Staging, run, artifact string, n int64) sinks.StagedName {
	t.Helper()
	r, rows := p.result(run, artifact, n)
	if err := s.Stage(t.Context(), r, rows); err != nil {
		t.Fatalf("staging: %v", err)
	}
	return r.StagedName
}

// sees compares what a reader sees of a run.
func (p StagingPlace) sees(t testing.TB, when, run string, n int64) {
	t.Helper()
	json := sinks.NewJSON(sinks.Target{RunID: run, Outputs: Outputs})
	found := p.Seen(t, run)
	if int64(len(found)) != n {
		t.Errorf("%s: %d rows of run %q are seen, want %d", when, len(found), run, n)
		return
	}
	for i, s := range found {
		row := Row(0, int64(i), !p.PlainText)
		if want := string(json.Append(nil, 0, int64(i), &row)); s.Text != want || s.Number != int64(i) {
			t.Fatalf("%s: row %d is number %d\n%s\nwant\n%s", when, i, s.Number, s.Text, want)
		}
	}
}

func hidden(t testing.TB, s sinks.Staging) (out []string) {
	t.Helper()
	err := s.Hidden(t.Context(), func(n sinks.StagedName) error { out = append(out, n.RunID+" "+n.Artifact); return nil })
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// stagingShows: nothing is seen before Show and all of it after, once, however often either is called.
func stagingShows(t testing.TB, p StagingPlace) {
	s := p.Staging(nil)
	first := p.stage(t, s, "run ' 1", "a1", 25)
	p.sees(t, "staged", "run ' 1", 0)
	second := p.stage(t, s, "run_2", "a1", 7)
	none := p.stage(t, s, "run_3", "a3", 0)
	if got, want := hidden(t, s), []string{"run ' 1 a1", "run_2 a1", "run_3 a3"}; !slices.Equal(got, want) {
		t.Errorf("%q are hidden, want %q", got, want)
	}
	for range 2 {
		if err := s.Show(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		p.sees(t, "shown", "run ' 1", 25)
		p.sees(t, "another is shown", "run_2", 0)
		p.stage(t, s, "run ' 1", "a1", 25)
	}
	p.sees(t, "staged after it was shown", "run ' 1", 25)
	for _, name := range []sinks.StagedName{second, none} {
		if err := s.Show(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	p.sees(t, "both are shown", "run_2", 7)
	p.sees(t, "an empty result", "run_3", 0)
	if got := hidden(t, s); len(got) != 0 {
		t.Errorf("%q are hidden, want none", got)
	}
}

// stagingKills: who dies between two steps of staging or showing leaves nothing to be seen, or all of it; who does it again completes it.
func stagingKills(t testing.TB, p StagingPlace) {
	doIt := func(s sinks.Staging, run string) error {
		r, rows := p.result(run, "a", 30)
		if err := s.Stage(t.Context(), r, rows); err != nil {
			return err
		}
		return s.Show(t.Context(), r.StagedName)
	}
	count := &steps{}
	if err := doIt(p.Staging(count.hook), "run"); err != nil {
		t.Fatal(err)
	}
	if count.calls < 4 {
		t.Fatalf("the hook is called %d times; it is to be called between any two steps", count.calls)
	}
	for k := 1; k <= count.calls; k++ {
		run := fmt.Sprintf("run_%d", k)
		where := ""
		s := &steps{at: k, do: func(step string) error { where = step; return errKilled }}
		if err := doIt(p.Staging(s.hook), run); !errors.Is(err, errKilled) {
			t.Errorf("killed at step %d (%s): %v", k, where, err)
		}
		when := fmt.Sprintf("killed at step %d (%s)", k, where)
		if n := len(p.Seen(t, run)); n != 0 && n != 30 {
			t.Errorf("%s: %d rows are seen, want none or all", when, n)
		}
		if err := doIt(p.Staging(nil), run); err != nil {
			t.Fatal(err)
		}
		p.sees(t, when+" and done again", run, 30)
	}
}

// stagingDrops: a result that is hidden goes whole, wherever who drops it dies; one that is shown stays, and so do those of others.
func stagingDrops(t testing.TB, p StagingPlace) {
	s := p.Staging(nil)
	kept := p.stage(t, s, "run_1", "a", 9)
	if err := s.Show(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	dead := p.stage(t, s, "run_1", "b", 5)
	p.stage(t, s, "run_2", "b", 5)
	count := &steps{}
	if err := p.Staging(count.hook).Drop(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	for k := 1; k <= count.calls; k++ {
		p.stage(t, s, "run_1", "b", 5)
		killed := &steps{at: k, do: func(string) error { return errKilled }}
		if err := p.Staging(killed.hook).Drop(t.Context(), dead); !errors.Is(err, errKilled) {
			t.Errorf("killed at step %d of dropping: %v", k, err)
		}
		if got := hidden(t, s); k < count.calls && !slices.Contains(got, "run_1 b") {
			t.Errorf("killed at step %d of dropping: what is left is not found: %q", k, got)
		}
		if err := s.Drop(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []sinks.StagedName{kept, dead, {RunID: "none", Artifact: "none"}} {
		if err := s.Drop(t.Context(), name); err != nil {
			t.Errorf("%v: %v", name, err)
		}
	}
	if got := hidden(t, s); !slices.Equal(got, []string{"run_2 b"}) {
		t.Errorf("%q are hidden, want that of run_2", got)
	}
	p.sees(t, "another result was dropped", "run_1", 9)
	// What was dropped can be made again.
	if err := s.Show(t.Context(), p.stage(t, s, "run_3", "b", 4)); err != nil {
		t.Fatal(err)
	}
	p.sees(t, "made again", "run_3", 4)
}

// stagingMany: so many rows that a target has to cut them into pieces.
func stagingMany(t testing.TB, p StagingPlace) {
	s := p.Staging(nil)
	if err := s.Show(t.Context(), p.stage(t, s, "run", "a", 5000)); err != nil {
		t.Fatal(err)
	}
	p.sees(t, "many rows", "run", 5000)
}

// stagingRefuses: what was not staged cannot be shown, and a result has as many rows as it says.
func stagingRefuses(t testing.TB, p StagingPlace) {
	s := p.Staging(nil)
	if err := s.Show(t.Context(), sinks.StagedName{RunID: "run", Artifact: "none"}); !codes.Has(err, codes.SinkRefused) {
		t.Errorf("what was never staged is shown: %v", err)
	}
	r, rows := p.result("run", "a", 5)
	r.Rows = 6
	if err := s.Stage(t.Context(), r, rows); !codes.Has(err, codes.Internal) {
		t.Errorf("five rows pass for six: %v", err)
	}
	broken := errors.New("the rows cannot be read")
	r.Rows = 5
	if err := s.Stage(t.Context(), r, func(func(*partitions.Row) error) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want the caller's own error", err)
	}
	p.sees(t, "refused", "run", 0)
}
