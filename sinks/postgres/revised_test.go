package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestRevised: a table of revisions holds one row for each key and time, that of the highest revision.
func TestRevised(t *testing.T) {
	t.Parallel()
	sinktest.RunRevised(t, true, func(t testing.TB) sinktest.Place {
		db := pgtest.Database(t, nil)
		return sinktest.Place{
			Outputs: sinktest.RevisedOutputs,
			Sink: func(hook func(string) error) sinks.Sink {
				return sink(t, db.Super, func(c *postgres.Config) { c.Hook = hook })
			},
			Seen: func(t testing.TB, run string) []sinktest.Seen { return seenRevised(t, db.Super, run) },
		}
	})
}

func seenRevised(t testing.TB, url, run string) (out []sinktest.Seen) {
	t.Helper()
	found, _ := pgtest.Connect(t, url).Query(t.Context(), `SELECT partition, row_number, event_nanos, event_id, event_key, close, revision FROM results WHERE run_id = $1`, run)
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.RevisedOutputs})
	var s sinktest.Seen
	var nanos int64
	var id, key string
	var closing, revision *float64
	_, err := pgx.ForEachRow(found, []any{&s.Partition, &s.Number, &nanos, &id, &key, &closing, &revision}, func() error {
		row := partitions.Row{Time: record.EventTime(nanos), ID: []byte(id), Key: []byte(key), Values: []operators.Value{value(closing), value(revision)}}
		s.Text = string(enc.Append(nil, s.Partition, s.Number, &row))
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRevisedIntoAnotherTable: a table that is keyed by row numbers cannot take revisions, nor the other way round, and a role needs UPDATE and a temporary table.
func TestRevisedIntoAnotherTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	s := sink(t, db.Super, nil)
	plain, revised := target("close", "revision"), target("close", "revision")
	revised.Revised = true
	w, err := s.Open(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := s.Open(t.Context(), revised); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), "event_key, event_nanos, run_id") {
		t.Errorf("%v", err)
	}
	other := sink(t, db.Super, func(c *postgres.Config) { c.Table = "revised" })
	if w, err = other.Open(t.Context(), revised); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := other.Open(t.Context(), plain); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), "partition, row_number, run_id") {
		t.Errorf("%v", err)
	}
	super, role := pgtest.Connect(t, db.Super), db.Name+"_revising"
	for _, text := range []string{
		"CREATE ROLE " + role + " LOGIN", "GRANT SELECT, INSERT ON revised TO " + role, "GRANT SELECT, INSERT, UPDATE ON revised_progress TO " + role,
		"REVOKE TEMPORARY ON DATABASE " + db.Name + " FROM PUBLIC",
	} {
		if _, err := super.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
	t.Cleanup(func() { dropRole(t, db.Super, role) })
	poor := sink(t, db.URL(role), func(c *postgres.Config) { c.Table, c.Create = "revised", false })
	if _, err := poor.Open(t.Context(), revised); !codes.Has(err, codes.SinkDenied) || !strings.Contains(err.Error(), "may not UPDATE") {
		t.Errorf("without UPDATE: %v", err)
	}
	if _, err := super.Exec(t.Context(), "GRANT UPDATE ON revised TO "+role); err != nil {
		t.Fatal(err)
	}
	if _, err := poor.Open(t.Context(), revised); !codes.Has(err, codes.SinkDenied) || !strings.Contains(err.Error(), "TEMPORARY") {
		t.Errorf("without TEMPORARY: %v", err)
	}
}
