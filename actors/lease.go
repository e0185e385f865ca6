package actors

import (
	"context"
	"strconv"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// leaseActor holds the lease of the run. It outlives incarnations: the lease is asked for before anything is opened, renewed every third of
// its ttl by goroutines of its own, and given back at the end.
//
//	            granted               no answer in time, refused
//	┌────────┐ ─────────▶ ┌────────┐ ────────────────────────────▶ ┌──────┐
//	│ asking │            │  held  │                               │ lost │
//	└────────┘            └────────┘                               └──────┘
//	 │ ▲    │ refused       │ ▲   │ end
//	 └─┘    ▼               └─┘   ▼
//	stands  ┌──────┐       renews ┌───────────┐ given back, or could not  ┌──────┐
//	by      │ idle │ ─ ask, end ─▶│  ending   │ ─────────────────────────▶│ over │
//	        └──────┘              └───────────┘                           └──────┘
//
// One call of the store is under way at a time. Its own Deadline, reckoned from when the call was sent, ends the term whatever the store
// says; a renewal that the store refuses ends it at once, and one that fails is tried again until then.
type leaseActor struct {
	e    *engine
	run  shell.Ref[toRun]
	self shell.Ref[toLease]
	gen  uint64

	phase leasePhase
	lease control.Lease
	// calling: an Acquire or Renew is under way; cancel ends it.
	calling bool
	cancel  context.CancelFunc
	// told: that we wait. late counts grants that had run out when they came.
	told bool
	late int
	// failing is the last error of a renewal.
	failing error

	next, expiry, grace *time.Timer
}

type leasePhase uint8

const (
	leaseIdle leasePhase = iota
	leaseAsking
	leaseHeld
	// leaseUnwanted: the run ends while an Acquire is under way.
	leaseUnwanted
	leaseEnding
	leaseOver
)

// To the lease actor. There is one actor to a reference, so that nothing of an earlier one reaches it.
type (
	toLease interface{ forLease() }
	// askLease asks the store for the lease.
	askLease struct{}
	// leaseDue is the time to ask or renew again.
	leaseDue struct{}
	// leaseExpires is the Deadline.
	leaseExpires struct{}
	// leaseAnswer is what the store said to an Acquire or a Renew.
	leaseAnswer struct {
		lease control.Lease
		// holder is who has it instead, as far as the store said.
		holder control.Lease
		err    error
	}
	// endLease gives the lease back if it is held; dropLease forgets it.
	endLease  struct{}
	dropLease struct{}
	// leaseGraceOver ends the wait for an answer to an Acquire that nobody wants any more.
	leaseGraceOver struct{}
	// leaseGiven is the answer to a release.
	leaseGiven struct{ err error }
)

func (askLease) forLease()       {}
func (leaseDue) forLease()       {}
func (leaseExpires) forLease()   {}
func (leaseAnswer) forLease()    {}
func (endLease) forLease()       {}
func (dropLease) forLease()      {}
func (leaseGraceOver) forLease() {}
func (leaseGiven) forLease()     {}

// spawnLease starts the lease actor of a generation.
func spawnLease(c *shell.Context, e *engine, gen uint64) (shell.Ref[toLease], error) {
	a := &leaseActor{e: e, run: e.run, gen: gen}
	hooked := shell.Intercept(shell.Behaviour[toLease](a), func(*shell.Context, toLease) (bool, error) {
		err := e.cfg.Hooks.at(e.ctx, Point{Name: OnMessage, Actor: leaseName})
		return err == nil, err
	})
	name := leaseName[len(runName)+1:]
	if gen > 1 {
		name += "/" + strconv.FormatUint(gen, 10) // the one before may not have ended yet
	}
	return shell.Spawn(c, shell.Spec{Name: name, Incarnation: gen}, hooked)
}

// Receive handles one message.
func (a *leaseActor) Receive(c *shell.Context, m toLease) error {
	a.self = shell.Ref[toLease]{Address: c.Self()}
	switch m := m.(type) {
	case askLease:
		if a.phase == leaseIdle {
			a.phase, a.told = leaseAsking, false
			a.call()
		}
	case leaseDue:
		if a.phase == leaseAsking || a.phase == leaseHeld {
			a.call()
		}
	case leaseAnswer:
		a.calling = false
		a.answer(m)
	case leaseExpires:
		if a.phase == leaseHeld && !a.lease.Deadline.After(time.Now()) {
			a.lose(a.lapsed())
		}
	case endLease:
		a.end()
	case leaseGraceOver:
		if a.phase == leaseUnwanted {
			a.cancel()
		}
	case dropLease:
		a.over()
	case leaseGiven:
		if a.phase == leaseEnding {
			a.over()
			n := leaseNews{lease: a.lease, err: m.err, ended: true}
			if m.err == nil {
				n.change = LeaseReleased
			}
			a.tell(n)
		}
	}
	return nil
}

func (a *leaseActor) tell(n leaseNews) {
	n.stamp = stamp{a.gen}
	shell.Send(a.run, toRun(n))
}

func (a *leaseActor) ttl() time.Duration { return a.e.cfg.Fencing.TTL }

// call asks for the lease, or renews it, in a goroutine. An attempt takes at most a third of the ttl once we hold it, so that one that hangs
// leaves time for another.
func (a *leaseActor) call() {
	if a.calling {
		return
	}
	f, lease, held, standby := a.e.cfg.Fencing, a.lease, a.phase == leaseHeld, !a.told
	ctx, cancel := context.WithCancel(a.e.ctx)
	if held {
		cancel()
		ctx, cancel = context.WithTimeout(a.e.ctx, max(a.ttl()/3, time.Millisecond))
	}
	a.calling, a.cancel = true, cancel
	self := a.self
	a.e.background.Go(func() {
		defer cancel()
		var m leaseAnswer
		m.err = protect(func() (err error) {
			if held {
				m.lease, err = f.Leases.Renew(ctx, lease)
				return err
			}
			m.lease, err = f.Leases.Acquire(ctx, control.StreamLease(a.e.cfg.RunID), f.Owner, f.TTL)
			if codes.Has(err, codes.LeaseHeld) && f.Standby && standby {
				m.holder = a.e.holder(ctx)
			}
			return err
		})
		shell.Send(self, toLease(m))
	})
}

// holder is who has the lease, for people; nothing when the store does not say.
func (e *engine) holder(ctx context.Context) control.Lease {
	info, ok, err := e.cfg.Fencing.Leases.LookupLease(ctx, control.StreamLease(e.cfg.RunID))
	if err != nil || !ok {
		return control.Lease{}
	}
	return control.Lease{Name: info.Name, Owner: info.Owner, Token: info.Token, Until: info.Until}
}

func (a *leaseActor) answer(m leaseAnswer) {
	switch a.phase {
	case leaseAsking:
		a.asked(m)
	case leaseHeld:
		a.renewed(m)
	case leaseUnwanted:
		if m.err == nil {
			a.lease = m.lease
		}
		a.giveBack(m.err == nil)
	case leaseIdle, leaseEnding, leaseOver:
	}
}

// lateGrants is how many grants in a row may have run out when they come. A take-over may wait for an effect of the owner before.
const lateGrants = 3

func (a *leaseActor) asked(m leaseAnswer) {
	f := a.e.cfg.Fencing
	switch {
	case codes.Has(m.err, codes.LeaseHeld) && f.Standby && a.e.lease.Load() == nil:
		if !a.told {
			a.told = true
			a.tell(leaseNews{change: LeaseWaiting, lease: m.holder, err: m.err})
		}
		a.again(f.StandEvery)
	case m.err != nil:
		a.phase = leaseIdle
		a.tell(leaseNews{err: m.err})
	case m.lease.Deadline.After(time.Now()):
		a.phase, a.late = leaseHeld, 0
		a.keep(m.lease)
		a.tell(leaseNews{change: LeaseAcquired, lease: m.lease})
	case a.late < lateGrants:
		// It runs already, so that the same call renews it.
		a.late++
		a.call()
	default:
		a.phase = leaseIdle
		a.tell(leaseNews{err: codes.New(codes.ConfigInvalid, "the lease of run %q lasts %v, and the store has needed longer than that to grant it, %d times in a row: choose a longer --ttl",
			a.e.cfg.RunID, a.ttl(), a.late+1)})
	}
}

// keep notes a grant and sets the next renewal and the end of the term.
func (a *leaseActor) keep(l control.Lease) {
	a.lease, a.failing = l, nil
	a.e.lease.Store(&l)
	now := time.Now()
	a.again(l.Deadline.Add(-a.ttl() * 2 / 3).Sub(now))
	stopTimer(a.expiry)
	a.expiry = after(l.Deadline.Sub(now), a.self, toLease(leaseExpires{}))
}

func (a *leaseActor) again(d time.Duration) {
	stopTimer(a.next)
	a.next = after(max(d, 0), a.self, toLease(leaseDue{}))
}

// renewPause is the pause before a renewal that failed is tried again.
func renewPause(ttl time.Duration) time.Duration {
	return min(max(ttl/20, time.Millisecond), 250*time.Millisecond)
}

func (a *leaseActor) renewed(m leaseAnswer) {
	switch {
	case codes.Has(m.err, codes.StaleFence):
		a.lose(m.err)
	case m.err != nil:
		a.failing = m.err
		a.again(renewPause(a.ttl()))
	case !m.lease.Deadline.After(time.Now()):
		a.lose(a.lapsed())
	default:
		a.keep(m.lease)
	}
}

// lapsed says why a term ended by our own clock.
func (a *leaseActor) lapsed() error {
	if a.failing != nil {
		return codes.New(codes.StaleFence, "it could not be renewed within its ttl of %v: %w", a.ttl(), a.failing)
	}
	return codes.New(codes.StaleFence, "no renewal was answered within its ttl of %v: the store does not answer, or this process was stopped", a.ttl())
}

func (a *leaseActor) lose(cause error) {
	a.over()
	a.tell(leaseNews{change: LeaseLost, lease: a.lease, err: cause})
}

// end gives back what is held. An Acquire under way may be granted: its answer is awaited for a moment.
func (a *leaseActor) end() {
	a.stopTimers()
	switch {
	case a.phase == leaseHeld && a.calling:
		a.cancel()
		a.giveBack(true)
	case a.phase == leaseAsking && a.calling:
		a.phase = leaseUnwanted
		a.grace = after(killGrace, a.self, toLease(leaseGraceOver{}))
	default:
		a.giveBack(a.phase == leaseHeld)
	}
}

// releaseFor is how long a lease is tried to be given back. It ends by itself, so that nothing hangs on it but the next owner's start.
const releaseFor = 2 * time.Second

// giveBack releases the lease in a goroutine.
func (a *leaseActor) giveBack(held bool) {
	if !held {
		a.over()
		a.tell(leaseNews{ended: true})
		return
	}
	a.phase = leaseEnding
	self, lease := a.self, a.lease
	a.e.background.Go(func() {
		shell.Send(self, toLease(leaseGiven{a.e.release(lease)}))
	})
}

// release gives a lease back, trying again while the store fails and the term lasts.
func (e *engine) release(l control.Lease) error {
	until := time.Now().Add(releaseFor)
	if l.Deadline.Before(until) {
		until = l.Deadline
	}
	ctx, cancel := context.WithDeadline(e.ctx, until)
	defer cancel()
	leases, pause := e.cfg.Fencing.Leases, renewPause(l.TTL)
	for tries := 0; ; tries++ {
		err := protect(func() error { return leases.Release(ctx, l) })
		if tries > 0 && codes.Has(err, codes.StaleFence) {
			return nil // an attempt whose answer was lost
		}
		if c := codes.Of(err); err == nil || ctx.Err() != nil || c == nil || c.Verdict != codes.Retry {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (a *leaseActor) over() {
	a.phase = leaseOver
	a.stopTimers()
}

func (a *leaseActor) stopTimers() {
	for _, t := range []*time.Timer{a.next, a.expiry, a.grace} {
		stopTimer(t)
	}
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// Stopping ends what is under way.
func (a *leaseActor) Stopping(*shell.Context) error {
	a.stopTimers()
	if a.cancel != nil {
		a.cancel()
	}
	return nil
}

// Stopped does nothing.
func (a *leaseActor) Stopped(*shell.Context) error { return nil }
