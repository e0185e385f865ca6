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
	// fill, if it is not nil, does the rest in Go, after sql and in the same transaction.
	fill func(t *txn) error
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
	out[2].fill = fillFences
	return out
}

// prepare checks that the file is ours or empty, brings it up to date and prepares the statements. A file that is refused is left as it was.
func (s *Store) prepare(ctx context.Context) error {
	fresh, version, err := s.look(ctx)
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
	if err := s.setWAL(ctx); err != nil {
		return err
	}
	if version < len(s.cfg.migrations) {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	// From here on the writing connection does nothing but begin's transactions, and writable, which need not wait.
	if _, err := s.writer.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", min(attempt, s.cfg.BusyTimeout).Milliseconds())); err != nil {
		return err
	}
	if err := s.writable(ctx); err != nil {
		return err
	}
	return s.st.prepare(ctx, s.writer)
}

// setWAL switches a file to WAL mode; one that is in it stays. When two processes switch a new file at once, SQLite refuses one of them
// without waiting for its busy timeout (both hold a lock that the other one needs), so waiting is up to us.
func (s *Store) setWAL(ctx context.Context) error {
	deadline := time.Now().Add(s.cfg.BusyTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var mode string
		err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		switch {
		case err == nil && mode != "wal":
			return codes.New(codes.StoreUnavailable, "journal %s: its file system does not allow the WAL mode (SQLite stays in %q)", s.cfg.Path, mode)
		case !isBusy(err) || time.Now().After(deadline):
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// look inspects the file in one moment, without a lock that a foreign file might be asked for.
func (s *Store) look(ctx context.Context) (fresh bool, version int, err error) {
	tx, err := s.writer.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return false, 0, err
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	return s.inspect(ctx, tx)
}

// inspect reads whose file it is and the version of its schema, 0 for a fresh one. It takes a transaction, since another process may be
// creating the schema at this moment.
func (s *Store) inspect(ctx context.Context, db *sql.Tx) (fresh bool, version int, err error) {
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
			if err := t.adhoc("mark", fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
				return err
			}
			err := t.adhoc("create", "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ns INTEGER NOT NULL) STRICT")
			if err != nil {
				return err
			}
		}
		for _, m := range s.cfg.migrations[version:] {
			if err := t.adhoc("migrate", m.sql); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if m.fill != nil {
				if err := m.fill(t); err != nil {
					return fmt.Errorf("migration %s: %w", m.name, err)
				}
			}
			err := t.adhoc("note", "INSERT INTO schema_version (version, name, applied_ns) VALUES (?, ?, ?)", m.version, m.name, time.Now().UnixNano())
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// writable finds out now, and not at the first commit, whether the file can be written: it asks for the write lock and changes nothing.
// BEGIN IMMEDIATE alone would not do: of a file that is read-only it makes a read transaction without a word. A lock that another process has is no
// reason to give up: that process may have been stopped in its transaction, and whoever looks for the cause has to be able to read.
func (s *Store) writable(ctx context.Context) error {
	_, err := s.writer.ExecContext(ctx, "UPDATE schema_version SET version = version WHERE version < 0")
	if isBusy(err) {
		return nil
	}
	return err
}
