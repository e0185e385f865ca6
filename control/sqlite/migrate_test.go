package sqlite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
)

func TestMigrationsAreNumbered(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^\d{4}_[a-z_]+$`)
	all := embedded()
	if len(all) == 0 {
		t.Fatal("no migrations")
	}
	for i, m := range all {
		if m.version != i+1 || !name.MatchString(m.name) || !strings.HasPrefix(m.name, fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("migration %d is named %q", i+1, m.name)
		}
	}
}

// From every older version the file comes to the newest with what it holds.
func TestMigratesForward(t *testing.T) {
	t.Parallel()
	later := append(embedded(),
		migration{version: len(embedded()) + 1, name: "later_1", sql: "CREATE TABLE later (x INTEGER) STRICT; INSERT INTO later VALUES (7)"},
		migration{version: len(embedded()) + 2, name: "later_2", sql: "ALTER TABLE later ADD COLUMN y INTEGER; UPDATE later SET y = x + 1"})
	for from := len(embedded()); from <= len(later); from++ {
		path := filepath.Join(t.TempDir(), "weir.db")
		s := open(t, Config{Path: path, migrations: later[:from]})
		if _, err := s.OpenRun(t.Context(), small.Header()); err != nil {
			t.Fatal(err)
		}
		for e := uint64(1); e <= 3; e++ {
			if err := s.Commit(t.Context(), small.Commit(e)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, Config{Path: path, migrations: later})
		if epoch, err := small.Check(t.Context(), s); err != nil || epoch != 3 {
			t.Errorf("from version %d: epoch %d, %v", from, epoch, err)
		}
		var y, versions int
		if err := s.writer.QueryRowContext(t.Context(), "SELECT y, (SELECT count(*) FROM schema_version) FROM later").Scan(&y, &versions); err != nil || y != 8 || versions != len(later) {
			t.Errorf("from version %d: y = %d, %d versions, %v", from, y, versions, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, Config{Path: path}, codes.StoreNewer)
	}
}

// Files of every version that was ever written come to the newest: their tables are made by the migrations of that time.
func TestMigratesFromEveryVersion(t *testing.T) {
	t.Parallel()
	all := embedded()
	for from := 1; from < len(all); from++ {
		path := filepath.Join(t.TempDir(), "weir.db")
		old := fmt.Sprintf("PRAGMA application_id = %d; CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_ns INTEGER NOT NULL) STRICT;", applicationID)
		for _, m := range all[:from] {
			old += m.sql + fmt.Sprintf(";INSERT INTO schema_version VALUES (%d, '%s', 1);", m.version, m.name)
		}
		execFile(t, path, old)
		filled(t, path, small, 2)
		if got := stands(t, path, small); got != 2 {
			t.Errorf("from version %d: epoch %d", from, got)
		}
		s := open(t, Config{Path: path})
		var versions int
		if err := s.writer.QueryRowContext(t.Context(), "SELECT count(*) FROM schema_version").Scan(&versions); err != nil || versions != len(all) {
			t.Errorf("from version %d: %d versions, %v", from, versions, err)
		}
		if _, created, err := s.Admit(t.Context(), planeRequest); err != nil || !created {
			t.Errorf("from version %d: admission: %v", from, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A migration that fails leaves the version before it, whole.
func TestMigrationFailsAsAWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	filled(t, path, small, 2)
	broken := append(embedded(),
		migration{version: len(embedded()) + 1, name: "good", sql: "CREATE TABLE later (x INTEGER) STRICT; DELETE FROM outputs"},
		migration{version: len(embedded()) + 2, name: "broken", sql: "CREATE TABLE more (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1)"})
	if s, err := Open(t.Context(), Config{Path: path, migrations: broken}); err == nil {
		_ = s.Close()
		t.Fatal("it was applied")
	} else if !strings.Contains(err.Error(), "migration broken") {
		t.Errorf("the message does not name the migration: %v", err)
	}
	if got := stands(t, path, small); got != 2 { // opens it with the version before
		t.Errorf("epoch %d", got)
	}
}

func TestIncompleteMigrationOfANewFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	if s, err := Open(t.Context(), Config{Path: path, migrations: []migration{{version: 1, name: "broken", sql: "CREATE TABLE runs (x INTEGER); nonsense"}}}); err == nil {
		_ = s.Close()
		t.Fatal("it was applied")
	}
	filled(t, path, small, 1)
	if got := stands(t, path, small); got != 1 {
		t.Errorf("epoch %d", got)
	}
}
