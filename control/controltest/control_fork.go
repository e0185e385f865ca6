package controltest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

var forkChecks = []controlCheck{
	{"fork: whole, and no more than that", checkForkWhole},
	{"fork: of a fork, and of the present", checkForkOfFork},
	{"fork: with more partitions", checkForkGrows},
	{"fork: asked again", checkForkAgain},
	{"fork: a run that is there", checkForkTaken},
	{"fork: headers that differ", checkForkHeaders},
	{"fork: what no checkpoint can say", checkForkImpossible},
	{"fork: a stale owner makes nothing", checkForkStale},
	{"fork: errors of who loads", checkForkLoad},
	{"fork: a failure at every step", checkForkSteps},
	{"fork: cancelled at every step", checkForkCancelled},
	{"fork: lost answers", checkForkLost},
	{"fork: two at once", checkForkRace},
}

// saved is a checkpoint, as who keeps them would have it.
type saved struct {
	state control.RunState
	blobs map[int32][]partitions.StateBlob
}

func (p *plane) save(s control.ControlStore, runID string) (c saved, err error) {
	err = s.Snapshot(p.ctx, runID, func(v control.JournalView) error {
		got, err := p.look(v)
		c = saved{got.state, got.blobs}
		return err
	})
	return c, err
}

// fork makes a new run of a checkpoint. What is loaded is good during the call only.
func (c saved) fork(runID string) control.Fork {
	h := c.state.Header
	h.RunID, h.Partitions = runID, slices.Clone(h.Partitions)
	return control.Fork{From: c.state.Header.RunID, Epoch: c.state.Epoch, Header: h, Watermark: c.state.Watermark, Cuts: maps.Clone(c.state.Cuts),
		Load: func(n int32, yield func(partitions.StateBlob) error) error {
			for _, b := range c.blobs[n] {
				b.Data = append([]byte{}, b.Data...)
				if err := yield(b); err != nil {
					return err
				}
				spoil(b.Data)
			}
			return nil
		}}
}

// renamed is a workload under another run id; its epochs are the same.
func renamed(w Workload, runID string) Workload {
	w.RunID = runID
	return w
}

// parent makes a run, and a checkpoint of it before it goes on.
func (p *plane) parent(s control.ControlStore, at, until uint64) (l control.Lease, c saved, err error) {
	if l, err = p.stream(s, streamed, "a", at); err != nil {
		return l, c, err
	}
	if c, err = p.save(s, streamed.RunID); err != nil {
		return l, c, err
	}
	_, err = p.stream(s, streamed, "a", until)
	return l, c, err
}

// child takes the lease of a run to be.
func (p *plane) child(s control.ControlStore, runID string) (control.Lease, error) {
	return p.take(s, control.StreamLease(runID), "restorer")
}

func checkForkWhole(p *plane) error {
	s, other := p.open(), p.open()
	old, c, err := p.parent(s, 6, 11)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(other, w.RunID)
	if err == nil {
		l, err = p.nextTerm(other, l, "restorer") // so that its token is not the old run's
	}
	if err != nil {
		return err
	}
	if err := other.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
		return err
	}
	if err := p.holds(s, w, 6, l.Token); err != nil {
		return err
	}
	if err := p.seen(s, w, 6, l.Token); err != nil {
		return err
	}
	if err := p.holds(other, streamed, 11, old.Token); err != nil {
		return fmt.Errorf("the old run, after the fork: %w", err)
	}
	// Both go on, each by itself.
	state, err := other.Under(l).OpenRun(p.ctx, w.Header())
	if err != nil || state.Epoch != 6 || state.Status != control.RunOpen {
		return fmt.Errorf("the fork is opened: %+v, %v", state, err)
	}
	for epoch := uint64(7); epoch <= 9; epoch++ {
		if err := other.Under(l).Commit(p.ctx, w.Commit(epoch)); err != nil {
			return fmt.Errorf("epoch %d of the fork: %w", epoch, err)
		}
	}
	if err := s.Under(old).Commit(p.ctx, streamed.Commit(12)); err != nil {
		return fmt.Errorf("the old run goes on: %w", err)
	}
	return errors.Join(p.holds(s, w, 9, l.Token), p.holds(other, streamed, 12, old.Token))
}

func checkForkOfFork(p *plane) error {
	s := p.open()
	if _, _, err := p.parent(s, 4, 4); err != nil {
		return err
	}
	w := streamed
	for i, until := range []uint64{6, 8} { // each is a fork of the one before, where that stands
		c, err := p.save(s, w.RunID)
		if err != nil {
			return err
		}
		w = renamed(streamed, fmt.Sprintf("fork %d", i))
		l, err := p.child(s, w.RunID)
		if err != nil {
			return err
		}
		if err := s.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
			return fmt.Errorf("%q: %w", w.RunID, err)
		}
		if err := p.holds(s, w, c.state.Epoch, l.Token); err != nil {
			return err
		}
		for epoch := c.state.Epoch + 1; epoch <= until; epoch++ {
			if err := s.Under(l).Commit(p.ctx, w.Commit(epoch)); err != nil {
				return err
			}
		}
		if err := p.holds(s, w, until, l.Token); err != nil {
			return err
		}
	}
	return nil
}

func checkForkGrows(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 5, 5)
	if err != nil {
		return err
	}
	l, err := p.child(s, "grown")
	if err != nil {
		return err
	}
	f := c.fork("grown")
	f.Header.Partitions = append([]int32{7}, f.Header.Partitions...)
	f.Header.Group = "another group"
	if err := s.ForkRun(p.ctx, l, f); err != nil {
		return err
	}
	got, err := p.contents(s, "grown")
	if err != nil {
		return err
	}
	h := got.State.Header
	if !slices.Equal(h.Partitions, []int32{0, 1, 2, 7}) || h.Group != "another group" || len(got.Blobs[7])+len(got.Outputs[7]) != 0 {
		return fmt.Errorf("the fork has the header %+v, %d blobs and %d rows of the new partition", h, len(got.Blobs[7]), len(got.Outputs[7]))
	}
	if _, ok := got.State.Cuts[7]; ok {
		return errors.New("the new partition has a cut")
	}
	return p.put7(s, l, got.State)
}

// put7 commits the first epoch of a partition that a fork has more.
func (p *plane) put7(s control.ControlStore, l control.Lease, state control.RunState) error {
	return s.Under(l).Commit(p.ctx, control.Commit{RunID: state.Header.RunID, Epoch: state.Epoch + 1, Status: control.RunOpen, Watermark: state.Watermark,
		Partitions: []control.PartitionCommit{{Cut: partitions.Cut{Partition: 7, Next: position(7, 1, 1), Watermark: 5, Put: []partitions.StateBlob{blobOf("a", "1")}}}}})
}

func checkForkAgain(p *plane) error {
	s, other := p.open(), p.open()
	_, c, err := p.parent(s, 5, 8)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(s, w.RunID)
	if err != nil {
		return err
	}
	if err := s.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
		return err
	}
	if err := other.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
		return fmt.Errorf("the same fork again: %w", err)
	}
	if err := p.holds(s, w, 5, l.Token); err != nil {
		return err
	}
	// By the next owner: it is that one's from now on. It may have opened it.
	if l, err = p.nextTerm(s, l, "next"); err != nil {
		return err
	}
	if err := other.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
		return fmt.Errorf("the same fork again, by the next owner: %w", err)
	}
	if err := p.holds(s, w, 5, l.Token); err != nil {
		return err
	}
	h := w.Header()
	h.Group = "next group"
	if _, err := s.Under(l).OpenRun(p.ctx, h); err != nil {
		return err
	}
	if err := other.ForkRun(p.ctx, l, c.fork(w.RunID)); err != nil {
		return fmt.Errorf("the same fork again, opened since: %w", err)
	}
	if err := s.Under(l).Commit(p.ctx, w.Commit(6)); err != nil {
		return err
	}
	return p.unchanged(s, "the same fork again, with a commit since", codes.RunMismatch, func() error { return s.ForkRun(p.ctx, l, c.fork(w.RunID)) })
}

func checkForkTaken(p *plane) error {
	s := p.open()
	_, early, err := p.parent(s, 3, 5)
	if err != nil {
		return err
	}
	late, err := p.save(s, streamed.RunID)
	if err != nil {
		return err
	}
	l, err := p.child(s, "fork")
	if err != nil {
		return err
	}
	if err := s.ForkRun(p.ctx, l, early.fork("fork")); err != nil {
		return err
	}
	plain, err := p.stream(s, renamed(streamed, "plain"), "a", 3)
	if err != nil {
		return err
	}
	moved := early.fork("fork")
	for n, cut := range moved.Cuts {
		cut.Counts.Outputs++
		moved.Cuts[n] = cut
	}
	fewer := early.fork("fork")
	fewer.Watermark--
	for what, again := range map[string]struct {
		lease control.Lease
		fork  control.Fork
	}{
		"a run that is no fork":               {plain, early.fork("plain")},
		"a fork of another epoch":             {l, late.fork("fork")},
		"a fork with other cuts":              {l, moved},
		"a fork with another watermark":       {l, fewer},
		"a fork of another run of that epoch": {l, func() control.Fork { f := early.fork("fork"); f.From = "plain"; return f }()},
	} {
		if err := p.unchanged(s, what, codes.RunMismatch, func() error { return s.ForkRun(p.ctx, again.lease, again.fork) }); err != nil {
			return err
		}
	}
	return nil
}

func checkForkHeaders(p *plane) error {
	s := p.open()
	own, c, err := p.parent(s, 3, 5)
	if err != nil {
		return err
	}
	l, err := p.child(s, "fork")
	if err != nil {
		return err
	}
	for what, ask := range map[string]struct {
		code   *codes.Code
		change func(f *control.Fork)
	}{
		"another flow": {codes.RunMismatch, func(f *control.Fork) { f.Header.Fingerprint = "sha256:other" }},
		"a mended flow, another topic": {codes.RunMismatch, func(f *control.Fork) {
			f.Header.Fingerprint, f.Mended, f.Header.Source = "sha256:other", true, "tocks"
		}},
		"another topic":              {codes.RunMismatch, func(f *control.Fork) { f.Header.Source = "tocks" }},
		"a topic that was recreated": {codes.TopicRecreated, func(f *control.Fork) { f.Header.SourceID = "topic-2" }},
		"a topic without identity":   {codes.RunMismatch, func(f *control.Fork) { f.Header.SourceID = "" }},
		"an unknown run":             {codes.RunUnknown, func(f *control.Fork) { f.From = "no such run" }},
		"an epoch to come":           {codes.JournalConflict, func(f *control.Fork) { f.Epoch = 6 }},
		"a partition less": {codes.RunMismatch, func(f *control.Fork) {
			f.Header.Partitions = f.Header.Partitions[1:]
			delete(f.Cuts, 0)
		}},
	} {
		f := c.fork("fork")
		ask.change(&f)
		if err := p.unchanged(s, what, ask.code, func() error { return s.ForkRun(p.ctx, l, f) }); err != nil {
			return err
		}
	}
	// A run cannot be made out of itself. It is there, so it is refused as a run that is there.
	err = p.unchanged(s, "the run itself", codes.RunMismatch, func() error { return s.ForkRun(p.ctx, own, c.fork(streamed.RunID)) })
	if err != nil {
		return err
	}
	if err := s.ForkRun(p.ctx, l, c.fork("fork")); err != nil {
		return fmt.Errorf("after all refusals: %w", err)
	}
	if err := p.holds(s, renamed(streamed, "fork"), 3, l.Token); err != nil {
		return err
	}
	return p.mendedFork(s, c)
}

// mendedFork makes a run under another flow, which is then that of the run. It is asked again, as when the answer was lost.
func (p *plane) mendedFork(s control.ControlStore, c saved) error {
	l, err := p.child(s, "mended")
	if err != nil {
		return err
	}
	f := c.fork("mended")
	f.Header.Fingerprint, f.Mended = "sha256:mended", true
	for range 2 {
		if err := s.ForkRun(p.ctx, l, f); err != nil {
			return fmt.Errorf("under a mended flow: %w", err)
		}
	}
	return s.Snapshot(p.ctx, "mended", func(v control.JournalView) error {
		if h := v.State().Header; h.Fingerprint != "sha256:mended" || v.State().Epoch != c.state.Epoch {
			return fmt.Errorf("the run of a mended flow has the fingerprint %q, at epoch %d", h.Fingerprint, v.State().Epoch)
		}
		return nil
	})
}

func checkForkImpossible(p *plane) error {
	s := p.open()
	own, c, err := p.parent(s, 3, 4)
	if err != nil {
		return err
	}
	l, err := p.child(s, "fork")
	if err != nil {
		return err
	}
	change := func(fn func(cut *partitions.Cut)) func(f *control.Fork) {
		return func(f *control.Fork) {
			n := f.Parts()[0]
			cut := f.Cuts[n]
			fn(&cut)
			f.Cuts[n] = cut
		}
	}
	for what, wrong := range map[string]func(f *control.Fork){
		"a position beyond the run":           change(func(cut *partitions.Cut) { cut.Next = position(cut.Partition, 99, 999) }),
		"a watermark of a cut beyond the run": change(func(cut *partitions.Cut) { cut.Watermark = math.MaxInt64 }),
		"a cut with blobs":                    change(func(cut *partitions.Cut) { cut.Put = []partitions.StateBlob{blobOf("a", "1")} }),
		"a cut that deletes":                  change(func(cut *partitions.Cut) { cut.Delete = []string{"a"} }),
		"a cut of another partition":          change(func(cut *partitions.Cut) { cut.Partition = 2 - cut.Partition }),
		"a watermark beyond the run":          func(f *control.Fork) { f.Watermark = math.MaxInt64 },
		"a partition that is not the run's":   func(f *control.Fork) { f.Cuts[9] = partitions.Cut{Partition: 9} },
		"results without a cut":               func(f *control.Fork) { delete(f.Cuts, f.Parts()[0]) },
		"epoch 0":                             func(f *control.Fork) { f.Epoch = 0 },
		"an epoch too large":                  func(f *control.Fork) { f.Epoch = math.MaxInt64 + 1 },
		"no run to come from":                 func(f *control.Fork) { f.From = "" },
		"no state":                            func(f *control.Fork) { f.Load = nil },
		"a partition twice":                   func(f *control.Fork) { f.Header.Partitions = append(f.Header.Partitions, 0) },
	} {
		f := c.fork("fork")
		wrong(&f)
		if err := p.unchanged(s, what, codes.Internal, func() error { return s.ForkRun(p.ctx, l, f) }); err != nil {
			return err
		}
	}
	return p.unchanged(s, "under the old run's lease", codes.Internal, func() error { return s.ForkRun(p.ctx, own, c.fork("fork")) })
}

func checkForkStale(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 3, 4)
	if err != nil {
		return err
	}
	l, err := p.child(s, "fork")
	if err != nil {
		return err
	}
	stale, now, err := p.outdated(s, l, "next")
	if err != nil {
		return err
	}
	ended, err := p.ended(s, "one", "two")
	if err != nil {
		return err
	}
	ended = append(ended, staleLease{"no such lease", control.Lease{Name: control.StreamLease("three"), Owner: "owner", Token: 1, TTL: term}})
	for i, l := range slices.Concat(stale, ended) {
		id := "fork"
		if i >= len(stale) {
			id = []string{"one", "two", "three"}[i-len(stale)]
		}
		f := c.fork(id)
		var asked atomic.Bool
		load := f.Load
		f.Load = func(n int32, yield func(partitions.StateBlob) error) error { asked.Store(true); return load(n, yield) }
		if err := p.unchanged(s, l.why, codes.StaleFence, func() error { return s.ForkRun(p.ctx, l.lease, f) }); err != nil {
			return err
		}
		if asked.Load() {
			return fmt.Errorf("%s: state is loaded all the same", l.why)
		}
	}
	return s.ForkRun(p.ctx, now, c.fork("fork"))
}

func checkForkLoad(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 6, 6)
	if err != nil {
		return err
	}
	l, err := p.child(s, "fork")
	if err != nil {
		return err
	}
	own := errors.New("the loader's own")
	for last := range c.fork("fork").Parts() {
		f, n := c.fork("fork"), 0
		load := f.Load
		f.Load = func(part int32, yield func(partitions.StateBlob) error) error {
			if err := load(part, yield); err != nil {
				return err
			}
			if n++; n > last {
				return own
			}
			return nil
		}
		if err := s.ForkRun(p.ctx, l, f); err != own {
			return fmt.Errorf("an error of Load comes back as %v", err)
		}
		if there, err := p.known(s, "fork"); err != nil || there {
			return fmt.Errorf("Load failed, and the run is there: %t, %v", there, err)
		}
	}
	// Of two blobs of one name the last one counts.
	f := c.fork("fork")
	load := f.Load
	f.Load = func(part int32, yield func(partitions.StateBlob) error) error {
		for _, b := range c.blobs[part] {
			if err := yield(blobOf(b.Name, "first")); err != nil {
				return err
			}
		}
		return load(part, yield)
	}
	if err := s.ForkRun(p.ctx, l, f); err != nil {
		return err
	}
	return p.holds(s, renamed(streamed, "fork"), 6, l.Token)
}

func checkForkSteps(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 5, 7)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(s, w.RunID)
	if err != nil {
		return err
	}
	err = p.steps(s, "fork", func() error { return s.ForkRun(p.ctx, l, c.fork(w.RunID)) }, func() (bool, error) { return p.known(s, w.RunID) }, func(err error) error { return err })
	if err != nil {
		return err
	}
	return p.holds(s, w, 5, l.Token)
}

func checkForkLost(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 4, 4)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(s, w.RunID)
	if err != nil {
		return err
	}
	fork := func() error { return s.ForkRun(p.ctx, l, c.fork(w.RunID)) }
	if err := p.lost(s, "fork", fork); err != nil {
		return err
	}
	if err := p.holds(s, w, 4, l.Token); err != nil {
		return err
	}
	if err := fork(); err != nil {
		return fmt.Errorf("fork again: %w", err)
	}
	return p.holds(s, w, 4, l.Token)
}

func checkForkRace(p *plane) error {
	const clients = 4
	stores := p.opens(clients)
	_, c, err := p.parent(stores[0], 4, 6)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(stores[0], w.RunID)
	if err != nil {
		return err
	}
	errs := together(clients, func(i int) error { return stores[i].ForkRun(p.ctx, l, c.fork(w.RunID)) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.holds(stores[1], w, 4, l.Token)
}
