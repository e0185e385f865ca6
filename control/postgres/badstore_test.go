package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/batch/worker"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// rewriting is a network that replaces bytes of what the server says by as many others.
type rewriting struct {
	net.Conn
	from, to []byte
}

func (r *rewriting) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	copy(b[:n], bytes.ReplaceAll(b[:n], r.from, r.to))
	return n, err
}

// A server that is too old is refused by what it reports when it lets somebody in, and by what it answers when a pooler hides that.
func TestServerTooOld(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	number := one[int](t, super, `SELECT current_setting('server_version_num')::int`)
	binaryOf := func(n int) []byte { return binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, uint32(n)) } // an int4 in a row
	reported := fmt.Appendf(nil, "server_version\x00%d", number/10000)
	if len(reported) != len("server_version\x0013") {
		t.Fatalf("this test knows versions of two digits, not %d", number)
	}
	for says, c := range map[string]struct{ from, to []byte }{
		"PostgreSQL 13":       {reported, []byte("server_version\x0013")},
		"version is 130014; ": {binaryOf(number), binaryOf(130014)},
	} {
		s, err := Open(t.Context(), Config{URL: db.Runtime, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return &rewriting{conn, c.from, c.to}, err
		}})
		if err == nil {
			_ = s.Close()
		}
		if !codes.Has(err, codes.StoreUnsupported) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "14 or later") {
			t.Errorf("%v, want STORE_UNSUPPORTED with %q", err, says)
		}
	}
}

// What happens to a database under a store that is open: a code that says whether waiting helps, nothing that stands, and nothing that counts as a
// refusal of the lease. When it is over, the same call works.
func TestDatabaseChangesInUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// bad and good are said by the superuser; session is set in the store's own session.
		bad, good, session string
		want               *codes.Code
		says               string
	}{
		"read-only":       {session: "default_transaction_read_only", want: codes.StoreUnavailable, says: "read-only"},
		"rights are gone": {bad: `REVOKE USAGE ON SCHEMA weir FROM weir_runtime`, good: `GRANT USAGE ON SCHEMA weir TO weir_runtime`, want: codes.StoreDenied, says: "weir_runtime"},
		"a table is gone": {bad: `ALTER TABLE weir.publications RENAME TO gone`, good: `ALTER TABLE weir.gone RENAME TO publications`, want: codes.StoreOlder, says: "weir migrate"},
		"a function is gone": {bad: `ALTER FUNCTION weir.admit RENAME TO gone; ALTER FUNCTION weir.fenced RENAME TO gone_too`,
			good: `ALTER FUNCTION weir.gone RENAME TO admit; ALTER FUNCTION weir.gone_too RENAME TO fenced`, want: codes.StoreOlder, says: "weir migrate"},
		"the schema is gone": {bad: `ALTER SCHEMA weir RENAME TO gone`, good: `ALTER SCHEMA gone RENAME TO weir`, want: codes.StoreOlder, says: "weir migrate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := place(t)
			s, super := open(t, db, Config{MaxConns: 1}), pgtest.Connect(t, db.Super)
			l := acquired(t, s, "job", "a", time.Hour)
			two := []control.Effect{publication("k", `1`), publication("l", `1`)}
			write := func() error {
				_, _, admitted := s.Admit(t.Context(), request("k"))
				return errors.Join(s.Fenced(t.Context(), l, two...), admitted)
			}
			change := func(text, value string) {
				if c.session == "" {
					run(t, super, text)
					return
				}
				conn, err := s.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				run(t, conn.Conn(), `SET `+c.session+` = `+value)
			}
			change(c.bad, "on")
			_, _, admitted := s.Admit(t.Context(), request("k"))
			for doing, err := range map[string]error{"admission": admitted, "effects": s.Fenced(t.Context(), l, two...)} {
				if doing == "admission" && name == "a table is gone" && err == nil {
					continue // it needs another one
				}
				if !codes.Has(err, c.want) || control.Refused(err) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want %s with %q", doing, err, c.want.Name, c.says)
				}
			}
			change(c.good, "off")
			if n := one[int](t, super, `SELECT count(*) FROM weir.publications`); n != 0 {
				t.Errorf("%d publications stand", n)
			}
			if err := write(); err != nil {
				t.Errorf("when it is over: %v", err)
			}
		})
	}
}

// line is a network that can be cut: connections break, and new ones are refused until that many have been.
type line struct {
	mu    sync.Mutex
	conns []net.Conn
	// refuse is how many connections are still refused; cuts and refused count.
	refuse, cuts, refused int
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 {
		l.refuse--
		l.refused++
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *line) cut(refuse int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // that is the point
	}
	l.conns, l.refuse = nil, refuse
	l.cuts++
}

// A worker whose database goes away in the middle of its runs waits for it, and ends each of them once. It says that a run has succeeded only
// when that stands.
func TestWorkerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	const runs, cuts = 6, 5
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	admitting := open(t, db, Config{})
	for i := range runs {
		r := control.Request{Principal: "p", Operation: "batch.run", Key: fmt.Sprint(i), Body: []byte(`{"flow":"ema","snapshot":"fixture"}`), Flow: "ema", Snapshot: "fixture"}
		if _, _, err := admitting.Admit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	var net line
	writes := 0
	var mu sync.Mutex
	s := open(t, db, Config{TTL: time.Second, dial: net.dial, Hook: func(string) error {
		mu.Lock()
		defer mu.Unlock()
		// Before and after what is sent, in turns: it stands, or it does not.
		if writes++; writes%9 == 0 && net.cuts < cuts {
			net.cut(4)
		}
		return nil
	}})
	cfg := plant(t, s)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const succeeded = `SELECT count(*) FROM weir.runs r JOIN weir.publications p ON p.key = 'result/' || r.run_id WHERE phase = 'SUCCEEDED' AND revision = 1`
	cfg.OnEnd = func(o worker.Outcome) {
		n, err := count(super, succeeded)
		if err != nil || o.Kind == worker.Succeeded && n == 0 || o.Kind == worker.Failed {
			t.Errorf("%+v: %d have succeeded, %v", o, n, err)
		}
		if n == runs {
			stop()
		}
	}
	report, err := worker.Run(ctx, cfg)
	if err != nil && !codes.Has(err, codes.Interrupted) {
		t.Fatalf("%+v, %v", report, err)
	}
	if n := one[int](t, super, succeeded); n != runs || net.cuts != cuts || net.refused != 4*cuts {
		t.Errorf("%d of %d runs, %d cuts, %d connections refused, %+v", n, runs, net.cuts, net.refused, report)
	}
	if n := one[int](t, super, `SELECT count(*) FROM weir.publications`); n != runs {
		t.Errorf("%d publications of %d runs", n, runs)
	}
}

func count(conn *pgx.Conn, query string) (n int, err error) {
	return n, conn.QueryRow(context.Background(), query).Scan(&n)
}

// A worker whose store will not have it stops with the reason: waiting does not help.
func TestWorkerStopsWhereWaitingDoesNotHelp(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	s := open(t, db, Config{})
	cfg := plant(t, s)
	run(t, super, `REVOKE USAGE ON SCHEMA weir FROM weir_runtime`)
	if report, err := worker.Run(t.Context(), cfg); !codes.Has(err, codes.StoreDenied) || len(report.Ended) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// plant is all that a worker needs, with the fixture as the flow "ema" and the snapshot "fixture".
func plant(t *testing.T, s *Store) worker.Config {
	t.Helper()
	at := t.TempDir()
	for name, text := range map[string][]byte{"flows/ema.yaml": fixture.Flow, "snapshots/fixture.jsonl": fixture.Snapshot} {
		path := filepath.Join(at, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	blobs, err := dir.Open(filepath.Join(at, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := catalog.Open(filepath.Join(at, "flows"), filepath.Join(at, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(blobs.Close(), names.Close()); err != nil {
			t.Error(err)
		}
	})
	return worker.Config{Store: s, Blobs: blobs, Catalog: names, Scratch: filepath.Join(at, "scratch"), TTL: time.Second, Poll: 10 * time.Millisecond, Reconcile: 100 * time.Millisecond}
}
