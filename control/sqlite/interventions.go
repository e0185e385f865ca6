package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirstream/weir/control"
)

const (
	selectInterventions = `SELECT id, run_id, partition, kind, detail, who, why, created_ns, outcome, epoch, note, settled_ns, crc FROM interventions`
	insertIntervention  = `INSERT INTO interventions (id, run_id, partition, kind, detail, who, why, created_ns, outcome, epoch, note, settled_ns, crc)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	settleIntervention = `UPDATE interventions SET outcome = ?, epoch = ?, note = ?, settled_ns = ?, crc = ? WHERE id = ?`
	// An id is never given twice: decisions in journals name it.
	lastIntervention = `SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'interventions'), 0), coalesce((SELECT max(id) FROM interventions), 0))`
)

// interventionRow is a row of the table interventions.
type interventionRow struct {
	id                                    int64
	runID                                 string
	partition                             int64
	kind, detail, who, why, outcome, note string
	created, epoch, settled, crc          int64
}

func (r *interventionRow) sum() int64 {
	s := newSum("interventions").ints(r.id).text(r.runID).ints(r.partition).text(r.kind, r.detail, r.who, r.why).ints(r.created)
	return int64(s.text(r.outcome).ints(r.epoch).text(r.note).ints(r.settled))
}

func (r *interventionRow) columns() []any {
	return []any{&r.id, &r.runID, &r.partition, &r.kind, &r.detail, &r.who, &r.why, &r.created, &r.outcome, &r.epoch, &r.note, &r.settled, &r.crc}
}

func (r *interventionRow) intervention() (control.Intervention, error) {
	i := control.Intervention{ID: r.id, RunID: r.runID, Partition: int32(r.partition), Kind: control.InterventionKind(r.kind), Who: r.who, Why: r.why, Created: stamp(r.created),
		Outcome: control.InterventionOutcome(r.outcome), Epoch: uint64(r.epoch), Note: r.note, Settled: stamp(r.settled)}
	return i, i.SetDetail(r.detail)
}

// Intervene is control.Interventions'.
func (s *Store) Intervene(ctx context.Context, i control.Intervention) (out control.Intervention, err error) {
	if err := i.Validate(); err != nil {
		return out, err
	}
	r := interventionRow{runID: i.RunID, partition: int64(i.Partition), kind: string(i.Kind), detail: i.Detail(), who: i.Who, why: i.Why, outcome: string(control.Pending)}
	err = s.write(ctx, func(t *txn) error {
		run, err := t.readRun(i.RunID)
		if err != nil {
			return err
		}
		cuts, err := s.cuts(t.statement, t.tx, run)
		if err != nil {
			return err
		}
		if err := control.CheckIntervene(i, control.RunStatus(run.status), run.header(cuts).Partitions); err != nil {
			return err
		}
		if err := t.tx.QueryRowContext(t.statement, lastIntervention).Scan(&r.id); err != nil {
			return s.scanned(err, "the last intervention")
		}
		r.id, r.created = r.id+1, nanos(s.now())
		return t.adhoc("insert intervention", insertIntervention, r.id, r.runID, r.partition, r.kind, r.detail, r.who, r.why, r.created, r.outcome, r.epoch, r.note, r.settled, r.sum())
	})
	if err == nil {
		out, err = r.intervention()
	}
	if err != nil {
		return control.Intervention{}, s.fail(ctx, fmt.Sprintf("intervention on run %q", i.RunID), err)
	}
	return out, nil
}

// ListInterventions is control.Interventions'.
func (s *Store) ListInterventions(ctx context.Context, runID string, pending bool) (out []control.Intervention, err error) {
	text := selectInterventions + ` WHERE run_id = ?`
	if pending {
		text += ` AND outcome = 'PENDING'`
	}
	err = s.read(ctx, func(tx *sql.Tx) error {
		out = nil
		return s.query(ctx, tx, text+` ORDER BY id`, []any{runID}, func(rows *sql.Rows) error {
			i, err := s.scanIntervention(rows)
			out = append(out, i)
			return err
		})
	})
	if err != nil {
		return nil, s.fail(ctx, "listing of interventions", err)
	}
	return out, nil
}

func (s *Store) scanIntervention(row interface{ Scan(...any) error }) (control.Intervention, error) {
	var r interventionRow
	if err := row.Scan(r.columns()...); err != nil {
		return control.Intervention{}, s.scanned(err, "an intervention")
	}
	if r.crc != r.sum() {
		return control.Intervention{}, s.corrupt("intervention %d on run %q is damaged", r.id, r.runID)
	}
	return r.intervention()
}

// SettleIntervention is control.Interventions'.
func (s *Store) SettleIntervention(ctx context.Context, l control.Lease, runID string, id int64, outcome control.InterventionOutcome, epoch uint64, note string) error {
	if err := control.CheckSettle(l, runID, outcome, note); err != nil {
		return err
	}
	return s.underLease(ctx, l, fmt.Sprintf("settling of intervention %d", id), func(t *txn) error {
		var r interventionRow
		err := t.tx.QueryRowContext(t.statement, selectInterventions+` WHERE id = ?`, id).Scan(r.columns()...)
		switch {
		case errors.Is(err, sql.ErrNoRows) || err == nil && r.runID != runID:
			return control.InterventionUnknown(runID, id)
		case err != nil:
			return s.scanned(err, "an intervention")
		case r.crc != r.sum():
			return s.corrupt("intervention %d on run %q is damaged", id, runID)
		case r.outcome != string(control.Pending):
			return nil
		}
		r.outcome, r.epoch, r.note, r.settled = string(outcome), int64(epoch), note, nanos(s.now())
		return t.adhoc("settle intervention", settleIntervention, r.outcome, r.epoch, r.note, r.settled, r.sum(), r.id)
	})
}
