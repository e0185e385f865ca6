package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkCopy compares with the client's own CopyFrom of the same rows into a table of the same form.
func BenchmarkCopy(b *testing.B) {
	const n = 50_000
	db := pgtest.Database(b, nil)
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1}
	w, err := sink(b, db.Super, nil).Open(b.Context(), to)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.Connect(b.Context(), db.Super)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "CREATE TABLE bare (LIKE results INCLUDING ALL)"); err != nil {
		b.Fatal(err)
	}
	columns := []string{"run_id", "partition", "row_number", "event_time", "event_nanos", "event_id", "event_key", "ema12", "close"}
	rows := sinktest.Rounds(9, n)
	sinktest.Compare(b, 9, n, func(round int) {
		if err := w.Publish(b.Context(), rows[round:round+1]); err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		var values [][]any
		err := rows[round].Each(2, nil, func(number int64, row *partitions.Row) error {
			values = append(values, []any{"r", int32(0), number, time.Unix(0, int64(row.Time)), int64(row.Time), string(row.ID), string(row.Key), row.Values[0].F, row.Values[1].F})
			return nil
		})
		if err == nil {
			_, err = conn.CopyFrom(b.Context(), pgx.Identifier{"bare"}, columns, pgx.CopyFromRows(values))
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkTwoSinks publishes to a table and to files side by side, beside one after the other: above 1, two cost less than their sum.
func BenchmarkTwoSinks(b *testing.B) {
	const n = 50_000
	db := pgtest.Database(b, nil)
	to := sinks.Target{RunID: "both", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1}
	files, err := file.New(file.Config{Folder: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	p := &sinks.Publisher{Sinks: []sinks.Named{{Name: "table", Sink: sink(b, db.Super, nil)}, {Name: "files", Sink: files}}}
	both, err := p.Open(b.Context(), to, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer both.Close()
	// A table of its own, since rows at the end of an index cost less than rows within it.
	to.RunID = "each"
	var each []sinks.Writer
	for _, s := range []sinks.Sink{sink(b, db.Super, func(c *postgres.Config) { c.Table = "other" }), files} {
		w, err := s.Open(b.Context(), to)
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		each = append(each, w)
	}
	rows := sinktest.Rounds(9, n)
	sinktest.Compare(b, 9, n, func(round int) {
		if err := both.Publish(b.Context(), rows[round:round+1]); err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		for _, w := range each {
			if err := w.Publish(b.Context(), rows[round:round+1]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRevisions merges revisions, each of a key and time of its own, beside the plainest way to insert the same rows where they are absent: COPY into a
// temporary table and one statement.
func BenchmarkRevisions(b *testing.B) {
	const n = 50_000
	db := pgtest.Database(b, nil)
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1, Revised: true}
	w, err := sink(b, db.Super, nil).Open(b.Context(), to)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.Connect(b.Context(), db.Super)
	if err != nil {
		b.Fatal(err)
	}
	for _, text := range []string{"CREATE TABLE bare (LIKE results INCLUDING ALL)", "CREATE TEMPORARY TABLE stage (LIKE results)"} {
		if _, err := conn.Exec(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
	columns := []string{"run_id", "partition", "row_number", "event_time", "event_nanos", "event_id", "event_key", "ema12", "close"}
	rows := sinktest.Rounds(9, n)
	sinktest.Compare(b, 9, n, func(round int) {
		if err := w.Publish(b.Context(), rows[round:round+1]); err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		var values [][]any
		err := rows[round].Each(2, nil, func(number int64, row *partitions.Row) error {
			values = append(values, []any{"r", int32(0), number, time.Unix(0, int64(row.Time)), int64(row.Time), string(row.ID), string(row.Key), row.Values[0].F, row.Values[1].F})
			return nil
		})
		if err == nil {
			_, err = conn.CopyFrom(b.Context(), pgx.Identifier{"stage"}, columns, pgx.CopyFromRows(values))
		}
		if err == nil {
			_, err = conn.Exec(b.Context(), "INSERT INTO bare SELECT * FROM stage ON CONFLICT DO NOTHING; TRUNCATE stage")
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}
