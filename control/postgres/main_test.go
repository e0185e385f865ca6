package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }

// migrated is how pgtest prepares its template.
func migrated(ctx context.Context, url string) error {
	_, err := Migrate(ctx, url)
	return err
}

// place makes a database with the schema.
func place(t testing.TB) pgtest.DB {
	t.Helper()
	return pgtest.Database(t, migrated)
}

// open opens a store, as the role runtime unless cfg names a URL, and closes it at the end of the test. Its time-outs, unless cfg says which, are
// longer than any machine keeps it waiting.
func open(t testing.TB, db pgtest.DB, cfg Config) *Store {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = db.Runtime
	}
	if cfg.TTL == 0 {
		cfg.TTL = time.Minute
	}
	cfg.ConnectTimeout = time.Minute
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// run executes a statement as the superuser.
func run(t testing.TB, conn *pgx.Conn, text string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// one reads one value as the superuser.
func one[T any](t testing.TB, conn *pgx.Conn, text string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestJournalConforms(t *testing.T) {
	t.Parallel()
	controltest.Journal(t, func(t *testing.T) func() control.Journal {
		db := place(t)
		return func() control.Journal { return open(t, db, Config{}) }
	})
}

func TestControlConforms(t *testing.T) {
	t.Parallel()
	controltest.Control(t, harness)
}

func harness(t *testing.T) *controltest.Harness {
	db := place(t)
	damage := func(text string, args ...any) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, db.Super)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, text, args...)
		return err
	}
	hooks := &controltest.Hooks{}
	return &controltest.Harness{
		Open: func() control.ControlStore {
			return hooks.Open(func(hook func(step string) error) control.ControlStore {
				return open(t, db, Config{MaxConns: 4, Hook: hook})
			})
		},
		AfterCommit: hooks.AfterCommit,
		Hook:        hooks.Set,
		SetToken: func(lease string, token control.FenceToken) error {
			return damage(`UPDATE weir.leases SET fence_token = $2 WHERE name = $1`, lease, int64(token))
		},
		Expire: func(lease string) error {
			return damage(`UPDATE weir.leases SET until = clock_timestamp() - interval '1 s' WHERE name = $1`, lease)
		},
		SetEvent: func(id int64, claimant string, age time.Duration, delivered bool) error {
			return damage(`UPDATE weir.outbox SET claimant = nullif($2, ''), claimed_at = CASE WHEN $2 = '' THEN NULL ELSE clock_timestamp() - $3::interval END,
				delivered = CASE WHEN $4 THEN clock_timestamp() END WHERE id = $1`, id, claimant, age, delivered)
		},
		DeleteEvent: func(id int64) error { return damage(`DELETE FROM weir.outbox WHERE id = $1`, id) },
		SetPhase: func(id string, p control.RunPhase) error {
			return damage(`UPDATE weir.runs SET phase = $2 WHERE run_id = $1`, id, string(p))
		},
		SetPublication: func(key string, v []byte) error {
			return damage(`UPDATE weir.publications SET value = $2 WHERE key = $1`, key, v)
		},
		DeletePublication: func(key string) error { return damage(`DELETE FROM weir.publications WHERE key = $1`, key) },
	}
}
