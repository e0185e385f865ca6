package sqlite

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
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

// version2 puts a file where it is asked that a weir of the second version of the schema wrote: six epochs of the workload of2, an admitted run, a
// lease.
func version2(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "version_2.db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, data)
}

var of2 = controltest.Workload{Seed: 22, RunID: "run", Partitions: 2, Rows: 4, Blob: 100, Earlier: true}

// A file of the second version comes to the newest: the run is whole, has the digests of its state, and can be owned and forked.
func TestMigratesAFileOfVersion2(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	version2(t, path)
	s := open(t, Config{Path: path})
	defer s.Close()
	if epoch, err := of2.CheckStored(t.Context(), s, 0); err != nil || epoch != 6 {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	err := s.Snapshot(t.Context(), of2.RunID, func(v control.JournalView) error {
		n := 0
		for part := range v.State().Cuts {
			err := v.Blobs(t.Context(), part, func(b control.BlobRef) error {
				n++
				return v.Load(t.Context(), part, []string{b.Name}, func(have partitions.StateBlob) error {
					if b.Digest != sha256.Sum256(have.Data) || b.Size != int64(len(have.Data)) {
						return fmt.Errorf("partition %d: %q is referred to with %d bytes, %x", part, b.Name, b.Size, b.Digest)
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
		}
		if n == 0 {
			return errors.New("no state")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if id, err := s.StoreID(t.Context()); err != nil || len(id) != 32 {
		t.Errorf("the store's name is %q, %v", id, err)
	}
	if l, ok, err := s.LookupLease(t.Context(), "job"); err != nil || !ok || l.Owner != "a" {
		t.Errorf("%+v, %v", l, err)
	}
	if runs, _, err := s.ListRuns(t.Context(), control.RunFilter{}); err != nil || len(runs) != 1 {
		t.Errorf("%d admitted runs, %v", len(runs), err)
	}
	work := task{Workload: of2, Until: 8}
	if err := succeeds(t, s, work); err != nil {
		t.Error(err)
	}
}

// What is damaged in a file of the second version does not keep the rest of it from going on, and is still told.
func TestMigratesADamagedFileOfVersion2(t *testing.T) {
	t.Parallel()
	for statement, says := range map[string]string{
		"UPDATE runs SET watermark = 1":                                              "the row of run",
		"UPDATE blobs SET data = x'00' WHERE rowid = (SELECT min(rowid) FROM blobs)": "is damaged",
		"DELETE FROM blobs WHERE rowid = (SELECT min(rowid) FROM blobs)":             "state blobs where",
	} {
		path := filepath.Join(t.TempDir(), "weir.db")
		version2(t, path)
		execFile(t, path, statement)
		s := open(t, Config{Path: path})
		_, err := of2.CheckStored(t.Context(), s, 0)
		if !codes.Has(err, codes.JournalCorrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want JOURNAL_CORRUPT with %q", statement, err, says)
		}
		if _, err := s.Acquire(t.Context(), "another", "a", time.Minute); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The migration of a file of the second version fails at every step in turn: the file is as it was, and the next one brings it forward.
func TestMigrationOfVersion2FailsAtEveryStep(t *testing.T) {
	t.Parallel()
	injected := errors.New("injected")
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "weir.db")
		version2(t, path)
		at := &atStep{n: n, act: func() error { return injected }}
		s, err := Open(t.Context(), Config{Path: path, Hook: at.hook})
		if at.name == "" {
			if err != nil || n < 10 {
				t.Fatalf("after %d steps: %v", n-1, err)
			}
			_ = s.Close()
			return
		}
		if !errors.Is(err, injected) {
			t.Errorf("failed before step %d (%s): %v", n, at.name, err)
		}
		s = open(t, Config{Path: path})
		if epoch, err := of2.CheckStored(t.Context(), s, 0); err != nil || epoch != 6 {
			t.Errorf("failed before step %d (%s): epoch %d, %v", n, at.name, epoch, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
