package control

import (
	"context"
	"time"
)

// RunPhase is where an admitted run stands: QUEUED → RUNNING → SUCCEEDED or FAILED; QUEUED → CANCELLED. Recovery of orphans leads
// from RUNNING back to QUEUED.
type RunPhase string

// The phases.
const (
	Queued    RunPhase = "QUEUED"
	Running   RunPhase = "RUNNING"
	Succeeded RunPhase = "SUCCEEDED"
	Failed    RunPhase = "FAILED"
	Cancelled RunPhase = "CANCELLED"
)

// Request asks for a run. Scope of the claim is principal \0 operation \0 key.
type Request struct {
	Principal, Operation, Key string
	// Body is canonical JSON; what it means is the operation's. Flow and Snapshot, which it names, are repeated for listings.
	Body           []byte
	Flow, Snapshot string
}

// BatchRun is an admitted run.
type BatchRun struct {
	ID                   string
	Principal, Operation string
	Body                 []byte
	Flow, Snapshot       string
	Phase                RunPhase
	// Revision counts the results: FinishRun adds one.
	Revision         int64
	ResultRefs       []string
	Error            string
	CancelRequested  bool
	Created, Updated time.Time
}

// Admission admits requests: claim or reject.
type Admission interface {
	// Admit creates the run (QUEUED) and its outbox event run.requested in one transaction, or returns the run that the same scope and
	// body made before (created false). The same scope with another body is IdempotencyConflict. The run id is RunIDOf(r). A request that
	// fails Validate is RequestInvalid.
	Admit(ctx context.Context, r Request) (run BatchRun, created bool, err error)
	// LookupRun finds a run; RunUnknown when there is none.
	LookupRun(ctx context.Context, id string) (BatchRun, error)
	// ListRuns lists runs, newest first, after a cursor ("" for the first page). next is "" when there are no more. A cursor that no listing
	// gave is RequestInvalid.
	ListRuns(ctx context.Context, f RunFilter) (runs []BatchRun, next string, err error)
	// CancelRun records that a run should not start. A run that is QUEUED will end CANCELLED; one that has started or ended is not
	// touched, and the answer shows its phase. RunUnknown when there is none.
	CancelRun(ctx context.Context, id string) (BatchRun, error)
}

// RunFilter selects runs. Zero fields select everything.
type RunFilter struct {
	Principal string
	Phase     RunPhase
	Cursor    string
	// Limit defaults to 50 and is at most 500.
	Limit int
}

// EventRequested is the kind of the outbox event of an admitted run.
const EventRequested = "run.requested"

// OutboxEvent is a claimed event.
type OutboxEvent struct {
	ID          int64
	Kind, RunID string
	// Attempt counts the claims, this one included.
	Attempt   int
	Claimant  string
	ClaimedAt time.Time
	Delivered bool
	Created   time.Time
}

// Outbox is the ordered queue of events. An event is pending, claimed by a claimant, or delivered.
type Outbox interface {
	// Claim takes up to limit pending events in order, skipping those that others are claiming at this moment. Each is given to one
	// claimant. No event is lost because a smaller id committed later. limit defaults to 50 and is at most 500 (ClaimSize).
	Claim(ctx context.Context, claimant string, limit int) ([]OutboxEvent, error)
	// ReleaseEvents makes claimed events pending again (claimant "" whoever claimed them), or, ignored, marks them delivered without an effect.
	// EventNotClaimed names those that the claimant does not hold; the others are released all the same.
	ReleaseEvents(ctx context.Context, claimant string, ids []int64, ignored bool) error
	// ListEvents lists events that are not delivered, in order; with delivered also those. limit below 1 lists all.
	ListEvents(ctx context.Context, delivered bool, limit int) ([]OutboxEvent, error)
	// Wake returns a channel that gets a value when new events may be pending, as an accelerator; polling is the truth. It ends with ctx.
	Wake(ctx context.Context) <-chan struct{}
}

// Damage is something that the reconciler found.
type Damage struct {
	// Kind: CLAIMED_UNDELIVERED, RUNNING_ORPHAN, QUEUED_DELIVERED, PUBLICATION_DIGEST, RESULT_MISSING (constants beside the rules).
	Kind, RunID, Key, Detail string
	EventID                  int64
	// Repaired says that it was put right; some kinds are reported only.
	Repaired bool
}

// Reconciler looks for damage.
//
// Orphans: RUNNING without a valid lease → QUEUED and its event pending; QUEUED with its event delivered → event pending; claimed and
// undelivered without a valid lease of the run, since staleClaims or longer → pending. A run with a valid lease is left alone. An event that is
// missing is made again. A publication whose value does not have its digest is reported (with RunID and Key), never repaired; and so is a
// SUCCEEDED run without a publication under its ResultKey (with RunID and Key).
//
// One run is told once: an orphan's claimed event is part of RUNNING_ORPHAN. Damages are ordered by kind as listed in Damage.Kind, then by
// run id, then by key.
type Reconciler interface {
	// Reconcile finds damage and, with repair, mends what can be mended, each piece in one transaction. LeaseName gives the name of a run's lease.
	// staleClaims is the age from which a claim without a lease counts as abandoned.
	Reconcile(ctx context.Context, repair bool, staleClaims time.Duration) ([]Damage, error)
	// MendOrphans finds and mends orphans only. What was published is not looked at, so its price goes by what is unfinished, however much the
	// store has ever published: it may be called often.
	MendOrphans(ctx context.Context, staleClaims time.Duration) ([]Damage, error)
	// Publications calls fn with every publication whose key has a prefix, in the order of keys.
	Publications(ctx context.Context, prefix string, fn func(p Publication, digest string) error) error
}

// ControlStore is what a store of the control plane offers.
type ControlStore interface {
	Journal
	RunLister
	Fencer
	Checkpoints
	Leases
	Effects
	Admission
	Outbox
	Reconciler
	Interventions
	Refusals
}

// RunLease is the name of the lease of a batch run.
func RunLease(runID string) string { return "run/" + runID }
