package controltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// wrongFence is a store with one defect in what it does for owners of runs and for checkpoints.
type wrongFence struct {
	*Memory
	open        func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error)
	commit      func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error
	close       func(m *Memory) error
	plainOpen   func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error)
	plainCommit func(m *Memory, ctx context.Context, c control.Commit) error
	renew       func(m *Memory, ctx context.Context, l control.Lease) (control.Lease, error)
	storeID     func(m *Memory) string
	snapshot    func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error
	keep        func(m *Memory, ctx context.Context, l control.Lease, c control.Pointer) error
	pin         func(m *Memory, ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error
	drop        func(m *Memory, ctx context.Context, l control.Lease, runID string, epochs []uint64) ([]uint64, error)
	list        func(m *Memory, ctx context.Context, runID string) ([]control.Pointer, error)
	fork        func(m *Memory, ctx context.Context, l control.Lease, f control.Fork) error
}

// wrongUnder is its view under a lease.
type wrongUnder struct {
	control.Journal
	w *wrongFence
	l control.Lease
}

func (w *wrongFence) Under(l control.Lease) control.Journal {
	return &wrongUnder{w.Memory.Under(l), w, l}
}

func (u *wrongUnder) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	if u.w.open != nil {
		return u.w.open(u.w.Memory, ctx, u.l, h)
	}
	return u.Journal.OpenRun(ctx, h)
}

func (u *wrongUnder) Commit(ctx context.Context, c control.Commit) error {
	if u.w.commit != nil {
		return u.w.commit(u.w.Memory, ctx, u.l, c)
	}
	return u.Journal.Commit(ctx, c)
}

func (u *wrongUnder) Close() error {
	if u.w.close != nil {
		return u.w.close(u.w.Memory)
	}
	return u.Journal.Close()
}

func (w *wrongFence) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	if w.plainOpen != nil {
		return w.plainOpen(w.Memory, ctx, h)
	}
	return w.Memory.OpenRun(ctx, h)
}

func (w *wrongFence) Commit(ctx context.Context, c control.Commit) error {
	if w.plainCommit != nil {
		return w.plainCommit(w.Memory, ctx, c)
	}
	return w.Memory.Commit(ctx, c)
}

func (w *wrongFence) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	if w.renew != nil {
		return w.renew(w.Memory, ctx, l)
	}
	return w.Memory.Renew(ctx, l)
}

func (w *wrongFence) StoreID(ctx context.Context) (string, error) {
	if w.storeID != nil {
		return w.storeID(w.Memory), nil
	}
	return w.Memory.StoreID(ctx)
}

func (w *wrongFence) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	if w.snapshot != nil {
		return w.snapshot(w.Memory, ctx, runID, fn)
	}
	return w.Memory.Snapshot(ctx, runID, fn)
}

func (w *wrongFence) KeepPointer(ctx context.Context, l control.Lease, c control.Pointer) error {
	if w.keep != nil {
		return w.keep(w.Memory, ctx, l, c)
	}
	return w.Memory.KeepPointer(ctx, l, c)
}

func (w *wrongFence) PinPointer(ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error {
	if w.pin != nil {
		return w.pin(w.Memory, ctx, l, runID, epoch, pinned)
	}
	return w.Memory.PinPointer(ctx, l, runID, epoch, pinned)
}

func (w *wrongFence) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) ([]uint64, error) {
	if w.drop != nil {
		return w.drop(w.Memory, ctx, l, runID, epochs)
	}
	return w.Memory.DropPointers(ctx, l, runID, epochs)
}

func (w *wrongFence) ListPointers(ctx context.Context, runID string) ([]control.Pointer, error) {
	if w.list != nil {
		return w.list(w.Memory, ctx, runID)
	}
	return w.Memory.ListPointers(ctx, runID)
}

func (w *wrongFence) ForkRun(ctx context.Context, l control.Lease, f control.Fork) error {
	if w.fork != nil {
		return w.fork(w.Memory, ctx, l, f)
	}
	return w.Memory.ForkRun(ctx, l, f)
}

// with changes what a Memory keeps of a run, if there is one.
func with(m *Memory, runID string, change func(r *memoryRun)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[runID]; r != nil {
		change(r)
	}
}

// loose runs fn with the fence of a run forgotten, and puts it back.
func loose(m *Memory, runID string, fn func() error) error {
	var before control.FenceToken
	with(m, runID, func(r *memoryRun) { before, r.fence = r.fence, 0 })
	err := fn()
	with(m, runID, func(r *memoryRun) { r.fence = max(r.fence, before) })
	return err
}

// called gives an error that says "unknown" another code.
func called(err error, code *codes.Code) error {
	if err != nil && !control.Refused(err) {
		return codes.New(code, "wrong: %v", err)
	}
	return err
}

// swallowed takes a lost answer for a good one.
func swallowed(err error) error {
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}

// wrongCase names a defect and the check that must find it.
type wrongCase struct {
	name, check string
	wrong       wrongFence
	// fresh, if it is not nil, makes the store: it has something to remember.
	fresh func() wrongFence
}

func (c wrongCase) store(m *Memory) *wrongFence {
	w := c.wrong
	if c.fresh != nil {
		w = c.fresh()
	}
	w.Memory = m
	return &w
}

var wrongOwners = []wrongCase{
	{name: "opening keeps no fence", check: "fence: the owner of a run", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		var before control.FenceToken
		with(m, h.RunID, func(r *memoryRun) { before = r.fence })
		state, err := m.Under(l).OpenRun(ctx, h)
		with(m, h.RunID, func(r *memoryRun) { r.fence = before })
		return state, err
	}}},
	{name: "a commit keeps no fence", check: "fence: the owner of a run", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		var before control.FenceToken
		with(m, c.RunID, func(r *memoryRun) { before = r.fence })
		err := m.Under(l).Commit(ctx, c)
		with(m, c.RunID, func(r *memoryRun) { r.fence = before })
		return err
	}}},
	{name: "closing a view closes the store", check: "fence: the owner of a run", wrong: wrongFence{close: func(m *Memory) error {
		m.SetHook(func(string) error { return errors.New("closed") })
		return nil
	}}},
	{name: "commits are not verified", check: "fence: a stale owner writes nothing", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		return under(m, l, func(l control.Lease) error { return m.Under(l).Commit(ctx, c) })
	}}},
	{name: "opening is not verified", check: "fence: a stale owner writes nothing", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (state control.RunState, err error) {
		err = under(m, l, func(l control.Lease) error { state, err = m.Under(l).OpenRun(ctx, h); return err })
		return state, err
	}}},
	{name: "commits compare the token only", check: "fence: a stale owner writes nothing", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		if info, _, _ := m.LookupLease(ctx, l.Name); info.Token == l.Token {
			l.Owner = info.Owner
		}
		return m.Under(l).Commit(ctx, c)
	}}},
	{name: "commits compare the owner only", check: "fence: a stale owner writes nothing", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		if info, _, _ := m.LookupLease(ctx, l.Name); info.Owner == l.Owner {
			l.Token = info.Token
		}
		return m.Under(l).Commit(ctx, c)
	}}},
	{name: "opening does not look at the time", check: "fence: a stale owner writes nothing", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (state control.RunState, err error) {
		if info, _, _ := m.LookupLease(ctx, l.Name); info.Token != l.Token || info.Owner != l.Owner {
			return m.Under(l).OpenRun(ctx, h)
		}
		err = under(m, l, func(l control.Lease) error { state, err = m.Under(l).OpenRun(ctx, h); return err })
		return state, err
	}}},
	{name: "anyone opens", check: "fence: never again without a lease", wrong: wrongFence{plainOpen: func(m *Memory, ctx context.Context, h control.RunHeader) (state control.RunState, err error) {
		err = loose(m, h.RunID, func() error { state, err = m.OpenRun(ctx, h); return err })
		return state, err
	}}},
	{name: "anyone commits", check: "fence: never again without a lease", wrong: wrongFence{plainCommit: func(m *Memory, ctx context.Context, c control.Commit) error {
		return loose(m, c.RunID, func() error { return m.Commit(ctx, c) })
	}}},
	{name: "commits do not see that tokens went back", check: "fence: tokens that went back", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		return loose(m, c.RunID, func() error { return m.Under(l).Commit(ctx, c) })
	}}},
	{name: "tokens that went back are called stale", check: "fence: tokens that went back", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		state, err := m.Under(l).OpenRun(ctx, h)
		if codes.Has(err, codes.FenceRegression) {
			err = codes.New(codes.StaleFence, "wrong: %v", err)
		}
		return state, err
	}}},
	{name: "pins do not see that tokens went back", check: "fence: tokens that went back", wrong: wrongFence{pin: func(m *Memory, ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error {
		return loose(m, runID, func() error { return m.PinPointer(ctx, l, runID, epoch, pinned) })
	}}},
	{name: "pointers do not see that tokens went back", check: "fence: tokens that went back", wrong: wrongFence{keep: func(m *Memory, ctx context.Context, l control.Lease, c control.Pointer) error {
		return loose(m, c.RunID, func() error { return m.KeepPointer(ctx, l, c) })
	}}},
	{name: "any lease is good for any run", check: "fence: its own lease only", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		if l.Name == control.StreamLease(c.RunID) {
			return m.Under(l).Commit(ctx, c)
		}
		return loose(m, c.RunID, func() error { return m.Commit(ctx, c) })
	}}},
	{name: "an ended run gives no state", check: "fence: an ended run", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		state, err := m.Under(l).OpenRun(ctx, h)
		if err != nil {
			state = control.RunState{}
		}
		return state, err
	}}},
	{name: "anyone opens an ended run", check: "fence: an ended run", wrong: wrongFence{plainOpen: func(m *Memory, ctx context.Context, h control.RunHeader) (state control.RunState, err error) {
		err = loose(m, h.RunID, func() error { state, err = m.OpenRun(ctx, h); return err })
		return state, err
	}}},
	{name: "a commit that fails leaves its first partition", check: "fence: a failure at every step", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		err := m.Under(l).Commit(ctx, c)
		if err != nil && len(c.Partitions) > 0 {
			with(m, c.RunID, func(r *memoryRun) {
				if r.epoch < c.Epoch {
					r.partitions[c.Partitions[0].Cut.Partition].apply(c.Epoch, c.Partitions[0])
				}
			})
		}
		return err
	}}},
	{name: "opening makes the run before it is committed", check: "fence: a failure at every step", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		state, err := m.Under(l).OpenRun(ctx, h)
		if errors.Is(err, errInjected) {
			_, _ = m.OpenRun(ctx, h)
		}
		return state, err
	}}},
	{name: "a failure after the commit is called a refusal", check: "fence: a failure at every step", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		return called(m.Under(l).Commit(ctx, c), codes.Internal)
	}}},
	{name: "a commit that was cancelled leaves its first partition", check: "fence: cancelled at every step", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		err := m.Under(l).Commit(ctx, c)
		if err != nil && len(c.Partitions) > 0 {
			with(m, c.RunID, func(r *memoryRun) { r.partitions[c.Partitions[0].Cut.Partition].apply(c.Epoch, c.Partitions[0]) })
		}
		return err
	}}},
	{name: "a cancelled opening is taken for a good one", check: "fence: cancelled at every step", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		state, err := m.Under(l).OpenRun(ctx, h)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return state, err
	}}},
	{name: "a lost answer is called a refusal", check: "fence: lost answers", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		return called(m.Under(l).Commit(ctx, c), codes.JournalConflict)
	}}},
	{name: "a lost answer is taken for a good one", check: "fence: lost answers", wrong: wrongFence{open: func(m *Memory, ctx context.Context, l control.Lease, h control.RunHeader) (control.RunState, error) {
		state, err := m.Under(l).OpenRun(ctx, h)
		return state, swallowed(err)
	}}},
	{name: "a commit is made twice", check: "fence: lost answers", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		err := m.Under(l).Commit(ctx, c)
		if codes.Has(err, codes.JournalConflict) {
			return nil
		}
		return err
	}}},
	{name: "an epoch is committed as often as it is asked", check: "fence: two processes with one owner id", wrong: wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		err := m.Under(l).Commit(ctx, c)
		if codes.Has(err, codes.JournalConflict) {
			return nil
		}
		return err
	}}},
	{name: "a heartbeat waits", check: "fence: a take-over waits for a commit, a heartbeat does not", wrong: wrongFence{renew: func(m *Memory, ctx context.Context, l control.Lease) (control.Lease, error) {
		m.mu.Lock()
		held := m.holds[l.Name]
		m.mu.Unlock()
		if held != nil {
			return l, codes.New(codes.StoreUnavailable, "the lock was not given in time")
		}
		return m.Renew(ctx, l)
	}}},
	{name: "a take-over does not wait", check: "fence: a take-over waits for a commit, a heartbeat does not", fresh: func() wrongFence { return verifiedBefore(2) }},
	{name: "verified before the transaction", check: "fence: never after the take-over", fresh: func() wrongFence { return verifiedBefore(3) }},
}

// verifiedBefore is a store that verifies the lease of a commit in a transaction of its own. From an epoch on the commit itself comes when the next
// owner has looked at the run.
func verifiedBefore(from uint64) wrongFence {
	var mu sync.Mutex
	gates := map[string]chan struct{}{}
	gate := func(runID string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if gates[runID] == nil {
			gates[runID] = make(chan struct{})
		}
		return gates[runID]
	}
	var once sync.Map
	return wrongFence{commit: func(m *Memory, ctx context.Context, l control.Lease, c control.Commit) error {
		if err := m.Fenced(ctx, l); err != nil {
			return err
		}
		if err := m.step("commit"); err != nil {
			return err
		}
		if c.Epoch >= from {
			select {
			case <-gate(c.RunID):
			case <-ctx.Done():
			}
		}
		return loose(m, c.RunID, func() error {
			err := m.Commit(ctx, c)
			with(m, c.RunID, func(r *memoryRun) { r.fence = max(r.fence, l.Token) })
			return err
		})
	}, snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		err := m.Snapshot(ctx, runID, fn)
		if info, _, _ := m.LookupLease(ctx, control.StreamLease(runID)); info.Token > 1 {
			if _, done := once.LoadOrStore(runID, true); !done {
				close(gate(runID))
			}
		}
		return err
	}}
}

// The checks reject every store that is wrong in the point that they are for.
func TestFenceSuiteRejects(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(wrongOwners, wrongSnapshots, wrongPointers, wrongForks) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := controlChecks()
			i := slices.IndexFunc(all, func(have controlCheck) bool { return have.name == c.check })
			if i < 0 {
				t.Fatalf("there is no check %q", c.check)
			}
			m := NewMemory()
			w := c.store(m)
			p := &plane{ctx: t.Context(), Harness: memoryHarness(m, func() control.ControlStore { return w }), patience: time.Second}
			err := all[i].run(p)
			if err == nil {
				t.Fatalf("%q accepts it", c.check)
			}
			t.Log(err)
		})
	}
}

// Every check of fences and checkpoints has a store that it rejects.
func TestEveryFenceCheckRejects(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(fenceChecks, snapshotChecks, pointerChecks, forkChecks) {
		if !slices.ContainsFunc(slices.Concat(wrongOwners, wrongSnapshots, wrongPointers, wrongForks), func(w wrongCase) bool { return w.check == c.name }) {
			t.Errorf("nothing shows that %q rejects a store that is wrong", c.name)
		}
	}
}

// liveView reads what stands now, whenever it is asked.
type liveView struct {
	control.JournalView
	m     *Memory
	runID string
}

func (v *liveView) now() *memoryView {
	view, err := v.m.view(v.runID)
	if err != nil {
		panic(err)
	}
	return view
}

func (v *liveView) Blobs(ctx context.Context, n int32, fn func(control.BlobRef) error) error {
	return v.now().Blobs(ctx, n, fn)
}

func (v *liveView) Load(ctx context.Context, n int32, names []string, fn func(partitions.StateBlob) error) error {
	return v.now().Load(ctx, n, names, fn)
}

// seenView shows what a function makes of a view.
type seenView struct {
	control.JournalView
	state func(s control.RunState) control.RunState
	ref   func(b control.BlobRef) control.BlobRef
	load  func(ctx context.Context, v control.JournalView, n int32, names []string, fn func(partitions.StateBlob) error) error
	wrap  bool
}

func (v *seenView) State() control.RunState {
	if v.state != nil {
		return v.state(v.JournalView.State())
	}
	return v.JournalView.State()
}

func (v *seenView) Blobs(ctx context.Context, n int32, fn func(control.BlobRef) error) error {
	err := v.JournalView.Blobs(ctx, n, func(b control.BlobRef) error {
		if v.ref != nil {
			b = v.ref(b)
		}
		return fn(b)
	})
	if err != nil && v.wrap {
		return errors.Join(err)
	}
	return err
}

func (v *seenView) Load(ctx context.Context, n int32, names []string, fn func(partitions.StateBlob) error) error {
	if v.load != nil {
		return v.load(ctx, v.JournalView, n, names, fn)
	}
	return v.JournalView.Load(ctx, n, names, fn)
}

// seeing is a store whose views are changed.
func seeing(change func(v *seenView)) wrongFence {
	return wrongFence{snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		return m.Snapshot(ctx, runID, func(v control.JournalView) error {
			s := &seenView{JournalView: v}
			change(s)
			return fn(s)
		})
	}}
}

var wrongSnapshots = []wrongCase{
	{name: "a new name every time", check: "store: its name", wrong: wrongFence{storeID: func(*Memory) string { return newStoreID() }}},
	{name: "a name in capitals", check: "store: its name", wrong: wrongFence{storeID: func(m *Memory) string { return strings.ToUpper("abcdef" + m.ID[6:]) }}},
	{name: "blobs of the present", check: "snapshot: one moment", wrong: wrongFence{snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		return m.Snapshot(ctx, runID, func(v control.JournalView) error { return fn(&liveView{v, m, runID}) })
	}}},
	{name: "commits fail beside a view", check: "snapshot: one moment", wrong: wrongFence{snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		m.Inject(Fault{Op: OpCommit, Call: 1, Err: codes.New(codes.StoreUnavailable, "locked")})
		return m.Snapshot(ctx, runID, fn)
	}}},
	{name: "a view without the fence", check: "snapshot: one moment", wrong: seeing(func(v *seenView) { v.state = func(s control.RunState) control.RunState { s.Fence = 0; return s } })},
	{name: "a name that is missing is passed over", check: "snapshot: loading by name", wrong: seeing(func(v *seenView) {
		v.load = func(ctx context.Context, v control.JournalView, n int32, names []string, fn func(partitions.StateBlob) error) error {
			for _, name := range names {
				if err := v.Load(ctx, n, []string{name}, fn); err != nil && !codes.Has(err, codes.JournalCorrupt) {
					return err
				}
			}
			return nil
		}
	})},
	{name: "names end at a NUL", check: "snapshot: loading by name", wrong: seeing(func(v *seenView) {
		v.load = func(ctx context.Context, v control.JournalView, n int32, names []string, fn func(partitions.StateBlob) error) error {
			var cut []string
			for _, name := range names {
				name, _, _ = strings.Cut(name, "\x00")
				cut = append(cut, name)
			}
			return v.Load(ctx, n, cut, fn)
		}
	})},
	{name: "everything is loaded", check: "snapshot: loading by name", wrong: seeing(func(v *seenView) {
		v.load = func(ctx context.Context, v control.JournalView, n int32, names []string, fn func(partitions.StateBlob) error) error {
			var all []string
			err := v.Blobs(ctx, n, func(b control.BlobRef) error { all = append(all, b.Name); return nil })
			if err != nil {
				return err
			}
			return v.Load(ctx, n, append(all, names...), fn)
		}
	})},
	{name: "no digest", check: "snapshot: digests", wrong: seeing(func(v *seenView) { v.ref = func(b control.BlobRef) control.BlobRef { b.Digest = [32]byte{}; return b } })},
	{name: "a size in pages", check: "snapshot: digests", wrong: seeing(func(v *seenView) {
		v.ref = func(b control.BlobRef) control.BlobRef { b.Size = b.Size &^ 511; return b }
	})},
	{name: "an ended run is open", check: "snapshot: a new run and an ended one", wrong: seeing(func(v *seenView) {
		v.state = func(s control.RunState) control.RunState { s.Status = control.RunOpen; return s }
	})},
	{name: "a reader's error is wrapped", check: "snapshot: errors", wrong: seeing(func(v *seenView) { v.wrap = true })},
	{name: "a view is never over", check: "snapshot: errors", wrong: wrongFence{snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		return m.Snapshot(ctx, runID, func(control.JournalView) error {
			v, err := m.view(runID)
			if err != nil {
				return err
			}
			return fn(v)
		})
	}}},
	{name: "an unknown run is empty", check: "snapshot: errors", wrong: wrongFence{snapshot: func(m *Memory, ctx context.Context, runID string, fn func(control.JournalView) error) error {
		err := m.Snapshot(ctx, runID, fn)
		if codes.Has(err, codes.RunUnknown) {
			return fn(&memoryView{m: m})
		}
		return err
	}}},
}
