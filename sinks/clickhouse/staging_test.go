package clickhouse_test

import (
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
	"github.com/weirstream/weir/sinks/sinktest"
)

func staging(t testing.TB, db chtest.DB, hook func(string) error) *clickhouse.Staging {
	t.Helper()
	g, err := clickhouse.NewStaging(clickhouse.Config{URL: db.URL(chtest.Super), Table: "features", Create: true, Hook: hook, ConnectTimeout: time.Minute, StatementTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStaging(t *testing.T) {
	t.Parallel()
	sinktest.RunStaging(t, func(t testing.TB) sinktest.StagingPlace {
		db := chtest.Database(t)
		return sinktest.StagingPlace{
			Staging: func(hook func(string) error) sinks.Staging { return staging(t, db, hook) },
			Seen:    func(t testing.TB, run string) []sinktest.Seen { return stagedRows(t, db, run) },
		}
	})
}

// stagedRows reads the view, as a user does.
func stagedRows(t testing.TB, db chtest.DB, run string) (out []sinktest.Seen) {
	t.Helper()
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	query := "SELECT row_number, event_nanos, event_id, event_key, values[indexOf(outputs, 'ema12')], values[indexOf(outputs, 'close')] FROM features WHERE run_id = " + literal(run) + " ORDER BY row_number"
	err := db.Connect(t).Query(t.Context(), query, func(v []any) error {
		s := sinktest.Seen{Number: v[0].(int64)}
		row := partitions.Row{Time: record.EventTime(v[1].(int64)), ID: []byte(v[2].(string)), Key: []byte(v[3].(string)), Values: []operators.Value{value(v[4]), value(v[5])}}
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
	db := chtest.Database(t)
	g, err := clickhouse.NewStaging(clickhouse.Config{URL: db.URL(chtest.Super), Table: "features", ConnectTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := g.Check(t.Context()); !codes.Has(err, codes.SinkInvalid) {
			t.Errorf("with %d of the statements run: %v, want SINK_INVALID", i, err)
		}
		switch i {
		case 0:
			run(t, db, "CREATE TABLE features_staged (run_id String) ENGINE = MergeTree ORDER BY run_id")
		case 1:
			run(t, db, "DROP TABLE features_staged", g.Definition()[0])
		case 2:
			run(t, db, g.Definition()[1])
		}
	}
	run(t, db, g.Definition()[2])
	if err := g.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := (staging(t, chtest.DB{Name: "d", Address: "127.0.0.1:1"}, nil)).Check(t.Context()); !codes.Has(err, codes.SinkUnavailable) {
		t.Errorf("%v, want SINK_UNAVAILABLE", err)
	}
}
