package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
)

// applicationID marks the file as weir's in its header: "weir" in ASCII.
const applicationID = 0x77656972

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration takes the schema from the version before to its own.
type migration struct {
	version   int
	name, sql string
}

// embedded returns the migrations in order. Their names are NNNN_what.sql, numbered from 1 without a hole; a test holds them to it.
func embedded() []migration {
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

// prepare checks that the file is ours or empty, brings it up to date and prepares the statements. A file that is refused is left as it was.
func (s *Store) prepare(ctx context.Context) error {
	fresh, version, err := s.inspect(ctx, s.writer)
	if err != nil {
		return err
	}
	if fresh {
		if _, err := s.writer.ExecContext(ctx, fmt.Sprintf("PRAGMA page_size = %d", pageSize)); err != nil {
			return err
		}
	}
	if err := s.step("journal mode"); err != nil {
		return err
	}
	var mode string
	if err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return codes.New(codes.StoreUnavailable, "journal %s: its file system does not allow the WAL mode (SQLite stays in %q)", s.cfg.Path, mode)
	}
	if version < len(s.cfg.migrations) {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	if err := s.writable(ctx); err != nil {
		return err
	}
	return s.st.prepare(ctx, s.writer)
}

// queryer is a database or a transaction.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// inspect reads whose file it is and the version of its schema, 0 for a fresh one.
func (s *Store) inspect(ctx context.Context, db queryer) (fresh bool, version int, err error) {
	var id, objects, known int
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return false, 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = 'schema_version') FROM sqlite_schema").Scan(&objects, &known)
	if err != nil {
		return false, 0, err
	}
	switch {
	case id == 0 && objects == 0:
		return true, 0, nil
	case id != applicationID:
		return false, 0, codes.New(codes.StoreInvalid, "journal %s: it is a SQLite file of another program; check the path", s.cfg.Path)
	case known == 0:
		return false, 0, s.corrupt("the table schema_version is missing")
	}
	if err := db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_version").Scan(&version); err != nil {
		return false, 0, err
	}
	if newest := len(s.cfg.migrations); version > newest {
		return false, 0, codes.New(codes.StoreNewer, "journal %s: its schema has version %d and this weir knows %d; it was not touched. Use the newer weir", s.cfg.Path, version, newest)
	}
	return false, version, nil
}

// migrate applies what is missing, each migration and its row in schema_version together, all in one transaction. Of two processes that
// open a new file at once the second finds nothing left to do.
func (s *Store) migrate(ctx context.Context) error {
	return s.write(ctx, func(t *txn) error {
		fresh, version, err := s.inspect(ctx, t.tx)
		if err != nil {
			return err
		}
		if fresh {
			err := t.run("create", fmt.Sprintf("PRAGMA application_id = %d", applicationID),
				"CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ns INTEGER NOT NULL) STRICT")
			if err != nil {
				return err
			}
		}
		for _, m := range s.cfg.migrations[version:] {
			if err := t.run("migrate "+m.name, m.sql); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if _, err := t.tx.ExecContext(ctx, "INSERT INTO schema_version (version, name, applied_ns) VALUES (?, ?, ?)", m.version, m.name, time.Now().UnixNano()); err != nil {
				return err
			}
		}
		return nil
	})
}

// run executes statements without arguments.
func (t *txn) run(step string, statements ...string) error {
	for _, st := range statements {
		if err := t.s.step(step); err != nil {
			return err
		}
		if _, err := t.tx.ExecContext(t.ctx, st); err != nil {
			return err
		}
	}
	return nil
}

// writable finds out now, and not at the first commit, whether the file can be written: it takes the write lock and gives it back.
func (s *Store) writable(ctx context.Context) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return tx.Rollback()
}
