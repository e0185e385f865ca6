package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
)

var faulty = controltest.Workload{Seed: 4, RunID: "run", Partitions: 3, Rows: 20, Blob: 2000}

// atStep lets a test act before the n-th step of a write.
type atStep struct {
	n    int
	act  func() error
	name string
}

func (a *atStep) hook(step string) error {
	a.n--
	if a.n != 0 {
		return nil
	}
	a.name = step
	return a.act()
}

// An error between any two steps of a commit: nothing stands, unless it comes after COMMIT, when everything does although the caller was
// told otherwise. The same store goes on.
func TestErrorAtEveryStep(t *testing.T) {
	t.Parallel()
	injected := errors.New("injected")
	atEveryStep(t, func(context.CancelFunc) error { return injected }, func(step string, err error) {
		if !errors.Is(err, injected) || control.Refused(err) != (step != "committed") {
			t.Errorf("before %q: %v (a refusal: %t)", step, err, control.Refused(err))
		}
	})
}

// A cancellation between any two steps.
func TestCancelAtEveryStep(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(cancel context.CancelFunc) error { cancel(); return nil }, func(step string, err error) {
		if !errors.Is(err, context.Canceled) || codes.Of(err) != nil {
			t.Errorf("before %q: %v", step, err)
		}
	})
}

func atEveryStep(t *testing.T, act func(context.CancelFunc) error, check func(step string, err error)) {
	t.Helper()
	at := &atStep{}
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), Hook: at.hook})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), faulty.Header()); err != nil {
		t.Fatal(err)
	}
	epoch, failed := uint64(0), 0
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		at.n, at.name, at.act = n, "", func() error { return act(cancel) }
		err := s.Commit(ctx, faulty.Commit(epoch+1))
		cancel()
		at.n = 0 // it has happened, or the commit had fewer steps
		stands, cerr := faulty.Check(t.Context(), s)
		if cerr != nil {
			t.Fatalf("step %d (%s): %v", n, at.name, cerr)
		}
		want := epoch
		if err == nil || at.name == "committed" {
			want++
		}
		if stands != want {
			t.Fatalf("step %d (%s): epoch %d stands, want %d (%v)", n, at.name, stands, want, err)
		}
		epoch = stands
		if at.name == "" { // it had fewer steps
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err != nil {
			failed++
			check(at.name, err)
		} else if at.name != "committed" {
			t.Errorf("before %q: the commit went on", at.name)
		}
	}
	if failed < 10 {
		t.Errorf("only %d steps", failed)
	}
}

// The answer to a COMMIT is lost: the caller reads back and finds its epoch.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	lost := false
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), Hook: func(step string) error {
		if step == "committed" && lost {
			lost = false
			return codes.New(codes.StoreUnavailable, "the answer was lost")
		}
		return nil
	}})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), faulty.Header()); err != nil {
		t.Fatal(err)
	}
	lost = true
	if err := s.Commit(t.Context(), faulty.Commit(1)); err == nil || control.Refused(err) {
		t.Fatalf("got %v, want an unknown outcome", err)
	}
	state, err := s.OpenRun(t.Context(), faulty.Header())
	if err != nil || state.Epoch != 1 {
		t.Fatalf("read back: epoch %d, %v", state.Epoch, err)
	}
	if err := s.Commit(t.Context(), faulty.Commit(1)); !codes.Has(err, codes.JournalConflict) {
		t.Errorf("the same epoch once more: %v", err)
	}
	if err := s.Commit(t.Context(), faulty.Commit(2)); err != nil {
		t.Error(err)
	}
}

// The disk is full: said so, nothing stands, and with room again the run goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := controltest.Workload{Seed: 12, RunID: "run", Partitions: 2, Rows: 300, Blob: 30_000}
	path := filepath.Join(t.TempDir(), "weir.db")
	s := open(t, Config{Path: path, maxPages: 60})
	if _, err := s.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	var err error
	epoch := uint64(0)
	for err == nil {
		epoch++
		err = s.Commit(t.Context(), w.Commit(epoch))
	}
	if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "the disk is full") || control.Refused(err) {
		t.Errorf("epoch %d: %v", epoch, err)
	}
	if stands, err := w.Check(t.Context(), s); err != nil || stands != epoch-1 || epoch == 1 {
		t.Fatalf("epoch %d stands after %d, %v", stands, epoch-1, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Path: path})
	defer s.Close()
	if err := s.Commit(t.Context(), w.Commit(epoch)); err != nil {
		t.Fatal(err)
	}
	if stands, err := w.Check(t.Context(), s); err != nil || stands != epoch {
		t.Errorf("epoch %d stands, %v", stands, err)
	}
}

// Values that SQLite does not take are refused before anything is written. Rows of any size are cut into parts and pass.
func TestValuesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), maxBlob: 1000})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), small.Header()); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 1001)
	for what, p := range map[string]control.PartitionCommit{
		`the state blob "a" has 1002 bytes`:          {Cut: partitions.Cut{Put: []partitions.StateBlob{{Name: "a", Data: large}}}},
		"the quarantined record at 0 has 1001 bytes": {Quarantine: []partitions.Quarantined{{Value: large}}},
	} {
		err := s.Commit(t.Context(), control.Commit{RunID: "run", Epoch: 1, Status: control.RunOpen, Partitions: []control.PartitionCommit{p}})
		if !codes.Has(err, codes.LimitReached) || !strings.Contains(err.Error(), what) || !control.Refused(err) {
			t.Errorf("got %v, want LIMIT_REACHED: %s", err, what)
		}
	}
	rows := partitions.Rows{Data: make([]byte, maxPart+1), Count: 1}
	if err := s.Commit(t.Context(), control.Commit{RunID: "run", Epoch: 1, Status: control.RunOpen, Partitions: []control.PartitionCommit{{Rows: rows}}}); err != nil {
		t.Error(err)
	}
}

// What is lost from a table is missed, in each of them.
func TestLostRows(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		"DELETE FROM cuts WHERE partition = 1",
		"DELETE FROM blobs WHERE rowid = (SELECT min(rowid) FROM blobs)",
		"DELETE FROM outputs WHERE rowid = (SELECT max(rowid) FROM outputs)",
		"DELETE FROM quarantine WHERE rowid = (SELECT max(rowid) FROM quarantine)",
		"DELETE FROM decisions WHERE rowid = (SELECT max(rowid) FROM decisions)",
		"UPDATE runs SET epoch = epoch - 1",
		"UPDATE runs SET run_id = 'another'",
		"UPDATE cuts SET next = zeroblob(24)",
		"UPDATE blobs SET data = x'00' WHERE rowid = (SELECT min(rowid) FROM blobs)",
		"UPDATE outputs SET epoch = epoch + 1000 WHERE epoch = 3",
		"UPDATE outputs SET data = (SELECT data FROM outputs LIMIT 1)",
		"UPDATE quarantine SET value = NULL",
		"UPDATE decisions SET detail = 'x'",
	} {
		path := filepath.Join(t.TempDir(), "weir.db")
		filled(t, path, damaged, damagedEpochs)
		execFile(t, path, statement)
		if code, _, err := inspectDamage(t, path); code != codes.JournalCorrupt || err != nil {
			t.Errorf("%s: %v, %v; want JOURNAL_CORRUPT", statement, code, err)
		}
	}
}
