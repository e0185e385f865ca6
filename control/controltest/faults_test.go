package controltest

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

func TestFaultsOfCommit(t *testing.T) {
	t.Parallel()
	w := Workload{Seed: 1, RunID: "run", Partitions: 2, Rows: 3, Blob: 10}
	m := NewMemory()
	if _, err := m.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	m.Inject(FailCommit(2), LoseAnswer(3))
	for call, want := range []struct {
		fails bool
		epoch uint64
	}{{false, 1}, {true, 1}, {true, 2}, {false, 3}} {
		epoch := m.Epoch("run") + 1
		err := m.Commit(t.Context(), w.Commit(epoch))
		if (err != nil) != want.fails || m.Epoch("run") != want.epoch {
			t.Errorf("call %d: %v, epoch %d; want failure %t, epoch %d", call+1, err, m.Epoch("run"), want.fails, want.epoch)
		}
		if err != nil && (!codes.Has(err, codes.StoreUnavailable) || control.Refused(err)) {
			t.Errorf("call %d: %v is not an unknown outcome", call+1, err)
		}
	}
	m.AllFired(t)
	if m.Fired() != 2 || len(m.Pending()) != 0 {
		t.Errorf("%d fired, %d pending", m.Fired(), len(m.Pending()))
	}
	if epoch, err := w.Check(t.Context(), m); err != nil || epoch != 3 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
}

// A fault may do something instead of failing: here another process is faster by one epoch.
func TestFaultThatActs(t *testing.T) {
	t.Parallel()
	w := Workload{Seed: 1, RunID: "run", Partitions: 1, Rows: 3, Blob: 10}
	m := NewMemory()
	if _, err := m.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	m.Inject(Fault{Op: OpCommit, Call: 1, Do: func() {
		if err := m.Commit(t.Context(), w.Commit(1)); err != nil {
			t.Error(err)
		}
	}})
	if err := m.Commit(t.Context(), w.Commit(1)); !codes.Has(err, codes.JournalConflict) {
		t.Errorf("got %v, want JOURNAL_CONFLICT", err)
	}
	m.AllFired(t)
}

func TestFaultsOfEveryOperation(t *testing.T) {
	t.Parallel()
	w := Workload{Seed: 1, RunID: "run", Partitions: 1, Rows: 3, Blob: 10}
	m, injected := NewMemory(), errors.New("injected")
	if _, err := m.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	ops := map[Op]func() error{
		OpOpen:      func() error { _, err := m.OpenRun(t.Context(), w.Header()); return err },
		OpCommit:    func() error { return m.Commit(t.Context(), w.Commit(m.Epoch("run")+1)) },
		OpLoadBlobs: func() error { _, err := ReadBlobs(t.Context(), m, "run", 0); return err },
		OpOutputs:   func() error { _, err := ReadOutputs(t.Context(), m, "run", 0); return err },
		OpQuarantine: func() error {
			return m.Quarantine(t.Context(), "run", func(partitions.Quarantined) error { return nil })
		},
		OpDecisions: func() error { return m.Decisions(t.Context(), "run", func(partitions.Decision) error { return nil }) },
	}
	for op, call := range ops {
		for _, after := range []bool{false, true} {
			m.Inject(Fault{Op: op, Call: 2, After: after, Err: injected})
			for n, want := range []error{nil, injected, nil} {
				if err := call(); err != want {
					t.Errorf("%s (after: %t), call %d: %v, want %v", op, after, n+1, err, want)
				}
			}
		}
	}
	m.AllFired(t)
	m.Inject(FailCommit(1))
	if len(m.Pending()) != 1 {
		t.Error("an armed fault is not pending")
	}
}

// Receivers that keep what is valid during the call only are shown it.
func TestMemorySpoilsWhatIsKept(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	if _, err := m.OpenRun(t.Context(), header(1)); err != nil {
		t.Fatal(err)
	}
	pc := control.PartitionCommit{Cut: cut(0, 1), Rows: partitions.Rows{Data: []byte("rows"), Count: 1}}
	pc.Cut.Put = []partitions.StateBlob{{Name: "a", Data: []byte("blob")}}
	if err := m.Commit(t.Context(), commit(1, pc)); err != nil {
		t.Fatal(err)
	}
	var kept [][]byte
	err := errors.Join(
		m.LoadBlobs(t.Context(), "run", 0, func(b partitions.StateBlob) error { kept = append(kept, b.Data); return nil }),
		m.Outputs(t.Context(), "run", 0, func(r partitions.Rows) error { kept = append(kept, r.Data); return nil }))
	if err != nil || len(kept) != 2 || string(kept[0]) == "blob" || string(kept[1]) == "rows" {
		t.Errorf("kept %q, %v", kept, err)
	}
	if m.Close() != nil || m.Closed() != 1 {
		t.Errorf("closed %d times", m.Closed())
	}
}
