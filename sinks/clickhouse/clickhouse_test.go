package clickhouse_test

import (
	"fmt"
	"os"
	"strings"
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

func TestMain(m *testing.M) { os.Exit(chtest.Run(m)) }

func sink(t testing.TB, url string, change func(*clickhouse.Config)) *clickhouse.Sink {
	t.Helper()
	cfg := clickhouse.Config{URL: url, Table: "results", Create: true, ConnectTimeout: time.Minute, StatementTimeout: 5 * time.Minute}
	if change != nil {
		change(&cfg)
	}
	s, err := clickhouse.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func target(outputs ...string) sinks.Target {
	return sinks.Target{RunID: "r", Outputs: outputs, Partitions: []int32{0, 1}, Token: 1}
}

func rows(partition int32, from, to int64) sinks.Rows {
	r := sinks.Rows{Partition: partition, From: from}
	for n := from; n < to; n++ {
		r.Append(record.EventTime(n), fmt.Appendf(nil, "e%d", n), []byte("k"), []operators.Value{operators.Number(float64(n))})
	}
	return r
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

// answer is the answer to a query, values with spaces between and rows with commas.
func answer(t testing.TB, db chtest.DB, query string) string {
	t.Helper()
	var out []string
	err := db.Connect(t).Query(t.Context(), query, func(row []any) error {
		out = append(out, strings.TrimSpace(fmt.Sprintln(row...)))
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(out, ",")
}

func run(t testing.TB, db chtest.DB, statements ...string) {
	t.Helper()
	conn := db.Connect(t)
	for _, text := range statements {
		if err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place {
		db := chtest.Database(t)
		return sinktest.Place{
			Sink: func(hook func(string) error) sinks.Sink {
				return sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) { c.Hook = hook })
			},
			Seen: func(t testing.TB, run string) []sinktest.Seen { return seen(t, db, run) },
		}
	})
}

// seen reads the view, as a user does.
func seen(t testing.TB, db chtest.DB, run string) []sinktest.Seen {
	t.Helper()
	if answer(t, db, "SELECT count() FROM system.tables WHERE database = '"+db.Name+"' AND name = 'results'") == "0" {
		return nil
	}
	var out []sinktest.Seen
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	query := "SELECT partition, row_number, event_time, event_nanos, event_id, event_key, ema12, close FROM results WHERE run_id = " + literal(run) + " ORDER BY partition, row_number"
	err := db.Connect(t).Query(t.Context(), query, func(v []any) error {
		s := sinktest.Seen{Partition: int32(v[0].(int64)), Number: v[1].(int64)}
		row := partitions.Row{Time: record.EventTime(v[3].(int64)), ID: []byte(v[4].(string)), Key: []byte(v[5].(string)), Values: []operators.Value{value(v[6]), value(v[7])}}
		if v[2].(uint64) != uint64(v[3].(int64)/1_000_000_000) {
			t.Errorf("event_time is %d, event_nanos %d", v[2], v[3])
		}
		s.Text = string(enc.Append(nil, s.Partition, s.Number, &row))
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

func value(v any) operators.Value {
	f, ok := v.(float64)
	if !ok {
		return operators.Gap
	}
	return operators.Number(f)
}

// TestUnpublishedRowsAreHidden: rows that were staged are seen once their publication is whole, for all partitions at the same moment.
func TestUnpublishedRowsAreHidden(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	looks := map[string]string{}
	armed := false
	s := sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) {
		c.Hook = func(step string) error {
			if armed {
				looks[step] = answer(t, db, "SELECT partition, count() FROM results GROUP BY partition ORDER BY partition")
			}
			return nil
		}
	})
	w := open(t, s, target("x"))
	publish(t, w, rows(0, 0, 3), rows(1, 0, 1))
	armed = true
	publish(t, w, rows(0, 3, 9), rows(1, 1, 9))
	if want := map[string]string{"begin": "0 3,1 1", "staged": "0 3,1 1", "published": "0 9,1 9"}; fmt.Sprint(looks) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", looks, want)
	}
}

// TestCopiesMerge: rows of a publication that was lost halfway are given again by another owner; the copies are known by their key, and go with a merge.
func TestCopiesMerge(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	killed := fmt.Errorf("killed")
	dies := sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) {
		c.Hook = func(step string) error {
			if step == "staged" {
				return killed
			}
			return nil
		}
	})
	first := open(t, dies, target("x"))
	run(t, db, "SYSTEM STOP MERGES results_rows") // the server merges when it likes, and copies would be gone before they are counted
	if err := first.Publish(t.Context(), []sinks.Rows{rows(0, 0, 50)}); err != killed {
		t.Fatal(err)
	}
	to := target("x")
	to.Token = 2
	w := open(t, sink(t, db.URL(chtest.Super), nil), to)
	publish(t, w, rows(0, 0, 20))
	publish(t, w, rows(0, 20, 50))
	for query, want := range map[string]string{
		"SELECT count() FROM results_rows":                              "100",
		"SELECT count(), min(row_number), max(row_number) FROM results": "50 0 49",
		"SELECT count() FROM results_rows FINAL":                        "50",
	} {
		if got := answer(t, db, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	run(t, db, "SYSTEM START MERGES results_rows")
	merges(t, db, "results_rows", 50)
	if got := answer(t, db, "SELECT count(), min(version), max(version) FROM results_rows"); got != "50 2 2" {
		t.Errorf("after a merge: %s, want the rows of the second owner", got)
	}
}

// merges merges a table until it keeps that many rows: a merge that the server has begun by itself may stand in the way of one that is asked for.
func merges(t testing.TB, db chtest.DB, table string, rows int) {
	t.Helper()
	for answer(t, db, "SELECT count() FROM "+table) != fmt.Sprint(rows) {
		run(t, db, "OPTIMIZE TABLE "+table+" FINAL")
	}
}

// TestTakeOverWhileTheFormerOwnerPublishes: what he publishes between the new owner's reading and writing is adopted, and later he is told.
func TestTakeOverWhileTheFormerOwnerPublishes(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	former := open(t, sink(t, db.URL(chtest.Super), nil), target("x"))
	publish(t, former, rows(0, 0, 3))
	taken := 0
	s := sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) {
		c.Hook = func(step string) error {
			if step == "taken over" {
				if taken++; taken == 1 {
					// As if it had come a moment earlier: the new owner has not read it.
					run(t, db, "INSERT INTO results_rows (run_id, partition, row_number, event_time, event_nanos, event_id, event_key, version, x) SELECT 'r', toInt32(0), toInt64(number + 3), "+
						"toDateTime(0), toInt64(0), 'e', 'k', toUInt64(1), toFloat64(1) FROM system.numbers LIMIT 2")
					run(t, db, "INSERT INTO results_progress (run_id, partition, fence_token, rows_published) SELECT 'r', toInt32(0), toUInt64(1), toUInt64(5)")
				}
			}
			return nil
		}
	})
	to := target("x")
	to.Token = 2
	heir := open(t, s, to)
	if at := heir.Published(); at[0] != 5 || at[1] != 0 || taken != 2 {
		t.Errorf("%v after %d rounds, want 5 rows of partition 0", at, taken)
	}
	if err := former.Publish(t.Context(), []sinks.Rows{rows(0, 3, 9)}); !codes.Has(err, codes.StaleFence) {
		t.Errorf("%v, want STALE_FENCE", err)
	}
	if got := answer(t, db, "SELECT count() FROM results"); got != "5" {
		t.Errorf("%s rows are seen, want 5", got)
	}
	// Opened again, the same owner does not take what was refused for what stands.
	if at := open(t, s, to).Published(); at[0] != 5 {
		t.Errorf("%v, want 5 rows", at)
	}
}

// TestRevised: the view shows one row for each key and time, that of the highest revision, whoever was killed where.
func TestRevised(t *testing.T) {
	t.Parallel()
	sinktest.RunRevised(t, true, func(t testing.TB) sinktest.Place {
		db := chtest.Database(t)
		return sinktest.Place{
			Outputs: sinktest.RevisedOutputs,
			Sink: func(hook func(string) error) sinks.Sink {
				return sink(t, db.URL(chtest.Super), func(c *clickhouse.Config) { c.Hook = hook })
			},
			Seen: func(t testing.TB, run string) []sinktest.Seen { return seenRevised(t, db, run) },
		}
	})
}

func seenRevised(t testing.TB, db chtest.DB, run string) (out []sinktest.Seen) {
	t.Helper()
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.RevisedOutputs})
	query := "SELECT partition, row_number, event_nanos, event_id, event_key, close, revision FROM results WHERE run_id = " + literal(run)
	err := db.Connect(t).Query(t.Context(), query, func(v []any) error {
		s := sinktest.Seen{Partition: int32(v[0].(int64)), Number: v[1].(int64)}
		row := partitions.Row{Time: record.EventTime(v[2].(int64)), ID: []byte(v[3].(string)), Key: []byte(v[4].(string)), Values: []operators.Value{value(v[5]), value(v[6])}}
		s.Text = string(enc.Append(nil, s.Partition, s.Number, &row))
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRevisions: of the rows with one key and time, the one with the highest revision is seen, whatever the order in which they came.
func TestRevisions(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	to := target("x", "revision")
	to.Revised = true
	w := open(t, sink(t, db.URL(chtest.Super), nil), to)
	revised := func(n int64, key string, at int64, x, revision float64) sinks.Rows {
		r := sinks.Rows{From: n}
		r.Append(record.EventTime(at), []byte("e"), []byte(key), []operators.Value{operators.Number(x), operators.Number(revision)})
		return r
	}
	publish(t, w, revised(0, "a", 1, 10, 0), revised(1, "a", 2, 20, 0), revised(2, "b", 1, 30, 0), revised(3, "a", 1, 11, 1))
	publish(t, w, revised(4, "a", 1, 12, 2), revised(5, "b", 1, 31, 1))
	const read = "SELECT event_key, event_nanos, x, revision FROM results ORDER BY event_key, event_nanos"
	const want = "a 1 12 2,a 2 20 0,b 1 31 1"
	// A stale owner gives a row again that was revised since.
	next := to
	next.Token = 2
	heir := open(t, sink(t, db.URL(chtest.Super), nil), next)
	if at := heir.Published()[0]; at != 6 {
		t.Errorf("%d rows stand, want 6", at)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{revised(6, "b", 1, 30, 0)}); !codes.Has(err, codes.StaleFence) {
		t.Errorf("%v, want STALE_FENCE", err)
	}
	for range 2 {
		if got := answer(t, db, read); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		merges(t, db, "results_rows", 3)
	}
	for _, wrong := range []float64{-1, 1.5, 1 << 33} {
		err := open(t, sink(t, db.URL(chtest.Super), nil), next).Publish(t.Context(), []sinks.Rows{revised(6, "c", 1, 0, wrong)})
		if !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), "revision") {
			t.Errorf("revision %v: %v", wrong, err)
		}
	}
	// A table of rows and one of revisions are not the same.
	if _, err := sink(t, db.URL(chtest.Super), nil).Open(t.Context(), target("x", "revision")); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), "ordered by") {
		t.Errorf("%v, want SINK_INVALID", err)
	}
}
