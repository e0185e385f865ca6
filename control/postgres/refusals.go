package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

const (
	callNoteRefusal = `SELECT weir.note_refusal($1, $2, $3, $4, $5, $6, $7, $8)`
	selectRefusals  = `SELECT id, run_id, lease, owner, token, effect, target, detail, met_owner, met_token, at FROM weir.refusals
		WHERE $1 = '' OR run_id = $1 OR starts_with(run_id, $1 || '/') ORDER BY id`
)

// NoteRefusal is control.Refusals'.
func (s *Store) NoteRefusal(ctx context.Context, r control.Refusal) error {
	r, err := r.Fit()
	if err != nil {
		return err
	}
	err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, callNoteRefusal, r.RunID, r.Lease, r.Owner, int64(r.Token), r.Effect, r.Target, r.Detail, control.MaxRefusals)
		return err
	})
	return s.fail(ctx, "noting of a refusal", err)
}

// ListRefusals is control.Refusals'.
func (s *Store) ListRefusals(ctx context.Context, runID string) (out []control.Refusal, err error) {
	err = each(ctx, s.pool, selectRefusals, []any{text(runID)}, func(rows pgx.Rows) error {
		var r control.Refusal
		err := rows.Scan(&r.ID, &r.RunID, &r.Lease, &r.Owner, &r.Token, &r.Effect, &r.Target, &r.Detail, &r.MetOwner, &r.MetToken, &r.At)
		out = append(out, r)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, fmt.Sprintf("listing of refusals of run %q", runID), err)
	}
	return out, nil
}
