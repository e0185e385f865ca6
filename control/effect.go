package control

import "context"

// Effect is something that the outside can see: one of Publish, StartRun, FinishRun, Deliver.
type Effect interface{ effect() }

// Publish inserts results under deterministic keys, each only if it is absent. One that is there with an equal digest is fine; one
// with another digest is PublicationConflict: nothing of the call stands, and what is there is never overwritten.
type Publish struct{ Publications []Publication }

// Publication is a result under its key.
type Publication struct {
	// Key is deterministic: the same result has the same key whoever computes it. 1 to 400 bytes of UTF-8 without control characters.
	Key string
	// Value is canonical JSON (FINAZ_JSON_V1), which the caller answers for; its digest is record.Hash(Value). The bytes are kept as they are.
	Value []byte
	// RunID that published it.
	RunID string
}

// StartRun moves a run from QUEUED to RUNNING, or to CANCELLED when a cancellation was asked for before. Any other state is a
// refusal, RunNotQueued: another worker has it, or it has ended. Moved, which may be nil, tells which of the two happened; it is set
// before Fenced returns and means nothing unless Fenced returns nil. RunUnknown when there is no such run.
type StartRun struct {
	RunID string
	Moved *RunPhase
}

// FinishRun moves a run from RUNNING to SUCCEEDED (with ResultRefs) or FAILED (with Error, kept as RunError makes it), and adds one to its
// revision. Any other phase than RUNNING is a refusal, RunNotRunning. RunUnknown when there is no such run.
type FinishRun struct {
	RunID      string
	Phase      RunPhase
	ResultRefs []string
	Error      string
}

// Deliver marks outbox events as delivered, whoever claimed them: the lease decides. One that is delivered stays so; one that is not there is
// Internal.
type Deliver struct{ EventIDs []int64 }

func (Publish) effect()   {}
func (StartRun) effect()  {}
func (FinishRun) effect() {}
func (Deliver) effect()   {}

// Effects is the one door through which every effect goes.
type Effects interface {
	// Fenced runs effects in order, in one transaction, while the lease row is locked against take-over and after owner, token and
	// expiry were verified by the store's clock: lock, verify, run, commit, in as few round trips as the store allows. A stale owner
	// gets StaleFence and nothing runs. An error that is not a refusal (see Refused) leaves it unknown whether the effects stand
	// (the answer to COMMIT may be lost): read back before trying again.
	Fenced(ctx context.Context, l Lease, effects ...Effect) error
}
