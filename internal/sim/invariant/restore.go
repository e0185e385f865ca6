package invariant

import (
	"bytes"
	"maps"
	"slices"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// RestoreEqualsCut: what is given to who restores is what was cut, byte for byte; so is what a checkpoint of an epoch gives back; and the machine
// restored from it is in the very state of one that has read the log up to there undisturbed.
type RestoreEqualsCut struct {
	truth *Truth
	now   standing
	// past are the states by epoch, sharing their blobs.
	past map[uint64]standing
}

// standing is the state of all partitions at one epoch.
type standing map[int32]cutState

type cutState struct {
	cut   partitions.Cut
	blobs map[string][]byte
}

// NewRestoreEqualsCut makes the checker.
func NewRestoreEqualsCut(t *Truth) *RestoreEqualsCut {
	return &RestoreEqualsCut{truth: t, now: standing{}, past: map[uint64]standing{}}
}

// Name is restore-equals-cut.
func (*RestoreEqualsCut) Name() string { return "restore-equals-cut" }

// See implements Checker.
func (c *RestoreEqualsCut) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case Committed:
		c.commit(ev.Commit)
	case Loaded:
		c.compare("the state", ev.Partition, ev.Blobs, c.now, r)
	case CheckpointRead:
		if ev.Err != "" {
			r.Add("the checkpoint of epoch %d cannot be read: %s", ev.Epoch, ev.Err)
			return
		}
		c.compare("the checkpoint", ev.Partition, ev.Blobs, c.past[ev.Epoch], r)
	}
}

func (c *RestoreEqualsCut) commit(m control.Commit) {
	c.now = maps.Clone(c.now)
	for _, p := range m.Partitions {
		s := cutState{cut: p.Cut, blobs: maps.Clone(c.now[p.Cut.Partition].blobs)}
		if s.blobs == nil {
			s.blobs = map[string][]byte{}
		}
		for _, name := range p.Cut.Delete {
			delete(s.blobs, name)
		}
		for _, b := range p.Cut.Put {
			s.blobs[b.Name] = b.Data
		}
		c.now[p.Cut.Partition] = s
	}
	c.past[m.Epoch] = c.now
}

func (c *RestoreEqualsCut) compare(what string, p int32, blobs []partitions.StateBlob, all standing, r *Report) {
	s := all[p]
	got := make(map[string][]byte, len(blobs))
	for _, b := range blobs {
		got[b.Name] = b.Data
	}
	if !maps.EqualFunc(got, s.blobs, bytes.Equal) {
		r.Add("%s of partition %d has %d blobs that are not the %d that were cut", what, p, len(got), len(s.blobs))
		return
	}
	m, err := partitions.Restore(c.truth.Plan, p, func(yield func(partitions.StateBlob) error) error {
		for _, b := range blobs {
			if err := yield(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.Add("%s of partition %d cannot be restored: %v", what, p, err)
		return
	}
	want, err := c.truth.At(p, s.cut.Next, s.cut.Finished)
	if err != nil {
		r.Add("partition %d: %v", p, err)
		return
	}
	if !slices.EqualFunc(m.FullState(), want.FullState(), sameBlob) {
		r.Add("%s of partition %d at %s is not the one of an undisturbed machine", what, p, s.cut.Next)
	}
}

func sameBlob(a, b partitions.StateBlob) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }

// End implements Checker.
func (c *RestoreEqualsCut) End(r *Report) {
	for p, s := range c.now {
		var blobs []partitions.StateBlob
		for name, data := range s.blobs {
			blobs = append(blobs, partitions.StateBlob{Name: name, Data: data})
		}
		c.compare("the last cut", p, blobs, c.now, r)
	}
}
