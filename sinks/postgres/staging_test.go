package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

func staging(t testing.TB, url string, create bool, hook func(string) error) *postgres.Staging {
	t.Helper()
	cfg := patient
	cfg.URL, cfg.Table, cfg.Create, cfg.Hook = url, "features", create, hook
	g, err := postgres.NewStaging(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStaging(t *testing.T) {
	t.Parallel()
	sinktest.RunStaging(t, func(t testing.TB) sinktest.StagingPlace {
		db := pgtest.Database(t, nil)
		return sinktest.StagingPlace{
			PlainText: true,
			Staging:   func(hook func(string) error) sinks.Staging { return staging(t, db.Super, true, hook) },
			Seen:      func(t testing.TB, run string) []sinktest.Seen { return stagedRows(t, db.Super, run) },
		}
	})
}

// stagedRows reads the view, as a user does.
func stagedRows(t testing.TB, url, run string) (out []sinktest.Seen) {
	t.Helper()
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	found, _ := pgtest.Connect(t, url).Query(t.Context(), `SELECT row_number, event_nanos, event_id, event_key, "values"[array_position(outputs, 'ema12')], "values"[array_position(outputs, 'close')]
		FROM features WHERE run_id = $1 ORDER BY row_number`, run)
	var s sinktest.Seen
	var nanos int64
	var id, key string
	var ema, closing *float64
	_, err := pgx.ForEachRow(found, []any{&s.Number, &nanos, &id, &key, &ema, &closing}, func() error {
		row := partitions.Row{Time: record.EventTime(nanos), ID: []byte(id), Key: []byte(key)}
		row.Values = append(row.Values, value(ema), value(closing))
		s.Text = string(enc.Append(nil, 0, s.Number, &row))
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUnfitStaging: tables that are missing or of another kind are found before there is a result.
func TestUnfitStaging(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	conn := pgtest.Connect(t, db.Super)
	if err := staging(t, db.Super, false, nil).Check(t.Context()); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("%v, want SINK_INVALID", err)
	}
	if err := staging(t, db.Super, true, nil).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := staging(t, db.Super, false, nil).Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"ALTER TABLE features_runs DROP CONSTRAINT features_runs_pkey", "ALTER TABLE features_staged ADD COLUMN stray int NOT NULL"} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if err := staging(t, db.Super, true, nil).Check(t.Context()); !codes.Has(err, codes.SinkInvalid) {
			t.Errorf("after %s: %v, want SINK_INVALID", text, err)
		}
	}
	if err := staging(t, "postgres://u:canary-pw@127.0.0.1:1/x", true, nil).Check(t.Context()); !codes.Has(err, codes.SinkUnavailable) {
		t.Errorf("%v, want SINK_UNAVAILABLE", err)
	}
}
