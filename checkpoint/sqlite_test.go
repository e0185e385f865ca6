package checkpoint_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// TestFilesAlone: a SQLite store and a folder, from the first cut to a restored run and a clean-up.
func TestFilesAlone(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(base, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	id, err := store.StoreID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := dir.OpenOwned(filepath.Join(base, "checkpoints"), id)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	l, err := store.Acquire(t.Context(), control.StreamLease("r"), "me", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	plan := planOf(t, flowText)
	header := control.RunHeader{RunID: "r", Fingerprint: plan.Fingerprint, Source: "topic", Partitions: []int32{0}}
	if _, err := store.Under(l).OpenRun(t.Context(), header); err != nil {
		t.Fatal(err)
	}
	m := partitions.New(plan, 0)
	saver := checkpoint.Saver{Store: store, Blobs: blobs, Plan: plan}
	saved := map[uint64]string{}
	for epoch := uint64(1); epoch <= 4; epoch++ {
		b := &record.Batch{Next: m.Next()}
		for i := range 400 {
			v := fmt.Sprintf(`{"id":"%d-%d","key":"k%d","at":%d,"x":%d}`, epoch, i, i%300, int(epoch)*100_000+40*i, i)
			b.Records = append(b.Records, record.Record{Position: b.Next, Arrival: record.NoTime, Value: []byte(v)})
			b.Next = b.Next.Next()
		}
		var eff partitions.Effects
		if err := m.Step(partitions.Deliver{Batch: b}, &eff); err != nil {
			t.Fatal(err)
		}
		c := control.Commit{RunID: "r", Epoch: epoch, Status: control.RunOpen, Watermark: m.Watermark(), Partitions: []control.PartitionCommit{{Cut: m.Cut(), Rows: eff.Rows}}}
		if err := store.Under(l).Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if epoch == 3 {
			continue
		}
		if _, err := saver.Save(t.Context(), l, "r"); err != nil {
			t.Fatal(err)
		}
		saved[epoch] = fullState(map[int32]*partitions.Machine{0: m})
	}
	r := checkpoint.Restorer{Store: store, Blobs: blobs}
	_, err = r.Restore(t.Context(), "r", 3, "r3")
	refusedWith(t, "an epoch without a checkpoint", err, codes.CheckpointUnknown)
	for epoch, state := range saved {
		as := fmt.Sprintf("r-%d", epoch)
		for range 2 { // the answer may have been lost
			if _, err := r.Restore(t.Context(), "r", epoch, as); err != nil {
				t.Fatal(err)
			}
		}
		restored, err := partitions.Restore(plan, 0, func(yield func(partitions.StateBlob) error) error { return store.LoadBlobs(t.Context(), as, 0, yield) })
		if err != nil || fullState(map[int32]*partitions.Machine{0: restored}) != state {
			t.Errorf("epoch %d is restored to another state: %v", epoch, err)
		}
	}
	all, err := store.ListPointers(t.Context(), "")
	if err != nil || len(all) != 3 {
		t.Fatalf("%d checkpoints, %v", len(all), err)
	}
	gc := checkpoint.GC{Store: store, Blobs: blobs, Keep: 1}
	if c, err := gc.Collect(t.Context()); err != nil || len(c.Kept) != 3 || c.Standing != c.Referenced || len(c.SetAside) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, p := range all {
		if v, err := checkpoint.Audit(t.Context(), blobs, p); err != nil || v.Err() != nil {
			t.Errorf("%v, %v", err, v.Err())
		}
	}
}
