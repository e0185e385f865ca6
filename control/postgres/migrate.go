package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration takes the schema from the version before to its own.
type migration struct {
	version   int
	name, sql string
}

// migrations are the embedded ones, in order. Their names are NNNN_what.sql, numbered from 1 without a hole; a test holds them to it.
func migrations() []migration {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		panic(err) // they are part of the binary
	}
	var out []migration
	for i, e := range entries {
		text, err := fs.ReadFile(migrationFiles, "migrations/"+e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, migration{version: i + 1, name: strings.TrimSuffix(e.Name(), ".sql"), sql: string(text)})
	}
	return out
}

// Version is that of the schema that this package needs.
func Version() int { return len(migrations()) }

// preamble makes the roles and the schema; it may run any number of times. Roles belong to the whole server, so another database's migration
// may be making them at this moment. The member-ship lets somebody who is not a superuser create what weir_owner will own.
const preamble = `DO $weir$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['weir_owner', 'weir_runtime', 'weir_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', name);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
      END;
    END IF;
  END LOOP;
  IF NOT pg_has_role(current_user, 'weir_owner', 'MEMBER') THEN
    EXECUTE format('GRANT weir_owner TO %I', current_user);
  END IF;
  EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO weir_runtime', current_database());
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'weir') THEN
    CREATE SCHEMA weir AUTHORIZATION weir_owner;
  END IF;
END $weir$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
SET LOCAL ROLE weir_owner;
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE TABLE IF NOT EXISTS weir.schema_version (version integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT clock_timestamp());
`

// lockMigrations keeps two migrations of one database apart. The number is "weir" in ASCII.
const lockMigrations = `SELECT pg_advisory_xact_lock(2003134834)`

func (m migration) note() string {
	return fmt.Sprintf("INSERT INTO weir.schema_version (version, name) VALUES (%d, '%s');\n", m.version, m.name)
}

// MigrationSQL is what Migrate would run on a database at a version (0 for an empty one), as a script for psql.
func MigrationSQL(from int) string {
	var b strings.Builder
	b.WriteString("BEGIN;\n" + lockMigrations + ";\n" + preamble)
	for _, m := range migrations() {
		if m.version > from {
			fmt.Fprintf(&b, "\n-- %s\n%s%s", m.name, m.sql, m.note())
		}
	}
	b.WriteString("COMMIT;\n")
	return b.String()
}

// Migrate brings the schema of a database up to date, in one transaction, and returns the names of what it applied. The URL's role must be able
// to create roles and schemas, or weir_owner's schema must be there and the role a member of weir_owner.
func Migrate(ctx context.Context, url string) (applied []string, err error) {
	name := redacted(url)
	conn, err := connect(ctx, url, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // what was committed stands
	applied, err = migrate(ctx, conn, name)
	return applied, fail(ctx, name, "migration", err)
}

func connect(ctx context.Context, url, name string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, badURL(name)
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	return conn, fail(ctx, name, "connect", err)
}

func migrate(ctx context.Context, conn *pgx.Conn, name string) (applied []string, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if _, err := tx.Exec(ctx, lockMigrations); err != nil {
		return nil, err
	}
	at, err := schemaVersion(ctx, tx)
	if err != nil && !codes.Has(err, codes.StoreOlder) {
		return nil, err
	}
	all := migrations()
	if at > len(all) {
		return nil, newer(name, at)
	}
	if at == len(all) {
		return nil, nil
	}
	if err := script(ctx, tx, preamble); err != nil {
		return nil, err
	}
	for _, m := range all[at:] {
		if err := script(ctx, tx, m.sql+m.note()); err != nil {
			return nil, fmt.Errorf("migration %s: %w", m.name, err)
		}
		applied = append(applied, m.name)
	}
	return applied, tx.Commit(ctx)
}

// script runs several statements. They are part of the binary and take no parameters, so the simple protocol does no harm.
func script(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll()
	return err
}

// PendingSQL is what Migrate would run on a database, as a script for psql. It changes nothing; StoreNewer as Migrate.
func PendingSQL(ctx context.Context, url string) (string, error) {
	name := redacted(url)
	conn, err := connect(ctx, url, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it has only read
	at, err := schemaVersion(ctx, conn)
	switch {
	case err != nil && !codes.Has(err, codes.StoreOlder):
		return "", fail(ctx, name, "schema check", err)
	case at > Version():
		return "", newer(name, at)
	}
	return MigrationSQL(at), nil
}

// CheckSchema says whether the schema of a database is the one that this package needs: StoreOlder, StoreNewer or nil.
func CheckSchema(ctx context.Context, url string) error {
	name := redacted(url)
	conn, err := connect(ctx, url, name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it has only read
	return fail(ctx, name, "schema check", checkSchema(ctx, conn, name))
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func checkSchema(ctx context.Context, conn rowQuerier, name string) error {
	at, err := schemaVersion(ctx, conn)
	switch {
	case codes.Has(err, codes.StoreOlder):
		return codes.New(codes.StoreOlder, "store %s: the database has no schema weir; run weir migrate", name)
	case err != nil:
		return err
	case at < Version():
		return codes.New(codes.StoreOlder, "store %s: its schema has version %d and this weir needs %d; run weir migrate", name, at, Version())
	case at > Version():
		return newer(name, at)
	}
	return nil
}

func newer(name string, at int) error {
	return codes.New(codes.StoreNewer, "store %s: its schema has version %d and this weir knows %d; it was not touched. Use the newer weir", name, at, Version())
}

// schemaVersion reads the version; StoreOlder when there is no schema at all.
func schemaVersion(ctx context.Context, q rowQuerier) (version int, err error) {
	var there bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'weir' AND c.relname = 'schema_version')`).Scan(&there); err != nil {
		return 0, err
	}
	if !there {
		return 0, codes.New(codes.StoreOlder, "the database has no schema weir; run weir migrate")
	}
	err = q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM weir.schema_version`).Scan(&version)
	return version, err
}

// messageOf is the message of a server's error.
func messageOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}
