package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const (
	selectJournal = `SELECT id, run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, fence, created, committed FROM weir.journal`
	selectCuts    = `SELECT partition, epoch, next, watermark, finished, records, consumed, filtered, omitted, duplicates, late, future, outputs FROM weir.checkpoints`
	insertJournal = `INSERT INTO weir.journal (run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, fence, created)
		VALUES ($1, $2, $3, $4, $5, 'OPEN', 0, $6, $7, clock_timestamp()) ON CONFLICT (run_id) DO NOTHING`
	insertCuts = `INSERT INTO weir.checkpoints (run, partition, epoch, next, watermark, finished, records, consumed, filtered, omitted, duplicates, late, future, outputs)
		SELECT $1, p, 0, $3, $4, false, 0, 0, 0, 0, 0, 0, 0, 0 FROM unnest($2::int[]) AS p`
)

// journalRow is a row of the table journal.
type journalRow struct {
	id     int64
	header control.RunHeader
	info   control.RunInfo
	fence  control.FenceToken
}

func scanJournal(row pgx.Row) (r journalRow, err error) {
	h := &r.header
	var epoch int64
	committed := pgxTime{}
	var fingerprint, source, sourceID, group []byte
	err = row.Scan(&r.id, &h.RunID, &fingerprint, &source, &sourceID, &group, &r.info.Status, &epoch, &r.info.Watermark, &r.fence, &r.info.Created, &committed)
	h.Fingerprint, h.Source, h.SourceID, h.Group = string(fingerprint), string(source), string(sourceID), string(group)
	r.info.Epoch, r.info.Committed = uint64(epoch), committed.t
	return r, err
}

// cutRow is a row of the table checkpoints: a cut, and the epoch of its last commit.
type cutRow struct {
	epoch int64
	cut   partitions.Cut
}

func scanCut(row pgx.Row) (r cutRow, err error) {
	var next []byte
	c := &r.cut.Counts
	err = row.Scan(&r.cut.Partition, &r.epoch, &next, &r.cut.Watermark, &r.cut.Finished, &c.Records, &c.Consumed, &c.Filtered, &c.Omitted, &c.Duplicates, &c.Late, &c.Future, &c.Outputs)
	if err == nil {
		r.cut.Next, _, err = record.DecodePosition(next)
	}
	return r, err
}

// state of a run under the header that stands.
func (r *journalRow) state(h control.RunHeader, cuts []cutRow) control.RunState {
	state := control.RunState{Header: h, Status: r.info.Status, Epoch: r.info.Epoch, Watermark: r.info.Watermark, Fence: r.fence, Created: r.info.Created, Cuts: map[int32]partitions.Cut{}}
	for i := range cuts {
		if cuts[i].epoch > 0 {
			state.Cuts[cuts[i].cut.Partition] = cuts[i].cut
		}
	}
	return state
}

// OpenRun is control.Journal's. It locks the run's row, so it waits for a commit that is under way and sees it: what it returns decides about
// an epoch whose answer was lost.
func (s *Store) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	if err := h.Validate(); err != nil {
		return control.RunState{}, err
	}
	return s.openRun(ctx, nil, h)
}

// openRun opens under a lease, or with nil under none.
func (s *Store) openRun(ctx context.Context, l *control.Lease, h control.RunHeader) (state control.RunState, err error) {
	var token control.FenceToken
	if l != nil {
		token = l.Token
	}
	err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.transaction(ctx, conn, l, func(last *pgx.Batch) (err error) {
			state, err = openRun(ctx, conn, last, h, token)
			return err
		})
	})
	if l != nil {
		err = refusal(err, *l)
	}
	if err != nil && !codes.Has(err, codes.RunFinished) {
		return control.RunState{}, s.fail(ctx, "open run", err)
	}
	return state, err
}

func openRun(ctx context.Context, conn *pgx.Conn, last *pgx.Batch, h control.RunHeader, token control.FenceToken) (control.RunState, error) {
	row, err := lockRun(ctx, conn, h.RunID)
	if codes.Has(err, codes.RunUnknown) {
		row, err = createRun(ctx, conn, h, token)
	}
	if err == nil {
		err = control.CheckFence(h.RunID, row.fence, token)
	}
	if err != nil {
		return control.RunState{}, err
	}
	cuts, err := row.cuts(ctx, conn)
	if err != nil {
		return control.RunState{}, err
	}
	stands, added, err := control.CheckOpen(row.info.Status, row.header, h)
	if err != nil {
		return row.state(row.header, cuts), err // OpenRun keeps the state beside RunFinished only
	}
	if len(added) > 0 || stands.SourceID != row.header.SourceID || stands.Group != row.header.Group || token != row.fence {
		last.Queue(`UPDATE weir.journal SET source_id = $2, source_group = $3, fence = $4 WHERE id = $1`, row.id, []byte(stands.SourceID), []byte(stands.Group), int64(token))
		addCuts(last, row.id, added)
	}
	row.fence = token
	return row.state(stands, cuts), nil
}

// cuts reads the rows of the run's partitions, and completes its header with them.
func (r *journalRow) cuts(ctx context.Context, q querier) (cuts []cutRow, err error) {
	r.header.Partitions = nil
	err = each(ctx, q, selectCuts+` WHERE run = $1 ORDER BY partition`, []any{r.id}, func(rows pgx.Rows) error {
		c, err := scanCut(rows)
		cuts = append(cuts, c)
		r.header.Partitions = append(r.header.Partitions, c.cut.Partition)
		return err
	})
	return cuts, err
}

// lockRun locks a run against whoever else writes it. What only refers to it, such as a pointer, does not wait.
func lockRun(ctx context.Context, q querier, runID string) (journalRow, error) {
	row, err := scanJournal(q.QueryRow(ctx, selectJournal+` WHERE run_id = $1 FOR NO KEY UPDATE`, runID))
	return row, noRun(err, runID)
}

// createRun adds a run, unless another has done so meanwhile.
func createRun(ctx context.Context, conn *pgx.Conn, h control.RunHeader, token control.FenceToken) (journalRow, error) {
	if err := checkScope(ctx, conn, h.RunID); err != nil {
		return journalRow{}, err
	}
	tag, err := conn.Exec(ctx, insertJournal, h.RunID, []byte(h.Fingerprint), []byte(h.Source), []byte(h.SourceID), []byte(h.Group), int64(record.NoTime), int64(token))
	if err != nil {
		return journalRow{}, err
	}
	row, err := lockRun(ctx, conn, h.RunID)
	if err == nil && tag.RowsAffected() == 1 {
		b := &pgx.Batch{}
		addCuts(b, row.id, h.Partitions)
		err = conn.SendBatch(ctx, b).Close()
	}
	return row, err
}

func addCuts(b *pgx.Batch, run int64, ps []int32) {
	if len(ps) == 0 {
		return
	}
	b.Queue(insertCuts, run, ps, positionBytes(record.Position{}), int64(record.NoTime))
}

// Runs is control.RunLister's.
func (s *Store) Runs(ctx context.Context) (out []control.RunInfo, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		at := map[int64]int{}
		err := each(ctx, tx, selectJournal+` ORDER BY run_id`, nil, func(rows pgx.Rows) error {
			r, err := scanJournal(rows)
			at[r.id] = len(out)
			r.info.Header = r.header
			out = append(out, r.info)
			return err
		})
		if err != nil {
			return err
		}
		return each(ctx, tx, `SELECT run, partition, records, consumed, filtered, omitted, duplicates, late, future, outputs FROM weir.checkpoints ORDER BY run, partition`, nil, func(rows pgx.Rows) error {
			var run int64
			var p int32
			var c partitions.Counts
			err := rows.Scan(&run, &p, &c.Records, &c.Consumed, &c.Filtered, &c.Omitted, &c.Duplicates, &c.Late, &c.Future, &c.Outputs)
			i := &out[at[run]]
			i.Header.Partitions = append(i.Header.Partitions, p)
			addCounts(&i.Counts, c)
			return err
		})
	})
	return out, s.fail(ctx, "listing of runs", err)
}

func addCounts(t *partitions.Counts, c partitions.Counts) {
	t.Records, t.Consumed, t.Filtered, t.Omitted = t.Records+c.Records, t.Consumed+c.Consumed, t.Filtered+c.Filtered, t.Omitted+c.Omitted
	t.Duplicates, t.Late, t.Future, t.Outputs = t.Duplicates+c.Duplicates, t.Late+c.Late, t.Future+c.Future, t.Outputs+c.Outputs
}

// reading runs fn on a consistent moment of a run; what fn's caller returned in own goes back unchanged.
func (s *Store) reading(ctx context.Context, what, runID string, partition *int32, fn func(tx pgx.Tx, run int64, give func(error) error) error) error {
	var own error
	give := func(err error) error {
		own = err
		return err
	}
	err := s.read(ctx, func(tx pgx.Tx) error {
		var run int64
		if err := tx.QueryRow(ctx, `SELECT id FROM weir.journal WHERE run_id = $1`, text(runID)).Scan(&run); err != nil {
			return noRun(err, runID)
		}
		if partition != nil {
			var there bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.checkpoints WHERE run = $1 AND partition = $2)`, run, *partition).Scan(&there); err != nil {
				return err
			}
			if !there {
				return codes.New(codes.Internal, "run %q has no partition %d", runID, *partition)
			}
		}
		return fn(tx, run, give)
	})
	if own != nil {
		return own
	}
	return s.fail(ctx, fmt.Sprintf("%s of run %q", what, runID), err)
}
