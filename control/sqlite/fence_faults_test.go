package sqlite

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
)

var owning = controltest.Workload{Seed: 14, RunID: "run", Partitions: 2, Rows: 200, Blob: 20_000}

// owner opens a file with a run that is owned, at an epoch.
func owner(t *testing.T, cfg Config, epochs uint64) (*Store, control.Lease) {
	t.Helper()
	s := open(t, cfg)
	t.Cleanup(func() { _ = s.Close() })
	l, err := s.Acquire(t.Context(), control.StreamLease(owning.RunID), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Under(l).OpenRun(t.Context(), owning.Header()); err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(1); epoch <= epochs; epoch++ {
		if err := s.Under(l).Commit(t.Context(), owning.Commit(epoch)); err != nil {
			t.Fatal(err)
		}
	}
	return s, l
}

// ownerWrites are the writes of an owner that stands at epoch 4, each with what says whether it was done.
func ownerWrites(t *testing.T, s *Store, l control.Lease) map[string]func() error {
	t.Helper()
	f, err := owning.Fork(t.Context(), 4, forkOf)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func() error{
		"commit": func() error { return s.Under(l).Commit(t.Context(), owning.Commit(5)) },
		"keep":   func() error { return s.KeepPointer(t.Context(), l, pointerTo(owning, 4)) },
		"fork": func() error {
			child, err := s.Acquire(t.Context(), control.StreamLease(forkOf), "a", time.Hour)
			if err != nil {
				return err
			}
			return s.ForkRun(t.Context(), child, f)
		},
		"renew": func() error { _, err := s.Renew(t.Context(), l); return err },
	}
}

// nothingNew says that an owner's run stands at epoch 4 and nothing else was made.
func nothingNew(ctx context.Context, s *Store) error {
	epoch, err := owning.CheckStored(ctx, s, 1)
	if err != nil || epoch != 4 {
		return fmt.Errorf("epoch %d stands, %w", epoch, err)
	}
	pointers, err := s.ListPointers(ctx, "")
	if err != nil || len(pointers) != 0 {
		return fmt.Errorf("%d pointers, %w", len(pointers), err)
	}
	runs, err := s.Runs(ctx)
	if err != nil || len(runs) != 1 {
		return fmt.Errorf("%d runs, %w", len(runs), err)
	}
	return nil
}

// The disk is full in the middle of a fenced commit and of a fork: said so, nothing stands, and with room again the same owner goes on.
func TestFullDiskOfAnOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	s, l := owner(t, Config{Path: path}, 4)
	var pages int
	if err := s.reader.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Path: path, maxPages: pages + 1})
	writes := ownerWrites(t, s, l)
	for _, what := range []string{"commit", "fork"} {
		err := writes[what]()
		if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "the disk is full") || control.Refused(err) {
			t.Errorf("%s: %v", what, err)
		}
		if err := nothingNew(t.Context(), s); err != nil {
			t.Errorf("after the %s: %v", what, err)
		}
	}
	if err := writes["renew"](); err != nil { // it takes no room in the file
		t.Errorf("a heartbeat: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Path: path})
	defer s.Close()
	writes = ownerWrites(t, s, l)
	for _, what := range []string{"commit", "keep", "fork"} {
		if err := writes[what](); err != nil {
			t.Errorf("with room again: %s: %v", what, err)
		}
	}
}

// A file that can no longer be written: said so at every write, and readers go on.
func TestReadOnlyInTheMiddle(t *testing.T) {
	t.Parallel()
	s, l := owner(t, Config{Path: filepath.Join(t.TempDir(), "weir.db")}, 4)
	pragma := func(on int) {
		if _, err := s.writer.ExecContext(t.Context(), fmt.Sprintf("PRAGMA query_only = %d", on)); err != nil {
			t.Fatal(err)
		}
	}
	pragma(1)
	writes := ownerWrites(t, s, l)
	for what, call := range writes {
		err := call()
		if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "it cannot be written") || control.Refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := nothingNew(t.Context(), s); err != nil {
		t.Error(err)
	}
	pragma(0)
	for what, call := range writes {
		if err := call(); err != nil {
			t.Errorf("writable again: %s: %v", what, err)
		}
	}
}

// The file is removed or replaced: before a write, so that nothing is written; and in its transaction, so that SQLite acknowledges a commit that nobody
// will find. Neither is called good.
func TestGoneInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"begin", "commit"} {
		for _, what := range []string{"commit", "keep", "fork", "renew"} {
			path := filepath.Join(t.TempDir(), "weir.db")
			var away func()
			s, l := owner(t, Config{Path: path, Hook: func(step string) error {
				if step == at && away != nil {
					away()
					away = nil
				}
				return nil
			}}, 4)
			call := ownerWrites(t, s, l)[what]
			rename := func() {
				if err := os.Rename(path, path+".away"); err != nil {
					t.Error(err)
				}
			}
			if at == "begin" {
				rename()
			} else {
				away = rename
			}
			err := call()
			if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "the file was moved or deleted") || control.Refused(err) {
				t.Errorf("gone before %q of a %s: %v", at, what, err)
			}
			if err := call(); !codes.Has(err, codes.StoreUnavailable) {
				t.Errorf("once more: %v", err)
			}
		}
	}
}

// A view reads on when the file is gone, and what it reads is right or told.
func TestAViewOfAFileThatIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	s, _ := owner(t, Config{Path: path}, 4)
	want, err := owning.Expected(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Snapshot(t.Context(), owning.RunID, func(v control.JournalView) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		for n, blobs := range want.Blobs {
			i := 0
			err := v.Blobs(t.Context(), n, func(b control.BlobRef) error {
				if b.Name != blobs[i].Name || b.Digest != sha256.Sum256(blobs[i].Data) {
					return fmt.Errorf("partition %d: blob %q", n, b.Name)
				}
				i++
				return nil
			})
			if err != nil || i != len(blobs) {
				return fmt.Errorf("partition %d: %d blobs, %w", n, i, err)
			}
		}
		return nil
	})
	if err != nil && codes.Of(err) == nil {
		t.Error(err)
	}
}

// A blob of a fork that SQLite does not take is refused, and nothing stands.
func TestAForkThatIsTooLarge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	s, _ := owner(t, Config{Path: path}, 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Path: path, maxBlob: 1000})
	defer s.Close()
	l, err := s.Acquire(t.Context(), control.StreamLease(forkOf), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f, err := owning.Fork(t.Context(), 4, forkOf)
	if err != nil {
		t.Fatal(err)
	}
	err = s.ForkRun(t.Context(), l, f)
	if !codes.Has(err, codes.LimitReached) || !control.Refused(err) {
		t.Errorf("got %v", err)
	}
	if err := nothingNew(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// Load may read the same file, also by readers of the same store.
func TestAForkLoadsFromItsOwnStore(t *testing.T) {
	t.Parallel()
	s, _ := owner(t, Config{Path: filepath.Join(t.TempDir(), "weir.db")}, 4)
	l, err := s.Acquire(t.Context(), control.StreamLease(forkOf), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f, err := owning.Fork(t.Context(), 4, forkOf)
	if err != nil {
		t.Fatal(err)
	}
	f.Load = func(n int32, yield func(partitions.StateBlob) error) error {
		return s.LoadBlobs(t.Context(), owning.RunID, n, yield)
	}
	if err := s.ForkRun(t.Context(), l, f); err != nil {
		t.Fatal(err)
	}
	w := owning
	w.RunID = forkOf
	if epoch, err := w.CheckStored(t.Context(), s, 1); err != nil || epoch != 4 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
}

// Damage to what migration 3 added is told by who reads it.
func TestDamageToFencesAndCheckpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ statement, says string }{
		{"UPDATE runs SET fence = fence + 1", "the row of run"},
		{"UPDATE runs SET fence = 0", "the row of run"},
		{"UPDATE runs SET forked_from = 'another'", "the row of run"},
		{"UPDATE runs SET forked_epoch = 1", "the row of run"},
		{"UPDATE blobs SET digest = zeroblob(32) WHERE rowid = (SELECT min(rowid) FROM blobs)", "the digest of the state blob"},
		{"UPDATE blobs SET size = size + 1 WHERE rowid = (SELECT min(rowid) FROM blobs)", "the digest of the state blob"},
		{"UPDATE blobs SET name = name || 'x' WHERE rowid = (SELECT min(rowid) FROM blobs)", "the digest of the state blob"},
		{"UPDATE blobs SET data = x'00'", "is damaged"},
		{"DELETE FROM blobs WHERE rowid = (SELECT min(rowid) FROM blobs)", "state blobs where"},
		{"UPDATE pointers SET manifest = replace(manifest, '4', '5')", "the checkpoint of run"},
		{"UPDATE pointers SET pinned = 1", "the checkpoint of run"},
		{"UPDATE pointers SET epoch = 3", "the checkpoint of run"},
		{"UPDATE pointers SET run_id = 'x'", "the checkpoint of run"},
		{"UPDATE store SET id = replace(hex(zeroblob(16)), '0', 'a')", "the name of the store"},
		{"DELETE FROM store", "the name of the store"},
	} {
		path := filepath.Join(t.TempDir(), "weir.db")
		s, l := owner(t, Config{Path: path}, 4)
		if err := s.KeepPointer(t.Context(), l, pointerTo(owning, 4)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(readAll(t.Context(), s), s.Close()); err != nil {
			t.Fatal(err)
		}
		execFile(t, path, c.statement)
		s = open(t, Config{Path: path})
		err := readAll(t.Context(), s)
		if !codes.Has(err, codes.JournalCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want JOURNAL_CORRUPT with %q", c.statement, err, c.says)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// readAll reads what fences and checkpoints have in a file.
func readAll(ctx context.Context, s *Store) error {
	if _, err := s.StoreID(ctx); err != nil {
		return err
	}
	if _, err := s.ListPointers(ctx, ""); err != nil {
		return err
	}
	return s.Snapshot(ctx, owning.RunID, func(v control.JournalView) error {
		for n := range v.State().Cuts {
			var names []string
			err := v.Blobs(ctx, n, func(b control.BlobRef) error { names = append(names, b.Name); return nil })
			if err != nil {
				return err
			}
			if err := v.Load(ctx, n, names, func(partitions.StateBlob) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
}
