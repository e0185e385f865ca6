package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

const (
	selectInterventions = `SELECT i.id, j.run_id, i.partition, i.kind, i.detail, i.who, i.why, i.created, i.outcome, i.epoch, i.note, i.settled
		FROM weir.interventions i JOIN weir.journal j ON j.id = i.run WHERE j.run_id = $1`
	insertIntervention = `INSERT INTO weir.interventions (run, partition, kind, detail, who, why) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id, created`
	partitionsOfRun    = `SELECT partition FROM weir.checkpoints WHERE run = $1 ORDER BY partition`
	settleIntervention = `UPDATE weir.interventions SET outcome = $3, epoch = $4, note = $5, settled = clock_timestamp()
		WHERE run = (SELECT id FROM weir.journal WHERE run_id = $1) AND id = $2 AND outcome = 'PENDING'`
	haveIntervention = `SELECT count(*) FROM weir.interventions WHERE run = (SELECT id FROM weir.journal WHERE run_id = $1) AND id = $2`
)

func scanIntervention(row pgx.Row) (i control.Intervention, err error) {
	var epoch int64
	var detail []byte
	var settled *time.Time
	if err := row.Scan(&i.ID, &i.RunID, &i.Partition, &i.Kind, &detail, &i.Who, &i.Why, &i.Created, &i.Outcome, &epoch, &i.Note, &settled); err != nil {
		return i, err
	}
	i.Epoch = uint64(epoch)
	if settled != nil {
		i.Settled = *settled
	}
	return i, i.SetDetail(string(detail))
}

// Intervene is control.Interventions'.
func (s *Store) Intervene(ctx context.Context, i control.Intervention) (control.Intervention, error) {
	if err := i.Validate(); err != nil {
		return control.Intervention{}, err
	}
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		run, err := runAt(ctx, conn, i.RunID)
		if err != nil {
			return err
		}
		var all []int32
		err = each(ctx, conn, partitionsOfRun, []any{run.id}, func(rows pgx.Rows) error {
			var p int32
			err := rows.Scan(&p)
			all = append(all, p)
			return err
		})
		if err != nil {
			return err
		}
		if err := control.CheckIntervene(i, run.info.Status, all); err != nil {
			return err
		}
		i.Outcome = control.Pending
		return conn.QueryRow(ctx, insertIntervention, run.id, i.Partition, string(i.Kind), []byte(i.Detail()), i.Who, i.Why).Scan(&i.ID, &i.Created)
	})
	if err != nil {
		return control.Intervention{}, s.fail(ctx, what("intervention", i.RunID), err)
	}
	return i, nil
}

// ListInterventions is control.Interventions'.
func (s *Store) ListInterventions(ctx context.Context, runID string, pending bool) (out []control.Intervention, err error) {
	statement := selectInterventions
	if pending {
		statement += ` AND i.outcome = 'PENDING'`
	}
	err = each(ctx, s.pool, statement+` ORDER BY i.id`, []any{text(runID)}, func(rows pgx.Rows) error {
		i, err := scanIntervention(rows)
		out = append(out, i)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, fmt.Sprintf("listing of interventions of run %q", runID), err)
	}
	return out, nil
}

// SettleIntervention is control.Interventions'.
func (s *Store) SettleIntervention(ctx context.Context, l control.Lease, runID string, id int64, outcome control.InterventionOutcome, epoch uint64, note string) error {
	if err := control.CheckSettle(l, runID, outcome, note); err != nil {
		return err
	}
	return s.under(ctx, l, what("settling of an intervention", runID), func(ctx context.Context, conn *pgx.Conn, _ *pgx.Batch) error {
		tag, err := conn.Exec(ctx, settleIntervention, text(runID), id, string(outcome), int64(epoch), note)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		var n int
		if err := conn.QueryRow(ctx, haveIntervention, text(runID), id).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return control.InterventionUnknown(runID, id)
		}
		return nil // it was settled before
	})
}
