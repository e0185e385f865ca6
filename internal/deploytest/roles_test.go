package deploytest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// The roles of deploy/postgres/roles.sql are enough: weir_admin migrates, weir runs a stream, weir_dashboard looks, and none of them can do what another
// is for.
func TestRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	if !pgtest.Private() {
		t.Skip("the roles belong to a whole server, and this one is not ours")
	}
	ctx := context.Background()
	super := pgtest.Connect(t, db.Super)
	for range 2 { // it may be run again
		if _, err := super.PgConn().Exec(ctx, read(t, "deploy/postgres/roles.sql")).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	var name string
	if err := super.QueryRow(ctx, `SELECT current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := super.Exec(ctx, `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` OWNER TO weir_admin`); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for file, data := range map[string][]byte{"flow.yaml": fixture.Flow, "snapshot.jsonl": fixture.Snapshot} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	weir := func(login string, args ...string) (string, error) {
		cmd := exec.Command(binary(t), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "STORE="+db.URL(login))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(login string, args ...string) {
		t.Helper()
		if out, err := weir(login, args...); err != nil {
			t.Fatalf("%s: weir %s: %v\n%s", login, strings.Join(args, " "), err, out)
		}
	}
	if out, err := weir("weir", "migrate", "--store", "env:STORE"); err == nil {
		t.Errorf("the login of the daemons migrates: %s", out)
	}
	must("weir_admin", "migrate", "--store", "env:STORE")
	must("weir", "migrate", "--store", "env:STORE", "--check")
	must("weir", "replay", "build", "--snapshot", "snapshot.jsonl", "--out", "arrivals.log")
	must("weir", "run", "flow.yaml", "--log", "arrivals.log", "--run-id", "r", "--store", "env:STORE", "--checkpoints", "store", "--emit", "out.json")
	must("weir", "checkpoint", "verify", "r", "--store", "env:STORE", "--checkpoints", "store")

	for login, statements := range map[string][]string{
		"weir":           {`DROP TABLE weir.leases`, `CREATE TABLE weir.mine (x int)`, `CREATE TABLE public.mine (x int)`, `DELETE FROM weir.journal`, `SET ROLE weir_owner`},
		"weir_dashboard": {`UPDATE weir.leases SET owner = 'x'`, `SELECT * FROM weir.journal_outputs`, `SET ROLE weir_runtime`},
		"weir_admin":     {`SET ROLE weir_runtime`, `CREATE ROLE x`, `COPY (SELECT 1) TO PROGRAM 'true'`},
	} {
		conn := pgtest.Connect(t, db.URL(login))
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err == nil {
				t.Errorf("%s may %s", login, sql)
			}
		}
	}
	dashboard := pgtest.Connect(t, db.URL("weir_dashboard"))
	if err := dashboard.QueryRow(ctx, `SELECT count(*) FROM weir.journal_shown`).Scan(new(int)); err != nil {
		t.Errorf("weir_dashboard cannot look: %v", err)
	}
}
