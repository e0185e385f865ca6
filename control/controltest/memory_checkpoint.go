package controltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

type pointerKey struct {
	runID string
	epoch uint64
}

func newStoreID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// StoreID is control.Checkpoints'.
func (m *Memory) StoreID(context.Context) (string, error) { return m.ID, nil }

// memoryView is what a run held at one moment.
type memoryView struct {
	m     *Memory
	state control.RunState
	blobs map[int32]map[string][]byte
	// over says that the call of Snapshot has ended.
	over atomic.Bool
}

// Snapshot is control.Checkpoints'.
func (m *Memory) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	return m.do(ctx, OpSnapshot, func() error {
		v, err := m.view(runID)
		if err != nil {
			return err
		}
		defer v.over.Store(true)
		return fn(v)
	})
}

func (m *Memory) view(runID string) (*memoryView, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.run(runID)
	if err != nil {
		return nil, err
	}
	v := &memoryView{m: m, state: r.state(), blobs: map[int32]map[string][]byte{}}
	for n, mp := range r.partitions {
		v.blobs[n] = maps.Clone(mp.blobs) // the data of a blob that stands is never changed
	}
	return v, nil
}

func (v *memoryView) State() control.RunState { return v.state }

func (v *memoryView) partition(ctx context.Context, n int32) (map[string][]byte, error) {
	if v.over.Load() {
		return nil, codes.New(codes.Internal, "a view of run %q is used after the call that gave it", v.state.Header.RunID)
	}
	blobs, ok := v.blobs[n]
	if !ok {
		return nil, unknownPartition(v.state.Header.RunID, n)
	}
	return blobs, ctx.Err()
}

func (v *memoryView) Blobs(ctx context.Context, partition int32, fn func(control.BlobRef) error) error {
	blobs, err := v.partition(ctx, partition)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(control.BlobRef{Name: name, Digest: sha256.Sum256(blobs[name]), Size: int64(len(blobs[name]))}); err != nil {
			return err
		}
	}
	return nil
}

func (v *memoryView) Load(ctx context.Context, partition int32, names []string, fn func(partitions.StateBlob) error) error {
	blobs, err := v.partition(ctx, partition)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		stands, ok := blobs[name]
		if !ok {
			return codes.New(codes.JournalCorrupt, "run %q, partition %d: there is no state blob %q", v.state.Header.RunID, partition, name)
		}
		data := append([]byte{}, stands...)
		if err := fn(partitions.StateBlob{Name: name, Data: data}); err != nil {
			return err
		}
		spoil(data)
	}
	return nil
}

// KeepPointer is control.Checkpoints'.
func (m *Memory) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	return m.effect(ctx, OpKeepPointer, l, func() error { return control.CheckPointer(l, p) }, nil, func() error {
		r, err := m.run(p.RunID)
		if err != nil {
			return err
		}
		if err := control.CheckFence(p.RunID, r.fence, l.Token); err != nil {
			return err
		}
		key := pointerKey{p.RunID, p.Epoch}
		if done, err := control.CheckKeep(r.epoch, m.pointers[key], p); done || err != nil {
			return err
		}
		p.Token, p.Created, p.Pinned = l.Token, m.now(), false
		m.pointers[key] = p
		return nil
	})
}

// PinPointer is control.Checkpoints'.
func (m *Memory) PinPointer(ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error {
	return m.effect(ctx, OpPinPointer, l, unchecked, nil, func() error {
		if err := m.pointerFence(runID, l); err != nil {
			return err
		}
		key := pointerKey{runID, epoch}
		p, ok := m.pointers[key]
		if !ok {
			return control.PointerUnknown(runID, epoch)
		}
		p.Pinned = pinned
		m.pointers[key] = p
		return nil
	})
}

// DropPointers is control.Checkpoints'.
func (m *Memory) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) (dropped []uint64, err error) {
	err = m.effect(ctx, OpDropPointers, l, unchecked, nil, func() error {
		if err := m.pointerFence(runID, l); err != nil {
			return err
		}
		for _, epoch := range epochs {
			key := pointerKey{runID, epoch}
			if p, ok := m.pointers[key]; ok && !p.Pinned {
				delete(m.pointers, key)
				dropped = append(dropped, epoch)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(dropped)
	return dropped, nil
}

func unchecked() error { return nil }

func (m *Memory) pointerFence(runID string, l control.Lease) error {
	if r := m.runs[runID]; r != nil {
		return control.CheckPointerFence(runID, r.fence, l)
	}
	return nil
}

// ListPointers is control.Checkpoints'.
func (m *Memory) ListPointers(ctx context.Context, runID string) (out []control.Pointer, err error) {
	err = m.do(ctx, OpListPointers, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.pointers {
			if runID == "" || p.RunID == runID {
				out = append(out, p)
			}
		}
		slices.SortFunc(out, func(a, b control.Pointer) int {
			return cmp.Or(strings.Compare(a.RunID, b.RunID), cmp.Compare(a.Epoch, b.Epoch))
		})
		return nil
	})
	return out, err
}

// ForkRun is control.Checkpoints'.
func (m *Memory) ForkRun(ctx context.Context, l control.Lease, f control.Fork) error {
	blobs := map[int32]map[string][]byte{}
	load := func() error {
		m.mu.Lock()
		done, err := m.forked(l, f)
		m.mu.Unlock()
		if done || err != nil {
			return err
		}
		return loadFork(ctx, f, blobs)
	}
	return m.effect(ctx, OpFork, l, func() error { return f.Validate(l) }, load, func() error {
		if done, err := m.forked(l, f); done || err != nil {
			return err
		}
		m.runs[f.Header.RunID] = m.fork(l, f, blobs)
		return nil
	})
}

func loadFork(ctx context.Context, f control.Fork, blobs map[int32]map[string][]byte) error {
	for _, n := range f.Parts() {
		blobs[n] = map[string][]byte{}
		err := f.Load(n, func(b partitions.StateBlob) error {
			blobs[n][strings.Clone(b.Name)] = append([]byte{}, b.Data...)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forked checks a fork. done says that it stands already.
func (m *Memory) forked(l control.Lease, f control.Fork) (done bool, err error) {
	if r := m.runs[f.Header.RunID]; r != nil {
		if err := control.CheckFence(f.Header.RunID, r.fence, l.Token); err != nil {
			return false, err
		}
		if err := control.CheckForked(r.state(), r.forkedFrom, r.forkedAt, f); err != nil {
			return false, err
		}
		r.fence = l.Token // it belongs to the term that asks now
		return true, nil
	}
	from, err := m.run(f.From)
	if err != nil {
		return false, err
	}
	if err := control.CheckFork(from.state(), f); err != nil {
		return false, err
	}
	if err := control.CheckScope(f.Header.RunID, slices.Collect(maps.Keys(m.runs))); err != nil {
		return false, err
	}
	for n, mp := range from.partitions {
		if _, has := f.Cuts[n]; !has && len(upTo(f.Epoch, mp.outputs))+len(upTo(f.Epoch, mp.quarantine))+len(upTo(f.Epoch, mp.decisions)) > 0 {
			return false, control.ForkLacksCut(f, n)
		}
	}
	return false, nil
}

// fork makes the new run.
func (m *Memory) fork(l control.Lease, f control.Fork, blobs map[int32]map[string][]byte) *memoryRun {
	r := newMemoryRun(f.Header, m.now())
	r.epoch, r.watermark, r.fence, r.committed, r.forkedFrom, r.forkedAt = f.Epoch, f.Watermark, l.Token, r.created, f.From, f.Epoch
	for n, cut := range f.Cuts {
		r.partitions[n].cut, r.partitions[n].blobs = &cut, blobs[n]
	}
	for n, mp := range m.runs[f.From].partitions {
		to := r.partitions[n]
		to.outputs, to.quarantine, to.decisions = upTo(f.Epoch, mp.outputs), upTo(f.Epoch, mp.quarantine), upTo(f.Epoch, mp.decisions)
		for i := range to.quarantine {
			to.quarantine[i].v = to.quarantine[i].v.Clone()
		}
	}
	return r
}

// upTo copies what came no later than an epoch.
func upTo[T any](epoch uint64, all []dated[T]) (out []dated[T]) {
	for _, d := range all {
		if d.epoch <= epoch {
			out = append(out, d)
		}
	}
	return out
}
