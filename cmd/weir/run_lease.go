package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const (
	// minTTL is the shortest lease that a process under a busy scheduler renews in time.
	minTTL = 500 * time.Millisecond
	// tripsOfTTL is how many round trips of the store a lease has to outlast. It is renewed every third of its ttl: then a renewal may take a
	// round trip twice as long as usual, fail, and be tried again in time.
	tripsOfTTL = 6
	// trips is how many round trips are measured. The fastest counts: the others may have met a busy moment, which passes.
	trips = 3
	// abandonTimeout bounds giving the lease back when the process is to stop at once.
	abandonTimeout = 500 * time.Millisecond
	// endTimeout bounds giving the lease back. Without that the next owner waits until it has run out.
	endTimeout = 2 * time.Second
)

func (o *runOptions) checkTTL() error {
	if o.ttl < minTTL || o.ttl > control.MaxTTL {
		return codes.New(codes.ConfigInvalid, "--ttl %s is not between %s and %s", o.ttl, minTTL, control.MaxTTL)
	}
	return nil
}

// measureTTL refuses a lease that would run out while it is being renewed.
func (o *runOptions) measureTTL(ctx context.Context, store control.Leases) error {
	fastest := time.Duration(math.MaxInt64)
	for range trips {
		began := time.Now()
		if _, _, err := store.LookupLease(ctx, control.StreamLease(o.runID)); err != nil {
			return err
		}
		fastest = min(fastest, time.Since(began))
	}
	if least := tripsOfTTL * fastest; o.ttl < least {
		return codes.New(codes.ConfigInvalid, "--ttl %s is too short: the store took %s to answer, and a lease has to outlast %d answers; give at least --ttl %s",
			o.ttl, fastest.Round(time.Millisecond), tripsOfTTL, least.Round(100*time.Millisecond)+100*time.Millisecond)
	}
	return nil
}

// term holds the lease of a run from its acquisition by the engine to the end of the command. The engine gives the lease back when the run is
// over, and what the run leaves behind (the emit document, the quarantine) is written after that: giving back is put off until then, and the
// lease is renewed meanwhile.
//
// A file can only be fenced as far as a file goes. Whoever writes one asks verify just before the file takes its place, in one step, by a
// rename: the store confirms then that the lease is held. A process that is stopped exactly between the two, for longer than its lease, and
// wakes, still renames. What it puts there is a true document of a cut that was committed, with the token under which that was read; of a
// finished run it is the only one possible. A later owner's document of a later cut (--until-n) could be replaced by it, which the lower
// fence_token shows.
type term struct {
	app   *app
	store control.ControlStore

	mu     sync.Mutex
	lease  control.Lease
	kept   bool // given back by the engine, and still ours
	lost   error
	cancel context.CancelFunc
	beat   sync.WaitGroup
}

func (a *app) newTerm(store control.ControlStore) *term { return &term{app: a, store: store} }

// Acquire is control.Leases'.
func (t *term) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	l, err := t.store.Acquire(ctx, name, owner, ttl)
	if err == nil {
		t.rest() // the run goes on, and renews it
	}
	t.note(l, err)
	return l, err
}

// Renew is control.Leases'.
func (t *term) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	l, err := t.store.Renew(ctx, l)
	t.note(l, err)
	return l, err
}

func (t *term) note(l control.Lease, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.lease = l
	case codes.Has(err, codes.StaleFence):
		t.lost = err
	}
}

// Release is control.Leases'. It keeps the lease, until end.
func (t *term) Release(ctx context.Context, l control.Lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != nil || t.kept {
		return t.lost
	}
	t.lease, t.kept = l, true
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.beat.Go(func() { t.renew(ctx, l.TTL/3) })
	return nil
}

// renew keeps the lease alive between the end of the run and that of the command.
func (t *term) renew(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		l := t.lease
		t.mu.Unlock()
		if _, err := t.Renew(ctx, l); codes.Has(err, codes.StaleFence) {
			return // verify says so to whoever writes
		}
	}
}

// ListLeases is control.Leases'.
func (t *term) ListLeases(ctx context.Context) ([]control.LeaseInfo, error) {
	return t.store.ListLeases(ctx)
}

// LookupLease is control.Leases'.
func (t *term) LookupLease(ctx context.Context, name string) (control.LeaseInfo, bool, error) {
	return t.store.LookupLease(ctx, name)
}

// token under which the run was owned.
func (t *term) token() control.FenceToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease.Token
}

// verify asks the store whether the lease is held: an effect that does nothing, under the lock of the lease.
func (t *term) verify(ctx context.Context) func() error {
	return func() error {
		t.mu.Lock()
		l, kept := t.lease, t.kept
		t.mu.Unlock()
		if !kept {
			return codes.New(codes.StreamFenceStale, "the lease %q was lost before the results were written", l.Name)
		}
		err := t.store.Fenced(ctx, l)
		switch {
		case codes.Has(err, codes.StaleFence):
			return codes.New(codes.StreamFenceStale, "the results were not written: %w", err)
		case err == nil && !time.Now().Before(t.deadline()):
			return codes.New(codes.StreamFenceStale, "the results were not written: the answer of the store came after the lease had run out")
		}
		return err
	}
}

// deadline is the end of the lease by our own clock.
func (t *term) deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease.Deadline
}

// rest ends the renewals, and says whether the lease was kept.
func (t *term) rest() (l control.Lease, kept bool) {
	t.mu.Lock()
	l, kept = t.lease, t.kept
	t.kept = false
	t.mu.Unlock()
	if kept {
		t.cancel()
		t.beat.Wait()
	}
	return l, kept
}

// end gives the lease back, if it is still ours.
func (t *term) end(ctx context.Context) {
	l, kept := t.rest()
	if !kept {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := t.store.Release(ctx, l); err != nil {
		t.app.notice("weir: lease %s was not given back, so it runs out at %s: %s\n", printable(l.Name), clock(l.Until), printable(err.Error()))
		return
	}
	t.app.notice("weir: lease %s released, token %d\n", printable(l.Name), l.Token)
}

// abandon gives the lease back at once, while the run may still be doing something: whatever that is, it is done under the lease or not at all,
// and the next owner waits for what is under way.
func (t *term) abandon() {
	t.mu.Lock()
	l, lost := t.lease, t.lost
	t.mu.Unlock()
	if l.Token == 0 || lost != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	if err := t.store.Release(ctx, l); err == nil {
		t.app.notice("weir: lease %s released, token %d\n", printable(l.Name), l.Token)
	}
}

// blame makes the store the reason of a run's end, when the lease was lost because the store could not be written, and not to another owner.
func (t *term) blame(ctx context.Context, err error) error {
	if !codes.Has(err, codes.StreamFenceStale) || !errors.Is(err, &codes.Error{Code: codes.StoreUnavailable}) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	t.mu.Lock()
	l := t.lease
	t.mu.Unlock()
	if info, ok, lookErr := t.store.LookupLease(ctx, l.Name); lookErr == nil && ok && info.Token > l.Token {
		return err
	}
	return codes.New(codes.StoreUnavailable, "the store could not be written for as long as the lease lasts: %w", err)
}

// tell says what happened to the lease.
func (t *term) tell(e actors.LeaseEvent) {
	name, a := printable(e.Lease.Name), t.app
	switch e.Change {
	case actors.LeaseWaiting:
		a.notice("weir: lease %s is held by %s under token %d until %s; standing by\n", name, printable(e.Lease.Owner), e.Lease.Token, clock(e.Lease.Until))
	case actors.LeaseAcquired:
		a.notice("weir: lease %s acquired under token %d by %s until %s\n", name, e.Lease.Token, printable(e.Lease.Owner), clock(e.Lease.Until))
	case actors.LeaseLost:
		cause := ""
		if e.Cause != nil {
			cause = ": " + printable(e.Cause.Error())
		}
		a.notice("weir: lease %s lost, token %d; stepping down%s\n", name, e.Lease.Token, cause)
	case actors.LeaseReleased: // end says so, when it is true
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }
