package controltest

import (
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
)

// Op is an operation of a store into which a fault can be injected.
type Op string

// The operations.
const (
	OpOpen       Op = "open run"
	OpCommit     Op = "commit"
	OpLoadBlobs  Op = "load blobs"
	OpOutputs    Op = "outputs"
	OpQuarantine Op = "quarantine"
	OpDecisions  Op = "decisions"

	OpAcquire      Op = "acquire"
	OpRenew        Op = "renew"
	OpRelease      Op = "release"
	OpLookupLease  Op = "look up lease"
	OpFenced       Op = "fenced"
	OpAdmit        Op = "admit"
	OpLookupRun    Op = "look up run"
	OpListRuns     Op = "list runs"
	OpCancel       Op = "cancel"
	OpClaim        Op = "claim"
	OpRelEvents    Op = "release events"
	OpListEvents   Op = "list events"
	OpReconcile    Op = "reconcile"
	OpPublications Op = "publications"

	OpSnapshot     Op = "snapshot"
	OpKeepPointer  Op = "keep pointer"
	OpPinPointer   Op = "pin pointer"
	OpDropPointers Op = "drop pointers"
	OpListPointers Op = "list pointers"
	OpFork         Op = "fork run"

	OpIntervene          Op = "intervene"
	OpListInterventions  Op = "list interventions"
	OpNoteRefusal        Op = "note refusal"
	OpListRefusals       Op = "list refusals"
	OpSettleIntervention Op = "settle intervention"
)

// Fault is something that goes wrong once, in one call of one operation.
type Fault struct {
	Op Op
	// Call counts the calls of Op from the injection on: 1 is the next one.
	Call int
	// After makes it happen when the operation has taken effect: a commit stands and its answer is lost. Within makes it happen inside the
	// transaction of a write under a lease (an effect, a fenced commit, a pointer, a fork), after the lease was verified and while it is locked
	// against take-over: nothing stands yet, the owner's renewals do not wait, and who would take over does. Otherwise it happens before
	// anything was done.
	After, Within bool
	// Do is called first, if it is not nil. It may do anything: block until the test lets it go on, panic, commit as another process.
	Do func()
	// Err is what the operation returns. With nil it goes on as if nothing had happened.
	Err error
}

// StallCommit is a fault by which the n-th commit from now on, made under a lease, stops for a while in its transaction, with the lease locked
// against take-over; then it goes on. It stands for a process that is stopped there, or a network that is slow.
func StallCommit(n int, d time.Duration) Fault {
	return Fault{Op: OpCommit, Call: n, Within: true, Do: func() { <-time.After(d) }}
}

// FailCommit is a fault by which the n-th commit from now on fails; nothing of it stands.
func FailCommit(n int) Fault {
	return Fault{Op: OpCommit, Call: n, Err: codes.New(codes.StoreUnavailable, "injected: the commit did not reach the store")}
}

// LoseAnswer is a fault by which the n-th commit from now on stands although its caller is told that it failed.
func LoseAnswer(n int) Fault {
	return Fault{Op: OpCommit, Call: n, After: true, Err: codes.New(codes.StoreUnavailable, "injected: the answer to a commit was lost")}
}

type armedFault struct {
	Fault
	// due is the number of the call, counted over the life of the journal.
	due int
}

// Inject arms faults. Several may wait for one call; they happen in the order of injection, until one returns an error.
func (m *Memory) Inject(faults ...Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range faults {
		if f.Call < 1 {
			panic("controltest: a fault's call is 1 or more")
		}
		if f.After && f.Within {
			panic("controltest: a fault happens within a transaction or after it, not both")
		}
		m.armed = append(m.armed, &armedFault{Fault: f, due: m.calls[f.Op] + f.Call})
	}
}

// Fired says how many faults have happened.
func (m *Memory) Fired() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fired
}

// Pending are the faults that have not happened yet.
func (m *Memory) Pending() []Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Fault
	for _, a := range m.armed {
		out = append(out, a.Fault)
	}
	return out
}

// AllFired fails a test whose faults did not all happen: it has shown nothing about them.
func (m *Memory) AllFired(t testing.TB) {
	t.Helper()
	for _, f := range m.Pending() {
		t.Errorf("controltest: the fault at call %d of %q (after: %t) did not happen", f.Call, f.Op, f.After)
	}
}

// begin numbers a call of op.
func (m *Memory) begin(op Op) (call int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[op]++
	return m.calls[op]
}

// moment is when in a call a fault happens.
type moment int

const (
	before moment = iota
	within
	after
)

func (f *Fault) moment() moment {
	switch {
	case f.After:
		return after
	case f.Within:
		return within
	}
	return before
}

// fault lets happen what is due at a moment of a call, and returns its error.
func (m *Memory) fault(op Op, call int, at moment) error {
	for {
		f := m.take(op, call, at)
		if f == nil {
			return nil
		}
		if f.Do != nil {
			f.Do()
		}
		if f.Err != nil {
			return f.Err
		}
	}
}

func (m *Memory) take(op Op, call int, at moment) *armedFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, f := range m.armed {
		if f.Op == op && f.due == call && f.moment() == at {
			m.armed = slices.Delete(m.armed, i, i+1)
			m.fired++
			return f
		}
	}
	return nil
}
