package sqlite

import (
	"context"
	"database/sql"

	"github.com/weirstream/weir/control"
)

const (
	selectRefusals = `SELECT id, run_id, lease, owner, token, effect, target, detail, met_owner, met_token, at_ns, crc FROM refusals ORDER BY id`
	insertRefusal  = `INSERT INTO refusals (id, run_id, lease, owner, token, effect, target, detail, met_owner, met_token, at_ns, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	lastRefusal    = `SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'refusals'), 0), coalesce((SELECT max(id) FROM refusals), 0))`
	dropRefusals   = `DELETE FROM refusals WHERE lease = ? AND id <= (SELECT id FROM refusals WHERE lease = ? ORDER BY id DESC LIMIT 1 OFFSET ?)`
)

// refusalRow is a row of the table refusals.
type refusalRow struct {
	id                               int64
	run, lease, owner                string
	token                            int64
	effect, target, detail, metOwner string
	metToken, at, crc                int64
}

func (r *refusalRow) sum() int64 {
	s := newSum("refusals").ints(r.id).text(r.run, r.lease, r.owner).ints(r.token).text(r.effect, r.target, r.detail, r.metOwner)
	return int64(s.ints(r.metToken, r.at))
}

// NoteRefusal is control.Refusals'.
func (s *Store) NoteRefusal(ctx context.Context, f control.Refusal) error {
	f, err := f.Fit()
	if err != nil {
		return err
	}
	r := refusalRow{run: f.RunID, lease: f.Lease, owner: f.Owner, token: int64(f.Token), effect: f.Effect, target: f.Target, detail: f.Detail}
	err = s.write(ctx, func(t *txn) error {
		stands, err := t.lease(f.Lease)
		if err != nil {
			return err
		}
		if err := t.tx.QueryRowContext(t.statement, lastRefusal).Scan(&r.id); err != nil {
			return s.scanned(err, "the last refusal")
		}
		r.id, r.metOwner, r.metToken, r.at = r.id+1, stands.Owner, int64(stands.Token), nanos(s.now())
		if err := t.adhoc("insert refusal", insertRefusal, r.id, r.run, r.lease, r.owner, r.token, r.effect, r.target, r.detail, r.metOwner, r.metToken, r.at, r.sum()); err != nil {
			return err
		}
		return t.adhoc("drop refusals", dropRefusals, r.lease, r.lease, control.MaxRefusals)
	})
	return s.fail(ctx, "noting of a refusal", err)
}

// ListRefusals is control.Refusals'.
func (s *Store) ListRefusals(ctx context.Context, runID string) (out []control.Refusal, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		out = nil
		return s.query(ctx, tx, selectRefusals, nil, func(rows *sql.Rows) error {
			var r refusalRow
			if err := rows.Scan(&r.id, &r.run, &r.lease, &r.owner, &r.token, &r.effect, &r.target, &r.detail, &r.metOwner, &r.metToken, &r.at, &r.crc); err != nil {
				return s.scanned(err, "a refusal")
			}
			if r.crc != r.sum() {
				return s.corrupt("refusal %d is damaged", r.id)
			}
			f := control.Refusal{ID: r.id, RunID: r.run, Lease: r.lease, Owner: r.owner, Token: control.FenceToken(r.token), Effect: r.effect, Target: r.target, Detail: r.detail,
				MetOwner: r.metOwner, MetToken: control.FenceToken(r.metToken), At: stamp(r.at)}
			if f.OfRun(runID) {
				out = append(out, f)
			}
			return nil
		})
	})
	if err != nil {
		return nil, s.fail(ctx, "listing of refusals", err)
	}
	return out, nil
}
