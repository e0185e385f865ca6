package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

// Candidates are the runs that may be orphans or whose event may be abandoned, with all that the rule decides by.
const selectStandings = `WITH c AS (
	  SELECT run_id FROM weir.runs WHERE phase IN ('QUEUED', 'RUNNING')
	  UNION SELECT run_id FROM weir.outbox WHERE claimant IS NOT NULL AND delivered IS NULL)
	SELECT c.run_id, coalesce(r.phase, ''), coalesce(l.owner, ''), coalesce(l.fence_token, 0), l.until, e.id, coalesce(e.kind, ''), coalesce(e.attempt, 0),
	  coalesce(e.claimant, ''), e.claimed_at, coalesce(e.delivered IS NOT NULL, false), clock_timestamp()
	FROM c LEFT JOIN weir.runs r ON r.run_id = c.run_id LEFT JOIN weir.leases l ON l.name = $1 || c.run_id
	LEFT JOIN LATERAL (SELECT * FROM weir.outbox o WHERE o.run_id = c.run_id ORDER BY id DESC LIMIT 1) e ON true
	ORDER BY c.run_id`

const selectDamaged = `SELECT run_id, key, digest, sha256(value) FROM weir.publications WHERE sha256(value) <> digest ORDER BY key`

const selectMissing = `SELECT run_id FROM weir.runs r WHERE phase = 'SUCCEEDED' AND NOT EXISTS (SELECT FROM weir.publications p WHERE p.key = $1 || r.run_id) ORDER BY run_id`

// Reconcile is control.Reconciler's. It looks for damage at one consistent moment; before a repair it looks again, with the rows locked.
func (s *Store) Reconcile(ctx context.Context, repair bool, staleClaims time.Duration) ([]control.Damage, error) {
	return s.reconcile(ctx, repair, staleClaims, orphans, damaged)
}

// MendOrphans is control.Reconciler's.
func (s *Store) MendOrphans(ctx context.Context, staleClaims time.Duration) ([]control.Damage, error) {
	return s.reconcile(ctx, true, staleClaims, orphans)
}

// look is one of the things that a reconciliation looks for.
type look func(ctx context.Context, tx pgx.Tx, staleClaims time.Duration) ([]control.Damage, error)

func (s *Store) reconcile(ctx context.Context, repair bool, staleClaims time.Duration, looks ...look) (found []control.Damage, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		for _, look := range looks {
			more, err := look(ctx, tx, staleClaims)
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, "reconciliation", err)
	}
	control.SortDamages(found)
	for i := range found {
		d := &found[i]
		if !repair || d.Kind == control.PublicationDigest || d.Kind == control.ResultMissing {
			continue
		}
		err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT weir.mend($1, $2, $3, $4, $5)`, d.Kind, d.RunID, control.RunLease(d.RunID), control.EventRequested, staleClaims).Scan(&d.Repaired)
		})
		if err != nil {
			return found, s.fail(ctx, fmt.Sprintf("repair of run %q", d.RunID), err)
		}
	}
	return found, nil
}

func orphans(ctx context.Context, tx pgx.Tx, staleClaims time.Duration) (found []control.Damage, err error) {
	err = each(ctx, tx, selectStandings, []any{control.RunLease("")}, func(rows pgx.Rows) error {
		st, now, err := scanStanding(rows)
		if err != nil {
			return err
		}
		if d, ok := st.Diagnose(now, staleClaims); ok {
			found = append(found, d)
		}
		return nil
	})
	return found, err
}

// damaged are publications that are not what their digest says, and results that are missing.
func damaged(ctx context.Context, tx pgx.Tx, _ time.Duration) (found []control.Damage, err error) {
	err = each(ctx, tx, selectDamaged, nil, func(rows pgx.Rows) error {
		var runID, key string
		var stored, has []byte
		err := rows.Scan(&runID, &key, &stored, &has)
		found = append(found, control.DigestDamage(runID, key, digestText(stored), digestText(has)))
		return err
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, tx, selectMissing, []any{control.ResultKey("")}, func(rows pgx.Rows) error {
		var runID string
		err := rows.Scan(&runID)
		found = append(found, control.MissingDamage(runID))
		return err
	})
	return found, err
}

func scanStanding(row pgx.Row) (st control.Standing, now time.Time, err error) {
	var until, claimed *time.Time
	var id *int64
	var e control.OutboxEvent
	err = row.Scan(&st.RunID, &st.Phase, &st.Lease.Owner, &st.Lease.Token, &until, &id, &e.Kind, &e.Attempt, &e.Claimant, &claimed, &e.Delivered, &now)
	if until != nil {
		st.Lease.Until = *until
	}
	if id != nil {
		e.ID, e.RunID = *id, st.RunID
		if claimed != nil {
			e.ClaimedAt = *claimed
		}
		st.Event = &e
	}
	return st, now, err
}

// Publications is control.Reconciler's.
func (s *Store) Publications(ctx context.Context, prefix string, fn func(p control.Publication, digest string) error) error {
	var own error
	err := s.read(ctx, func(tx pgx.Tx) error {
		query := `SELECT key, value, run_id, digest FROM weir.publications WHERE key >= $1 AND starts_with(key, $1) ORDER BY key`
		return each(ctx, tx, query, []any{text(prefix)}, func(rows pgx.Rows) error {
			var p control.Publication
			var digest []byte
			if err := rows.Scan(&p.Key, &p.Value, &p.RunID, &digest); err != nil {
				return err
			}
			own = fn(p, digestText(digest))
			return own
		})
	})
	if own != nil {
		return own
	}
	return s.fail(ctx, "listing of publications", err)
}
