package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/pgtest"
)

// A statement that was sent when its context ends is waited for, and its answer counts; one that goes on for longer is given up together with its
// connection, and the store goes on with another.
func TestPatience(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	for key, answered := range map[string]bool{"answered": true, "given up": false} {
		grace := map[bool]time.Duration{true: time.Minute, false: time.Millisecond}[answered] // the answer comes within it on any machine, or never does
		s := open(t, db, Config{TTL: time.Minute, MaxConns: 1, grace: grace})
		l := acquired(t, s, "job", "a", time.Hour)
		pid := int(mustPID(t, s))
		ctx, cancel := context.WithCancel(t.Context())
		blocker := begun(t, db.Super)
		run(t, blocker, `SELECT FROM weir.leases FOR UPDATE`)
		wait := after(func() error { return s.Fenced(ctx, l, publication(key, `1`)) })
		waiting(t, super, 1)
		cancel()
		if answered {
			run(t, blocker, "ROLLBACK")
			if err := wait(); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		} else {
			if err := wait(); !errors.Is(err, context.Canceled) || control.Refused(err) {
				t.Errorf("%s: %v", key, err)
			}
			until(t, super, 0, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid) // cancelled on the server too
			run(t, blocker, "ROLLBACK")
		}
		if n := one[int](t, super, `SELECT count(*) FROM weir.publications WHERE key = $1`, key); (n == 1) != answered {
			t.Errorf("%s: %d stand", key, n)
		}
		if next := int(mustPID(t, s)); (next == pid) != answered {
			t.Errorf("%s: connection %d after %d", key, next, pid)
		}
		if err := s.Fenced(t.Context(), l, publication(key, `1`)); err != nil {
			t.Errorf("%s, again: %v", key, err)
		}
	}
}

// mustPID is the server's process of the store's only connection.
func mustPID(t *testing.T, s *Store) uint32 {
	t.Helper()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	return conn.Conn().PgConn().PID()
}
