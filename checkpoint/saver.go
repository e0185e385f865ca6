package checkpoint

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
)

// Bounds that saving and cleaning up agree on; see GC.
const (
	// MaxSave is how long a save may take from the moment at which it looks at the first blob to its pointer. One that takes longer fails
	// before the pointer; what it wrote stands, and the next save goes on from there.
	MaxSave = 10 * time.Minute
	// MinGrace is the shortest grace of a clean-up: MaxSave, and room for the statement that writes the pointer.
	MinGrace = 15 * time.Minute
	// DefaultGrace and DefaultKeep are those of a clean-up, and DefaultKeep that of a Saver's owner.
	DefaultGrace = time.Hour
	DefaultKeep  = 5
)

// Saver makes checkpoints of runs out of the journal. It implements the engine's Checkpointer. The order of its writes is
//
//	state blobs that are not there yet → the manifest → the pointer
//
// each durable before the next begins, so that a kill at any moment leaves blobs that nobody refers to, and never a pointer without its blobs.
// Blobs are named by their content: what did not change since any checkpoint before is touched and not written again.
type Saver struct {
	// Store holds the run and the pointers, Blobs the rest; Blobs has to be the store's own (Blobs.Owner).
	Store control.Checkpoints
	Blobs Blobs
	// Plan is the flow, if known. It lets people and CheckRestore tell what the state belongs to; one of another flow than the run's is refused.
	Plan *flow.Plan
	// Keep is how many checkpoints of the run are kept: after each save those before the last Keep are dropped, unless they are pinned or
	// younger than Grace (by Now). 0 keeps all.
	Keep  int
	Grace time.Duration
	// Writers is how many blobs are written at once, since most of the time of a blob is waiting until it is durable. 0 is DefaultWriters.
	Writers int
	// Now is a clock, monotonic if it can be; nil is time.Now.
	Now func() time.Time
}

// DefaultWriters is that of a Saver.
const DefaultWriters = 8

func (s *Saver) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Save makes a checkpoint of what the run holds now, under the run's lease. If the epoch has one already it is that one. Errors carry a code:
// RunUnknown; CheckpointUnknown when nothing was committed yet; ConfigInvalid for blobs of another store; StaleFence when the lease is no
// longer ours, and then the pointer is not there; LimitReached when it took longer than MaxSave; those of the store and of the blobs.
//
// When only the dropping of older checkpoints failed, the error comes with the pointer, which stands.
func (s *Saver) Save(ctx context.Context, l control.Lease, runID string) (control.Pointer, error) {
	limited, cancel := context.WithTimeout(ctx, MaxSave)
	defer cancel()
	p, err := s.save(limited, l, runID)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && limited.Err() != nil {
		err = tooSlow(runID)
	}
	return p, err
}

func tooSlow(runID string) error {
	return codes.New(codes.LimitReached, "a checkpoint of run %q took more than %s, and would race the clean-up; what was written is used by the next one", runID, MaxSave)
}

func (s *Saver) save(ctx context.Context, l control.Lease, runID string) (control.Pointer, error) {
	began := s.now()
	storeID, err := CheckOwner(ctx, s.Store, s.Blobs)
	if err != nil {
		return control.Pointer{}, err
	}
	kept, err := s.Store.ListPointers(ctx, runID)
	if err != nil {
		return control.Pointer{}, err
	}
	m, stands, written, err := s.copy(ctx, storeID, runID, kept)
	if err != nil || stands != nil {
		return pointerOr(stands), err
	}
	p, err := s.publish(ctx, m, written, began, l)
	if err != nil {
		return control.Pointer{}, err
	}
	return p, s.drop(ctx, l, append(kept, p))
}

// copy brings the state of the run as it stands at one moment to the blobs, and says what the manifest of it is. If that epoch has a checkpoint
// already it is that one.
func (s *Saver) copy(ctx context.Context, storeID, runID string, kept []control.Pointer) (m *Manifest, stands *control.Pointer, written int64, err error) {
	c := copier{blobs: s.Blobs, writers: s.Writers}
	if c.writers < 1 {
		c.writers = DefaultWriters
	}
	err = s.Store.Snapshot(ctx, runID, func(v control.JournalView) error {
		state := v.State()
		if state.Epoch == 0 {
			return codes.New(codes.CheckpointUnknown, "run %q has committed nothing yet, so there is nothing to make a checkpoint of", runID)
		}
		for _, p := range kept {
			if p.Epoch == state.Epoch {
				stands = &p
				return nil
			}
		}
		if m, err = newManifest(storeID, s.Plan, state); err != nil {
			return err
		}
		return c.copy(ctx, v, m)
	})
	return m, stands, c.written, err
}

func pointerOr(p *control.Pointer) control.Pointer {
	if p == nil {
		return control.Pointer{}
	}
	return *p
}

// CheckOwner makes sure that blobs belong to a store, and returns the store's id. The error carries ConfigInvalid.
func CheckOwner(ctx context.Context, store control.Checkpoints, blobs Blobs) (storeID string, err error) {
	storeID, err = store.StoreID(ctx)
	if err != nil {
		return "", err
	}
	owner, err := blobs.Owner(ctx)
	switch {
	case err != nil:
		return "", err
	case owner == "":
		return "", codes.New(codes.ConfigInvalid, "the blobs are not marked as those of any store, so no checkpoints are kept or cleaned up there: name a folder of their own")
	case owner != storeID:
		return "", codes.New(codes.ConfigInvalid, "the blobs belong to the store %.40q, and this is %q: name the folder of this store", owner, storeID)
	}
	return storeID, nil
}

// publish writes the manifest and then the pointer.
func (s *Saver) publish(ctx context.Context, m *Manifest, written int64, began time.Time, l control.Lease) (control.Pointer, error) {
	b, err := m.Encode()
	if err != nil {
		return control.Pointer{}, err
	}
	if _, err := ParseManifest(b); err != nil {
		return control.Pointer{}, codes.New(codes.Internal, "run %q at epoch %d has a manifest that could not be read back: %w", m.RunID, m.Epoch, err)
	}
	info, err := PutBytes(ctx, s.Blobs, b)
	if err != nil {
		return control.Pointer{}, err
	}
	if s.now().Sub(began) > MaxSave {
		return control.Pointer{}, tooSlow(m.RunID)
	}
	p := control.Pointer{RunID: m.RunID, Epoch: m.Epoch, Manifest: info.Name, Hash: m.Hash(), Fingerprint: m.Flow.Fingerprint, Token: l.Token, NewBytes: written + info.Size}
	p.Blobs, p.Bytes = m.Size()
	return p, s.Store.KeepPointer(ctx, l, p)
}

// drop drops the checkpoints of the run that are not kept any longer. The one that was just made has no time of its own yet, and is never among
// them.
func (s *Saver) drop(ctx context.Context, l control.Lease, of []control.Pointer) error {
	if s.Keep <= 0 {
		return nil
	}
	var epochs []uint64
	for _, p := range Expendable(of, s.Keep, s.Grace, s.now()) {
		epochs = append(epochs, p.Epoch)
	}
	if len(epochs) == 0 {
		return nil
	}
	if _, err := s.Store.DropPointers(ctx, l, of[0].RunID, epochs); err != nil {
		return fmt.Errorf("the checkpoint stands, and older ones could not be dropped: %w", err)
	}
	return nil
}

// touchAtOnce is how many blobs are asked for in one call, and loadAtOnce how many are read from the journal in one.
const (
	touchAtOnce = 1000
	loadAtOnce  = 64
)

// copier brings the state blobs of a journal to where they are not yet.
type copier struct {
	blobs   Blobs
	writers int
	written int64
}

// copy fills the manifest's partitions in, and writes every blob that is not there.
func (c *copier) copy(ctx context.Context, v control.JournalView, m *Manifest) error {
	state := v.State()
	for _, n := range state.Header.Partitions {
		cut, committed := state.Cuts[n]
		p := Partition{Partition: n, Committed: committed, Cut: cut}
		if committed {
			err := v.Blobs(ctx, n, func(b control.BlobRef) error {
				p.State = append(p.State, StateRef{Name: b.Name, SHA256: hex.EncodeToString(b.Digest[:]), Size: b.Size})
				return nil
			})
			if err == nil {
				err = c.bring(ctx, v, n, p.State)
			}
			if err != nil {
				return err
			}
			sortState(p.State)
		}
		m.Partitions = append(m.Partitions, p)
	}
	return nil
}

func (c *copier) bring(ctx context.Context, v control.JournalView, partition int32, refs []StateRef) error {
	for len(refs) > 0 {
		some := refs[:min(len(refs), touchAtOnce)]
		refs = refs[len(some):]
		ask := make([]Info, len(some))
		for i, r := range some {
			ask[i] = Info{Name: r.SHA256, Size: r.Size}
		}
		stands, err := c.blobs.Touch(ctx, ask)
		if err != nil {
			return err
		}
		var absent []StateRef
		for i, r := range some {
			if !stands[i] {
				absent = append(absent, r)
			}
		}
		if err := c.write(ctx, v, partition, absent); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) write(ctx context.Context, v control.JournalView, partition int32, refs []StateRef) error {
	for len(refs) > 0 {
		some := refs[:min(len(refs), loadAtOnce)]
		refs = refs[len(some):]
		digest := make(map[string]string, len(some))
		names := make([]string, len(some))
		for i, r := range some {
			names[i], digest[r.Name] = r.Name, r.SHA256
		}
		w := newWriters(c.blobs, c.writers)
		err := v.Load(ctx, partition, names, func(b partitions.StateBlob) error {
			name := digest[b.Name]
			delete(digest, b.Name)
			return w.put(ctx, partition, b, name)
		})
		written, writeErr := w.wait()
		c.written += written
		switch {
		case writeErr != nil: // also when it was what ended the loading
			return writeErr
		case err != nil:
			return err
		case len(digest) > 0:
			return codes.New(codes.JournalCorrupt, "partition %d: %d state blobs were listed by the journal and did not come", partition, len(digest))
		}
	}
	return nil
}
