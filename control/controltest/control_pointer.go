package controltest

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

var pointerChecks = []controlCheck{
	{"pointer: kept once", checkKeepPointer},
	{"pointer: shapes", checkPointerShapes},
	{"pointer: listing", checkListPointers},
	{"pointer: pins and drops", checkPins},
	{"pointer: a stale owner changes nothing", checkStalePointers},
	{"pointer: a failure at every step", checkPointerSteps},
	{"pointer: lost answers", checkPointersLost},
}

// pointerAt makes the pointer of a run and epoch.
func pointerAt(runID string, epoch uint64) control.Pointer {
	digest := strings.TrimPrefix(record.Hash(fmt.Appendf(nil, "%s %d", runID, epoch)), record.HashPrefix)
	n := int64(epoch)
	return control.Pointer{RunID: runID, Epoch: epoch, Manifest: digest, Hash: record.Hash([]byte(digest)), Fingerprint: "sha256:0123", Blobs: 10 * n, Bytes: 1000 * n, NewBytes: n}
}

func (p *plane) keep(s control.ControlStore, l control.Lease, c control.Pointer) error {
	if err := s.KeepPointer(p.ctx, l, c); err != nil {
		return fmt.Errorf("pointer to epoch %d of %q: %w", c.Epoch, c.RunID, err)
	}
	return nil
}

// pointers lists the epochs of a run that have a pointer, and which of them are pinned.
func (p *plane) pointers(s control.ControlStore, runID string) (epochs, pinned []uint64, err error) {
	all, err := s.ListPointers(p.ctx, runID)
	for _, c := range all {
		epochs = append(epochs, c.Epoch)
		if c.Pinned {
			pinned = append(pinned, c.Epoch)
		}
	}
	return epochs, pinned, err
}

// kept says whether exactly these epochs have a pointer, and these of them are pinned.
func (p *plane) kept(s control.ControlStore, runID string, epochs, pinned []uint64) error {
	got, pins, err := p.pointers(s, runID)
	if err == nil && (!slices.Equal(got, epochs) || !slices.Equal(pins, pinned)) {
		err = fmt.Errorf("checkpoints at %d, pinned %d; want %d, pinned %d", got, pins, epochs, pinned)
	}
	return err
}

// pointerWrites are all writes of pointers; there is one to keep at an epoch that stands, and one to make.
func (p *plane) pointerWrites(s control.ControlStore, l control.Lease, runID string, stands, fresh uint64) iter.Seq2[string, func() error] {
	return func(yield func(string, func() error) bool) {
		_ = yield("keep", func() error { return s.KeepPointer(p.ctx, l, pointerAt(runID, fresh)) }) &&
			yield("keep again", func() error { return s.KeepPointer(p.ctx, l, pointerAt(runID, stands)) }) &&
			yield("pin", func() error { return s.PinPointer(p.ctx, l, runID, stands, true) }) &&
			yield("drop", func() error { _, err := s.DropPointers(p.ctx, l, runID, []uint64{stands}); return err })
	}
}

func checkKeepPointer(p *plane) error {
	a, b := p.open(), p.open()
	l, err := p.stream(a, streamed, "a", 3)
	if err != nil {
		return err
	}
	c := pointerAt(streamed.RunID, 2)
	asked := c
	asked.Token, asked.Pinned = 99, true // the store knows better
	if err := p.keep(a, l, asked); err != nil {
		return err
	}
	all, err := b.ListPointers(p.ctx, streamed.RunID)
	if err != nil || len(all) != 1 {
		return fmt.Errorf("%d pointers, %v", len(all), err)
	}
	got := all[0]
	if got.Created.IsZero() {
		return fmt.Errorf("a pointer has no time: %+v", got)
	}
	c.Token, c.Created = l.Token, got.Created
	if !reflect.DeepEqual(got, c) {
		return fmt.Errorf("kept %+v, want %+v", got, c)
	}
	// The same again, also under a later term, is fine and changes nothing.
	if l, err = p.nextTerm(b, l, "b"); err != nil {
		return err
	}
	if err := p.keep(b, l, pointerAt(streamed.RunID, 2)); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	if again, err := a.ListPointers(p.ctx, streamed.RunID); err != nil || !reflect.DeepEqual(again, all) {
		return fmt.Errorf("kept again: %+v, %v; want %+v", again, err, all)
	}
	other := pointerAt(streamed.RunID, 2)
	other.Manifest = pointerAt("another", 2).Manifest
	err = p.unchanged(b, "another manifest", codes.PublicationConflict, func() error { return b.KeepPointer(p.ctx, l, other) })
	if err != nil {
		return err
	}
	err = p.unchanged(b, "an epoch that is not committed", codes.JournalConflict, func() error { return b.KeepPointer(p.ctx, l, pointerAt(streamed.RunID, 4)) })
	if err != nil {
		return err
	}
	if err := b.Under(l).Commit(p.ctx, streamed.Commit(4)); err != nil {
		return err
	}
	if err := p.keep(b, l, pointerAt(streamed.RunID, 4)); err != nil {
		return err
	}
	ghost, err := p.take(a, control.StreamLease("ghost"), "a")
	if err != nil {
		return err
	}
	err = p.unchanged(a, "a run that is not there", codes.RunUnknown, func() error { return a.KeepPointer(p.ctx, ghost, pointerAt("ghost", 1)) })
	if err != nil {
		return err
	}
	return p.kept(a, streamed.RunID, []uint64{2, 4}, nil)
}

func checkPointerShapes(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	for what, change := range map[string]func(c *control.Pointer){
		"epoch 0":             func(c *control.Pointer) { c.Epoch = 0 },
		"an epoch too large":  func(c *control.Pointer) { c.Epoch = math.MaxInt64 + 1 },
		"no manifest":         func(c *control.Pointer) { c.Manifest = "" },
		"a manifest in caps":  func(c *control.Pointer) { c.Manifest = strings.Repeat("A", 64) },
		"a path":              func(c *control.Pointer) { c.Manifest = "../" + c.Manifest[3:] },
		"a hash without kind": func(c *control.Pointer) { c.Hash = c.Manifest },
		"a short hash":        func(c *control.Pointer) { c.Hash = c.Hash[:70] },
		"no fingerprint":      func(c *control.Pointer) { c.Fingerprint = "" },
		"negative bytes":      func(c *control.Pointer) { c.Bytes = -1 },
		"negative blobs":      func(c *control.Pointer) { c.Blobs = -1 },
		"negative new bytes":  func(c *control.Pointer) { c.NewBytes = -1 },
	} {
		c := pointerAt(streamed.RunID, 1)
		change(&c)
		if err := p.unchanged(s, what, codes.Internal, func() error { return s.KeepPointer(p.ctx, l, c) }); err != nil {
			return err
		}
	}
	other, err := p.take(s, "checkpoints", "a")
	if err != nil {
		return err
	}
	return p.unchanged(s, "under another lease", codes.Internal, func() error { return s.KeepPointer(p.ctx, other, pointerAt(streamed.RunID, 1)) })
}

func checkListPointers(p *plane) error {
	s := p.open()
	var want []string
	for _, id := range []string{"b", "A", "ü", "a"} {
		w := streamed
		w.RunID = id
		l, err := p.stream(s, w, "owner", 12)
		if err != nil {
			return err
		}
		for _, epoch := range []uint64{10, 2, 9} {
			if err := p.keep(s, l, pointerAt(id, epoch)); err != nil {
				return err
			}
		}
		if err := p.kept(s, id, []uint64{2, 9, 10}, nil); err != nil {
			return fmt.Errorf("of %q: %w", id, err)
		}
	}
	for _, id := range []string{"A", "a", "b", "ü"} {
		for _, epoch := range []int{2, 9, 10} {
			want = append(want, fmt.Sprint(id, " ", epoch))
		}
	}
	all, err := s.ListPointers(p.ctx, "")
	if err != nil {
		return err
	}
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprint(c.RunID, " ", c.Epoch))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("all checkpoints: %q, want %q", got, want)
	}
	none, err := s.ListPointers(p.ctx, "no such run")
	if err != nil || len(none) != 0 {
		return fmt.Errorf("of an unknown run: %+v, %v", none, err)
	}
	return nil
}

func checkPins(p *plane) error {
	s, other := p.open(), p.open()
	id := streamed.RunID
	l, err := p.stream(s, streamed, "a", 6)
	if err != nil {
		return err
	}
	for epoch := uint64(1); epoch <= 6; epoch++ {
		if err := p.keep(s, l, pointerAt(id, epoch)); err != nil {
			return err
		}
	}
	// Whoever cleans up has a lease of its own: the run's is its owner's.
	cleaner, err := p.take(other, "checkpoints/"+id, "cleaner")
	if err != nil {
		return err
	}
	pin := func(epoch uint64, pinned bool) error { return other.PinPointer(p.ctx, cleaner, id, epoch, pinned) }
	for range 2 { // a second time changes nothing
		if err := pin(3, true); err != nil {
			return err
		}
		if err := s.PinPointer(p.ctx, l, id, 5, true); err != nil {
			return err
		}
	}
	if err := p.kept(s, id, []uint64{1, 2, 3, 4, 5, 6}, []uint64{3, 5}); err != nil {
		return err
	}
	dropped, err := other.DropPointers(p.ctx, cleaner, id, []uint64{5, 4, 99, 1, 3, math.MaxUint64, 0})
	if err != nil || !slices.Equal(dropped, []uint64{1, 4}) {
		return fmt.Errorf("dropped %d, %v; want 1 and 4", dropped, err)
	}
	if err := p.kept(s, id, []uint64{2, 3, 5, 6}, []uint64{3, 5}); err != nil {
		return err
	}
	if dropped, err := other.DropPointers(p.ctx, cleaner, id, []uint64{1, 4}); err != nil || len(dropped) != 0 {
		return fmt.Errorf("dropped a second time: %d, %v", dropped, err)
	}
	if dropped, err := other.DropPointers(p.ctx, cleaner, id, nil); err != nil || len(dropped) != 0 {
		return fmt.Errorf("nothing to drop: %d, %v", dropped, err)
	}
	if err := pin(3, false); err != nil {
		return err
	}
	if dropped, err := s.DropPointers(p.ctx, l, id, []uint64{3}); err != nil || !slices.Equal(dropped, []uint64{3}) {
		return fmt.Errorf("dropped %d when the pin was taken out, %v", dropped, err)
	}
	for what, call := range map[string]func() error{
		"pin what was dropped":  func() error { return pin(3, true) },
		"pin what never was":    func() error { return pin(99, true) },
		"pin an epoch too far":  func() error { return pin(math.MaxUint64, true) },
		"pin of an unknown run": func() error { return other.PinPointer(p.ctx, cleaner, "no such run", 2, true) },
	} {
		if err := p.unchanged(s, what, codes.CheckpointUnknown, call); err != nil {
			return err
		}
	}
	// What was dropped may be kept again; it is not pinned by that.
	if err := p.keep(s, l, pointerAt(id, 3)); err != nil {
		return err
	}
	return p.kept(other, id, []uint64{2, 3, 5, 6}, []uint64{5})
}

func checkStalePointers(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	if err := p.keep(s, l, pointerAt(streamed.RunID, 1)); err != nil {
		return err
	}
	stale, now, err := p.outdated(s, l, "b")
	if err != nil {
		return err
	}
	refused := func(l staleLease) error {
		for what, call := range p.pointerWrites(s, l.lease, streamed.RunID, 1, 2) {
			if err := p.unchanged(s, l.why+": "+what, codes.StaleFence, call); err != nil {
				return err
			}
		}
		return nil
	}
	for _, l := range stale {
		if err := refused(l); err != nil {
			return err
		}
	}
	for _, l := range []staleLease{{"expired", now}, {"released", now}} {
		if l.why == "expired" {
			err = p.Expire(now.Name)
		} else if l.lease, err = p.take(s, now.Name, "c"); err == nil {
			err = s.Release(p.ctx, l.lease)
		}
		if err != nil {
			return err
		}
		if err := refused(l); err != nil {
			return err
		}
	}
	return p.kept(s, streamed.RunID, []uint64{1}, nil)
}

func checkPointerSteps(p *plane) error {
	s := p.open()
	id := streamed.RunID
	l, err := p.stream(s, streamed, "a", 3)
	if err != nil {
		return err
	}
	fine := func(err error) error { return err }
	has := func(epochs, pinned []uint64) func() (bool, error) {
		return func() (bool, error) {
			got, pins, err := p.pointers(s, id)
			return slices.Equal(got, epochs) && slices.Equal(pins, pinned), err
		}
	}
	for _, step := range []struct {
		what   string
		call   func() error
		stands func() (bool, error)
	}{
		{"keep", func() error { return s.KeepPointer(p.ctx, l, pointerAt(id, 2)) }, has([]uint64{2}, nil)},
		{"keep another", func() error { return s.KeepPointer(p.ctx, l, pointerAt(id, 1)) }, has([]uint64{1, 2}, nil)},
		{"pin", func() error { return s.PinPointer(p.ctx, l, id, 1, true) }, has([]uint64{1, 2}, []uint64{1})},
		{"unpin", func() error { return s.PinPointer(p.ctx, l, id, 1, false) }, has([]uint64{1, 2}, nil)},
		{"drop", func() error { _, err := s.DropPointers(p.ctx, l, id, []uint64{1, 2}); return err }, has(nil, nil)},
	} {
		if err := p.steps(s, step.what, step.call, step.stands, fine); err != nil {
			return err
		}
		if ok, err := step.stands(); err != nil || !ok {
			return fmt.Errorf("%s a second time: it stands: %t, %v", step.what, ok, err)
		}
	}
	return nil
}

func checkPointersLost(p *plane) error {
	s := p.open()
	id := streamed.RunID
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	keep := func() error { return s.KeepPointer(p.ctx, l, pointerAt(id, 2)) }
	if err := p.lost(s, "keep", keep); err != nil {
		return err
	}
	if err := keep(); err != nil {
		return fmt.Errorf("keep again: %w", err)
	}
	if err := p.kept(s, id, []uint64{2}, nil); err != nil {
		return err
	}
	if err := p.lost(s, "pin", func() error { return s.PinPointer(p.ctx, l, id, 2, true) }); err != nil {
		return err
	}
	if err := p.kept(s, id, []uint64{2}, []uint64{2}); err != nil {
		return err
	}
	if err := s.PinPointer(p.ctx, l, id, 2, false); err != nil {
		return err
	}
	if err := p.lost(s, "drop", func() error { _, err := s.DropPointers(p.ctx, l, id, []uint64{2}); return err }); err != nil {
		return err
	}
	return p.kept(s, id, nil, nil)
}
