package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/controltest"
)

var small = controltest.Workload{Seed: 9, RunID: "run", Partitions: 2, Rows: 5, Blob: 100}

// refused opens a file that must not be opened and returns the error.
func refused(t *testing.T, cfg Config, code *codes.Code, says ...string) error {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened, want %s", cfg.Path, code.Name)
	}
	if codes.Of(err) != code {
		t.Fatalf("got %v, want %s", err, code.Name)
	}
	for _, text := range append(says, "journal "+cfg.Path) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the message %q does not say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the message is not one line: %q", err)
	}
	return err
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits; the folder's access list decides")
	}
	path := filepath.Join(t.TempDir(), "weir.db")
	s := open(t, Config{Path: path})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), small.Header()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want -rw-------", filepath.Base(name), info.Mode())
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), BusyTimeout: 1234 * time.Millisecond})
	defer s.Close()
	for name, db := range map[string]*sql.DB{"writer": s.writer, "reader": s.reader} {
		busy := map[string]string{"writer": "20", "reader": "1234"}[name] // begin asks again until the time is over
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": busy, "trusted_schema": "0",
			"page_size": "8192", "application_id": "2003134834"} {
			var got string
			if err := db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %q, want %q (%v)", name, pragma, got, want, err)
			}
		}
	}
	if _, err := s.reader.ExecContext(t.Context(), "DELETE FROM runs"); err == nil {
		t.Error("a reader can write")
	}
	if n := s.writer.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d writers", n)
	}
}

func TestPathsThatNeedCare(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "a%20b.db", "100%.db", "a#b.db", "a&mode=ro.db", "a+b;c.db", "ü.db", "a'b\".db", "-wal", "weir"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		filled(t, path, small, 2)
		if got := stands(t, path, small); got != 2 {
			t.Errorf("%q: epoch %d", name, got)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != name {
			t.Errorf("%q: the folder holds %v (%v)", name, entries, err)
		}
	}
	for _, path := range []string{"", "a\x00b"} {
		if _, err := Open(t.Context(), Config{Path: path}); codes.Of(err) == nil {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing", "weir.db")
	refused(t, Config{Path: missing}, codes.StoreUnavailable, "folder "+filepath.Join(dir, "missing"), "create it first")
	if _, err := os.Stat(filepath.Dir(missing)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder was created")
	}
	refused(t, Config{Path: filepath.Join(file, "weir.db")}, codes.StoreUnavailable, "not a folder")
	refused(t, Config{Path: dir}, codes.StoreInvalid, "not a regular file")
	absent := filepath.Join(dir, "absent.db")
	refused(t, Config{Path: absent, MustExist: true}, codes.StoreUnavailable, "no such file")
	if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
		t.Error("MustExist created the file")
	}
}

func TestDanglingLinkCreatesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link.db"), filepath.Join(dir, "target.db")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	refused(t, Config{Path: link}, codes.StoreUnavailable)
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Error("the target was created, with a mode of its own")
	}
	filled(t, target, small, 1)
	if got := stands(t, link, small); got != 1 {
		t.Errorf("through the link: epoch %d", got)
	}
}

// Files that are not ours are refused and left as they are, to the byte.
func TestFilesOfOthersAreNotTouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		make func(path string)
		code *codes.Code
		says string
	}{
		"text":    {func(path string) { write(t, path, []byte(strings.Repeat("instrument,close\n", 1000))) }, codes.StoreInvalid, "not a SQLite file"},
		"short":   {func(path string) { write(t, path, []byte("xy")) }, codes.StoreInvalid, "not a SQLite file"},
		"zeros":   {func(path string) { write(t, path, make([]byte, 8192)) }, codes.StoreInvalid, "not a SQLite file"},
		"foreign": {func(path string) { execFile(t, path, "CREATE TABLE bookmarks (url TEXT)") }, codes.StoreInvalid, "another program"},
		"foreign with an id": {func(path string) {
			execFile(t, path, "PRAGMA application_id = 42")
		}, codes.StoreInvalid, "another program"},
		"newer": {func(path string) {
			filled(t, path, small, 1)
			execFile(t, path, fmt.Sprintf("INSERT INTO schema_version VALUES (%d, 'later', 1)", len(embedded())+1))
		}, codes.StoreNewer, fmt.Sprintf("has version %d and this weir knows %d", len(embedded())+1, len(embedded()))},
		"without a version": {func(path string) {
			filled(t, path, small, 1)
			execFile(t, path, "DROP TABLE schema_version")
		}, codes.JournalCorrupt, "schema_version is missing"},
	} {
		path := filepath.Join(dir, name)
		c.make(path)
		before := read(t, path)
		refused(t, Config{Path: path}, c.code, c.says)
		if !bytes.Equal(before, read(t, path)) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 7 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// read is only for files that nobody has open: to close one drops SQLite's locks.
func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// execFile runs a statement on a SQLite file without our settings.
func execFile(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyFileBecomesAJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	write(t, path, nil)
	filled(t, path, small, 3)
	if got := stands(t, path, small); got != 3 {
		t.Errorf("epoch %d", got)
	}
}

// Many open one new file at the same moment: all succeed, and one schema stands.
func TestOpenedByManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		path := filepath.Join(t.TempDir(), "weir.db")
		var start, done sync.WaitGroup
		errs := make([]error, 8)
		start.Add(1)
		for i := range errs {
			done.Go(func() {
				start.Wait()
				s, err := Open(t.Context(), Config{Path: path, BusyTimeout: time.Minute})
				if err == nil {
					_, err = s.OpenRun(t.Context(), small.Header())
					err = errors.Join(err, s.Close())
				}
				errs[i] = err
			})
		}
		start.Done()
		done.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if got := stands(t, path, small); got != 0 {
			t.Errorf("epoch %d", got)
		}
	}
}

// Another process holds the write lock, or the whole file, for longer than we wait.
func TestLockedByAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	filled(t, path, small, 1)
	s := open(t, Config{Path: path, BusyTimeout: 2 * time.Millisecond})
	defer s.Close()
	other := open(t, Config{Path: path})
	defer other.Close()
	tx, err := other.writer.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		t.Helper()
		if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "locked by another process, for longer than 2ms") {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("commit", s.Commit(t.Context(), small.Commit(2)))
	_, err = s.OpenRun(t.Context(), small.Header())
	check("open run", err)
	second := open(t, Config{Path: path, BusyTimeout: 2 * time.Millisecond}) // to look at it
	defer second.Close()
	if runs, err := second.Runs(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("who opens it meanwhile reads %d runs, %v", len(runs), err)
	}
	check("commit by who opened it meanwhile", second.Commit(t.Context(), small.Commit(2)))
	if _, err := s.Runs(t.Context()); err != nil {
		t.Errorf("a reader waits for a writer: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), small.Commit(2)); err != nil {
		t.Errorf("after the lock was given back: %v", err)
	}
}

// Who waits for a lock hears a cancellation.
func TestCancelledWhileLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := false
	s := open(t, Config{Path: path, BusyTimeout: time.Hour, Hook: func(step string) error {
		if step == "begin" && waits {
			go cancel() // some time from now on, while the lock is waited for or just before
		}
		return nil
	}})
	defer s.Close()
	if _, err := s.OpenRun(ctx, small.Header()); err != nil {
		t.Fatal(err)
	}
	other := open(t, Config{Path: path})
	defer other.Close()
	tx, err := other.writer.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	waits = true
	if err := s.Commit(ctx, small.Commit(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	waits = false
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), small.Commit(1)); err != nil {
		t.Errorf("after the lock was given back: %v", err)
	}
}

// A file that is deleted or replaced under us: SQLite would write on into the void.
func TestMovedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	s := open(t, Config{Path: path})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), small.Header()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), small.Commit(1))
	if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "moved or deleted") {
		t.Errorf("moved: %v", err)
	}
	write(t, path, nil)
	if err := s.Commit(t.Context(), small.Commit(1)); !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("replaced: %v", err)
	}
	if err := os.Rename(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), small.Commit(1)); err != nil {
		t.Errorf("back in its place: %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := s.Commit(t.Context(), small.Commit(1)); !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}
