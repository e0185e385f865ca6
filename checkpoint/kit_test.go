package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const flowHead = "flow: weir/1\nname: ticks\nid: id\nkey: key\ntime: {field: at, unit: ms}\nlateness: 1s\n"

const flowText = flowHead + "operators: [{name: ema3, type: ema, input: x, period: 3}, {name: mean5, type: sma, input: x, period: 5}]\noutputs: [ema3, mean5]\n"

func planOf(t testing.TB, text string) *flow.Plan {
	t.Helper()
	plan, err := flow.Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// world is a store, its blobs and one run with its machines, on a clock of their own.
type world struct {
	mu       sync.Mutex
	time     time.Time
	store    *controltest.Memory
	blobs    *checkpointtest.Memory
	plan     *flow.Plan
	runID    string
	machines map[int32]*partitions.Machine
	fed      map[int32]int
	epoch    uint64
	lease    control.Lease
}

func newWorld(t testing.TB) *world {
	return newWorldOf(t, controltest.NewMemory(), "ticks-1", flowText)
}

func newWorldOf(t testing.TB, store *controltest.Memory, runID, text string) *world {
	t.Helper()
	w := &world{time: time.Unix(1_700_000_000, 0), store: store, plan: planOf(t, text), runID: runID,
		machines: map[int32]*partitions.Machine{}, fed: map[int32]int{}}
	store.Now = w.now
	w.blobs = checkpointtest.NewMemory(store.ID)
	w.blobs.Now = w.now
	w.own(t, time.Hour)
	for n := range int32(2) {
		w.machines[n] = partitions.New(w.plan, n)
	}
	if _, err := w.journal().OpenRun(t.Context(), w.header()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) header() control.RunHeader {
	return control.RunHeader{RunID: w.runID, Fingerprint: w.plan.Fingerprint, Source: "topic", SourceID: "id-1", Partitions: []int32{0, 1, 2}}
}

func (w *world) journal() control.Journal { return w.store.Under(w.lease) }

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

func (w *world) sleep(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

// own takes the run's lease anew.
func (w *world) own(t testing.TB, ttl time.Duration) {
	t.Helper()
	l, err := w.store.Acquire(t.Context(), control.StreamLease(w.runID), "owner", ttl)
	if err != nil {
		t.Fatal(err)
	}
	w.lease = l
}

// feed delivers n records to each partition, over so many keys, and commits an epoch.
func (w *world) feed(t testing.TB, n, keys int) {
	t.Helper()
	c := control.Commit{RunID: w.runID, Epoch: w.epoch + 1, Status: control.RunOpen, Watermark: record.MaxTime}
	for p := range int32(len(w.machines)) {
		m := w.machines[p]
		b := &record.Batch{Partition: p, Next: m.Next()}
		for range n {
			i := w.fed[p]
			w.fed[p]++
			v := fmt.Sprintf(`{"id":"%d-%d","key":"k%d","at":%d,"x":%d}`, p, i, i%keys, 1_000_000+50*i, i%17+100*int(p))
			b.Records = append(b.Records, record.Record{Position: b.Next, Arrival: record.NoTime, Value: []byte(v)})
			b.Next = b.Next.Next()
		}
		var eff partitions.Effects
		if err := m.Step(partitions.Deliver{Batch: b}, &eff); err != nil {
			t.Fatal(err)
		}
		c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: m.Cut(), Rows: eff.Rows, Quarantine: eff.Quarantine, Decisions: eff.Decisions})
		c.Watermark = min(c.Watermark, m.Watermark())
	}
	if err := w.journal().Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.epoch++
}

func (w *world) saver() *checkpoint.Saver {
	return &checkpoint.Saver{Store: w.store, Blobs: w.blobs, Plan: w.plan, Now: w.now}
}

func (w *world) save(t testing.TB) control.Pointer {
	t.Helper()
	p, err := w.saver().Save(t.Context(), w.lease, w.runID)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) gc() *checkpoint.GC {
	return &checkpoint.GC{Store: w.store, Blobs: w.blobs, Now: w.now}
}

func (w *world) collect(t testing.TB) *checkpoint.Collected {
	t.Helper()
	c, err := w.gc().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) pointers(t testing.TB) []control.Pointer {
	t.Helper()
	all, err := w.store.ListPointers(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// damaged are the checkpoints of the store that are not whole.
func (w *world) damaged(t testing.TB) (bad []string) {
	t.Helper()
	for _, p := range w.pointers(t) {
		v, err := checkpoint.Audit(t.Context(), w.blobs, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Err(); err != nil {
			bad = append(bad, err.Error())
		}
	}
	return bad
}

func (w *world) standing(t testing.TB) (names []string) {
	t.Helper()
	if err := w.blobs.List(t.Context(), func(i checkpoint.Info) error {
		names = append(names, i.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func (w *world) load(t testing.TB, p control.Pointer) *checkpoint.Manifest {
	t.Helper()
	m, err := checkpoint.Load(t.Context(), w.blobs, p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (w *world) restorer() *checkpoint.Restorer {
	return &checkpoint.Restorer{Store: w.store, Blobs: w.blobs}
}

// restored are the machines of a run, made from its journal.
func (w *world) restored(t testing.TB, runID string) map[int32]*partitions.Machine {
	t.Helper()
	out := map[int32]*partitions.Machine{}
	for n := range w.machines {
		m, err := partitions.Restore(w.plan, n, func(yield func(partitions.StateBlob) error) error {
			return w.store.LoadBlobs(t.Context(), runID, n, yield)
		})
		if err != nil {
			t.Fatal(err)
		}
		out[n] = m
	}
	return out
}

// fullState is the state of machines as one text.
func fullState(machines map[int32]*partitions.Machine) string {
	var b strings.Builder
	for n := range int32(len(machines)) {
		for _, s := range machines[n].FullState() {
			fmt.Fprintf(&b, "%d %s %d %x\n", n, s.Name, len(s.Data), s.Data)
		}
	}
	return b.String()
}

// blobState are the state blobs of a run in the journal as one text.
func (w *world) blobState(t testing.TB, runID string) string {
	t.Helper()
	var b bytes.Buffer
	for n := range int32(3) {
		if err := w.store.LoadBlobs(t.Context(), runID, n, func(s partitions.StateBlob) error {
			fmt.Fprintf(&b, "%d %s %x\n", n, s.Name, s.Data)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func refusedWith(t testing.TB, what string, err error, code *codes.Code, words ...string) {
	t.Helper()
	if !codes.Has(err, code) {
		t.Errorf("%s: %v, want %s", what, err, code.Name)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the message lacks %q: %v", what, word, err)
		}
	}
}

var errKilled = errors.New("the process is killed")

// steps counts what one process does to the outside, and lets something happen at one of them.
type steps struct {
	n, at int
	do    func() error
	dead  bool
}

// kill makes the process die at a step.
func (s *steps) kill(at int) { s.at, s.do = at, func() error { s.dead = true; return errKilled } }

// pause makes the process stop at a step while something else happens.
func (s *steps) pause(at int, do func()) { s.at, s.do = at, func() error { do(); return nil } }

func (s *steps) step() error {
	if s.dead {
		return errKilled
	}
	s.n++
	if s.n == s.at {
		return s.do()
	}
	return nil
}

// around is a step before something and one after it.
func (s *steps) around(act func() error) error {
	if err := s.step(); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	return s.step()
}

// storeSteps is the store as one process sees it.
type storeSteps struct {
	*controltest.Memory
	*steps
}

func (s storeSteps) StoreID(ctx context.Context) (id string, err error) {
	err = s.around(func() error { id, err = s.Memory.StoreID(ctx); return err })
	return id, err
}

func (s storeSteps) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	return s.around(func() error { return s.Memory.Snapshot(ctx, runID, fn) })
}

func (s storeSteps) ListPointers(ctx context.Context, runID string) (all []control.Pointer, err error) {
	err = s.around(func() error { all, err = s.Memory.ListPointers(ctx, runID); return err })
	return all, err
}

func (s storeSteps) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	return s.around(func() error { return s.Memory.KeepPointer(ctx, l, p) })
}

func (s storeSteps) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) (gone []uint64, err error) {
	err = s.around(func() error { gone, err = s.Memory.DropPointers(ctx, l, runID, epochs); return err })
	return gone, err
}

func (s storeSteps) ForkRun(ctx context.Context, l control.Lease, f control.Fork) error {
	return s.around(func() error { return s.Memory.ForkRun(ctx, l, f) })
}

// blobSteps are the blobs as one process sees them.
type blobSteps struct {
	checkpoint.Blobs
	*steps
}

func (b blobSteps) Put(ctx context.Context, r io.Reader) (i checkpoint.Info, err error) {
	err = b.around(func() error { i, err = b.Blobs.Put(ctx, r); return err })
	return i, err
}

func (b blobSteps) Get(ctx context.Context, name string) (r io.ReadCloser, n int64, err error) {
	err = b.around(func() error { r, n, err = b.Blobs.Get(ctx, name); return err })
	return r, n, err
}

func (b blobSteps) Touch(ctx context.Context, ask []checkpoint.Info) (stands []bool, err error) {
	err = b.around(func() error { stands, err = b.Blobs.Touch(ctx, ask); return err })
	return stands, err
}

func (b blobSteps) List(ctx context.Context, fn func(checkpoint.Info) error) error {
	return b.around(func() error { return b.Blobs.List(ctx, fn) })
}

func (b blobSteps) Aside(ctx context.Context, fn func(checkpoint.Aside) error) error {
	return b.around(func() error { return b.Blobs.Aside(ctx, fn) })
}

// SetAside is that of a store whose look at the age and removal are two steps, as in a folder: what happens in between does not count.
func (b blobSteps) SetAside(ctx context.Context, name string, age time.Duration) (done bool, err error) {
	old := false
	if err := b.Blobs.List(ctx, func(i checkpoint.Info) error {
		old = old || i.Name == name && b.Blobs.(*checkpointtest.Memory).Now().Sub(i.Modified) >= age
		return nil
	}); err != nil {
		return false, err
	}
	err = b.around(func() error {
		if old {
			b.Blobs.(*checkpointtest.Memory).Force(name)
		}
		return nil
	})
	return old, err
}

func (b blobSteps) BringBack(ctx context.Context, a checkpoint.Aside) error {
	return b.around(func() error { return b.Blobs.BringBack(ctx, a) })
}

func (b blobSteps) Purge(ctx context.Context, a checkpoint.Aside) error {
	return b.around(func() error { return b.Blobs.Purge(ctx, a) })
}

// saverOf is a saver that is a process of its own.
func (w *world) saverOf(s *steps) *checkpoint.Saver {
	saver := w.saver()
	saver.Store, saver.Blobs = storeSteps{w.store, s}, blobSteps{w.blobs, s}
	saver.Writers = 1 // so that its steps come in one order
	return saver
}

// gcOf is a collector that is a process of its own.
func (w *world) gcOf(s *steps) *checkpoint.GC {
	gc := w.gc()
	gc.Store, gc.Blobs = storeSteps{w.store, s}, blobSteps{w.blobs, s}
	return gc
}
