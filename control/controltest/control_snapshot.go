package controltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

var snapshotChecks = []controlCheck{
	{"store: its name", checkStoreID},
	{"snapshot: one moment", checkSnapshotMoment},
	{"snapshot: loading by name", checkSnapshotLoad},
	{"snapshot: digests", checkSnapshotDigests},
	{"snapshot: a new run and an ended one", checkSnapshotEnds},
	{"snapshot: errors", checkSnapshotErrors},
}

func checkStoreID(p *plane) error {
	first := ""
	for range 3 {
		id, err := p.open().StoreID(p.ctx)
		if err != nil {
			return err
		}
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
			return fmt.Errorf("the store's name is %q, not 32 hex digits", id)
		}
		if first == "" {
			first = id
		}
		if id != first {
			return fmt.Errorf("the store's name was %q and is now %q", first, id)
		}
	}
	return nil
}

// viewed is what a view shows.
type viewed struct {
	state control.RunState
	refs  map[int32][]control.BlobRef
	blobs map[int32][]partitions.StateBlob
}

func (p *plane) look(v control.JournalView) (out viewed, err error) {
	out = viewed{v.State(), map[int32][]control.BlobRef{}, map[int32][]partitions.StateBlob{}}
	for _, n := range out.state.Header.Partitions {
		var names []string
		err := v.Blobs(p.ctx, n, func(b control.BlobRef) error {
			out.refs[n] = append(out.refs[n], b)
			names = append(names, b.Name)
			return nil
		})
		if err != nil {
			return out, fmt.Errorf("blobs of partition %d: %w", n, err)
		}
		if out.blobs[n], err = loaded(p.ctx, v, n, names); err != nil {
			return out, fmt.Errorf("loading of partition %d: %w", n, err)
		}
	}
	return out, nil
}

// loaded collects copies of named blobs, sorted by name.
func loaded(ctx context.Context, v control.JournalView, n int32, names []string) (out []partitions.StateBlob, err error) {
	err = v.Load(ctx, n, names, func(b partitions.StateBlob) error {
		out = append(out, partitions.StateBlob{Name: b.Name, Data: append([]byte{}, b.Data...)})
		return nil
	})
	slices.SortFunc(out, func(a, b partitions.StateBlob) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, err
}

// is says whether a view shows what a workload's journal holds at an epoch.
func (v viewed) is(ctx context.Context, w Workload, epoch uint64, fence control.FenceToken) error {
	want, err := w.Expected(ctx, epoch)
	if err != nil {
		return err
	}
	want.State.Fence = fence
	if d := diffState(want.State, v.state); d != "" {
		return fmt.Errorf("the view of epoch %d: %s", epoch, d)
	}
	for n, blobs := range want.Blobs {
		if d := diffList(fmt.Sprintf("the view of epoch %d, partition %d: blob", epoch, n), blobs, v.blobs[n]); d != "" {
			return errors.New(d)
		}
		var refs []control.BlobRef
		for _, b := range blobs {
			refs = append(refs, control.BlobRef{Name: b.Name, Digest: sha256.Sum256(b.Data), Size: int64(len(b.Data))})
		}
		if d := diffList(fmt.Sprintf("the view of epoch %d, partition %d: reference", epoch, n), refs, v.refs[n]); d != "" {
			return errors.New(d)
		}
	}
	return nil
}

// Commits go on while a view is read, and the view does not move.
func checkSnapshotMoment(p *plane) error {
	writer, reader := p.open(), p.open()
	l, err := p.stream(writer, streamed, "a", 5)
	if err != nil {
		return err
	}
	err = reader.Snapshot(p.ctx, streamed.RunID, func(v control.JournalView) error {
		for epoch := uint64(6); epoch <= 12; epoch++ {
			if err := writer.Under(l).Commit(p.ctx, streamed.Commit(epoch)); err != nil {
				return fmt.Errorf("epoch %d beside a view: %w", epoch, err)
			}
			got, err := p.look(v)
			if err != nil {
				return err
			}
			if err := got.is(p.ctx, streamed, 5, l.Token); err != nil {
				return fmt.Errorf("after epoch %d was committed: %w", epoch, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.seen(reader, streamed, 12, l.Token)
}

// seen says whether a new view shows what it must.
func (p *plane) seen(s control.ControlStore, w Workload, epoch uint64, fence control.FenceToken) error {
	return s.Snapshot(p.ctx, w.RunID, func(v control.JournalView) error {
		got, err := p.look(v)
		if err != nil {
			return err
		}
		return got.is(p.ctx, w, epoch, fence)
	})
}

// put commits an epoch of partition 0 with a delta of its state.
func (p *plane) put(j control.Journal, w Workload, epoch uint64, deletes []string, puts ...partitions.StateBlob) error {
	c := control.Commit{RunID: w.RunID, Epoch: epoch, Status: control.RunOpen, Watermark: w.Commit(epoch).Watermark, Partitions: []control.PartitionCommit{{
		Cut: partitions.Cut{Partition: 0, Next: position(0, epoch, 999), Watermark: w.Commit(epoch).Watermark, Put: puts, Delete: deletes}}}}
	return j.Commit(p.ctx, c)
}

func blobOf(name, data string) partitions.StateBlob {
	return partitions.StateBlob{Name: name, Data: []byte(data)}
}

func checkSnapshotLoad(p *plane) error {
	s := p.open()
	w := streamed
	l, err := p.stream(s, w, "a", 0)
	if err != nil {
		return err
	}
	if err := p.put(s.Under(l), w, 1, nil, blobOf("gone", "x"), blobOf("a", "1"), blobOf("b", ""), blobOf("", "empty name"), blobOf("nul\x00", "n"), blobOf("\xff", "bytes")); err != nil {
		return err
	}
	if err := p.put(s.Under(l), w, 2, []string{"gone"}, blobOf("a", "2")); err != nil {
		return err
	}
	return s.Snapshot(p.ctx, w.RunID, func(v control.JournalView) error {
		got, err := loaded(p.ctx, v, 0, []string{"nul\x00", "a", "", "\xff"})
		if err != nil {
			return err
		}
		want := []partitions.StateBlob{blobOf("", "empty name"), blobOf("a", "2"), blobOf("nul\x00", "n"), blobOf("\xff", "bytes")}
		if d := diffList("blob", want, got); d != "" {
			return errors.New(d)
		}
		if got, err := loaded(p.ctx, v, 0, nil); err != nil || len(got) != 0 {
			return fmt.Errorf("no names: %d blobs, %v", len(got), err)
		}
		for what, ask := range map[string]struct {
			partition int32
			names     []string
			code      *codes.Code
		}{
			"a name that was deleted":     {0, []string{"a", "gone"}, codes.JournalCorrupt},
			"a name that never was":       {0, []string{"A"}, codes.JournalCorrupt},
			"a name with a NUL too many":  {0, []string{"a\x00"}, codes.JournalCorrupt},
			"a name of another partition": {1, []string{"a"}, codes.JournalCorrupt},
			"an unknown partition":        {99, []string{"a"}, codes.Internal},
		} {
			_, err := loaded(p.ctx, v, ask.partition, ask.names)
			if err := wants(what, err, ask.code); err != nil {
				return err
			}
		}
		return wants("blobs of an unknown partition", v.Blobs(p.ctx, 99, func(control.BlobRef) error { return nil }), codes.Internal)
	})
}

// A digest is that of the data as it stands, whatever it was before.
func checkSnapshotDigests(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 0)
	if err != nil {
		return err
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	for i, data := range [][]byte{[]byte("one"), {}, large, []byte("one"), []byte("eno")} {
		if err := p.put(s.Under(l), streamed, uint64(i+1), nil, partitions.StateBlob{Name: "state", Data: data}); err != nil {
			return err
		}
		n := 0
		err := s.Snapshot(p.ctx, streamed.RunID, func(v control.JournalView) error {
			return v.Blobs(p.ctx, 0, func(b control.BlobRef) error {
				if n++; b.Name != "state" || b.Digest != sha256.Sum256(data) || b.Size != int64(len(data)) {
					return fmt.Errorf("a blob of %d bytes is referred to as %q, %d bytes, %x", len(data), b.Name, b.Size, b.Digest)
				}
				return nil
			})
		})
		if err != nil || n != 1 {
			return fmt.Errorf("%d references, %v", n, err)
		}
	}
	return nil
}

func checkSnapshotEnds(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 0)
	if err != nil {
		return err
	}
	if err := p.seen(s, streamed, 0, l.Token); err != nil {
		return fmt.Errorf("a new run: %w", err)
	}
	if err := s.Under(l).Commit(p.ctx, streamed.Commit(1)); err != nil {
		return err
	}
	last := streamed.Commit(2)
	last.Status = control.RunFinished
	if err := s.Under(l).Commit(p.ctx, last); err != nil {
		return err
	}
	return s.Snapshot(p.ctx, streamed.RunID, func(v control.JournalView) error {
		got, err := p.look(v)
		if err == nil && got.state.Status != control.RunFinished {
			err = fmt.Errorf("an ended run is %s", got.state.Status)
		}
		if err != nil {
			return err
		}
		got.state.Status = control.RunOpen // the model's
		return got.is(p.ctx, streamed, 2, l.Token)
	})
}

func checkSnapshotErrors(p *plane) error {
	s := p.open()
	called := false
	err := s.Snapshot(p.ctx, "no such run", func(control.JournalView) error { called = true; return nil })
	if err := wants("an unknown run", err, codes.RunUnknown); err != nil || called {
		return fmt.Errorf("%w (called: %t)", err, called)
	}
	l, err := p.stream(s, streamed, "a", 0)
	if err != nil {
		return err
	}
	if err := p.put(s.Under(l), streamed, 1, nil, blobOf("a", "1"), blobOf("b", "2")); err != nil {
		return err
	}
	own := errors.New("the reader's own")
	if err := s.Snapshot(p.ctx, streamed.RunID, func(control.JournalView) error { return own }); err != own {
		return fmt.Errorf("an error of the reader comes back as %v", err)
	}
	var kept control.JournalView
	err = s.Snapshot(p.ctx, streamed.RunID, func(v control.JournalView) error {
		kept = v
		if err := v.Blobs(p.ctx, 0, func(control.BlobRef) error { return own }); err != own {
			return fmt.Errorf("an error of Blobs' reader comes back as %v", err)
		}
		if err := v.Load(p.ctx, 0, []string{"a", "b"}, func(partitions.StateBlob) error { return own }); err != own {
			return fmt.Errorf("an error of Load's reader comes back as %v", err)
		}
		got, err := loaded(p.ctx, v, 0, []string{"a", "b"})
		if err != nil || len(got) != 2 {
			return fmt.Errorf("after an error of a reader: %d blobs, %v", len(got), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := kept.Blobs(p.ctx, 0, func(control.BlobRef) error { return nil }); err == nil {
		return errors.New("a view is read after its call")
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	if err := s.Snapshot(ctx, streamed.RunID, func(control.JournalView) error { return nil }); !errors.Is(err, context.Canceled) || codes.Of(err) != nil {
		return fmt.Errorf("a cancelled snapshot: %v", err)
	}
	return nil
}
