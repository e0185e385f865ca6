package invariant

import "slices"

// CheckpointWhole: the moment a checkpoint becomes visible, every blob that it refers to stands, and while it is kept none goes.
type CheckpointWhole struct {
	blobs map[string]bool
	// needs are the blobs that the pointers of an epoch refer to.
	needs map[uint64][]string
}

// NewCheckpointWhole makes the checker.
func NewCheckpointWhole() *CheckpointWhole {
	return &CheckpointWhole{blobs: map[string]bool{}, needs: map[uint64][]string{}}
}

// Name is checkpoint-whole.
func (*CheckpointWhole) Name() string { return "checkpoint-whole" }

// See implements Checker.
func (c *CheckpointWhole) See(e Entry, r *Report) {
	switch ev := e.Event.(type) {
	case BlobKept:
		c.blobs[ev.Name] = true
	case BlobDropped:
		delete(c.blobs, ev.Name)
		for epoch, names := range c.needs {
			if slices.Contains(names, ev.Name) {
				r.Add("blob %s was dropped while the checkpoint of epoch %d needs it", short(ev.Name), epoch)
			}
		}
	case PointerKept:
		c.needs[ev.Pointer.Epoch] = ev.Needs
		for _, name := range ev.Needs {
			if !c.blobs[name] {
				r.Add("the checkpoint of epoch %d is visible before its blob %s", ev.Pointer.Epoch, short(name))
			}
		}
	case PointerDropped:
		delete(c.needs, ev.Epoch)
	}
}

// End implements Checker.
func (*CheckpointWhole) End(*Report) {}
