package pgtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }

func prepare(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE public.t (x int); INSERT INTO public.t VALUES (7)")
	return err
}

// Each test has a copy of the template; nobody sees another's.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	a, b := pgtest.Database(t, prepare), pgtest.Database(t, prepare)
	if _, err := pgtest.Connect(t, a.Super).Exec(t.Context(), "UPDATE t SET x = 8"); err != nil {
		t.Fatal(err)
	}
	var x int
	var sync string
	if err := pgtest.Connect(t, b.Super).QueryRow(t.Context(), "SELECT x, current_setting('fsync') FROM t").Scan(&x, &sync); err != nil || x != 7 || sync != "on" {
		t.Fatalf("x = %d, fsync %s, %v", x, sync, err)
	}
}

func TestEmptyDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	var n int
	err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname = 't'").Scan(&n)
	if err != nil || n != 0 {
		t.Fatalf("%d tables, %v", n, err)
	}
}
