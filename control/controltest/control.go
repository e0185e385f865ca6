package controltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Harness is one empty store as the suite Control drives it. Every function is needed. Functions that reach into the store (all but Open,
// AfterCommit and Hook) change exactly what they name, as an accident or an operator with a database client would, and keep checksums of the
// store's own in order.
type Harness struct {
	// Open opens another handle, as another process would. It fails the test when it cannot. The suite closes handles.
	Open func() control.ControlStore
	// AfterCommit calls fn once, after the next write of the handle was committed and before its caller hears of it. An error of fn takes the
	// answer's place, as when the answer is lost.
	AfterCommit func(s control.ControlStore, fn func() error)
	// Hook sets what is called between the steps of a handle's writes, as Config.Hook of a store is (Hooks does that); nil is none.
	Hook func(s control.ControlStore, fn func(step string) error)
	// OneWriter says that a heartbeat waits for whatever another handle commits. It must not otherwise.
	OneWriter bool
	// Expire sets the end of a lease's term into the past of the store's clock.
	Expire func(lease string) error
	// SetToken changes the token of a lease, as a store that lost what it knew would.
	SetToken func(lease string, token control.FenceToken) error
	// SetEvent changes the state of an event: claimant "" is nobody, and a claim is that much old.
	SetEvent func(id int64, claimant string, age time.Duration, delivered bool) error
	// DeleteEvent removes an event.
	DeleteEvent func(id int64) error
	// SetPhase changes the phase of an admitted run.
	SetPhase func(runID string, phase control.RunPhase) error
	// SetPublication changes the value of a publication and leaves its digest.
	SetPublication func(key string, value []byte) error
	// DeletePublication removes a publication.
	DeletePublication func(key string) error
}

func (h *Harness) check() error {
	if h.Open == nil || h.AfterCommit == nil || h.Hook == nil || h.Expire == nil || h.SetToken == nil || h.SetEvent == nil || h.DeleteEvent == nil || h.SetPhase == nil || h.SetPublication == nil || h.DeletePublication == nil {
		return errors.New("the harness is incomplete")
	}
	return nil
}

// ControlPlace makes one empty store for a test. It fails the test when it cannot.
type ControlPlace func(t *testing.T) *Harness

// Control is the conformance suite of the control plane: leases, effects, admission, outbox, reconciler, fenced runs, checkpoints. Run it under the race detector
// too. Journal is the suite of the rest of a store. What cannot be done from inside a process (kills, a server that goes away) is left to the
// store's own tests. No test of the suite waits for time to pass: terms are an hour long and end by Harness.Expire.
func Control(t *testing.T, place ControlPlace) {
	for _, c := range controlChecks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := place(t)
			if err := h.check(); err != nil {
				t.Fatal(err)
			}
			p := &plane{ctx: t.Context(), Harness: h}
			t.Cleanup(p.closeAll)
			if err := c.run(p); err != nil {
				t.Error(err)
			}
		})
	}
}

// controlCheck is one test of the suite. It returns what is wrong, so that the suite itself can be tested on stores that are wrong on purpose.
type controlCheck struct {
	name string
	run  func(p *plane) error
}

func controlChecks() (all []controlCheck) {
	for _, part := range [][]controlCheck{leaseChecks, effectChecks, runChecks, admissionChecks, outboxChecks, reconcileChecks, linearChecks,
		fenceChecks, snapshotChecks, pointerChecks, forkChecks, interventionChecks, refusalChecks} {
		all = append(all, part...)
	}
	return all
}

// plane is a store under test.
type plane struct {
	*Harness
	ctx    context.Context
	opened []control.ControlStore
	// patience, when it is not 0, is used for the suite's own.
	patience time.Duration
}

// patience is how long the suite waits for what must happen; it never waits for time to pass.
const patience = 5 * time.Minute

func (p *plane) waits() time.Duration {
	return cmp.Or(p.patience, patience)
}

// open opens another handle; it is closed at the end of the test.
func (p *plane) open() control.ControlStore {
	s := p.Open()
	p.opened = append(p.opened, s)
	return s
}

func (p *plane) opens(n int) []control.ControlStore {
	all := make([]control.ControlStore, n)
	for i := range all {
		all[i] = p.open()
	}
	return all
}

func (p *plane) closeAll() {
	for _, s := range p.opened {
		_ = s.Close() // a second Close may complain
	}
}

// term is how long the suite's leases last: longer than any test.
const term = time.Hour

// pass lets the other clients go first.
func pass() {
	for range 1000 {
		runtime.Gosched()
	}
}

// take acquires a lease that must be free.
func (p *plane) take(s control.ControlStore, name, owner string) (control.Lease, error) {
	l, err := s.Acquire(p.ctx, name, owner, term)
	if err != nil {
		return l, fmt.Errorf("acquire %q by %q: %w", name, owner, err)
	}
	return l, nil
}

// request is the n-th of different requests.
func request(n int) control.Request {
	return control.Request{Principal: "alice", Operation: "batch.run", Key: fmt.Sprintf("key-%d", n),
		Body: fmt.Appendf(nil, `{"flow":"ema","n":%d,"snapshot":"ticks"}`, n), Flow: "ema", Snapshot: "ticks"}
}

// admit admits the n-th request.
func (p *plane) admit(s control.ControlStore, n int) (control.BatchRun, error) {
	run, created, err := s.Admit(p.ctx, request(n))
	if err != nil || !created {
		return run, fmt.Errorf("admission of request %d: created %t, %v", n, created, err)
	}
	return run, nil
}

// queued admits the n-th request and takes the lease of its run.
func (p *plane) queued(s control.ControlStore, n int) (run control.BatchRun, l control.Lease, err error) {
	if run, err = p.admit(s, n); err != nil {
		return run, l, err
	}
	l, err = p.take(s, control.RunLease(run.ID), "worker")
	return run, l, err
}

// running is queued, claimed and started.
func (p *plane) running(s control.ControlStore, n int) (run control.BatchRun, l control.Lease, err error) {
	if run, l, err = p.queued(s, n); err != nil {
		return run, l, err
	}
	if err = s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID}); err != nil {
		return run, l, fmt.Errorf("start: %w", err)
	}
	run, err = s.LookupRun(p.ctx, run.ID)
	return run, l, err
}

// phase checks the phase and the revision of a run, and returns it.
func (p *plane) phase(s control.ControlStore, runID string, phase control.RunPhase, revision int64) (control.BatchRun, error) {
	run, err := s.LookupRun(p.ctx, runID)
	if err != nil {
		return run, err
	}
	if run.Phase != phase || run.Revision != revision {
		return run, fmt.Errorf("run %q is %s in revision %d, want %s in %d", runID, run.Phase, run.Revision, phase, revision)
	}
	return run, nil
}

// published reads every publication under a prefix.
func (p *plane) published(s control.ControlStore, prefix string) (map[string]control.Publication, error) {
	out := map[string]control.Publication{}
	err := s.Publications(p.ctx, prefix, func(pub control.Publication, digest string) error {
		out[pub.Key] = pub
		return nil
	})
	return out, err
}

// events lists all events, delivered ones too, and gives them by run.
func (p *plane) events(s control.ControlStore) (map[string]control.OutboxEvent, error) {
	all, err := s.ListEvents(p.ctx, true, 0)
	out := map[string]control.OutboxEvent{}
	for _, e := range all {
		if _, twice := out[e.RunID]; twice {
			return nil, fmt.Errorf("run %q has two events", e.RunID)
		}
		out[e.RunID] = e
	}
	return out, err
}

// refusal says whether err carries the code and counts as a refusal.
func refusal(what string, err error, code *codes.Code) error {
	if err := wants(what, err, code); err != nil {
		return err
	}
	if !control.Refused(err) {
		return fmt.Errorf("%s: %v does not count as a refusal", what, err)
	}
	return nil
}

// errLost is the answer that did not come.
var errLost = codes.New(codes.StoreUnavailable, "injected: the answer was lost")

// lost makes the next write of a handle lose its answer, runs it, and says whether its outcome is reported as unknown.
func (p *plane) lost(s control.ControlStore, what string, call func() error) error {
	happened := false
	p.AfterCommit(s, func() error { happened = true; return errLost })
	err := call()
	if !happened {
		return fmt.Errorf("%s: nothing was committed (%v)", what, err)
	}
	if err == nil || control.Refused(err) {
		return fmt.Errorf("%s: the answer was lost, and the call says %v", what, err)
	}
	return nil
}
