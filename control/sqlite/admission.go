package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Admit is control.Admission's.
func (s *Store) Admit(ctx context.Context, r control.Request) (run control.BatchRun, created bool, err error) {
	if err := r.Validate(); err != nil {
		return run, false, err
	}
	err = s.write(ctx, func(t *txn) error {
		row, err := t.query("read scope", s.st.scope, r.Principal, r.Operation, r.Key)
		if err != nil {
			return err
		}
		found, err := s.scanAdmission(row, "")
		switch {
		case codes.Has(err, codes.RunUnknown):
			created = true
			run = control.NewRun(r, s.now())
			return t.admit(r, run)
		case err != nil:
			return err
		}
		if err := control.CheckAdmitted(found.runID, r); err != nil {
			return err
		}
		run, err = s.runOf(found)
		return err
	})
	if err != nil {
		return control.BatchRun{}, false, s.fail(ctx, "admission", err)
	}
	return run, created, nil
}

func (t *txn) admit(r control.Request, run control.BatchRun) error {
	at := nanos(run.Created)
	row := admissionRow{runID: run.ID, principal: r.Principal, operation: r.Operation, key: r.Key, flow: r.Flow, snapshot: r.Snapshot, phase: string(run.Phase), refs: "[]",
		created: at, updated: at, body: run.Body}
	next, err := t.query("next run", t.s.st.lastAdmission)
	if err != nil {
		return err
	}
	if err := next.Scan(&row.id); err != nil {
		return err
	}
	row.id++
	_, err = t.exec("insert run", t.s.st.insertAdmission, row.id, row.runID, row.principal, row.operation, row.key, row.flow, row.snapshot, row.phase, row.revision, row.refs, row.error, row.cancel,
		row.created, row.updated, row.sum(), row.body)
	if err != nil {
		return err
	}
	return t.insertEvent(run.ID, at)
}

// runOf is a row as the port shows it.
func (s *Store) runOf(r *admissionRow) (control.BatchRun, error) {
	run, err := r.run()
	if err != nil {
		return run, s.corrupt("the result references of run %q are damaged", r.runID)
	}
	if len(run.ResultRefs) == 0 {
		run.ResultRefs = nil
	}
	return run, nil
}

// LookupRun is control.Admission's.
func (s *Store) LookupRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		row, err := s.scanAdmission(tx.QueryRowContext(ctx, selectAdmission+` WHERE run_id = ?`, id), id)
		if err != nil {
			return err
		}
		run, err = s.runOf(row)
		return err
	})
	return run, s.fail(ctx, fmt.Sprintf("look-up of run %q", id), err)
}

// ListRuns is control.Admission's. The cursor is the number of the last run of a page.
func (s *Store) ListRuns(ctx context.Context, f control.RunFilter) (runs []control.BatchRun, next string, err error) {
	before, err := control.ParseCursor(f.Cursor)
	if err != nil {
		return nil, "", err
	}
	text, args := selectAdmission+` WHERE id < ?`, []any{before}
	if f.Principal != "" {
		text, args = text+` AND principal = ?`, append(args, f.Principal)
	}
	if f.Phase != "" {
		text, args = text+` AND phase = ?`, append(args, string(f.Phase))
	}
	size := f.PageSize()
	last := int64(0)
	err = s.read(ctx, func(tx *sql.Tx) error {
		return s.query(ctx, tx, text+` ORDER BY id DESC LIMIT ?`, append(args, size+1), func(rows *sql.Rows) error {
			row, err := s.scanAdmission(rows, "")
			if err != nil {
				return err
			}
			if len(runs) == size {
				next = strconv.FormatInt(last, 10)
				return nil
			}
			last = row.id
			run, err := s.runOf(row)
			runs = append(runs, run)
			return err
		})
	})
	if err != nil {
		return nil, "", s.fail(ctx, "listing of runs", err)
	}
	return runs, next, nil
}

// CancelRun is control.Admission's.
func (s *Store) CancelRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = s.write(ctx, func(t *txn) error {
		row, err := t.admitted(id)
		if err != nil {
			return err
		}
		if row.phase == string(control.Queued) && row.cancel == 0 {
			row.cancel = 1
			if err := t.putRun(row, s.now()); err != nil {
				return err
			}
		}
		run, err = s.runOf(row)
		return err
	})
	return run, s.fail(ctx, fmt.Sprintf("cancellation of run %q", id), err)
}

// insertEvent adds the event of an admitted run, and wakes who waits for one.
func (t *txn) insertEvent(runID string, at int64) error {
	next, err := t.query("next event", t.s.st.lastEvent)
	if err != nil {
		return err
	}
	var last sql.NullInt64
	if err := next.Scan(&last); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	r := eventRow{id: last.Int64 + 1, kind: control.EventRequested, runID: runID, created: at}
	_, err = t.exec("insert event", t.s.st.insertEvent, r.id, r.kind, r.runID, r.created, r.sum())
	t.wakes = true
	return err
}
