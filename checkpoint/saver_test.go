package checkpoint_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

var _ actors.Checkpointer = (*checkpoint.Saver)(nil)

// A restored run has the state of the cut, byte for byte, and goes on as the first one does: same rows, same state.
func TestRestoredIsWhatWasSaved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 700, 600)
	w.feed(t, 300, 40)
	p := w.save(t)
	state, blobs := fullState(w.machines), w.blobState(t, w.runID)
	w.feed(t, 200, 40)
	w.save(t)
	later := fullState(w.machines)
	if later == state {
		t.Fatal("the run did not go on")
	}

	found, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-2")
	if err != nil {
		t.Fatal(err)
	}
	machines := w.restored(t, "ticks-2")
	if fullState(machines) != state || w.blobState(t, "ticks-2") != blobs {
		t.Error("the restored state differs from the saved one")
	}
	for _, v := range found.Partitions {
		if want := machines[v.Partition]; v.Committed != (v.Partition < 2) || want != nil && (v.Keys != want.Keys() || v.IDs != want.IDs() || v.Waiting != want.Waiting() || v.Bytes == 0) {
			t.Errorf("%+v", v)
		}
	}
	// The same input again, in the new run.
	old := w.epoch
	w.machines, w.runID, w.epoch = machines, "ticks-2", p.Epoch
	for n := range w.fed {
		w.fed[n] = 1000
	}
	w.own(t, time.Hour)
	if s, err := w.journal().OpenRun(t.Context(), w.header()); err != nil || s.Epoch != p.Epoch {
		t.Fatalf("%+v, %v", s, err)
	}
	w.feed(t, 200, 40)
	if w.epoch != old || fullState(w.machines) != later {
		t.Error("the restored run goes on in another way")
	}
	for n := range int32(2) {
		if a, b := w.rows(t, "ticks-1", n), w.rows(t, "ticks-2", n); a != b || a == "" {
			t.Errorf("partition %d: rows of %d and %d bytes", n, len(a), len(b))
		}
	}
	if bad := w.damaged(t); len(bad) > 0 {
		t.Error(bad)
	}
}

// What decides about lateness is part of the checkpoint: a restored run calls the same records late.
func TestLatenessIsRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 100, 7)
	p := w.save(t)
	if _, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-2"); err != nil {
		t.Fatal(err)
	}
	restored := w.restored(t, "ticks-2")
	for n, m := range w.machines {
		for _, m := range []*partitions.Machine{m, restored[n]} {
			w := m.Watermark()
			if w == record.NoTime || w != restored[n].Watermark() {
				t.Errorf("partition %d: watermark %s, restored %s", n, w, restored[n].Watermark())
			}
			late := record.Record{Position: m.Next(), Arrival: record.NoTime, Value: []byte(`{"id":"late","key":"k1","at":1000001,"x":1}`)}
			again := record.Record{Position: m.Next().Next(), Arrival: record.NoTime, Value: []byte(fmt.Sprintf(`{"id":"%d-99","key":"k1","at":1004950,"x":1}`, n))}
			var eff partitions.Effects
			b := &record.Batch{Partition: n, Records: []record.Record{late, again}, Next: again.Position.Next()}
			if err := m.Step(partitions.Deliver{Batch: b}, &eff); err != nil {
				t.Fatal(err)
			}
			if c := m.Counts(); c.Late != 1 || c.Duplicates != 1 || c.Records != 102 {
				t.Errorf("partition %d: %+v", n, c)
			}
		}
	}
}

// A save that the clock of the machine ends, not that of the test.
func TestSaveThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.feed(t, 30, 3)
		w.blobs.Hook = func(string) error {
			<-time.After(4 * time.Minute)
			return nil
		}
		_, err := w.saver().Save(t.Context(), w.lease, w.runID)
		refusedWith(t, "a slow disk", err, codes.LimitReached, "10m")
		w.blobs.Hook = nil
		if w.save(t); len(w.damaged(t)) > 0 {
			t.Error(w.damaged(t))
		}
	})
}

func (w *world) rows(t testing.TB, runID string, n int32) string {
	t.Helper()
	var b strings.Builder
	if err := w.store.Outputs(t.Context(), runID, n, func(r partitions.Rows) error { b.Write(r.Data); return nil }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatTheManifestSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 300, 20)
	p := w.save(t)
	m := w.load(t, p)
	blobs, bytes := m.Size()
	if m.RunID != "ticks-1" || m.Epoch != 1 || m.StoreID != w.store.ID || m.Fence != w.lease.Token || m.Source != "topic" || m.SourceID != "id-1" || m.Status != control.RunOpen ||
		m.Flow.Name != "ticks" || m.Flow.Fingerprint != w.plan.Fingerprint || m.Hash() != p.Hash || blobs != p.Blobs || bytes != p.Bytes || m.StateSchema != checkpoint.StateSchema {
		t.Errorf("%+v\n%+v", m, p)
	}
	nodes := map[string]int{}
	for n, part := range m.Partitions {
		if machine := w.machines[int32(n)]; machine == nil {
			if part.Committed || len(part.State) > 0 {
				t.Errorf("a partition without a cut: %+v", part)
			}
		} else if part.Cut.Next != machine.Next() || part.Cut.Counts != machine.Counts() || part.Cut.Watermark != machine.Watermark() {
			t.Errorf("partition %d: %+v", n, part.Cut)
		}
		for _, r := range part.State {
			nodes[r.Node()]++
		}
	}
	if len(m.Partitions) != 3 || nodes["core"] != 2 || nodes["keys"] != 2 || nodes["dedupe"] == 0 || nodes["reorder"] == 0 {
		t.Errorf("%d partitions, nodes %v", len(m.Partitions), nodes)
	}
	if state, err := w.journal().OpenRun(t.Context(), w.header()); err != nil || m.Watermark != state.Watermark {
		t.Errorf("watermark %s, %v", m.Watermark, err)
	}
	if stored := w.pointers(t)[0]; stored.Token != w.lease.Token || stored.NewBytes != p.NewBytes || stored.Hash != p.Hash {
		t.Errorf("%+v", stored)
	}
}

// What a checkpoint costs follows what has changed: one key of a thousand writes its chunk, the core and what is new of the ids.
func TestCostFollowsTheChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 5000, 5000)
	first := w.save(t)
	if first.NewBytes < first.Bytes {
		t.Errorf("the first wrote %d of %d bytes", first.NewBytes, first.Bytes)
	}
	w.feed(t, 1, 1)
	written := w.blobs.Written()
	second := w.save(t)
	if did := w.blobs.Written() - written; did != second.NewBytes {
		t.Errorf("it says %d new bytes and wrote %d", second.NewBytes, did)
	}
	if second.NewBytes*5 > second.Bytes {
		t.Errorf("one record more wrote %d of %d bytes", second.NewBytes, second.Bytes)
	}
	d := checkpoint.Diff(w.load(t, first), w.load(t, second))
	if d.OnlyB.Bytes+100_000 < second.NewBytes || d.Shared.Bytes+d.OnlyB.Bytes > second.Bytes {
		t.Errorf("%+v, %d new bytes", d, second.NewBytes)
	}
	// Nothing has changed: the same checkpoint, and nothing is written.
	written = w.blobs.Written()
	if again := w.save(t); again.Manifest != second.Manifest || w.blobs.Written() != written {
		t.Errorf("%+v, %d bytes written", again, w.blobs.Written()-written)
	}
}

func TestSaveIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.saver().Save(t.Context(), w.lease, w.runID)
	refusedWith(t, "nothing committed", err, codes.CheckpointUnknown)
	w.feed(t, 10, 3)
	_, err = w.saver().Save(t.Context(), w.lease, "other")
	refusedWith(t, "unknown run", err, codes.RunUnknown)

	saver := w.saver()
	saver.Plan = planOf(t, strings.Replace(flowText, "period: 3", "period: 4", 1))
	_, err = saver.Save(t.Context(), w.lease, w.runID)
	refusedWith(t, "another flow", err, codes.RunMismatch)

	for owner, word := range map[string]string{"": "not marked", "somebody else's": "belong to the store"} {
		w.blobs.Owned = owner
		_, err = w.saver().Save(t.Context(), w.lease, w.runID)
		refusedWith(t, "blobs of "+owner, err, codes.ConfigInvalid, word)
	}
	w.blobs.Owned = w.store.ID

	s := &steps{}
	s.pause(15, func() { w.sleep(checkpoint.MaxSave + time.Second) })
	_, err = w.saverOf(s).Save(t.Context(), w.lease, w.runID)
	refusedWith(t, "too slow", err, codes.LimitReached)
	if n := len(w.pointers(t)); n != 0 {
		t.Fatalf("%d pointers after refusals", n)
	}
	if p := w.save(t); p.Epoch != 1 {
		t.Errorf("%+v", p)
	}
}

// A stale owner has no checkpoint, at whatever step it was taken over.
func TestSaveOfAStaleOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 100, 10)
	count := &steps{}
	if _, err := w.saverOf(count).Save(t.Context(), w.lease, w.runID); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= count.n; at++ {
		w := newWorld(t)
		w.feed(t, 100, 10)
		stale := w.lease
		s := &steps{}
		s.pause(at, func() {
			w.store.ExpireLease(stale.Name)
			l, err := w.store.Acquire(t.Context(), stale.Name, "next", time.Hour)
			if err != nil {
				t.Error(err)
			}
			w.lease = l
		})
		_, err := w.saverOf(s).Save(t.Context(), stale, w.runID)
		if stands := len(w.pointers(t)) == 1; stands != (err == nil) || !stands && !codes.Has(err, codes.StaleFence) || stands && at < count.n {
			t.Errorf("taken over at step %d of %d: a pointer stands %v, %v", at, count.n, stands, err)
		}
		if next := w.save(t); len(w.damaged(t)) > 0 || next.Epoch != 1 {
			t.Errorf("step %d: the next owner's checkpoint: %v", at, w.damaged(t))
		}
	}
}

// killedAnywhere kills a save before and after each of its effects, and says at which of them a checkpoint was left that is not whole, or that
// the next save did not put right.
func killedAnywhere(t *testing.T, save func(w *world, s *steps) error) (broken []int) {
	t.Helper()
	for at := 1; ; at++ {
		w := newWorld(t)
		w.feed(t, 300, 300)
		w.save(t)
		w.feed(t, 30, 3)
		s := &steps{}
		s.kill(at)
		err := save(w, s)
		if !s.dead {
			if err != nil || at < 10 {
				t.Fatalf("a save of %d steps: %v", at, err)
			}
			return broken
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("step %d: %v", at, err)
		}
		if len(w.damaged(t)) > 0 {
			broken = append(broken, at)
			continue
		}
		w.save(t)
		if all := w.pointers(t); len(all) != 2 || len(w.damaged(t)) > 0 {
			broken = append(broken, at)
		}
	}
}

func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	if broken := killedAnywhere(t, func(w *world, s *steps) error {
		_, err := w.saverOf(s).Save(t.Context(), w.lease, w.runID)
		return err
	}); len(broken) > 0 {
		t.Errorf("killed at the steps %v a checkpoint is left that is not whole", broken)
	}
}

// The same test sees a saver that writes its pointer before the blobs.
func TestKilledAnywhereSeesPointerBeforeBlobs(t *testing.T) {
	t.Parallel()
	if broken := killedAnywhere(t, func(w *world, s *steps) error { return pointerFirst(t.Context(), w, s) }); len(broken) == 0 {
		t.Error("a pointer before its blobs goes unnoticed")
	}
}

// pointerFirst is a saver that is wrong.
func pointerFirst(ctx context.Context, w *world, s *steps) error {
	store, blobs := storeSteps{w.store, s}, blobSteps{w.blobs, s}
	return w.store.Snapshot(ctx, w.runID, func(v control.JournalView) error {
		m := &checkpoint.Manifest{StoreID: w.store.ID, RunID: w.runID, Status: control.RunOpen, Epoch: v.State().Epoch, Fence: w.lease.Token, Watermark: v.State().Watermark,
			Source: "topic", StateSchema: checkpoint.StateSchema, Flow: checkpoint.FlowInfo{Fingerprint: w.plan.Fingerprint}}
		var data [][]byte
		for n := range int32(2) {
			p := checkpoint.Partition{Partition: n, Committed: true, Cut: v.State().Cuts[n]}
			var names []string
			if err := v.Blobs(ctx, n, func(b control.BlobRef) error {
				p.State = append(p.State, checkpoint.StateRef{Name: b.Name, SHA256: hex.EncodeToString(b.Digest[:]), Size: b.Size})
				names = append(names, b.Name)
				return nil
			}); err != nil {
				return err
			}
			if err := v.Load(ctx, n, names, func(b partitions.StateBlob) error {
				data = append(data, append([]byte{}, b.Data...))
				return nil
			}); err != nil {
				return err
			}
			m.Partitions = append(m.Partitions, p)
		}
		b, err := m.Encode()
		if err != nil {
			return err
		}
		p := control.Pointer{RunID: w.runID, Epoch: m.Epoch, Manifest: strings.TrimPrefix(record.Hash(b), record.HashPrefix), Hash: m.Hash(), Fingerprint: m.Flow.Fingerprint}
		p.Blobs, p.Bytes = m.Size()
		if err := store.KeepPointer(ctx, w.lease, p); err != nil {
			return err
		}
		for _, d := range append(data, b) {
			if _, err := checkpoint.PutBytes(ctx, blobs, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// An answer that is lost after the pointer was written: the next save finds the checkpoint.
func TestLostAnswerOfThePointer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 50, 5)
	lost := errors.New("lost")
	w.store.Inject(controltest.Fault{Op: controltest.OpKeepPointer, Call: 1, After: true, Err: lost})
	if _, err := w.saver().Save(t.Context(), w.lease, w.runID); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	// A take-over in between raises the token of the run; the checkpoint stays the one it is.
	w.store.ExpireLease(w.lease.Name)
	w.own(t, time.Hour)
	if _, err := w.journal().OpenRun(t.Context(), w.header()); err != nil {
		t.Fatal(err)
	}
	p := w.save(t)
	if all := w.pointers(t); len(all) != 1 || all[0].Manifest != p.Manifest || len(w.damaged(t)) > 0 {
		t.Errorf("%+v, %+v", p, all)
	}
	w.store.AllFired(t)
}

// The owner drops its own older checkpoints after each save.
func TestSaverKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	saver := w.saver()
	saver.Keep, saver.Grace = 2, time.Minute
	for i := range 5 {
		w.feed(t, 10, 3)
		if _, err := saver.Save(t.Context(), w.lease, w.runID); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := w.store.PinPointer(t.Context(), w.lease, w.runID, 1, true); err != nil {
				t.Fatal(err)
			}
		}
		w.sleep(10 * time.Minute)
		w.own(t, time.Hour)
	}
	var epochs []uint64
	for _, p := range w.pointers(t) {
		epochs = append(epochs, p.Epoch)
	}
	if len(epochs) != 3 || epochs[0] != 1 || epochs[1] != 4 || epochs[2] != 5 {
		t.Errorf("kept %v, want the pinned 1, and 4 and 5", epochs)
	}
	w.feed(t, 10, 3)
	w.store.Inject(controltest.Fault{Op: controltest.OpDropPointers, Call: 1, Err: codes.New(codes.StoreUnavailable, "injected")})
	p, err := saver.Save(t.Context(), w.lease, w.runID)
	refusedWith(t, "dropping fails", err, codes.StoreUnavailable, "stands")
	if p.Epoch != 6 {
		t.Errorf("%+v", p)
	}
}
