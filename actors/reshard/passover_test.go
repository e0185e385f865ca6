package reshard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// forest is a log whose shards a test names.
type forest struct{ shards []sources.Shard }

func (f *forest) Lineage(context.Context) ([]sources.Shard, error) { return f.shards, nil }

func everything(string) bool { return true }

// orchard is a run over a forest.
type orchard struct {
	t      *testing.T
	log    *forest
	store  *controltest.Memory
	plan   *flow.Plan
	family *reshard.Family
	told   [][]int32
	fresh  map[int32]bool
}

func newOrchard(t *testing.T, shards ...sources.Shard) *orchard {
	t.Helper()
	o := &orchard{t: t, log: &forest{shards}, store: controltest.NewMemory(), fresh: map[int32]bool{}}
	var err error
	if o.plan, err = flow.Parse("flow.yaml", []byte(flowText), nil); err != nil {
		t.Fatal(err)
	}
	o.family, err = reshard.New(reshard.Config{
		Run: "run", Plan: o.plan, Journal: o.store, Log: o.log, OnGone: func(shards []int32) { o.told = append(o.told, shards) },
		Source: func(p int32, fresh bool) sources.Source {
			o.fresh[p] = fresh
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// commit makes the row of a shard with n records, open or finished.
func (o *orchard) commit(shard int32, n int64, status control.RunStatus) {
	o.t.Helper()
	commit(o.t, o.store, o.plan, shard, n, status)
}

func commit(t *testing.T, store reshard.Store, plan *flow.Plan, shard int32, n int64, status control.RunStatus) {
	t.Helper()
	id := group.RunID("run", shard)
	lease, err := store.Acquire(t.Context(), control.StreamLease(id), "somebody", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m := partitions.New(plan, shard)
	var eff partitions.Effects
	b := record.Batch{Partition: shard, Next: record.Offset(n)}
	for i := range n {
		b.Records = append(b.Records, record.Record{Position: record.Offset(i), Arrival: record.NoTime, Key: []byte("k"), Value: fmt.Appendf(nil, `{"id":"%d-%d","key":"k","at":%d,"x":1}`, shard, i, 1_700_000_000_000+1000*i)})
	}
	if n > 0 {
		if err := m.Step(partitions.Deliver{Batch: &b}, &eff); err != nil {
			t.Fatal(err)
		}
	}
	journal := store.Under(lease)
	if _, err := journal.OpenRun(t.Context(), control.RunHeader{RunID: id, Fingerprint: plan.Fingerprint, Source: "forest", Partitions: []int32{shard}}); err != nil {
		t.Fatal(err)
	}
	mark := m.Watermark()
	if status == control.RunFinished {
		mark = record.MaxTime
	}
	err = journal.Commit(t.Context(), control.Commit{RunID: id, Epoch: 1, Status: status, Watermark: mark, Partitions: []control.PartitionCommit{{Cut: m.Cut(), Rows: eff.Rows}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func (o *orchard) units(want ...int32) {
	o.t.Helper()
	got, err := o.family.Units(o.t.Context())
	if err != nil || !slices.Equal(got, want) {
		o.t.Fatalf("there is work on %v, %v; want %v", got, err, want)
	}
}

// A shard that is gone before it was read to its end is told once, and what goes on from it waits, until an operator passes over it; then its child
// has its state.
func TestAShardIsGone(t *testing.T) {
	t.Parallel()
	child := sources.Shard{Partition: 2, Parents: []int32{1}, Holds: everything}
	o := newOrchard(t, sources.Shard{Partition: 1, Closed: true, Holds: everything}, child)
	o.commit(1, 5, control.RunOpen)
	o.units(1)
	o.log.shards = []sources.Shard{child}
	o.units()
	o.units()
	if want := [][]int32{{1}}; !slices.EqualFunc(o.told, want, slices.Equal) || !slices.Equal(o.family.Gone(), []int32{1}) {
		t.Fatalf("it was told %v, want %v once", o.told, want)
	}
	busy, err := o.store.Acquire(t.Context(), "stream/run/1", "another", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.family.PassOver(t.Context(), o.store, 1, time.Minute, "by a test"); !codes.Has(err, codes.LeaseHeld) {
		t.Errorf("somebody works on it: %v", err)
	}
	if err := o.store.Release(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an answer may be lost
		at, err := o.family.PassOver(t.Context(), o.store, 1, time.Minute, "by a test")
		if err != nil || at != record.Offset(5) {
			t.Fatalf("passed over at %v, %v", at, err)
		}
	}
	var kinds []string
	if err := o.store.Decisions(t.Context(), "run/1", func(d partitions.Decision) error {
		kinds = append(kinds, d.Kind+" "+d.Position.String()+" "+d.Detail)
		return nil
	}); err != nil || !slices.Equal(kinds, []string{"SHARD_LOST 5 by a test"}) {
		t.Errorf("decided %q, %v", kinds, err)
	}
	o.units(2)
	cfg, err := o.family.Engine(t.Context(), 2)
	if err != nil || o.fresh[2] {
		t.Fatalf("the child of a shard with records begins afresh (%v), %v", o.fresh[2], err)
	}
	var eff partitions.Effects
	m, err := cfg.Begin(t.Context(), 2, &eff)
	if err != nil || m.Keys() != 1 || m.IDs() != 5 {
		t.Fatalf("the child has not its parent's state: %v", err)
	}
	if _, err := o.family.PassOver(t.Context(), o.store, 9, time.Minute, "by a test"); !codes.Has(err, codes.RunUnknown) {
		t.Errorf("a shard that was never read: %v", err)
	}
}

// Lesson 2: a child waits until each of its parents is finished, in the store, or gone without having been read; it begins at its first record, and where the
// run was to begin only if no record was read before it.
func TestLessonChildrenAfterParents(t *testing.T) {
	t.Parallel()
	shards := []sources.Shard{
		{Partition: 1, Closed: true, Holds: everything}, {Partition: 2, Closed: true, Holds: everything},
		{Partition: 3, Parents: []int32{1, 2}, Closed: true, Holds: everything}, {Partition: 4, Parents: []int32{3}, Holds: everything}, {Partition: 5, Parents: []int32{0}, Holds: everything},
	}
	o := newOrchard(t, shards...)
	o.units(1, 2, 5) // 0 is gone and was never read
	o.commit(1, 3, control.RunFinished)
	o.units(2, 5)
	o.commit(2, 0, control.RunOpen) // lesson 1: closed and empty is not finished
	o.units(2, 5)
	if _, err := o.family.PassOver(t.Context(), o.store, 2, time.Minute, "its end"); err != nil {
		t.Fatal(err)
	}
	o.units(3, 5)
	for shard, fresh := range map[int32]bool{3: false, 5: true} {
		if _, err := o.family.Engine(t.Context(), shard); err != nil || o.fresh[shard] != fresh {
			t.Errorf("shard %d begins where the run does: %v, %v", shard, o.fresh[shard], err)
		}
	}
	o.commit(3, 0, control.RunFinished)
	o.units(4, 5)
	if _, err := o.family.Engine(t.Context(), 4); err != nil || !o.fresh[4] {
		t.Errorf("nothing was read before shard 4: %v", err)
	}
}
