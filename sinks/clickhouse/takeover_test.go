package clickhouse_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestSequence: a table keeps one sequence of a run.
func TestSequence(t *testing.T) {
	t.Parallel()
	sinktest.RunSequence(t, func(t testing.TB) sinktest.Place {
		db := chtest.Database(t)
		return sinktest.Place{
			Sink: func(hook func(string) error) sinks.Sink {
				return sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) { c.Hook = hook })
			},
			Seen: func(t testing.TB, run string) []sinktest.Seen { return seen(t, db, run) },
		}
	})
}

// numbers are the rows of a run that the view shows, as partition:first-last/count.
func numbers(t testing.TB, db chtest.DB, run string) string {
	t.Helper()
	return answer(t, db, "SELECT concat(toString(partition), ':', toString(min(row_number)), '-', toString(max(row_number)), '/', toString(count())) FROM results WHERE run_id = "+
		literal(run)+" GROUP BY partition ORDER BY partition")
}

// TestCureOfAnotherSequence: the statements in the refusal clear the way, whatever the name of the run, and blocks that the server has seen before are taken again.
func TestCureOfAnotherSequence(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s, to, kept := sink(t, db.URL(chtest.Super), nil), target("x"), target("x")
	to.RunID, to.Sequence, kept.Sequence = "it's; r", "rows one", "rows one"
	publish(t, open(t, s, to), rows(0, 0, 5))
	publish(t, open(t, s, kept), rows(0, 0, 2))
	to.Sequence = "rows two"
	_, err := s.Open(t.Context(), to)
	if !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), `"it's; r"`) || !strings.Contains(err.Error(), "table "+db.Name+".results") {
		t.Fatalf("%v", err)
	}
	_, cure, _ := strings.Cut(err.Error(), ":\n")
	for _, text := range strings.Split(strings.TrimSuffix(cure, ";"), ";\n") {
		run(t, db, text)
	}
	for left := "some"; left != "0"; {
		left = answer(t, db, "SELECT count() FROM results_progress WHERE run_id LIKE 'it%'")
		if n := answer(t, db, "SELECT count() FROM results_rows WHERE run_id LIKE 'it%'"); n != "0" {
			left = n
		}
	}
	publish(t, open(t, s, to), rows(0, 0, 5))
	if got := numbers(t, db, to.RunID) + ", " + numbers(t, db, "r"); got != "0:0-4/5, 0:0-1/2" {
		t.Error(got)
	}
}

// TestProgressOfAFormerRelease: who may make tables adds the column, and rows go on and are named; who may not is told the statement, and it is all that is needed.
func TestProgressOfAFormerRelease(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	publish(t, open(t, sink(t, db.URL(chtest.Super), nil), target("x")), rows(0, 0, 4))
	run(t, db, "ALTER TABLE results_progress DROP COLUMN sequence")
	to := target("x")
	to.Sequence = "rows one"
	asked := sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) { c.Create = false })
	_, err := asked.Open(t.Context(), to)
	if !codes.Has(err, codes.SinkInvalid) || !codes.Has(asked.Probe(t.Context(), to), codes.SinkInvalid) {
		t.Fatalf("%v", err)
	}
	_, statement, _ := strings.Cut(err.Error(), `"sequence": `)
	if err := sink(t, db.URL(chtest.Super), nil).Probe(t.Context(), to); err != nil {
		t.Errorf("what opening adds is missed beforehand: %v", err)
	}
	if at := open(t, sink(t, db.URL(chtest.Super), nil), to).Published()[0]; at != 4 {
		t.Errorf("%d rows stand, want 4", at)
	}
	run(t, db, "ALTER TABLE results_progress DROP COLUMN sequence", statement)
	publish(t, open(t, asked, to), rows(0, 0, 6))
	if got := numbers(t, db, "r"); got != "0:0-5/6" {
		t.Error(got)
	}
	to.Sequence = "rows two"
	if _, err := asked.Open(t.Context(), to); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("%v, want SINK_INVALID", err)
	}
}

// TestATableThatLostRows: whatever became of the table of rows, an owner who opens it, the same one or another, is told what is still there, and fills the rest.
func TestATableThatLostRows(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s := sink(t, db.URL(chtest.Super), nil)
	for i, c := range []struct{ name, statement, stands string }{
		{"dropped", "DROP TABLE results_rows", "0 0"},
		{"truncated", "TRUNCATE TABLE results_rows", "0 0"},
		{"a partition deleted", "ALTER TABLE results_rows DELETE WHERE partition = 1", "10 0"},
		{"the end deleted", "ALTER TABLE results_rows DELETE WHERE partition = 0 AND row_number > 6", "0 5"},
		{"nothing deleted", "ALTER TABLE results_rows DELETE WHERE run_id = 'none'", "10 5"},
	} {
		for _, another := range []uint64{0, 1} {
			to := target("x")
			to.RunID, to.Sequence = fmt.Sprint("run ", i, another), "rows one"
			publish(t, open(t, s, to), rows(0, 0, 10), rows(1, 0, 5))
			run(t, db, c.statement)
			for strings.Contains(c.statement, "DELETE") && answer(t, db, "SELECT count() FROM system.mutations WHERE database = '"+db.Name+"' AND NOT is_done") != "0" {
			}
			to.Token += another
			w := open(t, s, to)
			if got := fmt.Sprint(w.Published()[0], w.Published()[1]); got != c.stands {
				t.Errorf("%s: %s rows stand, want %s", c.name, got, c.stands)
			}
			publish(t, w, rows(0, 0, 12), rows(1, 0, 6))
			if got := numbers(t, db, to.RunID); got != "0:0-11/12,1:0-5/6" {
				t.Errorf("%s: %s", c.name, got)
			}
			if w := open(t, s, to); w.Published()[0] != 12 || w.Published()[1] != 6 {
				t.Errorf("%s: filled, and %v stand", c.name, w.Published())
			}
		}
	}
}

// TestATableThatIsFilledAgain: who dies while he fills it leaves it to the next one, in whichever step.
func TestATableThatIsFilledAgain(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	dies := ""
	s := sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) {
		c.Hook = func(step string) error {
			if step == dies {
				return fmt.Errorf("killed")
			}
			return nil
		}
	})
	to := target("x")
	publish(t, open(t, s, to), rows(0, 0, 30))
	for _, step := range []string{"begin", "staged", "published"} {
		run(t, db, "TRUNCATE TABLE results_rows")
		to.Token++
		w := open(t, s, to)
		publish(t, w, rows(0, 0, 10))
		dies = step
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 10, 20)}); err == nil {
			t.Fatal("it does not die")
		}
		dies = ""
		to.Token++
		w = open(t, s, to)
		if at := w.Published()[0]; at > 20 {
			t.Errorf("killed at %s: %d rows stand", step, at)
		}
		publish(t, w, rows(0, 0, 30))
		if got := numbers(t, db, "r"); got != "0:0-29/30" {
			t.Errorf("killed at %s: %s", step, got)
		}
	}
}

// TestATableMadeAnewUnderAWriter: a writer of another run that is at work when the table goes, and is made anew by an owner who opens it, finds out before he shows rows.
func TestATableMadeAnewUnderAWriter(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s, to, second := sink(t, db.URL(chtest.Super), nil), target("x"), target("x")
	second.RunID = "second"
	w := open(t, s, to)
	publish(t, w, rows(0, 0, 10))
	// This old server knows a table by the second in which it was made.
	for made := answer(t, db, "SELECT toString(now())"); made == answer(t, db, "SELECT toString(now())"); {
	}
	run(t, db, "DROP TABLE results_rows")
	publish(t, open(t, s, second), rows(0, 0, 3))
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 10, 12)}); !codes.Has(err, codes.SinkUnavailable) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("%v, want SINK_UNAVAILABLE", err)
	}
	w = open(t, s, to)
	if at := w.Published()[0]; at != 0 {
		t.Errorf("%d rows stand, want none", at)
	}
	publish(t, w, rows(0, 0, 12))
	if got := numbers(t, db, "r") + ", " + numbers(t, db, "second"); got != "0:0-11/12, 0:0-2/3" {
		t.Error(got)
	}
}

// TestATableOfRevisionsThatWasEmptied is filled again from the first row on.
func TestATableOfRevisionsThatWasEmptied(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s, to := sink(t, db.URL(chtest.Super), nil), target("revision")
	to.Revised = true
	publish(t, open(t, s, to), rows(0, 0, 10))
	for _, statement := range []string{"TRUNCATE TABLE results_rows", "DROP TABLE results_rows"} {
		if at := open(t, s, to).Published()[0]; at != 10 {
			t.Errorf("%d rows stand, want 10", at)
		}
		run(t, db, statement)
		w := open(t, s, to)
		if at := w.Published()[0]; at != 0 {
			t.Errorf("%s: %d rows stand, want none", statement, at)
		}
		publish(t, w, rows(0, 0, 10))
	}
	if got := numbers(t, db, "r"); got != "0:0-9/10" {
		t.Error(got)
	}
}
