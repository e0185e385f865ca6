package drill

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	pgblobs "github.com/weirstream/weir/checkpoint/postgres"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
)

// restore: an owner makes checkpoints while it runs; an older one is restored as a new run, byte by byte, and fed with the rest of the topic.
func (p *part) restore(ctx context.Context) error {
	blobs, where, err := p.blobs(ctx)
	if err != nil {
		return err
	}
	keep := []string{"--checkpoint-every", "50ms", "--checkpoints", where}
	t, a, _, err := p.begin(ctx, options{daemon: true, more: keep})
	if err != nil {
		return err
	}
	defer t.close()
	old, err := p.kept(ctx, a, 0)
	if err != nil {
		return err
	}
	if err := t.publish(ctx, copiesDuring); err != nil {
		return err
	}
	if _, err := p.committed(ctx, a, (copiesBefore+copiesDuring)*goldenArrivals); err != nil {
		return err
	}
	later, err := p.kept(ctx, a, old.Epoch)
	if err != nil {
		return err
	}
	p.promise(later.Epoch > old.Epoch, "an owner makes checkpoints while it runs", "of the epochs %d and %d; %d new bytes of %d in the later one", old.Epoch, later.Epoch, later.NewBytes, later.Bytes)
	if err := a.signal(sigTerm); err != nil {
		return err
	}
	if err := a.wait(ctx, patience); err != nil {
		return err
	}
	before, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	next, err := p.restored(ctx, blobs, old)
	if err != nil {
		return err
	}
	after, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	p.promise(after.Epoch == before.Epoch && records(after) == records(before), "the run that the checkpoint is of stays as it is", "epoch %d, %d records", after.Epoch, records(after))
	if err := t.publish(ctx, copiesAfter); err != nil {
		return err
	}
	return next.replayed(ctx, keep, old)
}

// blobs is where the checkpoints of the part are, as the drill and as the processes say it. The reader looks there from now on.
func (p *part) blobs(ctx context.Context) (blobs checkpoint.Blobs, where string, err error) {
	if db, ok := p.eyes.(*postgres.Store); ok {
		blobs, where = pgblobs.On(db), "store"
	} else {
		id, err := p.eyes.StoreID(ctx)
		if err != nil {
			return nil, "", err
		}
		where = filepath.Join(p.dir, "checkpoints")
		if blobs, err = dir.OpenOwned(where, id); err != nil {
			return nil, "", err
		}
	}
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.watch.blobs = blobs
	return blobs, where, nil
}

// keeper: one owner after the other is killed while it makes a checkpoint. Whatever can be seen afterwards is whole.
func (p *part) keeper(ctx context.Context) error {
	blobs, where, err := p.blobs(ctx)
	if err != nil {
		return err
	}
	p.pace = append(slices.Clone(shortEpochs), "--checkpoint-every", "20ms", "--checkpoints", where)
	if err := p.lane(ctx, []string{"checkpoint:blob", "checkpoint:written", "checkpoint:pointer", "checkpoint:kept"}); err != nil {
		return err
	}
	all, err := p.eyes.ListPointers(ctx, p.run)
	if err != nil {
		return err
	}
	p.promise(len(all) > 0, "checkpoints are made in spite of the kills", "%d", len(all))
	for _, c := range all {
		v, err := checkpoint.Audit(ctx, blobs, c)
		if err != nil {
			return err
		}
		p.promise(v.Err() == nil && v.Blobs == c.Blobs, fmt.Sprintf("the checkpoint of epoch %d is whole", c.Epoch), "%d blobs, %d bytes, %v", c.Blobs, c.Bytes, orText(v.Err(), "verified"))
	}
	return nil
}

// kept waits for a checkpoint of a later epoch, and returns the first.
func (p *part) kept(ctx context.Context, by *process, after uint64) (c control.Pointer, err error) {
	err = p.await(ctx, by, patience, func() (bool, error) {
		all, err := p.eyes.ListPointers(ctx, p.run)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(all, func(c control.Pointer) bool { return c.Epoch > after })
		if i >= 0 {
			c = all[i]
		}
		return i >= 0, nil
	}, "a checkpoint after epoch %d is made by %s", after, by.name)
	return c, err
}

// restored makes a new run of a checkpoint, and checks that it is the checkpoint, byte by byte.
func (p *part) restored(ctx context.Context, blobs checkpoint.Blobs, c control.Pointer) (*part, error) {
	next := *p
	next.run, next.inherited = p.run+"-restored", map[int32]int64{}
	r := checkpoint.Restorer{Store: p.eyes, Blobs: blobs, Plan: p.plan, TTL: p.ttl}
	found, err := r.Restore(ctx, p.run, c.Epoch, next.run)
	if err != nil {
		return nil, err
	}
	s, _, err := next.state(ctx)
	if err != nil {
		return nil, err
	}
	for of, cut := range s.Cuts {
		next.inherited[of] = cut.Counts.Outputs
	}
	p.promise(s.Epoch == c.Epoch && s.Status == control.RunOpen, "the restored run stands where the checkpoint does, and is open", "epoch %d of %d, %d records", s.Epoch, c.Epoch, records(s))
	compared, same, err := next.sameState(ctx, found.Manifest)
	if err != nil {
		return nil, err
	}
	p.promise(same && compared > 0, "the restored state is that of the checkpoint, byte by byte", "%d blobs compared by their hash", compared)
	p.watch.add(next.run, p.topic)
	return &next, nil
}

// sameState compares the state blobs of the run with those of a manifest.
func (p *part) sameState(ctx context.Context, m *checkpoint.Manifest) (compared int, same bool, err error) {
	same = true
	err = p.eyes.Snapshot(ctx, p.run, func(v control.JournalView) error {
		for _, of := range m.Partitions {
			if !of.Committed {
				continue
			}
			left := of.State
			err := v.Blobs(ctx, of.Partition, func(b control.BlobRef) error {
				if len(left) == 0 {
					same = false
					return nil
				}
				want, err := hex.DecodeString(left[0].SHA256)
				same = same && err == nil && b.Name == left[0].Name && bytes.Equal(b.Digest[:], want)
				left, compared = left[1:], compared+1
				return nil
			})
			if err != nil {
				return err
			}
			same = same && len(left) == 0
		}
		return nil
	})
	return compared, same, err
}

// replayed runs the restored run to its end.
func (p *part) replayed(ctx context.Context, keep []string, from control.Pointer) error {
	b, err := p.weir("b", options{standby: true, more: keep})
	if err != nil {
		return err
	}
	s, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "the restored run", s); err != nil {
		return err
	}
	p.promise(s.Epoch >= from.Epoch, "it does not begin anew", "epoch %d", s.Epoch)
	if err := b.wait(ctx, patience); err != nil {
		return err
	}
	l, err := p.lease(ctx)
	if err != nil {
		return err
	}
	return p.golden(ctx, b, l.Token)
}
