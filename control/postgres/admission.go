package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

const selectRuns = `SELECT run_id, principal, operation, body, flow, snapshot, phase, revision, result_refs, error, cancel_requested, created, updated, seq FROM weir.runs`

func scanRun(row pgx.Row) (r control.BatchRun, seq int64, err error) {
	err = row.Scan(&r.ID, &r.Principal, &r.Operation, &r.Body, &r.Flow, &r.Snapshot, &r.Phase, &r.Revision, &r.ResultRefs, &r.Error, &r.CancelRequested, &r.Created, &r.Updated, &seq)
	if len(r.ResultRefs) == 0 {
		r.ResultRefs = nil
	}
	return r, seq, err
}

// Admit is control.Admission's. Of several that ask at once the unique index of scopes lets one create the run; the others wait for it.
func (s *Store) Admit(ctx context.Context, r control.Request) (run control.BatchRun, created bool, err error) {
	if err := r.Validate(); err != nil {
		return run, false, err
	}
	id := control.RunIDOf(r)
	err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		b := &pgx.Batch{} // one implicit transaction, one round trip
		b.Queue(`SELECT weir.admit($1, $2, $3, $4, $5, $6, $7, $8)`, r.Principal, r.Operation, r.Key, id, r.Body, r.Flow, r.Snapshot, control.EventRequested).
			QueryRow(func(row pgx.Row) error { return row.Scan(&created) })
		b.Queue(selectRuns+` WHERE run_id = $1`, id).QueryRow(func(row pgx.Row) (err error) {
			run, _, err = scanRun(row)
			return err
		})
		return conn.SendBatch(ctx, b).Close()
	})
	if stateOf(err) == "WR006" {
		err = control.CheckAdmitted(messageOf(err), r)
	}
	if err != nil {
		return control.BatchRun{}, false, s.fail(ctx, "admission", err)
	}
	return run, created, nil
}

// LookupRun is control.Admission's.
func (s *Store) LookupRun(ctx context.Context, id string) (control.BatchRun, error) {
	run, _, err := scanRun(s.pool.QueryRow(ctx, selectRuns+` WHERE run_id = $1`, text(id)))
	return run, s.fail(ctx, fmt.Sprintf("look-up of run %q", id), noRun(err, id))
}

func noRun(err error, id string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return unknownRun(id)
	}
	return err
}

// ListRuns is control.Admission's. The cursor is the number of the last run of a page.
func (s *Store) ListRuns(ctx context.Context, f control.RunFilter) (runs []control.BatchRun, next string, err error) {
	before, err := control.ParseCursor(f.Cursor)
	if err != nil {
		return nil, "", err
	}
	size := f.PageSize()
	var last int64
	query := selectRuns + ` WHERE seq < $1 AND ($2 = '' OR principal = $2) AND ($3 = '' OR phase = $3) ORDER BY seq DESC LIMIT $4`
	err = each(ctx, s.pool, query, []any{before, text(f.Principal), text(string(f.Phase)), size + 1}, func(rows pgx.Rows) error {
		run, seq, err := scanRun(rows)
		if err != nil {
			return err
		}
		if len(runs) == size {
			next = strconv.FormatInt(last, 10)
			return nil
		}
		last = seq
		runs = append(runs, run)
		return nil
	})
	if err != nil {
		return nil, "", s.fail(ctx, "listing of runs", err)
	}
	return runs, next, nil
}

// CancelRun is control.Admission's. It waits for a start that is under way, and so does the start for it: one of the two comes first.
func (s *Store) CancelRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(`UPDATE weir.runs SET cancel_requested = true, updated = clock_timestamp() WHERE run_id = $1 AND phase = 'QUEUED' AND NOT cancel_requested`, text(id))
		b.Queue(selectRuns+` WHERE run_id = $1`, text(id)).QueryRow(func(row pgx.Row) (err error) {
			run, _, err = scanRun(row)
			return err
		})
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return control.BatchRun{}, s.fail(ctx, fmt.Sprintf("cancellation of run %q", id), noRun(err, id))
	}
	return run, nil
}

// text is a parameter that is only compared: what PostgreSQL cannot hold becomes something that nothing is equal to.
func text(s string) string {
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "\x7f"
	}
	return s
}
