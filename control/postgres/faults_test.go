package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/pgtest"
)

// victim is the application name of a store whose connections a killer ends.
const victim = "weir-victim"

// killer ends the connections of a store at the n-th step of a write.
type killer struct {
	t     *testing.T
	super *pgx.Conn
	left  atomic.Int64
	step  string
}

func (k *killer) hook(step string) error {
	if k.left.Add(-1) != 0 {
		return nil
	}
	k.step = step
	k.kill()
	return nil
}

func (k *killer) kill() {
	const those = ` FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + victim + `'`
	run(k.t, k.super, `SELECT pg_terminate_backend(pid)`+those)
	until(k.t, k.super, 0, `SELECT count(*)`+those)
}

// A connection that is killed before or after any statement leaves everything of a write or nothing, and the store goes on with another one.
func TestKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	db := place(t)
	k := &killer{t: t, super: pgtest.Connect(t, db.Super)}
	s := open(t, db, Config{Hook: k.hook, BulkRows: 2, ApplicationName: victim})
	n := 0
	// each case makes a write whose outcome stands tells; it is 0 or 1.
	for name, c := range map[string]func() (write func() error, stands func() int){
		"admit": func() (func() error, func() int) {
			r := request(fmt.Sprint("key", n))
			return func() error { _, _, err := s.Admit(t.Context(), r); return err }, func() int {
				return one[int](t, k.super, `SELECT (SELECT count(*) FROM weir.runs WHERE run_id = $1) + (SELECT count(*) FROM weir.outbox WHERE run_id = $1) + (SELECT count(*) FROM weir.admission WHERE run_id = $1)`, control.RunIDOf(r)) / 3
			}
		},
		"fenced": func() (func() error, func() int) {
			l := acquired(t, s, fmt.Sprint("job", n), "a", time.Hour)
			key := fmt.Sprint("one", n)
			return func() error { return s.Fenced(t.Context(), l, publication(key, `1`)) }, func() int {
				return one[int](t, k.super, `SELECT count(*) FROM weir.publications WHERE key = $1`, key)
			}
		},
		"fenced, copied": func() (func() error, func() int) {
			l := acquired(t, s, fmt.Sprint("bulk", n), "a", time.Hour)
			prefix := fmt.Sprint("many", n, "/")
			return func() error { return s.Fenced(t.Context(), l, many(prefix, 9)) }, func() int {
				return one[int](t, k.super, `SELECT count(*) FROM weir.publications WHERE starts_with(key, $1)`, prefix) / 9
			}
		},
		"acquire": func() (func() error, func() int) {
			name := fmt.Sprint("lease", n)
			return func() error { _, err := s.Acquire(t.Context(), name, "a", time.Hour); return err }, func() int {
				return one[int](t, k.super, `SELECT count(*) FROM weir.leases WHERE name = $1`, name)
			}
		},
	} {
		kills, survived := 0, false
		for at := int64(1); !survived; at++ {
			n++
			alive(t, s)
			write, stands := c()
			k.left.Store(at)
			err := write()
			survived = k.left.Load() > 0
			k.left.Store(0)
			switch got := stands(); {
			case err == nil && got != 1:
				t.Errorf("%s, killed at %q: acknowledged, and %d stand", name, k.step, got)
			case err != nil && control.Refused(err):
				t.Errorf("%s, killed at %q: %v counts as a refusal", name, k.step, err)
			case err != nil && !codes.Has(err, codes.StoreUnavailable):
				t.Errorf("%s, killed at %q: %v, want STORE_UNAVAILABLE", name, k.step, err)
			}
			if !survived {
				kills++
			}
			alive(t, s)
			if err != nil {
				if err := write(); err != nil {
					t.Errorf("%s, killed at %q, again: %v", name, k.step, err)
				}
				if got := stands(); got != 1 {
					t.Errorf("%s, killed at %q, again: %d stand", name, k.step, got)
				}
			}
		}
		if kills < 2 {
			t.Errorf("%s: only %d kills", name, kills)
		}
	}
}

// alive rids a pool of connections that died while nobody used them; a caller would meet them as STORE_UNAVAILABLE.
func alive(t *testing.T, s *Store) {
	t.Helper()
	for range 20 {
		if s.pool.Ping(t.Context()) == nil {
			return
		}
	}
	t.Fatal("the pool does not recover")
}

func many(prefix string, n int) control.Publish {
	var p control.Publish
	for i := range n {
		p.Publications = append(p.Publications, control.Publication{Key: fmt.Sprintf("%s%06d", prefix, i), Value: fmt.Appendf(nil, `{"n":%d,"text":"a result of ordinary size, one hundred bytes or so, as they come"}`, i), RunID: "r"})
	}
	return p
}

// The same for epochs of the journal.
func TestJournalKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	db := place(t)
	k := &killer{t: t, super: pgtest.Connect(t, db.Super)}
	s := open(t, db, Config{Hook: k.hook, ApplicationName: victim})
	w := controltest.Workload{Seed: 5, RunID: "run", Partitions: 2, Rows: 10, Blob: 3 << 20}
	if _, err := s.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	steps := map[string]bool{}
	epoch, survived := uint64(0), false
	for at := int64(1); !survived; at++ {
		k.left.Store(at)
		err := s.Commit(t.Context(), w.Commit(epoch+1))
		survived = k.left.Load() > 0
		k.left.Store(0)
		alive(t, s)
		stands, cerr := w.Check(t.Context(), s)
		switch {
		case cerr != nil:
			t.Fatalf("killed at %q: %v", k.step, cerr)
		case err == nil && stands != epoch+1, stands != epoch && stands != epoch+1:
			t.Fatalf("killed at %q: epoch %d stands after %d (%v)", k.step, stands, epoch, err)
		case err != nil && !codes.Has(err, codes.StoreUnavailable):
			t.Errorf("killed at %q: %v", k.step, err)
		}
		steps[k.step] = true
		epoch = stands
	}
	for _, step := range []string{"begin", "locked", "commit", "committed"} {
		if !steps[step] {
			t.Errorf("no kill at %q", step)
		}
	}
}

// cutter is a network that loses the answer to what is sent next: the server has answered, and the connection breaks before it arrives.
type cutter struct{ armed atomic.Bool }

type cutConn struct {
	net.Conn
	c *cutter
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, c}, nil
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && n > 0 && c.c.armed.CompareAndSwap(true, false) {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// An answer to COMMIT that is lost leaves an unknown; trying again with the same deterministic key finds what stands.
func TestLostAnswerToCommit(t *testing.T) {
	t.Parallel()
	db := place(t)
	cut := &cutter{}
	var armAt string
	s := open(t, db, Config{dial: cut.dial, BulkRows: 100, Hook: func(step string) error {
		if step == armAt {
			cut.armed.Store(true)
		}
		return nil
	}})
	super := pgtest.Connect(t, db.Super)
	l := acquired(t, s, "job", "a", time.Hour)
	for i, c := range []struct {
		name, at string
		effect   control.Effect
		rows     int
	}{{"one", "begin", publication("one", `1`), 1}, {"copied", "commit", many("many/", 200), 200}} {
		if err := s.Fenced(t.Context(), l, many(fmt.Sprint("warm", i), c.rows)); err != nil {
			t.Fatal(err) // the statement is prepared: what is sent next is the effect
		}
		armAt = c.at
		err := s.Fenced(t.Context(), l, c.effect)
		armAt = ""
		if !codes.Has(err, codes.StoreUnavailable) || control.Refused(err) || cut.armed.Load() {
			t.Fatalf("%s: the answer was lost, and the call says %v", c.name, err)
		}
		until(t, super, c.rows, `SELECT count(*) FROM weir.publications WHERE key NOT LIKE 'warm%' AND ($1 = 1) = (key = 'one')`, c.rows)
		if err := s.Fenced(t.Context(), l, c.effect); err != nil {
			t.Fatalf("%s, read back by publishing again: %v", c.name, err)
		}
	}
	armAt = "begin"
	run1, created, err := s.Admit(t.Context(), request("k"))
	armAt = ""
	if err == nil {
		t.Fatalf("admission: %+v %t", run1, created)
	}
	if run2, created, err := s.Admit(t.Context(), request("k")); err != nil || run2.Phase != control.Queued {
		t.Fatalf("admission again: %+v %t %v", run2, created, err)
	}
	if n := one[int](t, super, `SELECT count(*) FROM weir.outbox`); n != 1 {
		t.Errorf("%d events", n)
	}
}

// A real deadlock is resolved by trying again, without the caller hearing of it.
func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{TTL: time.Minute}), pgtest.Connect(t, db.Super)
	var ids []int64
	for i := range 3 {
		if _, _, err := s.Admit(t.Context(), request(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.Claim(t.Context(), "w", 3)
	if err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	ids = []int64{events[0].ID, events[1].ID, events[2].ID}
	l := acquired(t, s, "job", "a", time.Hour)
	other := begun(t, db.Super)
	run(t, other, "SET LOCAL deadlock_timeout = '1 min'") // so that the store is the one that finds the deadlock
	run(t, other, `SELECT FROM weir.outbox WHERE id = $1 FOR UPDATE`, ids[1])
	// The server looks for a deadlock once, a while after somebody has begun to wait: the store has to be the last to do that.
	first := begun(t, db.Super)
	run(t, first, `SELECT FROM weir.outbox WHERE id = $1 FOR UPDATE`, ids[2])
	wait := after(func() error {
		return s.Fenced(t.Context(), l, control.Deliver{EventIDs: ids[:1]}, control.Deliver{EventIDs: ids[2:]}, control.Deliver{EventIDs: ids[1:2]})
	})
	waiting(t, super, 1)
	waitOther := after(func() error {
		_, err := other.Exec(t.Context(), `SELECT FROM weir.outbox WHERE id = $1 FOR UPDATE`, ids[0])
		return err
	})
	waiting(t, super, 2)
	run(t, first, "ROLLBACK")
	if err := waitOther(); err != nil {
		t.Fatal(err)
	}
	run(t, other, "ROLLBACK")
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, super, `SELECT count(*) FROM weir.outbox WHERE delivered IS NOT NULL`); n != 3 {
		t.Errorf("%d delivered", n)
	}
	if n := one[int](t, super, `SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()`); n != 1 {
		t.Logf("the server counts %d deadlocks; its statistics may come late", n)
	}
}

// Repetitions are bounded, and refusals are not repeated.
func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	db := place(t)
	s := open(t, db, Config{})
	for state, want := range map[string]int{"40001": attempts, "40P01": attempts, "23505": 1, "53100": 1, "WR001": 1} {
		tried := 0
		err := s.write(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			tried++
			_, err := conn.Exec(ctx, fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = 'made up'; END $$`, state))
			return err
		})
		if stateOf(err) != state || tried != want {
			t.Errorf("%s: tried %d times, want %d (%v)", state, tried, want, err)
		}
	}
}

// Every state that an operator meets has its code, and a message that says what to do.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]*codes.Code{
		"28P01": codes.StoreDenied, "28000": codes.StoreDenied, "42501": codes.StoreDenied, "3D000": codes.StoreInvalid, "25006": codes.StoreUnavailable,
		"53100": codes.StoreUnavailable, "53300": codes.StoreUnavailable, "57P01": codes.StoreUnavailable, "57P03": codes.StoreUnavailable, "55P03": codes.StoreUnavailable,
		"08006": codes.StoreUnavailable, "58030": codes.StoreUnavailable, "XX001": codes.JournalCorrupt, "42P01": codes.StoreOlder, "54000": codes.LimitReached, "99999": codes.Internal,
	} {
		err := fail(t.Context(), "name", "doing", &pgconn.PgError{Code: state, Message: "m", Detail: "hunter2"})
		if !codes.Has(err, want) || !strings.Contains(err.Error(), state) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", state, err, want.Name)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fail(cancelled, "name", "doing", io.EOF); !errors.Is(err, context.Canceled) || codes.Of(err) != nil {
		t.Errorf("cancelled: %v", err)
	}
}

// The server goes away and comes back; the store waits for nobody and recovers by itself. Listeners are woken when they are back.
func TestConnectionsLost(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	wake := s.Wake(t.Context())
	<-wake // it listens
	for range 3 {
		run(t, super, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		<-wake // it listens again
		var err error
		for range 20 { // each may meet one dead connection of the pool
			if _, err = s.Claim(t.Context(), "w", 1); err == nil {
				break
			}
			if !codes.Has(err, codes.StoreUnavailable) {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Admit(t.Context(), request("k")); err != nil {
		t.Fatal(err)
	}
	<-wake
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range wake { // closed by Close
	}
	if _, err := s.Claim(t.Context(), "w", 1); !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}
