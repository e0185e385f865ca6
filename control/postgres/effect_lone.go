package postgres

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

// The lone effects of one row are one plain statement each, which the server prepares once and runs for little more than the bare change costs.
//
// heldLease locks the lease row, and OFFSET 0 keeps the planner from moving a condition on it below the lock. So holds is evaluated on the row
// as it is after the wait, by the clock of that moment: it is the last thing before the change. The change finds its own row by the snapshot of
// the statement, which may be older than the wait; if somebody else changed that row meanwhile, the server evaluates everything again on what
// stands now.
const (
	heldLease = `(SELECT owner, fence_token, until FROM weir.leases WHERE name = $1 FOR KEY SHARE OFFSET 0) l`
	holds     = `l.owner = $2 AND l.fence_token = $3 AND l.until > clock_timestamp()`

	deliverOne = `UPDATE weir.outbox o SET delivered = clock_timestamp() FROM ` + heldLease + ` WHERE ` + holds + ` AND o.id = $4 AND o.delivered IS NULL`
	startOne   = `UPDATE weir.runs r SET phase = CASE WHEN r.cancel_requested THEN 'CANCELLED' ELSE 'RUNNING' END, updated = clock_timestamp() FROM ` + heldLease +
		` WHERE ` + holds + ` AND r.run_id = $4 AND r.phase = 'QUEUED' RETURNING r.phase`
	finishOne = `UPDATE weir.runs r SET phase = $5, result_refs = $6, error = $7, revision = r.revision + 1, updated = clock_timestamp() FROM ` + heldLease +
		` WHERE ` + holds + ` AND r.run_id = $4 AND r.phase = 'RUNNING'`
	publishOne = `INSERT INTO weir.publications (key, value, digest, run_id) SELECT $4::text, $5::bytea, $6::bytea, $7::text FROM ` + heldLease +
		` WHERE ` + holds + ` ON CONFLICT (key) DO NOTHING`
)

// deliverMany is all or nothing: with some of the events but not all, refuse_lease undoes the statement (as state undoneState) in its last step.
const (
	deliverMany = `WITH l AS MATERIALIZED (SELECT owner, fence_token, until FROM weir.leases WHERE name = $1 FOR KEY SHARE),
	ok AS MATERIALIZED (SELECT FROM l WHERE ` + holds + `),
	u AS (UPDATE weir.outbox SET delivered = clock_timestamp() WHERE id = ANY ($4) AND delivered IS NULL AND EXISTS (SELECT FROM ok) RETURNING 1)
	SELECT CASE (SELECT count(*) FROM u) WHEN cardinality($4) THEN true WHEN 0 THEN false ELSE weir.refuse_lease('` + undoneState + `', $1) IS NULL END`
	undoneState = "WR009"
)

// lone does an effect that stands alone in its call. done is false when nothing was changed, because the effect is not among those or because
// something is out of the ordinary: the lease is lost, the row is absent or changed already. Then the function fenced does it or explains it.
func lone(ctx context.Context, conn *pgx.Conn, l control.Lease, effects []control.Effect) (done bool, err error) {
	if len(effects) != 1 {
		return false, nil
	}
	switch e := effects[0].(type) {
	case control.Deliver:
		return deliver(ctx, conn, l, e.EventIDs)
	case control.StartRun:
		var phase string
		err := conn.QueryRow(ctx, startOne, l.Name, l.Owner, int64(l.Token), e.RunID).Scan(&phase)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err == nil && e.Moved != nil {
			*e.Moved = control.RunPhase(phase)
		}
		return err == nil, err
	case control.FinishRun:
		refs, text := some(e.ResultRefs), ""
		if e.Phase != control.Succeeded {
			refs, text = []string{}, control.RunError(e.Error)
		}
		return changed(ctx, conn, finishOne, l, e.RunID, string(e.Phase), refs, text)
	case control.Publish:
		if len(e.Publications) != 1 || len(e.Publications[0].Value) > maxFlat {
			return false, nil
		}
		p := &e.Publications[0]
		digest := sha256.Sum256(p.Value)
		return changed(ctx, conn, publishOne, l, p.Key, p.Value, digest[:], p.RunID)
	}
	return false, nil
}

func deliver(ctx context.Context, conn *pgx.Conn, l control.Lease, ids []int64) (done bool, err error) {
	switch len(ids) {
	case 0:
		return false, nil
	case 1:
		return changed(ctx, conn, deliverOne, l, ids[0])
	}
	err = conn.QueryRow(ctx, deliverMany, l.Name, l.Owner, int64(l.Token), ids).Scan(&done)
	if stateOf(err) == undoneState {
		return false, nil
	}
	return done, err
}

// changed runs a statement and says whether it changed its row.
func changed(ctx context.Context, conn *pgx.Conn, query string, l control.Lease, args ...any) (bool, error) {
	tag, err := conn.Exec(ctx, query, append([]any{l.Name, l.Owner, int64(l.Token)}, args...)...)
	return err == nil && tag.RowsAffected() == 1, err
}
