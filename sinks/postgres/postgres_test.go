package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }

// patient has time-outs that no busy machine meets.
var patient = postgres.Config{ConnectTimeout: time.Minute, StatementTimeout: 5 * time.Minute, IdleTimeout: 30 * time.Second, LockTimeout: time.Minute}

func sink(t testing.TB, url string, change func(*postgres.Config)) *postgres.Sink {
	t.Helper()
	cfg := patient
	cfg.URL, cfg.Table, cfg.Create = url, "results", true
	if change != nil {
		change(&cfg)
	}
	s, err := postgres.New(cfg)
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

func TestSuite(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place {
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
}

// endStopped ends whoever stands still within a transaction, as the server does in the end, and returns when he is gone.
func endStopped(t testing.TB, db pgtest.DB) {
	t.Helper()
	var left int
	err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE NOT pg_terminate_backend(pid, 60000)) FROM pg_stat_activity
		WHERE datname = current_database() AND state LIKE 'idle in transaction%'`).Scan(&left)
	if err != nil || left > 0 {
		t.Fatalf("%d who stand still are not ended: %v", left, err)
	}
}

// TestStoppedOwner: an owner who stands still within a transaction is ended by the server after the idle time-out, and the next one, who waits for him, goes on. He stands
// at the first moment at which he holds anything, so that nothing of his depends on that time-out before.
func TestStoppedOwner(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	publish(t, open(t, sink(t, db.Super, nil), target("x")), rows(0, 0, 4))
	next := target("x")
	next.Token = 2
	came := false
	stopped := sink(t, db.Super, func(c *postgres.Config) {
		c.IdleTimeout = 100 * time.Millisecond
		c.Hook = func(step string) error {
			if step == "taken over" {
				came = true
				publish(t, open(t, sink(t, db.Super, nil), next), rows(0, 0, 6))
			}
			return nil
		}
	})
	if _, err := stopped.Open(t.Context(), target("x")); !came || !codes.Has(err, codes.SinkUnavailable) {
		t.Errorf("the one who stood still: %v, want SINK_UNAVAILABLE", err)
	}
	if got := numbers(t, pgtest.Connect(t, db.Super), "r"); got != "0:0-5/6" {
		t.Error(got)
	}
}

// seen reads the table in the order of writing: transactions by their numbers, which those of one run get one after the other, and the rows of each by theirs. Their
// places on the disk would not do: the server gives the room of what was undone to others.
func seen(t testing.TB, url, run string) []sinktest.Seen {
	t.Helper()
	conn := pgtest.Connect(t, url)
	var there bool
	if err := conn.QueryRow(t.Context(), `SELECT to_regclass('public.results') IS NOT NULL`).Scan(&there); err != nil {
		t.Fatal(err)
	}
	if !there {
		return nil
	}
	found, _ := conn.Query(t.Context(), `SELECT partition, row_number, event_time, event_nanos, event_id, event_key, ema12, close FROM results WHERE run_id = $1 ORDER BY xmin::text::bigint, row_number`, run)
	var out []sinktest.Seen
	var s sinktest.Seen
	var at time.Time
	var nanos int64
	var id, key string
	var ema, closing *float64
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	_, err := pgx.ForEachRow(found, []any{&s.Partition, &s.Number, &at, &nanos, &id, &key, &ema, &closing}, func() error {
		row := partitions.Row{Time: record.EventTime(nanos), ID: []byte(id), Key: []byte(key), Values: []operators.Value{value(ema), value(closing)}}
		if at.UnixMicro() != time.Unix(0, nanos).UnixMicro() {
			t.Errorf("event_time is %v, want %v", at, time.Unix(0, nanos))
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

func value(f *float64) operators.Value {
	if f == nil {
		return operators.Gap
	}
	return operators.Number(*f)
}

func dropRole(t *testing.T, url, role string) {
	ctx := context.WithoutCancel(t.Context())
	if conn, err := pgx.Connect(ctx, url); err == nil {
		_, _ = conn.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role) // the cluster ends with the test binary
		_ = conn.Close(ctx)
	}
}

// TestUnfitTargets: each is found when the target is opened, and the message names what to mend.
func TestUnfitTargets(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	super := pgtest.Connect(t, db.Super)
	role := db.Name + "_poor"
	for _, text := range []string{
		"CREATE ROLE " + role + " LOGIN", "CREATE SCHEMA s",
		"CREATE TABLE s.short (run_id text, partition int, row_number bigint, event_time timestamptz, event_nanos bigint, event_id text, event_key text, PRIMARY KEY (run_id, partition, row_number))",
		"CREATE TABLE s.wrong (LIKE s.short INCLUDING ALL, x real)", "CREATE TABLE s.keyless (LIKE s.short, x float8)",
		"CREATE TABLE s.narrow (LIKE s.keyless, PRIMARY KEY (run_id, partition))",
		"CREATE TABLE s.partial (LIKE s.keyless)", "CREATE UNIQUE INDEX ON s.partial (run_id, partition, row_number) WHERE x > 0",
		"CREATE TABLE s.stray (LIKE s.short INCLUDING ALL, x float8, y int NOT NULL)", "CREATE TABLE s.half (LIKE s.short INCLUDING ALL, x float8)",
		"CREATE VIEW s.view AS SELECT * FROM s.half",
	} {
		if _, err := super.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
	t.Cleanup(func() { dropRole(t, db.Super, role) })
	ok := sink(t, db.Super, nil)
	if _, err := ok.Open(t.Context(), target("x")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		table, url, output string
		create             bool
		code               *codes.Code
		says               string
	}{
		"missing":         {"s.none", "", "x", false, codes.SinkInvalid, `CREATE TABLE IF NOT EXISTS "s"."none"`},
		"no schema":       {"nowhere.t", "", "x", true, codes.SinkInvalid, "no such schema"},
		"missing column":  {"s.short", "", "x", false, codes.SinkInvalid, `ADD COLUMN "x" double precision`},
		"wrong type":      {"s.wrong", "", "x", false, codes.SinkInvalid, `"x" of s.wrong is real`},
		"no key":          {"s.keyless", "", "x", false, codes.SinkInvalid, "could stand twice"},
		"another key":     {"s.narrow", "", "x", false, codes.SinkInvalid, "could stand twice"},
		"partial key":     {"s.partial", "", "x", false, codes.SinkInvalid, "could stand twice"},
		"stray column":    {"s.stray", "", "x", false, codes.SinkInvalid, `"y"`},
		"no progress":     {"s.half", "", "x", false, codes.SinkInvalid, "half_progress"},
		"a view":          {"s.view", "", "x", false, codes.SinkInvalid, "no table s.view"},
		"no right":        {"results", db.URL(role), "x", false, codes.SinkDenied, "GRANT"},
		"may not create":  {"other", db.URL(role), "x", true, codes.SinkDenied, "lacks a right"},
		"fixed column":    {"results", "", "event_id", true, codes.SinkInvalid, "rename it"},
		"injection":       {"results", "", `x" float8, y`, true, codes.SinkInvalid, "rename it"},
		"no database":     {"results", strings.Replace(db.Super, db.Name, "nonexistent_db", 1), "x", false, codes.SinkInvalid, "no such database"},
		"unreachable":     {"results", "postgres://u:canary-pw@127.0.0.1:1/x", "x", false, codes.SinkUnavailable, "cannot be reached"},
		"unreadable URL":  {"results", "postgres://u:canary-pw@:99999999/x", "x", false, codes.ConfigInvalid, "URL"},
		"wrong password":  {"results", db.URL(pgtest.PasswordLogin), "x", false, codes.SinkDenied, "password"},
		"reserved column": {"fresh", "", "select", true, nil, ""},
	} {
		url := c.url
		if url == "" {
			url = db.Super
		}
		s := sink(t, url, func(cfg *postgres.Config) { cfg.Table, cfg.Create = c.table, c.create })
		// What opening finds, looking at it beforehand finds too.
		if err := s.Probe(t.Context(), target(c.output)); c.code == nil && err != nil || c.code != nil && (!codes.Has(err, c.code) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: looked at: %v", name, err)
		}
		w, err := s.Open(t.Context(), target(c.output))
		if c.code == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", name)
			_ = w.Close()
			continue
		}
		if !codes.Has(err, c.code) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v\nwant %s with %q", name, err, c.code.Name, c.says)
		}
	}
	for _, table := range []string{"", "A", "a.b.c", `a"`, "a;b", "1a", ".", strings.Repeat("a", 54)} {
		if _, err := postgres.New(postgres.Config{URL: db.Super, Table: table}); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("table %q: %v", table, err)
		}
	}
}

// TestOddTexts: what PostgreSQL cannot hold as a text is there in hex.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	w, err := sink(t, db.Super, nil).Open(t.Context(), target("x"))
	if err != nil {
		t.Fatal(err)
	}
	r := sinks.Rows{}
	r.Append(1, []byte("a\x00b"), []byte{0xff}, []operators.Value{operators.Gap})
	if err := w.Publish(t.Context(), []sinks.Rows{r}); err != nil {
		t.Fatal(err)
	}
	var id, key string
	if err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), "SELECT event_id, event_key FROM results").Scan(&id, &key); err != nil {
		t.Fatal(err)
	}
	if id != `\x610062` || key != `\xff` {
		t.Errorf("%q, %q", id, key)
	}
}

// TestRefusedRows: a constraint of the user's own ends the publication whole, with its name.
func TestRefusedRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	s := sink(t, db.Super, nil)
	w, err := s.Open(t.Context(), target("x"))
	if err != nil {
		t.Fatal(err)
	}
	conn := pgtest.Connect(t, db.Super)
	if _, err := conn.Exec(t.Context(), "ALTER TABLE results ADD CONSTRAINT small CHECK (x < 5), ADD COLUMN at timestamptz DEFAULT now()"); err != nil {
		t.Fatal(err)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 4)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 4, 9)}); !codes.Has(err, codes.SinkRefused) || !strings.Contains(err.Error(), "small") {
		t.Errorf("%v", err)
	}
	_ = w.Close()
	// Rows that are deleted do not come back; a progress that is gone is taken from the rows.
	for _, text := range []string{"DELETE FROM results WHERE row_number < 2", "DELETE FROM results_progress", "ALTER TABLE results DROP CONSTRAINT small"} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if w, err = s.Open(t.Context(), target("x")); err != nil || w.Published()[0] != 4 || w.Published()[1] != 0 {
		t.Fatalf("%v", err)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 9)}); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM results").Scan(&n); err != nil || n != 7 {
		t.Errorf("%d rows, %v; want 7", n, err)
	}
}

// TestLostAnswers: the connection is cut at every write of the client and at every answer. Whatever was told, no row is there twice or lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	s := sink(t, db.Super, nil)
	unknown := 0
	for k := range 24 {
		from := int64(10 * k)
		cut := &cutter{at: k / 2, answers: k%2 == 0}
		postgres.Dial(s, cut.dial)
		w, err := s.Open(t.Context(), target("x"))
		if err == nil {
			cut.arm()
			err = w.Publish(t.Context(), []sinks.Rows{rows(0, from, from+10)})
			_ = w.Close()
		}
		if err != nil {
			if unknown++; !codes.Has(err, codes.SinkUnavailable) {
				t.Fatalf("cut %d: %v, want SINK_UNAVAILABLE", k, err)
			}
		}
		postgres.Dial(s, nil)
		if w, err = s.Open(t.Context(), target("x")); err != nil {
			t.Fatal(err)
		}
		if at := w.Published()[0]; at != from && at != from+10 || err == nil && at < from {
			t.Fatalf("cut %d: %d rows stand, want %d or ten more", k, at, from)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, from, from+10)}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
	}
	if unknown < 4 {
		t.Errorf("%d cuts came in the middle; the test is about those", unknown)
	}
	var n, last int64
	if err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), "SELECT count(*), max(row_number) FROM results").Scan(&n, &last); err != nil || n != 240 || last != 239 {
		t.Errorf("%d rows up to %d, %v", n, last, err)
	}
}

// cutter makes connections that break at the at-th write, or before the answer to it, once armed. The client reads and writes side by side.
type cutter struct {
	at      int
	answers bool

	mu     sync.Mutex
	armed  bool
	writes int
}

func (c *cutter) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.writes = true, 0
}

// write says whether a write is cut off, read whether an answer is.
func (c *cutter) write() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed && c.writes == c.at && !c.answers {
		return true
	}
	c.writes++
	return false
}

func (c *cutter) read() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed && c.answers && c.writes > c.at
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	c *cutter
}

var errCut = errors.New("cut")

func (c *cutConn) Write(p []byte) (int, error) {
	if c.c.write() {
		_ = c.Conn.Close()
		return 0, errCut
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.c.read() {
		_ = c.Conn.Close()
		return 0, errCut
	}
	return n, err
}
