package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const (
	selectPointers = `SELECT j.run_id, p.epoch, p.manifest, p.hash, p.fingerprint, p.fence_token, p.blobs, p.bytes, p.new_bytes, p.pinned, p.created
		FROM weir.pointers p JOIN weir.journal j ON j.id = p.run`
	insertPointer = `INSERT INTO weir.pointers (run, epoch, manifest, hash, fingerprint, fence_token, blobs, bytes, new_bytes, pinned)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false) ON CONFLICT (run, epoch) DO NOTHING`
	pinPointer   = `UPDATE weir.pointers SET pinned = $3 WHERE run = (SELECT id FROM weir.journal WHERE run_id = $1) AND epoch = $2`
	dropPointers = `DELETE FROM weir.pointers WHERE run = (SELECT id FROM weir.journal WHERE run_id = $1) AND epoch = ANY ($2) AND NOT pinned RETURNING epoch`
)

var _ control.Checkpoints = (*Store)(nil)

func scanPointer(row pgx.Row) (p control.Pointer, err error) {
	var epoch int64
	var fingerprint []byte
	err = row.Scan(&p.RunID, &epoch, &p.Manifest, &p.Hash, &fingerprint, &p.Token, &p.Blobs, &p.Bytes, &p.NewBytes, &p.Pinned, &p.Created)
	p.Epoch, p.Fingerprint = uint64(epoch), string(fingerprint)
	return p, err
}

// pointer reads a pointer; one that is not there has the epoch 0.
func pointer(ctx context.Context, q querier, runID string, epoch uint64) (control.Pointer, error) {
	p, err := scanPointer(q.QueryRow(ctx, selectPointers+` WHERE j.run_id = $1 AND p.epoch = $2`, text(runID), int64(epoch)))
	if errors.Is(err, pgx.ErrNoRows) {
		return control.Pointer{}, nil
	}
	return p, err
}

// runAt reads where a run stands, without a lock: an epoch, and a fence, only grow.
func runAt(ctx context.Context, q querier, runID string) (journalRow, error) {
	row, err := scanJournal(q.QueryRow(ctx, selectJournal+` WHERE run_id = $1`, text(runID)))
	return row, noRun(err, runID)
}

// KeepPointer is control.Checkpoints'. It does not wait for commits, and no commit waits for it.
func (s *Store) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	if err := control.CheckPointer(l, p); err != nil {
		return err
	}
	return s.under(ctx, l, what("checkpoint", p.RunID), func(ctx context.Context, conn *pgx.Conn, _ *pgx.Batch) error {
		row, err := runAt(ctx, conn, p.RunID)
		if err != nil {
			return err
		}
		if err := control.CheckFence(p.RunID, row.fence, l.Token); err != nil {
			return err
		}
		for {
			stands, err := pointer(ctx, conn, p.RunID, p.Epoch)
			if err != nil {
				return err
			}
			if done, err := control.CheckKeep(row.info.Epoch, stands, p); done || err != nil {
				return err
			}
			tag, err := conn.Exec(ctx, insertPointer, row.id, int64(p.Epoch), p.Manifest, p.Hash, []byte(p.Fingerprint), int64(l.Token), p.Blobs, p.Bytes, p.NewBytes)
			if err != nil || tag.RowsAffected() == 1 {
				return err
			}
			// Another call of this owner was faster: what it wrote decides.
		}
	})
}

// checkFence compares the token of a run's own lease with the run. Those of other leases say nothing about it.
func checkFence(ctx context.Context, q querier, l control.Lease, runID string) error {
	if l.Name != control.StreamLease(runID) {
		return nil
	}
	row, err := runAt(ctx, q, runID)
	if codes.Has(err, codes.RunUnknown) {
		return nil // and it has no pointers
	}
	if err != nil {
		return err
	}
	return control.CheckFence(runID, row.fence, l.Token)
}

// PinPointer is control.Checkpoints'.
func (s *Store) PinPointer(ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error {
	return s.under(ctx, l, what("pin of a checkpoint", runID), func(ctx context.Context, conn *pgx.Conn, _ *pgx.Batch) error {
		if err := checkFence(ctx, conn, l, runID); err != nil {
			return err
		}
		tag, err := conn.Exec(ctx, pinPointer, text(runID), int64(epoch), pinned)
		if err == nil && tag.RowsAffected() == 0 {
			return control.PointerUnknown(runID, epoch)
		}
		return err
	})
}

// DropPointers is control.Checkpoints'.
func (s *Store) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) (dropped []uint64, err error) {
	asked := make([]int64, len(epochs))
	for i, e := range epochs {
		asked[i] = int64(e)
	}
	err = s.under(ctx, l, what("removal of checkpoints", runID), func(ctx context.Context, conn *pgx.Conn, _ *pgx.Batch) error {
		dropped = nil
		if err := checkFence(ctx, conn, l, runID); err != nil {
			return err
		}
		return each(ctx, conn, dropPointers, []any{text(runID), asked}, func(rows pgx.Rows) error {
			var epoch int64
			err := rows.Scan(&epoch)
			dropped = append(dropped, uint64(epoch))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(dropped)
	return dropped, nil
}

// ListPointers is control.Checkpoints'.
func (s *Store) ListPointers(ctx context.Context, runID string) (out []control.Pointer, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		return each(ctx, tx, selectPointers+` WHERE $1 = '' OR j.run_id = $1 ORDER BY j.run_id, p.epoch`, []any{text(runID)}, func(rows pgx.Rows) error {
			p, err := scanPointer(rows)
			out = append(out, p)
			return err
		})
	})
	if err != nil {
		return nil, s.fail(ctx, fmt.Sprintf("listing of checkpoints of run %q", runID), err)
	}
	return out, nil
}
