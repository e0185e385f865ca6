package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// view is what a run held at one moment: a read transaction, beside which commits go on.
type view struct {
	r     *reading
	state control.RunState
	// over says that the call of Snapshot has ended.
	over atomic.Bool
}

// Snapshot is control.Checkpoints'. While it lasts, what is committed stays in PATH-wal, which grows by it.
func (s *Store) Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error {
	return s.reading(ctx, "snapshot", runID, func(r *reading) error {
		cuts, err := s.cuts(ctx, r.tx, r.run)
		if err != nil {
			return err
		}
		v := &view{r: r, state: r.run.state(r.run.header(cuts), cuts)}
		defer v.over.Store(true)
		return r.give(fn(v))
	})
}

func (v *view) State() control.RunState { return v.state }

// part runs fn for a partition. Errors of the caller's function are in own, and go back unchanged.
func (v *view) part(ctx context.Context, partition int32, fn func(in *reading, cut *cutRow) error) error {
	if v.over.Load() {
		return codes.New(codes.Internal, "a view of run %q is used after the call that gave it", v.state.Header.RunID)
	}
	in := &reading{s: v.r.s, ctx: ctx, tx: v.r.tx, run: v.r.run}
	cut, err := in.cut(partition)
	if err == nil {
		err = fn(in, cut)
	}
	if in.own != nil {
		return in.own
	}
	return in.s.fail(ctx, fmt.Sprintf("snapshot of run %q", in.run.runID), err)
}

func (v *view) Blobs(ctx context.Context, partition int32, fn func(control.BlobRef) error) error {
	return v.part(ctx, partition, func(in *reading, cut *cutRow) error {
		count := int64(0)
		err := in.s.query(ctx, in.tx, selectBlobRefs, []any{cut.run, cut.partition}, func(rows *sql.Rows) error {
			var b control.BlobRef
			var digest sql.RawBytes
			var crc int64
			if err := in.s.scanned(rows.Scan(&b.Name, &b.Size, &digest, &crc), "a state blob"); err != nil {
				return err
			}
			if len(digest) != sha256.Size || crc != refSum(cut.run, cut.partition, b.Name, b.Size, digest) {
				return in.s.corrupt("run %q, partition %d: the digest of the state blob %q is damaged", in.run.runID, partition, b.Name)
			}
			copy(b.Digest[:], digest)
			count++
			return in.give(fn(b))
		})
		if err != nil {
			return err
		}
		return in.complete("state blobs", count, cut.blobs)
	})
}

func (v *view) Load(ctx context.Context, partition int32, names []string, fn func(partitions.StateBlob) error) error {
	return v.part(ctx, partition, func(in *reading, cut *cutRow) error {
		st, err := in.tx.PrepareContext(ctx, selectBlob)
		if err != nil {
			return err
		}
		defer st.Close()
		for _, name := range names {
			b := partitions.StateBlob{Name: name}
			var crc int64
			err := st.QueryRowContext(ctx, cut.run, cut.partition, name).Scan(&crc, &b.Data)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return in.s.corrupt("run %q, partition %d: there is no state blob %q", in.run.runID, partition, name)
			case err != nil:
				return in.s.scanned(err, fmt.Sprintf("run %q, partition %d, the state blob %q", in.run.runID, partition, name))
			}
			if b.Data = notNil(b.Data); crc != blobSum(cut.run, partition, name, b.Data) {
				return in.s.corrupt("run %q, partition %d: the state blob %q is damaged", in.run.runID, partition, name)
			}
			if err := in.give(fn(b)); err != nil {
				return err
			}
		}
		return nil
	})
}
