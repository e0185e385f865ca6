package actortest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/shell"
)

// defaultPatience is virtual time: it only has to exceed every timer of the actors under test that a test waits for.
const defaultPatience = time.Minute

// Kit is an actor system inside a bubble, with a supervisor for the actors under test.
type Kit struct {
	// T is the bubble's test.
	T        testing.TB
	system   *shell.System
	patience time.Duration
	log      *lockedBuffer

	mu       sync.Mutex
	failures []shell.Failed
	dead     []shell.DeadLetter
	// arrived is signalled when a failure came.
	arrived chan struct{}
}

// Run runs body in a bubble with a fresh Kit and ends the kit afterwards.
func Run(t *testing.T, body func(k *Kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(New(t)) })
}

// New makes a Kit for a test that is inside a bubble already. The kit ends with the test: its actors are stopped in order, and
// failures that the test did not take are errors.
func New(t testing.TB) *Kit {
	k := &Kit{T: t, patience: defaultPatience, arrived: make(chan struct{}, 1), log: &lockedBuffer{}}
	k.system = shell.NewSystem(shell.Options{
		Logger:       slog.New(slog.NewTextHandler(k.log, nil)),
		OnFailure:    k.onFailure,
		OnDeadLetter: k.onDeadLetter,
	})
	t.Cleanup(k.end)
	return k
}

// SetPatience changes how long the kit waits before it gives up, in virtual time.
func (k *Kit) SetPatience(d time.Duration) { k.patience = d }

// System is where the kit's actors live; a *System spawns roots.
func (k *Kit) System() *shell.System { return k.system }

// Spawn starts an actor under the kit and waits until it has started.
func Spawn[M any](k *Kit, name string, b shell.Behaviour[M]) shell.Ref[M] {
	k.T.Helper()
	return SpawnSpec(k, shell.Spec{Name: name}, b)
}

// SpawnSpec is Spawn with an incarnation.
func SpawnSpec[M any](k *Kit, spec shell.Spec, b shell.Behaviour[M]) shell.Ref[M] {
	k.T.Helper()
	r, err := shell.Spawn(k.system, spec, b)
	if err != nil {
		k.T.Fatalf("actortest: %v", err)
	}
	k.Settle()
	return r
}

// Settle waits until nothing can happen any more without time passing: every mailbox is empty and every goroutine waits.
func (k *Kit) Settle() { synctest.Wait() }

// Advance lets virtual time pass, with everything that happens in it, and settles.
func (k *Kit) Advance(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
	synctest.Wait()
}

// ExpectStop waits until the actor has ended.
func (k *Kit) ExpectStop(a shell.Address) {
	k.T.Helper()
	timer := time.NewTimer(k.patience)
	defer timer.Stop()
	select {
	case <-a.Done():
	case <-timer.C:
		k.T.Fatalf("actortest: %s did not stop within %v", a, k.patience)
	}
}

// ExpectFailure waits until the actor has failed, and takes the failure.
func (k *Kit) ExpectFailure(a shell.Address) shell.Failed {
	k.T.Helper()
	timer := time.NewTimer(k.patience)
	defer timer.Stop()
	for {
		if f, ok := k.takeFailure(a); ok {
			return f
		}
		select {
		case <-k.arrived:
		case <-timer.C:
			k.T.Fatalf("actortest: %s did not fail within %v", a, k.patience)
		}
	}
}

// DeadLetters are the messages that were not processed so far, in order.
func (k *Kit) DeadLetters() []shell.DeadLetter {
	k.Settle()
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]shell.DeadLetter(nil), k.dead...)
}

func (k *Kit) takeFailure(a shell.Address) (shell.Failed, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, f := range k.failures {
		if f.Child == a {
			k.failures = append(k.failures[:i], k.failures[i+1:]...)
			return f, true
		}
	}
	return shell.Failed{}, false
}

func (k *Kit) onFailure(f shell.Failed) {
	k.mu.Lock()
	k.failures = append(k.failures, f)
	k.mu.Unlock()
	signal(k.arrived)
}

func (k *Kit) onDeadLetter(d shell.DeadLetter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = append(k.dead, d)
}

func (k *Kit) end() {
	// What was sent is still processed: a failure in it counts.
	synctest.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), k.patience)
	defer cancel()
	if err := k.system.Shutdown(ctx); err != nil {
		k.T.Errorf("actortest: %v", err)
	}
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.failures {
		k.T.Errorf("actortest: %s failed: %v%s", f.Child, f.Cause, stack(f.Cause))
	}
	if k.T.Failed() && k.log.len() > 0 {
		k.T.Logf("log of the actor system:\n%s", k.log)
	}
}

func stack(err error) string {
	var p *shell.PanicError
	if errors.As(err, &p) {
		return "\n" + string(p.Stack)
	}
	return ""
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
