package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestSequence: a table keeps one sequence of a run, written by itself or with the journal.
func TestSequence(t *testing.T) {
	t.Parallel()
	t.Run("Alone", func(t *testing.T) {
		t.Parallel()
		sinktest.RunSequence(t, func(t testing.TB) sinktest.Place {
			db := pgtest.Database(t, nil)
			return sinktest.Place{
				PlainText: true,
				Sink: func(hook func(string) error) sinks.Sink {
					return sink(t, db.Super, func(c *postgres.Config) { c.Hook = hook })
				},
				Seen:    func(t testing.TB, run string) []sinktest.Seen { return seen(t, db.Super, run) },
				Stopped: func(t testing.TB) { endStopped(t, db) },
			}
		})
	})
	t.Run("WithTheJournal", func(t *testing.T) {
		t.Parallel()
		sinktest.RunSequence(t, func(t testing.TB) sinktest.Place {
			j := journal(t, sinktest.RunID)
			return sinktest.Place{
				PlainText: true,
				Sink:      func(hook func(string) error) sinks.Sink { return j.sink(t, hook) },
				Seen:      func(t testing.TB, run string) []sinktest.Seen { return seen(t, j.db.Super, run) },
				Stopped:   func(t testing.TB) { endStopped(t, j.db) },
			}
		})
	})
}

func exec(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
}

func open(t testing.TB, s sinks.Sink, to sinks.Target) sinks.Writer {
	t.Helper()
	w, err := s.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // the test may have closed it
	return w
}

func publish(t testing.TB, w sinks.Writer, batches ...sinks.Rows) {
	t.Helper()
	if err := w.Publish(t.Context(), batches); err != nil {
		t.Fatal(err)
	}
}

// numbers are the rows of a run, as partition:first-last/count.
func numbers(t testing.TB, conn *pgx.Conn, run string) string {
	t.Helper()
	var text string
	err := conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(partition || ':' || f || '-' || l || '/' || n, ' ' ORDER BY partition), '') FROM
		(SELECT partition, min(row_number) f, max(row_number) l, count(*) n FROM results WHERE run_id = $1 GROUP BY partition) x`, run).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCureOfAnotherSequence: the statements in the refusal clear the way, whatever the name of the run.
func TestCureOfAnotherSequence(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	conn := pgtest.Connect(t, db.Super)
	s, to, kept := sink(t, db.Super, nil), target("x"), target("x")
	to.RunID, to.Sequence, kept.Sequence = "it's; r", "rows one", "rows one"
	publish(t, open(t, s, to), rows(0, 0, 5))
	publish(t, open(t, s, kept), rows(0, 0, 2))
	to.Sequence = "rows two"
	_, err := s.Open(t.Context(), to)
	if !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), `"it's; r"`) || !strings.Contains(err.Error(), "table public.results") {
		t.Fatalf("%v", err)
	}
	_, cure, _ := strings.Cut(err.Error(), ":\n")
	exec(t, conn, cure)
	w := open(t, s, to)
	publish(t, w, rows(0, 0, 3))
	if got := numbers(t, conn, to.RunID) + ", " + numbers(t, conn, "r"); got != "0:0-2/3, 0:0-1/2" {
		t.Error(got)
	}
}

// TestProgressOfAFormerRelease: who owns the table adds the column, rows go on and are named; who does not is told the statement, and it is all that is needed.
func TestProgressOfAFormerRelease(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	conn := pgtest.Connect(t, db.Super)
	role := db.Name + "_other"
	exec(t, conn, "CREATE ROLE "+role+" LOGIN", "GRANT CREATE ON SCHEMA public TO "+role)
	t.Cleanup(func() { dropRole(t, db.Super, role) })
	publish(t, open(t, sink(t, db.Super, nil), target("x")), rows(0, 0, 4))
	exec(t, conn, "ALTER TABLE results_progress DROP COLUMN sequence", "GRANT SELECT, INSERT, UPDATE ON results, results_progress TO "+role)
	to := target("x")
	to.Sequence = "rows one"
	statement := ""
	for name, s := range map[string]*postgres.Sink{
		"not ours":       sink(t, db.URL(role), nil),
		"not to be made": sink(t, db.Super, func(c *postgres.Config) { c.Create = false }),
	} {
		_, opened := s.Open(t.Context(), to)
		for _, err := range []error{opened, s.Probe(t.Context(), to)} {
			if !codes.Has(err, codes.SinkInvalid) {
				t.Fatalf("%s: %v", name, err)
			}
			_, statement, _ = strings.Cut(err.Error(), `"sequence": `)
		}
	}
	if err := sink(t, db.Super, nil).Probe(t.Context(), to); err != nil {
		t.Errorf("what opening adds is missed beforehand: %v", err)
	}
	w := open(t, sink(t, db.Super, nil), to)
	if at := w.Published()[0]; at != 4 {
		t.Errorf("%d rows stand, want 4", at)
	}
	exec(t, conn, "ALTER TABLE results_progress DROP COLUMN sequence", statement)
	w = open(t, sink(t, db.URL(role), nil), to)
	publish(t, w, rows(0, 0, 6))
	if got := numbers(t, conn, "r"); got != "0:0-5/6" {
		t.Error(got)
	}
	to.Sequence = "rows two"
	if _, err := sink(t, db.URL(role), nil).Open(t.Context(), to); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("%v, want SINK_INVALID", err)
	}
}

// TestATableThatLostRows: whatever became of the table, an owner who opens it is told what is still there at the end, and fills the rest; rows that were deleted before
// the last one stay deleted.
func TestATableThatLostRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	conn := pgtest.Connect(t, db.Super)
	s := sink(t, db.Super, nil)
	var token uint64
	owner := func(run string) sinks.Writer {
		to := target("x")
		token++
		to.RunID, to.Token, to.Sequence = run, token, "rows one"
		return open(t, s, to)
	}
	for _, c := range []struct{ name, statement, stands, rows string }{
		{"dropped", "DROP TABLE results", "0 0", "0:0-11/12 1:0-5/6"},
		{"truncated", "TRUNCATE results", "0 0", "0:0-11/12 1:0-5/6"},
		{"made anew", "CREATE TABLE other (LIKE results INCLUDING ALL); DROP TABLE results; ALTER TABLE other RENAME TO results", "0 0", "0:0-11/12 1:0-5/6"},
		{"a partition deleted", "DELETE FROM results WHERE partition = 1", "10 0", "0:0-11/12 1:0-5/6"},
		{"the end deleted", "DELETE FROM results WHERE partition = 0 AND row_number > 6", "7 5", "0:0-11/12 1:0-5/6"},
		{"the beginning deleted", "DELETE FROM results WHERE row_number < 3", "10 5", "0:3-11/9 1:3-5/3"},
	} {
		run := "run " + c.name
		w := owner(run)
		publish(t, w, rows(0, 0, 10), rows(1, 0, 5))
		_ = w.Close()
		exec(t, conn, c.statement)
		w = owner(run)
		if got := fmt.Sprint(w.Published()[0], w.Published()[1]); got != c.stands {
			t.Errorf("%s: %s rows stand, want %s", c.name, got, c.stands)
		}
		publish(t, w, rows(0, 0, 12), rows(1, 0, 6))
		_ = w.Close()
		if got := numbers(t, conn, run); got != c.rows {
			t.Errorf("%s: %s, want %s", c.name, got, c.rows)
		}
	}
}

// TestATableThatLostRowsUnderWriters: writers of other runs that are at work when the table goes, and is made anew by an owner who opens it, find out before they write.
func TestATableThatLostRowsUnderWriters(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"dropped": "DROP TABLE results", "truncated": "TRUNCATE results",
		"made anew": "CREATE TABLE other (LIKE results INCLUDING ALL); DROP TABLE results; ALTER TABLE other RENAME TO results",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t, nil)
			conn := pgtest.Connect(t, db.Super)
			s, to, second := sink(t, db.Super, nil), target("x"), target("x")
			second.RunID = "second"
			w := open(t, s, to)
			publish(t, w, rows(0, 0, 10))
			exec(t, conn, statement)
			publish(t, open(t, s, second), rows(0, 0, 3))
			if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 10, 12)}); !codes.Has(err, codes.SinkUnavailable) {
				t.Errorf("%v, want SINK_UNAVAILABLE", err)
			}
			_ = w.Close() // as whoever opens anew does
			w = open(t, s, to)
			if at := w.Published()[0]; at != 0 {
				t.Errorf("%d rows stand, want none", at)
			}
			publish(t, w, rows(0, 0, 12))
			if got := numbers(t, conn, "r") + ", " + numbers(t, conn, "second"); got != "0:0-11/12, 0:0-2/3" {
				t.Error(got)
			}
		})
	}
}

// TestATableOfRevisionsThatWasEmptied is filled again from the first row on.
func TestATableOfRevisionsThatWasEmptied(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	conn := pgtest.Connect(t, db.Super)
	s, to := sink(t, db.Super, nil), target("revision")
	to.Revised = true
	publish(t, open(t, s, to), rows(0, 0, 10))
	for _, c := range []struct {
		statement string
		stands    int64
	}{{"DELETE FROM results WHERE row_number > 7", 10}, {"TRUNCATE results", 0}, {"DROP TABLE results", 0}} {
		exec(t, conn, c.statement)
		w := open(t, s, to)
		if at := w.Published()[0]; at != c.stands {
			t.Errorf("%s: %d rows stand, want %d", c.statement, at, c.stands)
		}
		publish(t, w, rows(0, 0, 10))
	}
	if got := numbers(t, conn, "r"); got != "0:0-9/10" {
		t.Error(got)
	}
}
