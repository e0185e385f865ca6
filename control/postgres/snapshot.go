package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Snapshot is control.Checkpoints': one transaction that reads, and that no commit waits for.
func (s *Store) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	var own error
	err := s.read(ctx, func(tx pgx.Tx) error {
		row, err := scanJournal(tx.QueryRow(ctx, selectJournal+` WHERE run_id = $1`, text(runID)))
		if err != nil {
			return noRun(err, runID)
		}
		cuts, err := row.cuts(ctx, tx)
		if err != nil {
			return err
		}
		v := &view{s: s, tx: tx, run: row.id, state: row.state(row.header, cuts)}
		defer v.over.Store(true)
		own = fn(v)
		return own
	})
	if own != nil {
		return own
	}
	return s.fail(ctx, what("snapshot", runID), err)
}

// view is a run in the transaction of a snapshot.
type view struct {
	s     *Store
	tx    pgx.Tx
	run   int64
	state control.RunState
	// over says that the call that gave it has ended.
	over atomic.Bool
}

// State is control.JournalView's.
func (v *view) State() control.RunState { return v.state }

// Blobs is control.JournalView's. References are small, so they are read first, and fn may use the view.
func (v *view) Blobs(ctx context.Context, partition int32, fn func(control.BlobRef) error) error {
	var refs []control.BlobRef
	query := `SELECT name, digest, octet_length(data) FROM weir.checkpoint_blobs WHERE run = $1 AND partition = $2 ORDER BY name`
	err := v.each(ctx, partition, query, []any{v.run, partition}, func(rows pgx.Rows) error {
		var name, digest pgtype.DriverBytes
		var r control.BlobRef
		if err := rows.Scan(&name, &digest, &r.Size); err != nil {
			return err
		}
		r.Name, r.Digest = string(name), [32]byte(digest) // the schema holds digests to 32 bytes
		refs = append(refs, r)
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range refs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// Load is control.JournalView's. Every blob is compared with its digest. fn must not use the view: the answer is still arriving.
func (v *view) Load(ctx context.Context, partition int32, names []string, fn func(partitions.StateBlob) error) error {
	left := make(map[string]bool, len(names))
	for _, name := range names {
		left[name] = true
	}
	var own error
	asked := make([][]byte, 0, len(left))
	for name := range left {
		asked = append(asked, []byte(name))
	}
	err := v.each(ctx, partition, selectState+` AND name = ANY ($3)`, []any{v.run, partition, asked}, func(rows pgx.Rows) error {
		b, err := v.s.scanState(rows, v.state.Header.RunID, partition)
		if err != nil {
			return err
		}
		delete(left, b.Name)
		own = fn(b)
		return own
	})
	switch {
	case own != nil:
		return own
	case err != nil:
		return err
	}
	for name := range left {
		return v.s.corrupt("run %q, partition %d: there is no state blob %q", v.state.Header.RunID, partition, name)
	}
	return nil
}

// each runs a query on a partition of the run.
func (v *view) each(ctx context.Context, partition int32, query string, args []any, fn func(pgx.Rows) error) error {
	if v.over.Load() {
		return codes.New(codes.Internal, "a view of run %q is used after the call that gave it", v.state.Header.RunID)
	}
	known := false
	for _, p := range v.state.Header.Partitions {
		known = known || p == partition
	}
	if !known {
		return codes.New(codes.Internal, "run %q has no partition %d", v.state.Header.RunID, partition)
	}
	return v.s.fail(ctx, what("snapshot", v.state.Header.RunID), each(ctx, v.tx, query, args, fn))
}
