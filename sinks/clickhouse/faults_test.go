package clickhouse_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// TestUnfitTargets: each is found when the target is opened, and the message names what to mend.
func TestUnfitTargets(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	const cols = "run_id String, partition Int32, row_number Int64, event_time DateTime, event_nanos Int64, event_id String, event_key String, version UInt64"
	const progress = " (run_id String, partition Int32, fence_token UInt64, rows_published UInt64, sequence String) ENGINE = ReplacingMergeTree(rows_published) "
	const engine = " ENGINE = ReplacingMergeTree(version) ORDER BY (run_id, partition, row_number)"
	run(t, db,
		"CREATE TABLE short_rows ("+cols+")"+engine,
		"CREATE TABLE wrong_rows ("+cols+", x Float32)"+engine,
		"CREATE TABLE computed_rows ("+cols+", x Nullable(Float64) MATERIALIZED 1)"+engine,
		"CREATE TABLE plain_rows ("+cols+", x Nullable(Float64)) ENGINE = MergeTree ORDER BY (run_id, partition, row_number)",
		"CREATE TABLE other_rows ("+cols+", x Nullable(Float64)) ENGINE = ReplacingMergeTree() ORDER BY (run_id, partition, row_number)",
		"CREATE TABLE keyed_rows ("+cols+", x Nullable(Float64)) ENGINE = ReplacingMergeTree(version) ORDER BY (run_id, partition)",
		"CREATE TABLE torn_rows ("+cols+", x Nullable(Float64)) ENGINE = ReplacingMergeTree(version) PARTITION BY version ORDER BY (run_id, partition, row_number)",
		"CREATE TABLE half_rows ("+cols+", x Nullable(Float64))"+engine,
		"CREATE TABLE split_rows ("+cols+", x Nullable(Float64))"+engine,
		"CREATE TABLE split_progress"+progress+"PARTITION BY partition ORDER BY (run_id, partition, fence_token)",
		"CREATE TABLE unseen_rows ("+cols+", x Nullable(Float64))"+engine,
		"CREATE TABLE unseen_progress"+progress+"ORDER BY (run_id, partition, fence_token)",
		"CREATE TABLE zoned_rows ("+strings.Replace(cols, "DateTime", "DateTime('Asia/Tokyo')", 1)+", x Nullable(Float64), stray Int8)"+strings.Replace(engine, " ORDER", " PARTITION BY toYYYYMM(event_time) ORDER", 1),
		"CREATE TABLE taken (x Int8) ENGINE = Memory",
		"CREATE TABLE old_rows ("+cols+", x Nullable(Float64), y Nullable(Float64))"+engine,
		"CREATE TABLE old_progress"+progress+"ORDER BY (run_id, partition, fence_token)",
		"CREATE VIEW old AS SELECT run_id, x FROM old_rows FINAL",
	)
	open(t, sink(t, db.URL(chtest.Super), nil), target("x"))
	login := func(user string) string { return strings.Replace(db.URL(chtest.Super), chtest.Super, user, 1) }
	secure := "clickhouse://default@" + db.Secure + "/" + db.Name + "?secure=true"
	for name, c := range map[string]struct {
		table, url, output string
		create             bool
		code               *codes.Code
		says               string
	}{
		"missing":           {"none", "", "x", false, codes.SinkInvalid, "CREATE TABLE IF NOT EXISTS `" + db.Name + "`.`none_rows`"},
		"no database":       {"nowhere.t", "", "x", true, codes.SinkInvalid, "no such database"},
		"missing column":    {"short", "", "x", false, codes.SinkInvalid, "ADD COLUMN `x` Nullable(Float64)"},
		"wrong type":        {"wrong", "", "x", false, codes.SinkInvalid, `"x" of ` + db.Name + `.wrong_rows is Float32`},
		"computed":          {"computed", "", "x", false, codes.SinkInvalid, "computed"},
		"no version":        {"plain", "", "x", false, codes.SinkInvalid, "must be ReplacingMergeTree(version)"},
		"another version":   {"other", "", "x", false, codes.SinkInvalid, "must be ReplacingMergeTree(version)"},
		"another key":       {"keyed", "", "x", false, codes.SinkInvalid, "ordered by (run_id, partition)"},
		"torn":              {"torn", "", "x", false, codes.SinkInvalid, "do not merge"},
		"no progress":       {"half", "", "x", false, codes.SinkInvalid, "half_progress"},
		"progress in parts": {"split", "", "x", false, codes.SinkInvalid, "whole or not at all"},
		"no view":           {"unseen", "", "x", false, codes.SinkInvalid, "CREATE VIEW"},
		"view of old":       {"old", "", "y", true, codes.SinkInvalid, `does not show the column`},
		"name is taken":     {"taken", "", "x", true, codes.SinkInvalid, "must be a view"},
		"may only read":     {"results", login(chtest.Reader), "x", false, codes.SinkDenied, "only read"},
		"fixed column":      {"results", "", "event_id", true, codes.SinkInvalid, "rename it"},
		"injection":         {"results", "", "x` Int8, `y", true, codes.SinkInvalid, "rename it"},
		"unreachable":       {"results", "clickhouse://u:canary-pw@127.0.0.1:1/x", "x", false, codes.SinkUnavailable, "cannot be reached"},
		"unknown user":      {"results", login("nobody:canary-pw"), "x", false, codes.SinkDenied, "no such user"},
		"wrong password":    {"results", login(chtest.Guarded + ":canary-pw"), "x", false, codes.SinkDenied, "password is wrong"},
		"untrusted":         {"results", secure, "x", false, codes.SinkDenied, "&ca=FILE"},
		"no TLS there":      {"results", strings.Replace(secure, db.Secure, db.Address, 1) + "&ca=" + db.CA, "x", false, codes.SinkInvalid, "leave secure=true out"},
		"right password":    {"results", login(chtest.Guarded + ":" + chtest.Password), "x", false, nil, ""},
		"months and zones":  {"zoned", "", "x", true, nil, ""},
		"TLS":               {"results", secure + "&ca=" + db.CA, "x", false, nil, ""},
		"reserved column":   {"fresh", "", "select", true, nil, ""},
	} {
		url := c.url
		if url == "" {
			url = db.URL(chtest.Super)
		}
		s := sink(t, url, func(cfg *clickhouse.Config) { cfg.Table, cfg.Create = c.table, c.create })
		// All of it is known beforehand, but that a database is missing.
		if err := s.Probe(t.Context(), target(c.output)); c.code == nil && err != nil || c.code != nil && !codes.Has(err, c.code) && name != "no database" {
			t.Errorf("%s, beforehand: %v", name, err)
		}
		w, err := s.Open(t.Context(), target(c.output))
		if err == nil {
			err = errors.Join(w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 1)}), w.Close())
		}
		if c.code == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !codes.Has(err, c.code) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v\nwant %s with %q", name, err, c.code.Name, c.says)
		}
	}
}

// TestConfigs: what is wrong with a connection string or a name is found before anything is connected, and shows nothing secret.
func TestConfigs(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"", "A", "a.b.c", "a`", "a;b", "1a", ".", strings.Repeat("a", 54)} {
		if _, err := clickhouse.New(clickhouse.Config{URL: "clickhouse://h/d", Table: table}); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("table %q: %v", table, err)
		}
	}
	for _, url := range []string{"", "postgres://canary@h/d", "clickhouse://u:canary@/d", "clickhouse://u:canary@h:99999999/d", "clickhouse://u:canary@h/d/e", "clickhouse://u:canary@h/d#x",
		"clickhouse://u:canary@h/d?compress=canary", "clickhouse://u:canary@h/d?secure=canary", "clickhouse://u:canary@h/d?ca=canary", "clickhouse://u:canary@h/d?%zz", "clickhouse://u:canary@h/D",
	} {
		if s, err := clickhouse.New(clickhouse.Config{URL: url, Table: "t"}); !codes.Has(err, codes.ConfigInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v, %v", url, s, err)
		}
	}
	if _, err := clickhouse.New(clickhouse.Config{URL: "clickhouse://h/d?secure=true&ca=/none/ca.crt", Table: "t"}); !codes.Has(err, codes.FileMissing) {
		t.Errorf("%v, want FILE_MISSING", err)
	}
	s, err := clickhouse.New(clickhouse.Config{URL: "clickhouse://u:canary@h/d", Table: "t"})
	if text := fmt.Sprintf("%+v %#v", s, s); err != nil || strings.Contains(text, "canary") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestVerdicts: what is refused, what is denied, and what passes.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	s, err := clickhouse.New(clickhouse.Config{URL: "clickhouse://h/d", Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int32]*codes.Code{
		60: codes.SinkInvalid, 16: codes.SinkInvalid, 497: codes.SinkDenied, 516: codes.SinkDenied, 469: codes.SinkRefused, 27: codes.SinkRefused,
		243: codes.SinkUnavailable, 252: codes.SinkUnavailable, 201: codes.SinkUnavailable, 241: codes.SinkUnavailable, 319: codes.SinkUnavailable,
	} {
		if err := clickhouse.Fail(s, code, "line\n\x1b[31mtwo "+strings.Repeat("x", 999)); !codes.Has(err, want) || len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%d: %v, want %s", code, err, want.Name)
		}
	}
}

// TestGoneAndTooFar: a table that is dropped under a writer, a quota that is used up, and values at the ends of what a column holds.
func TestGoneAndTooFar(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s := sink(t, db.URL(chtest.Super), nil)
	w := open(t, s, target("x"))
	r := sinks.Rows{}
	for _, at := range []int64{math.MinInt64, -1, math.MaxInt64} {
		r.Append(record.EventTime(at), []byte("a\x00b"), []byte{0xff}, []operators.Value{operators.Number(math.NaN())})
	}
	publish(t, w, r)
	if got := answer(t, db, "SELECT toUInt32(event_time), event_nanos, hex(event_id), hex(event_key), isNaN(x) FROM results ORDER BY row_number"); got !=
		"0 -9223372036854775808 610062 FF 1,0 -1 610062 FF 1,4294967295 9223372036854775807 610062 FF 1" &&
		!strings.HasPrefix(got, "0 -9223372036854775808 610062 FF 1,0 -1 610062 FF 1,") {
		t.Errorf("%s", got)
	}
	run(t, db, "DROP TABLE results_rows")
	if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 3, 4)}); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), "the table is gone") {
		t.Errorf("%v", err)
	}
	poor := sink(t, db.URL(chtest.Poor), nil)
	for range 2 {
		if w, err := poor.Open(t.Context(), target("x")); !codes.Has(err, codes.SinkUnavailable) || !strings.Contains(err.Error(), "quota") {
			t.Errorf("%v, %v, want what is said of the quota", w, err)
		}
	}
}

// TestLostAnswers: the connection is cut at every write of the client and at every answer. Whatever was told, no row is there twice or lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	s := sink(t, db.URL(chtest.Super), nil)
	unknown := 0
	const cuts = 40
	for k := range cuts {
		from := int64(10 * k)
		cut := &cutter{at: k / 2, answers: k%2 == 0}
		clickhouse.Dial(s, cut.dial)
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
		clickhouse.Dial(s, nil)
		if w, err = s.Open(t.Context(), target("x")); err != nil {
			t.Fatal(err)
		}
		if at := w.Published()[0]; at != from && at != from+10 {
			t.Fatalf("cut %d: %d rows stand, want %d or ten more", k, at, from)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, from, from+10)}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
	}
	if unknown < 10 {
		t.Errorf("%d cuts came in the middle; the test is about those", unknown)
	}
	if got, want := answer(t, db, "SELECT count(), max(row_number) FROM results"), fmt.Sprintf("%d %d", 10*cuts, 10*cuts-1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestServerKilled: the server dies between any two steps of a publication. What is seen once it is back is whole, and going on gives each row once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	var dies string
	s := sink(t, server.URL(chtest.Super), func(c *clickhouse.Config) {
		c.Hook = func(step string) error {
			if step == dies {
				server.Kill()
			}
			return nil
		}
	})
	to := target("x")
	for round, step := range []string{"begin", "staged", "published"} {
		from := int64(10 * round)
		to.Token = uint64(round + 1)
		w := open(t, s, to)
		dies = step
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, from, from+10), rows(1, from, from+10)}); !codes.Has(err, codes.SinkUnavailable) {
			t.Errorf("killed at %s: %v, want SINK_UNAVAILABLE", step, err)
		}
		if _, err := s.Open(t.Context(), to); !codes.Has(err, codes.SinkUnavailable) {
			t.Errorf("killed at %s: opened, %v", step, err)
		}
		dies = ""
		server.Restart(t)
		seen := from
		if step == "published" {
			seen += 10
		}
		if got, want := answer(t, server.DB, "SELECT count(), max(row_number) + 1 FROM results"), fmt.Sprintf("%d %d", 2*seen, seen); got != want && seen > 0 {
			t.Errorf("killed at %s: %s, want %s", step, got, want)
		}
		w = open(t, s, to)
		if at := w.Published(); at[0] != seen || at[1] != seen {
			t.Errorf("killed at %s: %v stand, want %d", step, at, seen)
		}
		publish(t, w, rows(1, from, from+10), rows(0, from, from+10))
	}
	if got := answer(t, server.DB, "SELECT count(), uniqExact(partition, row_number) FROM results"); got != "60 60" {
		t.Errorf("%s rows in the end, want 60", got)
	}
}

// cutter makes connections that break at the at-th write, or before the answer to it, once armed.
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
