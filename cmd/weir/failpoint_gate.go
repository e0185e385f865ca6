package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
)

// gated is a store of a process that may stand still. No write of another thread is under way then: the renewal of a lease, say, would hold
// locks in the store that have nothing to do with the point at which the process is to stand, and on SQLite the whole file.
type gated struct {
	control.ControlStore
	f *failpoints
}

// through does a write, which waits while the process is about to stand still.
func through[T any](f *failpoints, write func() (T, error)) (T, error) {
	f.enter()
	defer f.leave()
	return write()
}

type nothing struct{}

func (g gated) do(write func() error) error {
	_, err := through(g.f, func() (nothing, error) { return nothing{}, write() })
	return err
}

// Acquire is control.Leases'.
func (g gated) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	return through(g.f, func() (control.Lease, error) { return g.ControlStore.Acquire(ctx, name, owner, ttl) })
}

// Renew is control.Leases'.
func (g gated) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	return through(g.f, func() (control.Lease, error) { return g.ControlStore.Renew(ctx, l) })
}

// Release is control.Leases'.
func (g gated) Release(ctx context.Context, l control.Lease) error {
	return g.do(func() error { return g.ControlStore.Release(ctx, l) })
}

// KeepPointer is control.Checkpoints'.
func (g gated) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	g.f.pass(beforePointer, nil, 0)
	err := g.do(func() error { return g.ControlStore.KeepPointer(ctx, l, p) })
	g.f.pass(afterPointer, nil, 0)
	return err
}

// DropPointers is control.Checkpoints'.
func (g gated) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) ([]uint64, error) {
	return through(g.f, func() ([]uint64, error) { return g.ControlStore.DropPointers(ctx, l, runID, epochs) })
}

// Under is control.Fencer's.
func (g gated) Under(l control.Lease) control.Journal {
	return gatedJournal{g.ControlStore.Under(l), g}
}

// Commit is control.Journal's.
func (g gated) Commit(ctx context.Context, c control.Commit) error {
	return g.f.commit(c.RunID, func() error { return g.ControlStore.Commit(ctx, c) })
}

type gatedJournal struct {
	control.Journal
	gate gated
}

// OpenRun is control.Journal's.
func (j gatedJournal) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return through(j.gate.f, func() (control.RunState, error) { return j.Journal.OpenRun(ctx, h) })
}

// Commit is control.Journal's.
func (j gatedJournal) Commit(ctx context.Context, c control.Commit) error {
	return j.gate.f.commit(c.RunID, func() error { return j.Journal.Commit(ctx, c) })
}

// BeginRun is control.Beginner's.
func (j gatedJournal) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	return j.gate.f.commit(c.RunID, func() error { return control.BeginRun(ctx, j.Journal, h, c) })
}

// enter begins a write, and leave ends it.
func (f *failpoints) enter() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.stopping || f.alone != nil {
		f.moving.Wait()
	}
	f.writes++
}

// commit does the write of an epoch. While a step of the store is planned, that is the only write: the renewal of the lease, say, passes the same steps, and
// one that came while the rows of the epoch are published would be taken for its commit.
func (f *failpoints) commit(run string, write func() error) error {
	f.mu.Lock()
	engine := f.engines[run]
	if !slices.ContainsFunc(f.faults, func(one *fault) bool { return !one.fired && isStep(one.name) }) {
		engine = nil
	}
	for f.stopping || f.alone != nil || engine != nil && f.writes > 0 {
		f.moving.Wait()
	}
	f.writes++
	f.alone = engine
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.alone = nil
		f.mu.Unlock()
		f.leave()
	}()
	return write()
}

func (f *failpoints) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes--
	f.moving.Broadcast()
}

// settle keeps writes from beginning, and waits until none is under way but the one that has come to the point. Within a transaction there is
// nothing to wait for: others may wait for it.
func (f *failpoints) settle(point string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
	mine := 0
	switch point {
	case storePrefix + "begin", storePrefix + "committed":
		mine = 1
	default:
		if isStep(point) {
			return
		}
	}
	for f.writes > mine {
		f.moving.Wait()
	}
}

// unsettle lets writes begin again.
func (f *failpoints) unsettle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = false
	f.moving.Broadcast()
}

// drilledBlobs are blobs around which the process may fail.
type drilledBlobs struct {
	checkpoint.Blobs
	f *failpoints
}

// Put is checkpoint.Blobs'.
func (b drilledBlobs) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	b.f.pass(beforeBlob, nil, 0)
	info, err := b.Blobs.Put(ctx, r)
	b.f.pass(afterBlob, nil, 0)
	return info, err
}
