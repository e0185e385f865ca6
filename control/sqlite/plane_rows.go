package sqlite

import (
	"encoding/json"
	"time"

	"github.com/weirstream/weir/control"
)

const (
	selectLeases    = `SELECT name, owner, token, until_ns, crc FROM leases`
	selectAdmission = `SELECT id, run_id, principal, operation, key, flow, snapshot, phase, revision, result_refs, error, cancel, created_ns, updated_ns, crc, body FROM admission`
	selectOutbox    = `SELECT id, kind, run_id, attempt, claimant, claimed_ns, delivered, created_ns, crc FROM outbox`
)

// stamp reads a time of the tables; 0 is none.
func stamp(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// nanos is the other direction.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// leaseRow is a row of the table leases.
type leaseRow struct {
	name, owner       string
	token, until, crc int64
}

func (r *leaseRow) sum() int64 {
	return int64(newSum("leases").text(r.name, r.owner).ints(r.token, r.until))
}

func (r *leaseRow) columns() []any { return []any{&r.name, &r.owner, &r.token, &r.until, &r.crc} }

func (r *leaseRow) lease() control.LeaseRow {
	return control.LeaseRow{Name: r.name, Owner: r.owner, Token: control.FenceToken(r.token), Until: stamp(r.until)}
}

// admissionRow is a row of the table admission.
type admissionRow struct {
	id                                               int64
	runID, principal, operation, key, flow, snapshot string
	phase                                            string
	revision                                         int64
	refs, error                                      string
	cancel, created, updated, crc                    int64
	body                                             []byte
}

func (r *admissionRow) sum() int64 {
	s := newSum("admission").ints(r.id).text(r.runID, r.principal, r.operation, r.key, r.flow, r.snapshot, r.phase).ints(r.revision)
	return int64(s.text(r.refs, r.error).ints(r.cancel, r.created, r.updated).bytes(r.body))
}

func (r *admissionRow) columns() []any {
	return []any{&r.id, &r.runID, &r.principal, &r.operation, &r.key, &r.flow, &r.snapshot, &r.phase, &r.revision, &r.refs, &r.error, &r.cancel, &r.created, &r.updated, &r.crc, &r.body}
}

// run is what the row says. Its sum has been checked.
func (r *admissionRow) run() (control.BatchRun, error) {
	out := control.BatchRun{ID: r.runID, Principal: r.principal, Operation: r.operation, Body: r.body, Flow: r.flow, Snapshot: r.snapshot, Phase: control.RunPhase(r.phase),
		Revision: r.revision, Error: r.error, CancelRequested: r.cancel != 0, Created: stamp(r.created), Updated: stamp(r.updated)}
	return out, json.Unmarshal([]byte(r.refs), &out.ResultRefs)
}

// eventRow is a row of the table outbox.
type eventRow struct {
	id                               int64
	kind, runID                      string
	attempt                          int64
	claimant                         string
	claimed, delivered, created, crc int64
}

func (r *eventRow) sum() int64 {
	s := newSum("outbox").ints(r.id).text(r.kind, r.runID).ints(r.attempt).text(r.claimant)
	return int64(s.ints(r.claimed, r.delivered, r.created))
}

func (r *eventRow) columns() []any {
	return []any{&r.id, &r.kind, &r.runID, &r.attempt, &r.claimant, &r.claimed, &r.delivered, &r.created, &r.crc}
}

func (r *eventRow) event() control.OutboxEvent {
	return control.OutboxEvent{ID: r.id, Kind: r.kind, RunID: r.runID, Attempt: int(r.attempt), Claimant: r.claimant, ClaimedAt: stamp(r.claimed), Delivered: r.delivered != 0, Created: stamp(r.created)}
}
