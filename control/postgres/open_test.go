package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/pgtest"
)

// refuses opens a store that must be refused; no error shows a password.
func refuses(t *testing.T, what, url string, want *codes.Code, says string) {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url})
	if err == nil {
		_ = s.Close()
	}
	if !codes.Has(err, want) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %s with %q", what, err, want.Name, says)
	}
	shows(t, what, err)
}

// shows fails when an error shows the password, whatever way it is printed.
func shows(t *testing.T, what string, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			if strings.Contains(text, pgtest.Password) || strings.Contains(text, "hunter2") {
				t.Errorf("%s: the error shows a password: %s", what, text)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	refuses(t, "no such database", strings.Replace(db.Runtime, db.Name, "nowhere", 1), codes.StoreInvalid, "no such database")
	refuses(t, "nobody there", "postgres://joe:hunter2@/db?host=/nonexistent", codes.StoreUnavailable, "cannot be reached")
	refuses(t, "nobody there", "postgres://joe:hunter2@127.0.0.1:1/db?sslmode=disable", codes.StoreUnavailable, "cannot be reached")
	refuses(t, "not a URL", "postgres://joe:hunter2@db:port/x", codes.StoreInvalid, "cannot be read")
	refuses(t, "an empty database", pgtest.Database(t, nil).Super, codes.StoreOlder, "weir migrate")

	run(t, super, `ALTER DATABASE `+db.Name+` SET default_transaction_read_only = on`)
	refuses(t, "read-only", db.Runtime, codes.StoreUnavailable, "read-only")
	run(t, super, `ALTER DATABASE `+db.Name+` RESET ALL`)
	run(t, super, `ALTER DATABASE `+db.Name+` SET synchronous_commit = off`)
	refuses(t, "asynchronous commit", db.Runtime, codes.ConfigInvalid, "synchronous_commit")
	run(t, super, `ALTER DATABASE `+db.Name+` RESET ALL`)
	run(t, super, `ALTER DATABASE `+db.Name+` SET lock_timeout = '1 h'`) // what the session asks for counts
	run(t, super, `ALTER DATABASE `+db.Name+` SET default_transaction_isolation = 'serializable'`)
	if err := open(t, db, Config{}).Close(); err != nil {
		t.Error(err)
	}

	run(t, super, `INSERT INTO weir.schema_version (version, name) VALUES (1000, 'future')`)
	refuses(t, "a newer schema", db.Runtime, codes.StoreNewer, "version 1000")
	run(t, super, `DELETE FROM weir.schema_version WHERE version >= $1`, Version())
	refuses(t, "an older schema", db.Runtime, codes.StoreOlder, "weir migrate")
}

func TestOpenWithPassword(t *testing.T) {
	t.Parallel()
	db := place(t)
	if !pgtest.Private() {
		t.Skip("WEIR_TEST_POSTGRES: only a private server is known to ask for the password")
	}
	withPassword := func(password string) string {
		return strings.Replace(db.URL(pgtest.PasswordLogin), pgtest.PasswordLogin+"@", pgtest.PasswordLogin+":"+password+"@", 1)
	}
	refuses(t, "a wrong password", withPassword("hunter2"), codes.StoreDenied, "password is wrong")
	refuses(t, "no rights", withPassword(pgtest.Password), codes.StoreDenied, "weir_runtime")
}

func TestSuperuserIsWarnedAbout(t *testing.T) {
	t.Parallel()
	db := place(t)
	if w := open(t, db, Config{}).Warnings(); len(w) != 0 {
		t.Errorf("runtime is warned about: %v", w)
	}
	if w := open(t, db, Config{URL: db.Super}).Warnings(); len(w) != 1 || !strings.Contains(w[0], "superuser") {
		t.Errorf("a superuser: %v", w)
	}
}

// Settings that were dropped on the way are found at the start, since promises depend on them.
func TestSettingsAreVerified(t *testing.T) {
	t.Parallel()
	db := place(t)
	s := open(t, db, Config{})
	conn := mustConn(t, s)
	for _, setting := range []string{"lock_timeout = 0", "idle_in_transaction_session_timeout = 0", "client_connection_check_interval = 0", "lock_timeout = '1 h'", "synchronous_commit = off", "default_transaction_isolation = 'repeatable read'"} {
		run(t, conn, "BEGIN")
		run(t, conn, "SET LOCAL "+setting)
		if err := s.fit(t.Context(), conn); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("%s: %v", setting, err)
		}
		run(t, conn, "ROLLBACK")
	}
	if err := s.fit(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// The role that the code runs as can do what the suite does and nothing else.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	db := place(t)
	denied := func(url string, statements ...string) {
		conn := pgtest.Connect(t, url)
		for _, text := range statements {
			if _, err := conn.Exec(t.Context(), text); stateOf(err) != "42501" {
				t.Errorf("%q: %v, want 42501", text, err)
			}
		}
	}
	denied(db.Runtime, `CREATE TABLE weir.x (i int)`, `CREATE TABLE public.x (i int)`, `CREATE SCHEMA x`, `DROP TABLE weir.leases`, `ALTER TABLE weir.leases ADD COLUMN x int`,
		`CREATE FUNCTION weir.x() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `CREATE OR REPLACE FUNCTION weir.deliver(p_ids bigint[]) RETURNS void LANGUAGE sql AS ''`,
		`TRUNCATE weir.leases`, `DELETE FROM weir.leases`, `DELETE FROM weir.outbox`, `UPDATE weir.publications SET value = '1'`, `DELETE FROM weir.publications`,
		`UPDATE weir.admission SET run_id = ''`, `UPDATE weir.quarantine SET n = 1`, `UPDATE weir.quarantine SET headers = NULL`, `DELETE FROM weir.quarantine`, `DELETE FROM weir.decisions`, `DELETE FROM weir.refusals`, `UPDATE weir.refusals SET detail = ''`, `UPDATE weir.pointers SET manifest = ''`, `UPDATE weir.store SET id = ''`, `DELETE FROM weir.journal`, `UPDATE weir.blob_parts SET part = 1`,
		`INSERT INTO weir.schema_version VALUES (9, '')`, `SELECT pg_read_file('/etc/passwd')`,
		`COPY (SELECT 1) TO PROGRAM 'true'`, `CREATE ROLE x`, `SET ROLE weir_owner`, `CREATE DATABASE x`)
	denied(db.Reader, `SELECT FROM weir.leases`, `SELECT FROM weir.publications`, `SELECT body FROM weir.runs`, `SELECT FROM weir.pointers`, `SELECT FROM weir.blob_parts`, `SELECT FROM weir.quarantine`, `INSERT INTO weir.runs_shown (run_id) VALUES ('')`,
		`SELECT weir.acquire('job', 'reader', '1 h', '')`, `SELECT weir.release_events('', '{1}', true)`)
	reader := pgtest.Connect(t, db.Reader)
	for _, view := range []string{"runs_shown", "leases_shown", "outbox_shown", "publications_shown", "journal_shown", "pointers_shown", "blobs_shown", "interventions_shown", "quarantine_shown"} {
		run(t, reader, "SELECT * FROM weir."+view)
	}
	super := pgtest.Connect(t, db.Super)
	if n := one[int](t, super, `SELECT count(*) FROM pg_roles WHERE rolname IN ('weir_owner', 'weir_runtime', 'weir_reader')
		AND (rolcanlogin OR rolsuper OR rolcreatedb OR rolcreaterole OR rolbypassrls)`); n != 0 {
		t.Errorf("%d of the roles can do more than they should", n)
	}
	// note_refusal alone has the rights of the owner, under a fixed path: the runtime role notes refusals and takes none away.
	if n := one[int](t, super, `SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'weir' AND (p.prosecdef OR p.proacl IS NULL)
		AND NOT (p.proname = 'note_refusal' AND p.proacl IS NOT NULL AND p.proconfig = '{"search_path=pg_catalog, pg_temp"}')`); n != 0 {
		t.Errorf("%d functions are SECURITY DEFINER or anybody's", n)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for i, m := range migrations() {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(m.name, want) {
			t.Errorf("migration %q is not numbered %s", m.name, want)
		}
	}
	db := pgtest.Database(t, nil)
	if err := CheckSchema(ctx, db.Super); !codes.Has(err, codes.StoreOlder) {
		t.Errorf("empty: %v", err)
	}
	// Two at once: one does everything, the other finds nothing to do.
	type outcome struct {
		applied []string
		err     error
	}
	done := make(chan outcome, 2)
	for range 2 {
		go func() {
			applied, err := Migrate(ctx, db.Super)
			done <- outcome{applied, err}
		}()
	}
	a, b := <-done, <-done
	if a.err != nil || b.err != nil || len(a.applied)+len(b.applied) != Version() || len(a.applied)*len(b.applied) != 0 {
		t.Errorf("%+v, %+v", a, b)
	}
	if err := CheckSchema(ctx, db.Super); err != nil {
		t.Error(err)
	}
	if owner := one[string](t, pgtest.Connect(t, db.Super), `SELECT tableowner FROM pg_tables WHERE schemaname = 'weir' AND tablename = 'leases'`); owner != "weir_owner" {
		t.Errorf("the tables belong to %s", owner)
	}

	// The printed script makes the same schema.
	printed := pgtest.Database(t, nil)
	if err := execScript(ctx, printed.Super, MigrationSQL(0)); err != nil {
		t.Fatal(err)
	}
	if err := CheckSchema(ctx, printed.Super); err != nil {
		t.Error(err)
	}
	shape := `SELECT string_agg(x, E'\n' ORDER BY x) FROM (
		SELECT format('%s.%s %s %s', table_name, column_name, data_type, column_default) AS x FROM information_schema.columns WHERE table_schema = 'weir'
		UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE nspname = 'weir'
		UNION ALL SELECT format('%s %s', table_name, privilege_type) FROM information_schema.role_table_grants WHERE table_schema = 'weir' AND grantee = 'weir_runtime') AS all_of_it`
	if x, y := one[string](t, pgtest.Connect(t, db.Super), shape), one[string](t, pgtest.Connect(t, printed.Super), shape); x != y {
		t.Errorf("the printed script makes another schema:\n%s\n---\n%s", x, y)
	}
	if n := one[int](t, pgtest.Connect(t, db.Super), `SELECT count(*) FROM information_schema.columns WHERE table_schema = 'weir' AND data_type IN ('timestamp without time zone', 'json', 'jsonb')`); n != 0 {
		t.Errorf("%d columns are timestamps without zone, or JSON", n)
	}
	// A role that may not is told so, and nothing is left.
	poor := pgtest.Database(t, nil)
	if _, err := Migrate(ctx, poor.Runtime); !codes.Has(err, codes.StoreDenied) {
		t.Errorf("a role without rights: %v", err)
	}
	if err := CheckSchema(ctx, poor.Super); !codes.Has(err, codes.StoreOlder) {
		t.Errorf("after a refused migration: %v", err)
	}
}

// An administrator who is not a superuser can migrate: he may create roles, and owns the database.
func TestMigrateWithoutSuperuser(t *testing.T) {
	t.Parallel()
	const admin = "weir_test_admin"
	db := pgtest.Database(t, nil)
	super := pgtest.Connect(t, db.Super)
	run(t, super, `DO $$ BEGIN CREATE ROLE `+admin+` LOGIN CREATEROLE; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	run(t, super, `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weir_owner') THEN CREATE ROLE weir_owner NOLOGIN; END IF; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	run(t, super, `GRANT weir_owner TO `+admin) // PostgreSQL 16 wants this of whoever made the role before
	run(t, super, `ALTER DATABASE `+db.Name+` OWNER TO `+admin)
	applied, err := Migrate(t.Context(), db.URL(admin))
	if err != nil || len(applied) != Version() {
		t.Fatalf("%v, %v", applied, err)
	}
	if err := CheckSchema(t.Context(), db.URL(admin)); err != nil {
		t.Error(err)
	}
}

func execScript(ctx context.Context, url, text string) error {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, text).ReadAll()
	return err
}
