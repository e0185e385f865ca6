package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/pgtest"
)

// Each test of a trap also runs the naive variant, and shows that it fails.

// acquired takes a lease.
func acquired(t *testing.T, s *Store, name, owner string, ttl time.Duration) control.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), name, owner, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// begun begins a transaction on a connection of its own.
func begun(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, url)
	run(t, conn, "BEGIN")
	return conn
}

// waiting returns when n backends of the database wait for a lock.
func waiting(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	until(t, conn, n, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// until asks the server until the answer is n. The time is for what never happens.
func until(t *testing.T, conn *pgx.Conn, n int, query string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); one[int](t, conn, query, args...) != n; {
		if time.Now().After(deadline) {
			t.Fatalf("%s never becomes %d", query, n)
		}
		run(t, conn, "SELECT pg_sleep(0.005)")
	}
}

// expiring tries something that has to begin before a term ends, with longer and longer terms until one was long enough for that on this machine, which try says.
func expiring(t *testing.T, try func(term time.Duration) (begun bool)) {
	t.Helper()
	for term := 500 * time.Millisecond; !try(term); term *= 2 {
		if term > time.Minute {
			t.Fatalf("nothing begins within %s", term)
		}
	}
}

// overdue has n statements, which start begins, wait for the leases' rows while the terms run, and lets them go on when those are over. It returns what start
// does, and false when the terms ended before all of them waited; they are over then, too.
func overdue[T any](t *testing.T, db pgtest.DB, super *pgx.Conn, term time.Duration, n int, start func() T) (started T, begun bool) {
	t.Helper()
	run(t, super, `UPDATE weir.leases SET until = clock_timestamp() + $1::interval`, term)
	blocker := pgtest.Connect(t, db.Super)
	run(t, blocker, "BEGIN")
	run(t, blocker, `SELECT FROM weir.leases FOR UPDATE`)
	started = start()
	waiting(t, super, n)
	begun = one[bool](t, super, `SELECT min(until) > clock_timestamp() FROM weir.leases`)
	run(t, super, `SELECT pg_sleep(extract(epoch FROM max(until) - clock_timestamp()) + 0.01) FROM weir.leases`)
	run(t, blocker, "ROLLBACK")
	return started, begun
}

// after runs f beside the test and returns what waits for its error.
func after(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// Trap 1: a lease that expires while an effect waits for its row is expired. now() is the transaction's start, and a clock read in the WHERE
// of the statement that locks is read before the wait: both accept it.
func TestTrapClockAfterLock(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	event := one[int64](t, super, `INSERT INTO weir.outbox (kind, run_id, created) VALUES ('k', 'r', now()) RETURNING id`)
	for name, effect := range map[string]string{
		"ours":                     "",
		"ours, without a function": "",
		"now()":                    `SELECT 1 / count(*) FROM (SELECT FROM weir.leases WHERE name = 'job' AND owner = 'a' AND until > now() FOR KEY SHARE) x`,
		"clock in the locking row": `SELECT 1 / count(*) FROM (SELECT FROM weir.leases WHERE name = 'job' AND owner = 'a' AND until > clock_timestamp() FOR KEY SHARE) x`,
	} {
		raw := pgtest.Connect(t, db.Runtime)
		var err error
		expiring(t, func(term time.Duration) bool {
			run(t, super, `DELETE FROM weir.leases`)
			l := acquired(t, s, "job", "a", time.Hour)
			wait, begun := overdue(t, db, super, term, 1, func() func() error {
				return after(func() error {
					switch name {
					case "ours":
						return s.Fenced(t.Context(), l, publication("k", `1`))
					case "ours, without a function":
						return s.Fenced(t.Context(), l, control.Deliver{EventIDs: []int64{event}})
					}
					_, err := raw.Exec(t.Context(), effect)
					return err
				})
			})
			err = wait()
			return begun
		})
		if effect == "" && !codes.Has(err, codes.StaleFence) {
			t.Errorf("%s: %v, want STALE_FENCE", name, err)
		}
		if effect != "" && err != nil {
			t.Errorf("negative control %s: it refuses the expired lease (%v), so this test shows nothing", name, err)
		}
	}
	if n := one[int](t, super, `SELECT (SELECT count(*) FROM weir.publications) + (SELECT count(*) FROM weir.outbox WHERE delivered IS NOT NULL)`); n != 0 {
		t.Errorf("the stale owner had %d effects", n)
	}
}

func publication(key, value string) control.Publish {
	return control.Publish{Publications: []control.Publication{{Key: key, Value: []byte(value), RunID: "r"}}}
}

// Trap 2: a heartbeat does not wait for an effect that runs, and a take-over does. With FOR UPDATE in the effect the heartbeat waits too.
func TestTrapHeartbeatBesideEffect(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	l := acquired(t, s, "job", "a", time.Hour)
	effect := begun(t, db.Runtime)
	run(t, effect, `SELECT weir.hold('job', 'a', 1)`)
	second := begun(t, db.Runtime)
	run(t, second, `SELECT weir.hold('job', 'a', 1)`) // two effects under one lease at once
	for range 3 {
		renewed, err := s.Renew(t.Context(), l)
		if err != nil {
			t.Fatalf("the heartbeat waits for the effect: %v", err)
		}
		l = renewed
	}
	if again, err := s.Acquire(t.Context(), "job", "a", time.Hour); err != nil || again.Token != 1 {
		t.Fatalf("acquired again by the owner: %+v, %v", again, err)
	}
	if _, err := s.Acquire(t.Context(), "job", "b", time.Hour); !codes.Has(err, codes.LeaseHeld) {
		t.Fatalf("another owner: %v, want LEASE_HELD at once", err)
	}
	run(t, super, `UPDATE weir.leases SET until = clock_timestamp() - interval '1 s'`)
	wait := after(func() error {
		took, err := s.Acquire(t.Context(), "job", "b", time.Hour)
		if err == nil && took.Token != 2 {
			t.Errorf("taken over under token %d", took.Token)
		}
		return err
	})
	waiting(t, super, 1)
	run(t, effect, "COMMIT")
	waiting(t, super, 1)
	run(t, second, "COMMIT")
	if err := wait(); err != nil {
		t.Fatalf("take-over: %v", err)
	}

	naive := begun(t, db.Runtime)
	run(t, naive, `SELECT FROM weir.leases WHERE name = 'job' FOR UPDATE`)
	short := open(t, db, Config{TTL: 200 * time.Millisecond})
	if _, err := short.Renew(t.Context(), control.Lease{Name: "job", Owner: "b", Token: 2, TTL: time.Hour}); !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("negative control: with FOR UPDATE in the effect the heartbeat is told %v", err)
	}
}

// Trap 3: an owner that stops inside a transaction is ended by the server, the take-over proceeds, and nothing of his stands. Without the time-out
// it would be blocked for as long as he likes.
func TestTrapStoppedInsideTransaction(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	db := place(t)
	s, super := open(t, db, Config{TTL: ttl}), pgtest.Connect(t, db.Super)
	acquired(t, s, "job", "a", time.Hour)
	zombie, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer zombie.Release()
	// In one message: it stands still nowhere before.
	if _, err := zombie.Conn().PgConn().Exec(t.Context(), `BEGIN; SELECT weir.hold('job', 'a', 1), weir.publish('{k}', '{1}', array[sha256('1')], '{r}')`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	run(t, super, `UPDATE weir.leases SET until = clock_timestamp()`)
	// One that waits longer than the server lets the zombie stand still, however slow this machine is at the moment.
	took, err := open(t, db, Config{TTL: time.Minute}).Acquire(t.Context(), "job", "b", time.Hour)
	if err != nil || took.Token != 2 {
		t.Fatalf("take-over: %+v, %v", took, err)
	}
	if _, err := zombie.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("the zombie committed")
	}
	if n := one[int](t, super, `SELECT count(*) FROM weir.publications`); n != 0 {
		t.Errorf("%d publications of the zombie", n)
	}

	naive, next := begun(t, db.Runtime), pgtest.Connect(t, db.Runtime) // as clients that set no time-outs, or no others
	run(t, naive, `SELECT weir.hold('job', 'b', 2)`)
	run(t, super, `UPDATE weir.leases SET until = clock_timestamp()`)
	run(t, next, `SELECT set_config('lock_timeout', $1, false)`, millis(ttl))
	if _, err := next.Exec(t.Context(), callAcquire, "job", "c", time.Hour, ""); stateOf(err) != lockTimeout {
		t.Errorf("negative control: without the time-out the take-over is told %v", err)
	}
	if n := one[int](t, super, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, int(naive.PgConn().PID())); n != 1 {
		t.Error("negative control: the naive holder was ended")
	}
	if took := takenOver(t, s, super, "job", "c"); took.Token != 3 { // a store ends even that one
		t.Errorf("token %d", took.Token)
	}
}

// silent is a network that, once set, lets nobody connect: a client that is dead sends no request to cancel what it had asked for.
type silent struct{ atomic.Bool }

func (s *silent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.Load() {
		return nil, net.ErrClosed
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Trap 4: a client that dies while it queues for the lease does not get it. Without the server looking after its clients it does.
func TestTrapDiedInQueue(t *testing.T) {
	t.Parallel()
	db := place(t)
	var dead silent
	s, super := open(t, db, Config{TTL: time.Minute, dial: dead.dial}), pgtest.Connect(t, db.Super)
	die := func(conn *pgx.Conn) (blocker *pgx.Conn) {
		acquired(t, s, "job", "a", time.Hour)
		run(t, super, `UPDATE weir.leases SET until = clock_timestamp(), owner = 'a'`)
		blocker = begun(t, db.Super)
		run(t, blocker, `SELECT FROM weir.leases FOR UPDATE`)
		wait := after(func() error {
			_, err := conn.Exec(context.Background(), `SELECT weir.acquire('job', 'dead', '1 h', '')`)
			return err
		})
		waiting(t, super, 1)
		dead.Store(true)
		_ = conn.PgConn().Conn().Close()
		if err := wait(); err == nil {
			t.Fatal("the client that died has an answer")
		}
		return blocker
	}
	ours, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := int(ours.Conn().PgConn().PID())
	blocker := die(ours.Conn())
	ours.Release()
	until(t, super, 0, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid)
	run(t, blocker, "ROLLBACK")
	if owner := one[string](t, super, `SELECT owner FROM weir.leases`); owner != "a" {
		t.Errorf("the lease went to %q", owner)
	}

	dead.Store(false)
	cfg, err := pgx.ParseConfig(db.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = dead.dial
	naive, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	pid = int(naive.PgConn().PID())
	blocker = die(naive)
	run(t, blocker, "ROLLBACK")
	until(t, super, 0, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid)
	if owner := one[string](t, super, `SELECT owner FROM weir.leases`); owner != "dead" {
		t.Errorf("negative control: the lease is %q's", owner)
	}
}

// Trap 5: a lock on a row that is missing locks nothing, so two would both find the lease free. One insert decides.
func TestTrapMissingRow(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	a, b := begun(t, db.Runtime), begun(t, db.Runtime)
	for _, conn := range []*pgx.Conn{a, b} {
		if n := one[int](t, conn, `SELECT count(*) FROM (SELECT FROM weir.leases WHERE name = 'job' FOR UPDATE) x`); n != 0 {
			t.Fatalf("negative control: %d rows", n)
		}
	}
	run(t, a, "ROLLBACK")
	run(t, b, "ROLLBACK")
	// Ours: the second waits for the first, and then finds the lease held.
	run(t, a, "BEGIN")
	run(t, a, `SELECT weir.acquire('job', 'a', '1 h', '')`)
	wait := after(func() error {
		_, err := b.Exec(t.Context(), `SELECT weir.acquire('job', 'b', '1 h', '')`)
		return err
	})
	waiting(t, super, 1)
	run(t, a, "COMMIT")
	if err := wait(); stateOf(err) != "WR002" {
		t.Errorf("the second: %v", err)
	}
}

// Trap 6: a session's time zone changes nothing. A timestamp without a zone is another moment in each session.
func TestTrapTimeZones(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	s := open(t, db, Config{})
	run(t, super, `CREATE TABLE public.naive (until timestamp)`)
	run(t, super, `SET timezone = 'Pacific/Kiritimati'`)
	run(t, super, `INSERT INTO public.naive VALUES (clock_timestamp() - interval '1 h')`) // has expired an hour ago
	run(t, super, `SET timezone = 'UTC'`)
	if !one[bool](t, super, `SELECT until > clock_timestamp()::timestamp FROM public.naive`) {
		t.Error("negative control: a timestamp without zone is judged right in another zone")
	}
	odd := pgtest.Connect(t, db.Runtime)
	for _, zone := range []string{"Pacific/Kiritimati", "America/St_Johns", "Etc/GMT+12", "Asia/Kathmandu"} {
		run(t, odd, "SELECT set_config('timezone', $1, false)", zone)
		run(t, odd, "SET datestyle = 'German'")
		run(t, super, `DELETE FROM weir.leases`)
		run(t, odd, `SELECT weir.acquire('job', 'a', '1 h', '')`)
		info, ok, err := s.LookupLease(t.Context(), "job")
		if err != nil || !ok || !info.Valid || time.Until(info.Until) < 50*time.Minute || time.Until(info.Until) > 70*time.Minute {
			t.Errorf("%s: acquired until %s (%v)", zone, info.Until, err)
		}
		_, err = s.Acquire(t.Context(), "job", "b", time.Hour)
		if !codes.Has(err, codes.LeaseHeld) {
			t.Errorf("%s: %v", zone, err)
		}
		run(t, super, `UPDATE weir.leases SET until = clock_timestamp() - interval '1 ms'`)
		if _, err := odd.Exec(t.Context(), `SELECT weir.hold('job', 'a', 1)`); stateOf(err) != "WR001" {
			t.Errorf("%s: an expired lease: %v", zone, err)
		}
	}
	// What the database says for its sessions is overruled too.
	run(t, super, `ALTER DATABASE `+db.Name+` SET timezone = 'Pacific/Kiritimati'`)
	if zone := one[string](t, mustConn(t, open(t, db, Config{})), `SELECT current_setting('timezone')`); zone != "UTC" {
		t.Errorf("the session's zone is %q", zone)
	}
}

// mustConn is a connection of a store, for the rest of the test.
func mustConn(t *testing.T, s *Store) *pgx.Conn {
	t.Helper()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn.Conn()
}

// A client's clock decides nothing about anybody but its owner's own deadline.
func TestClientClocks(t *testing.T) {
	t.Parallel()
	db := place(t)
	var asked time.Time // what a clock said last
	shifted := func(d time.Duration) *Store {
		return open(t, db, Config{now: func() time.Time { asked = time.Now().Add(d); return asked }})
	}
	fast, slow := shifted(120*time.Second), shifted(-120*time.Second)
	super := pgtest.Connect(t, db.Super)
	for _, pair := range [][2]*Store{{fast, slow}, {slow, fast}} {
		run(t, super, `DELETE FROM weir.leases`)
		a, b := pair[0], pair[1]
		l := acquired(t, a, "job", "a", time.Hour)
		if !l.Deadline.Equal(asked.Add(time.Hour)) {
			t.Errorf("the deadline is %s after the sending", l.Deadline.Sub(asked))
		}
		if _, err := b.Acquire(t.Context(), "job", "b", time.Hour); !codes.Has(err, codes.LeaseHeld) {
			t.Errorf("taken by a clock that is off: %v", err)
		}
		if info, _, err := b.LookupLease(t.Context(), "job"); err != nil || !info.Valid {
			t.Errorf("%+v, %v", info, err)
		}
		if err := a.Fenced(t.Context(), l, publication("k", `1`)); err != nil {
			t.Error(err)
		}
		run(t, super, `UPDATE weir.leases SET until = clock_timestamp()`)
		if _, err := a.Renew(t.Context(), l); !codes.Has(err, codes.StaleFence) {
			t.Errorf("an expired lease was renewed: %v", err)
		}
		if took := acquired(t, b, "job", "b", time.Hour); took.Token != 2 {
			t.Errorf("token %d", took.Token)
		}
	}
}

// A smaller id of the outbox that commits later is found. Who goes on from the last id he saw loses it.
func TestSmallerIDCommitsLater(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	late := begun(t, db.Super)
	id := one[int64](t, late, `INSERT INTO weir.outbox (kind, run_id, created) VALUES ('run.requested', 'late', clock_timestamp()) RETURNING id`)
	if _, _, err := s.Admit(t.Context(), request("k")); err != nil {
		t.Fatal(err)
	}
	first, err := s.Claim(t.Context(), "w", 50)
	if err != nil || len(first) != 1 || first[0].ID <= id {
		t.Fatalf("%+v, %v", first, err)
	}
	run(t, late, "COMMIT")
	if n := one[int](t, super, `SELECT count(*) FROM weir.outbox WHERE id > $1`, first[0].ID); n != 0 {
		t.Errorf("negative control: going on from the last id finds %d", n)
	}
	second, err := s.Claim(t.Context(), "w", 50)
	if err != nil || len(second) != 1 || second[0].ID != id || second[0].Attempt != 1 {
		t.Errorf("%+v, %v", second, err)
	}
}

func request(key string) control.Request {
	return control.Request{Principal: "p", Operation: "batch.run", Key: key, Body: []byte(`{"flow":"f","snapshot":"s"}`), Flow: "f", Snapshot: "s"}
}
