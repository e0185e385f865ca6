package postgres

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	store "github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }

func place(t testing.TB) pgtest.DB {
	t.Helper()
	return pgtest.Database(t, func(ctx context.Context, url string) error {
		_, err := store.Migrate(ctx, url)
		return err
	})
}

func open(t testing.TB, db pgtest.DB, cfg store.Config) *Store {
	t.Helper()
	cfg.URL = db.Runtime
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func exec(t testing.TB, conn *pgx.Conn, text string, args ...any) int64 {
	t.Helper()
	tag, err := conn.Exec(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tag.RowsAffected()
}

func scan[T any](t testing.TB, conn *pgx.Conn, text string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func named(t testing.TB, name string) []byte {
	t.Helper()
	k, err := hex.DecodeString(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestConformance(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t testing.TB) checkpointtest.Place {
		db := place(t)
		super := pgtest.Connect(t, db.Super)
		const numbered = `(SELECT blob FROM weir.blobs WHERE name = $1 AND aside IS NULL)`
		return checkpointtest.Place{
			Open:  func(t testing.TB) checkpoint.Blobs { return open(t, db, store.Config{MaxConns: 4}) },
			Owner: scan[string](t, super, `SELECT id FROM weir.store`),
			Damage: func(t testing.TB, name string, change func([]byte) []byte) {
				stored := scan[[]byte](t, super, `SELECT data FROM weir.blob_parts WHERE part = 0 AND blob = `+numbered, named(t, name))
				exec(t, super, `UPDATE weir.blob_parts SET data = $2 WHERE part = 0 AND blob = `+numbered, named(t, name), append([]byte{}, change(bytes.Clone(stored))...))
			},
			Older: func(t testing.TB, name string, d time.Duration) {
				exec(t, super, `UPDATE weir.blobs SET modified = modified - $2::interval WHERE name = $1 AND aside IS NULL`, named(t, name), d)
			},
			Left: func(t testing.TB) int {
				return scan[int](t, super, `SELECT count(*) FROM weir.blob_parts p WHERE NOT EXISTS (SELECT FROM weir.blobs b WHERE b.blob = p.blob)`)
			},
		}
	})
}
