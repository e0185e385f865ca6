package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"sync"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/sim/invariant"
)

// blobs is the store of checkpoints' blobs as a process reaches it: slow, with errors, and through the gate of the process. What it does
// not say more of is the store's own.
type blobs struct {
	checkpoint.Blobs
	p *process
	// pending are the blobs that PointerFirst holds back until the pointer is written.
	mu      sync.Mutex
	pending map[string][]byte
}

// call passes the gate, takes its time, and may fail.
func (b *blobs) call(ctx context.Context) error {
	if err := b.p.gate.pass(); err != nil {
		return err
	}
	slow, fails := b.p.blobFate()
	pause(ctx, slow)
	if err := b.p.gate.pass(); err != nil {
		return err
	}
	if fails {
		b.p.injected(failedBlobs, "")
		return codes.New(codes.OutputUnwritable, "injected: the blob cannot be written")
	}
	return ctx.Err()
}

// Put is checkpoint.Blobs'.
func (b *blobs) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return checkpoint.Info{}, err
	}
	if err := b.call(ctx); err != nil {
		return checkpoint.Info{}, err
	}
	if b.p.w.mutant == PointerFirst {
		sum := sha256.Sum256(data)
		info := checkpoint.Info{Name: hex.EncodeToString(sum[:]), Size: int64(len(data))}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pending[info.Name] = data
		return info, nil
	}
	return b.put(ctx, data)
}

func (b *blobs) put(ctx context.Context, data []byte) (checkpoint.Info, error) {
	info, err := b.Blobs.Put(ctx, bytes.NewReader(data))
	if err == nil {
		b.p.add(invariant.BlobKept{Name: info.Name})
	}
	return info, err
}

// flush writes what was held back.
func (b *blobs) flush(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, data := range b.pending {
		if err := b.call(ctx); err != nil {
			return err
		}
		if _, err := b.put(ctx, data); err != nil {
			return err
		}
		delete(b.pending, name)
	}
	return nil
}

// Touch is checkpoint.Blobs'.
func (b *blobs) Touch(ctx context.Context, ask []checkpoint.Info) ([]bool, error) {
	if err := b.call(ctx); err != nil {
		return nil, err
	}
	return b.Blobs.Touch(ctx, ask)
}

// checkpoints is what a store offers to who makes checkpoints, as a process reaches it.
type checkpoints struct {
	control.Checkpoints
	c     *client
	blobs *blobs
}

// Snapshot is control.Checkpoints'.
func (k *checkpoints) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	if err := k.c.p.gate.pass(); err != nil {
		return err
	}
	return k.Checkpoints.Snapshot(ctx, runID, fn)
}

// KeepPointer is control.Checkpoints'.
func (k *checkpoints) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	_, err := request(ctx, k.c, opPointer, func(ctx context.Context, c *call) (nothing, error) {
		return nothing{}, k.c.s.keepPointer(ctx, c, k.blobs.Blobs, l, p)
	})
	if err == nil && k.c.s.mutant == PointerFirst {
		return k.blobs.flush(ctx)
	}
	return err
}

// DropPointers is control.Checkpoints'.
func (k *checkpoints) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) ([]uint64, error) {
	epochs = slices.Clone(epochs)
	return request(ctx, k.c, opPointer, func(ctx context.Context, c *call) ([]uint64, error) {
		return k.c.s.dropPointers(ctx, c, l, runID, epochs)
	})
}

// ListPointers is control.Checkpoints'.
func (k *checkpoints) ListPointers(ctx context.Context, runID string) ([]control.Pointer, error) {
	return request(ctx, k.c, opRead, func(ctx context.Context, _ *call) ([]control.Pointer, error) {
		return k.Checkpoints.ListPointers(ctx, runID)
	})
}
