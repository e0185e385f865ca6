package controltest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var fenceChecks = []controlCheck{
	{"fence: the owner of a run", checkOwner},
	{"fence: a stale owner writes nothing", checkStaleOwner},
	{"fence: never again without a lease", checkUnfenced},
	{"fence: tokens that went back", checkRegression},
	{"fence: its own lease only", checkOwnLeaseOnly},
	{"fence: an ended run", checkFencedEnd},
	{"fence: a failure at every step", checkFenceSteps},
	{"fence: cancelled at every step", checkFenceCancelled},
	{"fence: lost answers", checkFenceLost},
	{"fence: two processes with one owner id", checkOneOwnerTwice},
	{"fence: a take-over waits for a commit, a heartbeat does not", checkCommitAndTakeOver},
	{"fence: never after the take-over", checkCommitsAndTakeOver},
}

// streamed is the run that the checks of fences and checkpoints work on.
var streamed = Workload{Seed: 77, RunID: "stream run", Partitions: 3, Rows: 6, Blob: 300}

// stream takes the lease of a workload's run, opens the run and commits up to an epoch.
func (p *plane) stream(s control.ControlStore, w Workload, owner string, until uint64) (l control.Lease, err error) {
	if l, err = p.take(s, control.StreamLease(w.RunID), owner); err != nil {
		return l, err
	}
	j := s.Under(l)
	state, err := j.OpenRun(p.ctx, w.Header())
	if err != nil {
		return l, fmt.Errorf("open run %q under token %d: %w", w.RunID, l.Token, err)
	}
	for e := state.Epoch + 1; e <= until; e++ {
		if err := j.Commit(p.ctx, w.Commit(e)); err != nil {
			return l, fmt.Errorf("epoch %d of run %q under token %d: %w", e, w.RunID, l.Token, err)
		}
	}
	return l, nil
}

// nextTerm ends the term of a lease and begins the next one.
func (p *plane) nextTerm(s control.ControlStore, l control.Lease, owner string) (control.Lease, error) {
	if err := p.Expire(l.Name); err != nil {
		return l, err
	}
	next, err := p.take(s, l.Name, owner)
	if err == nil && next.Token <= l.Token {
		err = fmt.Errorf("the lease %q of token %d was taken over under token %d", l.Name, l.Token, next.Token)
	}
	return next, err
}

// contents reads everything that a store holds of a run without opening it.
func (p *plane) contents(s control.ControlStore, runID string) (Contents, error) {
	return ReadStored(p.ctx, s, runID)
}

// holds says whether a run stands as a workload has it at an epoch, under a fence.
func (p *plane) holds(s control.ControlStore, w Workload, epoch uint64, fence control.FenceToken) error {
	got, err := p.contents(s, w.RunID)
	if err != nil {
		return err
	}
	want, err := w.Expected(p.ctx, epoch)
	if err != nil {
		return err
	}
	want.State.Fence = fence
	if d := Diff(want, got); d != "" {
		return fmt.Errorf("run %q at epoch %d: %s", w.RunID, epoch, d)
	}
	return nil
}

// staleLease is a lease that is not held, and why.
type staleLease struct {
	why   string
	lease control.Lease
}

// outdated makes leases of a run that nobody holds, and leaves the run's lease with owner under a new token.
func (p *plane) outdated(s control.ControlStore, l control.Lease, owner string) (all []staleLease, now control.Lease, err error) {
	if now, err = p.nextTerm(s, l, owner); err != nil {
		return nil, now, err
	}
	with := func(change func(l *control.Lease)) control.Lease { l := now; change(&l); return l }
	return []staleLease{
		{"taken over", l},
		{"another owner with the right token", with(func(l *control.Lease) { l.Owner = "somebody" })},
		{"the right owner with the old token", with(func(l *control.Lease) { l.Token-- })},
		{"the right owner with a token to come", with(func(l *control.Lease) { l.Token++ })},
		{"no token", with(func(l *control.Lease) { l.Token = 0 })},
	}, now, nil
}

// ended are leases that were held until a moment ago, made for one run each.
func (p *plane) ended(s control.ControlStore, runs ...string) (all []staleLease, err error) {
	for i, id := range runs {
		l, err := p.take(s, control.StreamLease(id), "owner")
		if err != nil {
			return nil, err
		}
		why := "expired"
		if i%2 == 1 {
			why, err = "released", s.Release(p.ctx, l)
		} else {
			err = p.Expire(l.Name)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, staleLease{why, l})
	}
	return all, nil
}

func checkOwner(p *plane) error {
	a, b := p.open(), p.open()
	l, err := p.stream(a, streamed, "a", 3)
	if err != nil {
		return err
	}
	if err := p.holds(b, streamed, 3, l.Token); err != nil {
		return err
	}
	view := a.Under(l)
	got, err := Read(p.ctx, view, streamed.Header())
	if err != nil {
		return err
	}
	if want, err := p.contents(b, streamed.RunID); err != nil || Diff(want, got) != "" {
		return fmt.Errorf("the journal under a lease: %s, %v", Diff(want, got), err)
	}
	if err := view.Close(); err != nil {
		return err
	}
	if err := view.Commit(p.ctx, streamed.Commit(4)); err != nil {
		return fmt.Errorf("after Close of a view: %w", err)
	}
	// The next owner raises the fence when it opens the run, the one after it by its first commit.
	l, err = p.nextTerm(b, l, "b")
	if err != nil {
		return err
	}
	state, err := b.Under(l).OpenRun(p.ctx, streamed.Header())
	if err != nil || state.Fence != l.Token {
		return fmt.Errorf("opened under token %d: the fence is %d, %v", l.Token, state.Fence, err)
	}
	if err := p.holds(a, streamed, 4, l.Token); err != nil {
		return err
	}
	if l, err = p.nextTerm(a, l, "a"); err != nil {
		return err
	}
	l.Until, l.Deadline = l.Until.AddDate(-1, 0, 0), time.Time{} // a client's clock that is wrong
	if err := a.Under(l).Commit(p.ctx, streamed.Commit(5)); err != nil {
		return err
	}
	return p.holds(b, streamed, 5, l.Token)
}

// refusedWrites says that neither opening nor committing does anything under a lease.
func (p *plane) refusedWrites(s control.ControlStore, j control.Journal, why string, w Workload, epoch uint64, code *codes.Code) error {
	err := p.unchanged(s, why+": open", code, func() error {
		h := w.Header()
		h.Group, h.Partitions = "another", append(h.Partitions, 99)
		state, err := j.OpenRun(p.ctx, h)
		if err != nil && state.Epoch != 0 {
			return fmt.Errorf("a state beside the error %w", err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.unchanged(s, why+": commit", code, func() error { return j.Commit(p.ctx, w.Commit(epoch)) })
}

func checkStaleOwner(p *plane) error {
	s, other := p.open(), p.open()
	old, err := p.stream(other, streamed, "old", 2)
	if err != nil {
		return err
	}
	stale, now, err := p.outdated(s, old, "new")
	if err != nil {
		return err
	}
	for _, l := range stale {
		if err := p.refusedWrites(other, other.Under(l.lease), l.why, streamed, 3, codes.StaleFence); err != nil {
			return err
		}
	}
	if err := p.holds(s, streamed, 2, old.Token); err != nil {
		return err
	}
	// Nobody has the lease any more, or never had: the run is not even made.
	ended, err := p.ended(s, "one", "two")
	if err != nil {
		return err
	}
	ended = append(ended, staleLease{"no such lease", control.Lease{Name: control.StreamLease("three"), Owner: "owner", Token: 1, TTL: term}})
	for i, l := range ended {
		w := streamed
		w.RunID = []string{"one", "two", "three"}[i]
		if err := p.refusedWrites(s, s.Under(l.lease), l.why, w, 1, codes.StaleFence); err != nil {
			return err
		}
	}
	if err := s.Under(now).Commit(p.ctx, streamed.Commit(3)); err != nil {
		return fmt.Errorf("the owner, after all of them: %w", err)
	}
	return p.holds(other, streamed, 3, now.Token)
}

func checkUnfenced(p *plane) error {
	s := p.open()
	if _, err := s.OpenRun(p.ctx, streamed.Header()); err != nil {
		return err
	}
	if err := s.Commit(p.ctx, streamed.Commit(1)); err != nil {
		return err
	}
	if err := p.holds(s, streamed, 1, 0); err != nil {
		return err
	}
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return fmt.Errorf("a run without a lease so far: %w", err)
	}
	if err := p.refusedWrites(s, s, "without a lease", streamed, 3, codes.StaleFence); err != nil {
		return err
	}
	if err := s.Release(p.ctx, l); err != nil {
		return err
	}
	if err := p.refusedWrites(s, s, "without a lease, when nobody has it", streamed, 3, codes.StaleFence); err != nil {
		return err
	}
	return p.holds(s, streamed, 2, l.Token)
}

func checkRegression(p *plane) error {
	s := p.open()
	l, err := p.take(s, control.StreamLease(streamed.RunID), "a")
	for range 2 {
		if err == nil {
			l, err = p.nextTerm(s, l, "a")
		}
	}
	if err != nil {
		return err
	}
	if l, err = p.stream(s, streamed, "a", 2); err != nil {
		return err
	}
	if err := p.keep(s, l, pointerAt(streamed.RunID, 1)); err != nil {
		return err
	}
	seen := l.Token
	if err := p.SetToken(l.Name, 1); err != nil {
		return err
	}
	l.Token = 1
	if err := p.refusedWrites(s, s.Under(l), "a valid lease with a lower token", streamed, 3, codes.FenceRegression); err != nil {
		return err
	}
	for what, call := range p.pointerWrites(s, l, streamed.RunID, 1, 2) {
		if err := p.unchanged(s, what+" under a lower token", codes.FenceRegression, call); err != nil {
			return err
		}
	}
	return p.holds(s, streamed, 2, seen)
}

func checkOwnLeaseOnly(p *plane) error {
	s := p.open()
	if _, err := p.stream(s, streamed, "a", 2); err != nil {
		return err
	}
	for _, name := range []string{control.StreamLease("another run"), control.RunLease(streamed.RunID), streamed.RunID} {
		l, err := p.take(s, name, "a")
		if err != nil {
			return err
		}
		if err := p.refusedWrites(s, s.Under(l), fmt.Sprintf("under the lease %q", name), streamed, 3, codes.Internal); err != nil {
			return err
		}
	}
	return nil
}

func checkFencedEnd(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	last := streamed.Commit(3)
	last.Status = control.RunFinished
	if err := s.Under(l).Commit(p.ctx, last); err != nil {
		return err
	}
	state, err := s.Under(l).OpenRun(p.ctx, streamed.Header())
	if err := wants("an ended run is opened by its owner", err, codes.RunFinished); err != nil {
		return err
	}
	if state.Epoch != 3 || state.Status != control.RunFinished || state.Fence != l.Token {
		return fmt.Errorf("the state of an ended run is %+v", state)
	}
	return p.unchanged(s, "an ended run without its lease", codes.StaleFence, func() error {
		_, err := s.OpenRun(p.ctx, streamed.Header())
		return err
	})
}

// errInjected is what a hook answers.
var errInjected = errors.New("injected at a step")

// failed makes the n-th step of a call's writes fail. at is that step, or "" when there was none.
func (p *plane) failed(s control.ControlStore, n int, call func() error) (at string, err error) {
	var mu sync.Mutex
	count := 0
	p.Hook(s, func(step string) error {
		mu.Lock()
		defer mu.Unlock()
		if count++; count == n {
			at = step
			return errInjected
		}
		return nil
	})
	err = call()
	p.Hook(s, nil)
	mu.Lock()
	defer mu.Unlock()
	return at, err
}

// steps fails a call at every step of its write in turn. stands says whether what it does is there: never, but for a failure after the commit. Then
// again is what the caller does next; it gets the call's own outcome when it is made once more.
func (p *plane) steps(s control.ControlStore, what string, call func() error, stands func() (bool, error), again func(err error) error) error {
	for n := 1; ; n++ {
		at, err := p.failed(s, n, call)
		if at == "" {
			return fmt.Errorf("%s: after %d steps no one was named committed (%v)", what, n-1, err)
		}
		if err == nil || at == "committed" && control.Refused(err) {
			return fmt.Errorf("%s: failed before %q, and the call says %v", what, at, err)
		}
		there, err := stands()
		if err != nil {
			return fmt.Errorf("%s: failed before %q: %w", what, at, err)
		}
		if there != (at == "committed") {
			return fmt.Errorf("%s: failed before %q, and it stands: %t", what, at, there)
		}
		if there && n < 3 {
			return fmt.Errorf("%s: only %d steps", what, n)
		}
		if there {
			return again(call())
		}
	}
}

// at says whether a run stands at an epoch.
func (p *plane) at(s control.ControlStore, w Workload, epoch uint64) (bool, error) {
	var stands uint64
	err := s.Snapshot(p.ctx, w.RunID, func(v control.JournalView) error { stands = v.State().Epoch; return nil })
	return stands == epoch, err
}

// known says whether there is a run.
func (p *plane) known(s control.ControlStore, runID string) (bool, error) {
	err := s.Snapshot(p.ctx, runID, func(control.JournalView) error { return nil })
	if codes.Has(err, codes.RunUnknown) {
		return false, nil
	}
	return err == nil, err
}

func checkFenceSteps(p *plane) error {
	s, next := p.open(), p.open()
	l, err := p.take(s, control.StreamLease(streamed.RunID), "a")
	if err != nil {
		return err
	}
	j := s.Under(l)
	open := func() error { _, err := j.OpenRun(p.ctx, streamed.Header()); return err }
	err = p.steps(s, "open", open, func() (bool, error) { return p.known(s, streamed.RunID) }, func(err error) error { return err })
	if err != nil {
		return err
	}
	for epoch := uint64(1); epoch <= 4; epoch++ {
		err := p.steps(s, "commit", func() error { return j.Commit(p.ctx, streamed.Commit(epoch)) }, func() (bool, error) {
			there, err := p.at(s, streamed, epoch)
			if err == nil && !there {
				err = p.holds(s, streamed, epoch-1, l.Token)
			}
			return there, err
		}, func(err error) error { return refusal("commit again", err, codes.JournalConflict) })
		if err != nil {
			return err
		}
	}
	// Whoever comes next finds the lease free to be taken and the run whole.
	if l, err = p.nextTerm(next, l, "b"); err != nil {
		return err
	}
	if _, err := next.Under(l).OpenRun(p.ctx, streamed.Header()); err != nil {
		return err
	}
	if err := next.Under(l).Commit(p.ctx, streamed.Commit(5)); err != nil {
		return err
	}
	return p.holds(s, streamed, 5, l.Token)
}

func checkFenceLost(p *plane) error {
	s := p.open()
	l, err := p.take(s, control.StreamLease(streamed.RunID), "a")
	if err != nil {
		return err
	}
	j := s.Under(l)
	open := func() error { _, err := j.OpenRun(p.ctx, streamed.Header()); return err }
	if err := p.lost(s, "open", open); err != nil {
		return err
	}
	if err := open(); err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	for epoch := uint64(1); epoch <= 3; epoch++ {
		if err := p.lost(s, "commit", func() error { return j.Commit(p.ctx, streamed.Commit(epoch)) }); err != nil {
			return err
		}
		if err := p.holds(s, streamed, epoch, l.Token); err != nil {
			return err
		}
		if err := refusal("commit again", j.Commit(p.ctx, streamed.Commit(epoch)), codes.JournalConflict); err != nil {
			return err
		}
	}
	return nil
}

// A commit that has verified its lease is finished before anybody takes the lease over, and the owner's heartbeat does not wait for it.
func checkCommitAndTakeOver(p *plane) error {
	a, b, beat := p.open(), p.open(), p.open()
	l, err := p.stream(a, streamed, "a", 1)
	if err != nil {
		return err
	}
	type taken struct {
		epoch uint64
		err   error
	}
	took := make(chan taken, 1)
	var once sync.Once
	var heartbeat error
	p.Hook(a, func(step string) error {
		if step != "commit" {
			return nil
		}
		once.Do(func() {
			if !p.OneWriter {
				_, heartbeat = beat.Renew(p.ctx, l)
			}
			begun := make(chan struct{})
			go func() {
				close(begun)
				var t taken
				if t.err = p.Expire(l.Name); t.err == nil {
					_, t.err = p.take(b, l.Name, "b")
				}
				if t.err == nil {
					t.err = b.Snapshot(p.ctx, streamed.RunID, func(v control.JournalView) error { t.epoch = v.State().Epoch; return nil })
				}
				took <- t
			}()
			<-begun
			pass()
		})
		return nil
	})
	err = a.Under(l).Commit(p.ctx, streamed.Commit(2))
	p.Hook(a, nil)
	if err != nil || heartbeat != nil {
		return fmt.Errorf("commit: %v; heartbeat meanwhile: %v", err, heartbeat)
	}
	if t := <-took; t.err != nil || t.epoch != 2 {
		return fmt.Errorf("the next owner found epoch %d when it had the lease, %v", t.epoch, t.err)
	}
	if err := p.refusedWrites(a, a.Under(l), "taken over", streamed, 3, codes.StaleFence); err != nil {
		return err
	}
	return p.holds(b, streamed, 2, l.Token)
}

// What the old owner has committed when the new one has the lease is all that it ever commits.
func checkCommitsAndTakeOver(p *plane) error {
	const rounds, runs = 5, 2
	stores := p.opens(runs + 1)
	for round := range rounds {
		var leases [runs]control.Lease
		workload := func(i int) Workload {
			w := streamed
			w.RunID = fmt.Sprintf("round %d run %d", round, i)
			return w
		}
		for i := range runs {
			var err error
			if leases[i], err = p.stream(stores[i], workload(i), "a", 1); err != nil {
				return err
			}
		}
		begun, over := make(chan struct{}, runs), make(chan struct{})
		var seen [runs]uint64
		errs := together(runs+1, func(i int) error {
			if i < runs {
				return p.commitUntil(stores[i], leases[i], workload(i), begun, over)
			}
			defer close(over)
			for range runs { // all are at work
				<-begun
			}
			for k, l := range leases {
				if _, err := p.nextTerm(stores[i], l, "b"); err != nil {
					return fmt.Errorf("take-over: %w", err)
				}
				c, err := p.contents(stores[i], workload(k).RunID)
				if err != nil {
					return err
				}
				seen[k] = c.State.Epoch
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		for i := range runs {
			if err := p.holds(stores[runs], workload(i), seen[i], leases[i].Token); err != nil {
				return fmt.Errorf("round %d, after the take-over at epoch %d: %w", round, seen[i], err)
			}
		}
	}
	return nil
}

// commitUntil commits until it is refused, which it must be once the take-over is over.
func (p *plane) commitUntil(s control.ControlStore, l control.Lease, w Workload, begun chan<- struct{}, over <-chan struct{}) error {
	j := s.Under(l)
	for epoch := uint64(2); ; epoch++ {
		last := false
		select {
		case <-over:
			last = true
		default:
		}
		err := j.Commit(p.ctx, w.Commit(epoch))
		if epoch == 2 {
			begun <- struct{}{}
		}
		switch {
		case codes.Has(err, codes.StaleFence):
			return nil
		case err != nil:
			return fmt.Errorf("the old owner, epoch %d: %w", epoch, err)
		case last:
			return fmt.Errorf("the old owner commits epoch %d after the take-over", epoch)
		}
	}
}
