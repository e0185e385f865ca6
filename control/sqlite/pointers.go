package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const selectPointers = `SELECT run_id, epoch, manifest, hash, fingerprint, token, blobs, bytes, new_bytes, pinned, created_ns, crc FROM pointers`

// pointerRow is a row of the table pointers.
type pointerRow struct {
	runID                                               string
	epoch                                               int64
	manifest, hash, fingerprint                         string
	token, blobs, bytes, newBytes, pinned, created, crc int64
}

func (r *pointerRow) sum() int64 {
	s := newSum("pointers").text(r.runID).ints(r.epoch).text(r.manifest, r.hash, r.fingerprint)
	return int64(s.ints(r.token, r.blobs, r.bytes, r.newBytes, r.pinned, r.created))
}

func (r *pointerRow) columns() []any {
	return []any{&r.runID, &r.epoch, &r.manifest, &r.hash, &r.fingerprint, &r.token, &r.blobs, &r.bytes, &r.newBytes, &r.pinned, &r.created, &r.crc}
}

func (r *pointerRow) pointer() control.Pointer {
	return control.Pointer{RunID: r.runID, Epoch: uint64(r.epoch), Manifest: r.manifest, Hash: r.hash, Fingerprint: r.fingerprint, Token: control.FenceToken(r.token),
		Blobs: r.blobs, Bytes: r.bytes, NewBytes: r.newBytes, Pinned: r.pinned != 0, Created: stamp(r.created)}
}

func storeSum(id string) int64 { return int64(newSum("store").ints(1).text(id)) }

// StoreID is control.Checkpoints'. A copy of the file has the name of the file that it was copied from.
func (s *Store) StoreID(ctx context.Context) (id string, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		var crc int64
		err := tx.QueryRowContext(ctx, `SELECT id, crc FROM store`).Scan(&id, &crc)
		if errors.Is(err, sql.ErrNoRows) || err == nil && crc != storeSum(id) {
			return s.corrupt("the name of the store is damaged")
		}
		return s.scanned(err, "the name of the store")
	})
	if err != nil {
		return "", s.fail(ctx, "name of the store", err)
	}
	return id, nil
}

// pointer reads a pointer; Epoch 0 is none.
func (t *txn) pointer(runID string, epoch uint64) (*pointerRow, error) {
	if epoch > math.MaxInt64 {
		return &pointerRow{}, nil
	}
	row, err := t.query("read pointer", t.s.st.pointer, runID, int64(epoch))
	if err != nil {
		return nil, err
	}
	r := &pointerRow{}
	err = row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &pointerRow{}, nil
	case err != nil:
		return nil, t.s.scanned(err, fmt.Sprintf("the checkpoint of run %q at epoch %d", runID, epoch))
	case r.crc != r.sum() || r.runID != runID || r.epoch != int64(epoch):
		return nil, t.s.corrupt("the checkpoint of run %q at epoch %d is damaged", runID, epoch)
	}
	return r, nil
}

// underLease runs fn in a write transaction in which the lease is held.
func (s *Store) underLease(ctx context.Context, l control.Lease, doing string, fn func(t *txn) error) error {
	err := s.write(ctx, func(t *txn) error {
		if _, err := t.verified(&l); err != nil {
			return err
		}
		return fn(t)
	})
	return s.fail(ctx, doing, err)
}

// KeepPointer is control.Checkpoints'.
func (s *Store) KeepPointer(ctx context.Context, l control.Lease, p control.Pointer) error {
	if err := control.CheckPointer(l, p); err != nil {
		return err
	}
	return s.underLease(ctx, l, fmt.Sprintf("pointer to epoch %d of run %q", p.Epoch, p.RunID), func(t *txn) error {
		run, err := t.readRun(p.RunID)
		if err != nil {
			return err
		}
		if err := control.CheckFence(p.RunID, control.FenceToken(run.fence), l.Token); err != nil {
			return err
		}
		stands, err := t.pointer(p.RunID, p.Epoch)
		if err != nil {
			return err
		}
		if done, err := control.CheckKeep(uint64(run.epoch), stands.pointer(), p); done || err != nil {
			return err
		}
		r := pointerRow{runID: p.RunID, epoch: int64(p.Epoch), manifest: p.Manifest, hash: p.Hash, fingerprint: p.Fingerprint, token: int64(l.Token),
			blobs: p.Blobs, bytes: p.Bytes, newBytes: p.NewBytes, created: nanos(s.now())}
		_, err = t.exec("insert pointer", s.st.insertPointer, r.runID, r.epoch, r.manifest, r.hash, r.fingerprint, r.token, r.blobs, r.bytes, r.newBytes, r.pinned, r.created, r.sum())
		return err
	})
}

// pointerFence is control.CheckPointerFence for a run, which has no pointers when it is not there.
func (t *txn) pointerFence(runID string, l control.Lease) error {
	run, err := t.readRun(runID)
	if codes.Has(err, codes.RunUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	return control.CheckPointerFence(runID, control.FenceToken(run.fence), l)
}

// PinPointer is control.Checkpoints'.
func (s *Store) PinPointer(ctx context.Context, l control.Lease, runID string, epoch uint64, pinned bool) error {
	return s.underLease(ctx, l, fmt.Sprintf("pin of epoch %d of run %q", epoch, runID), func(t *txn) error {
		if err := t.pointerFence(runID, l); err != nil {
			return err
		}
		r, err := t.pointer(runID, epoch)
		if err != nil {
			return err
		}
		if r.epoch == 0 {
			return control.PointerUnknown(runID, epoch)
		}
		r.pinned = flag(pinned)
		_, err = t.exec("pin pointer", s.st.pinPointer, r.pinned, r.sum(), r.runID, r.epoch)
		return err
	})
}

// DropPointers is control.Checkpoints'.
func (s *Store) DropPointers(ctx context.Context, l control.Lease, runID string, epochs []uint64) (dropped []uint64, err error) {
	err = s.underLease(ctx, l, fmt.Sprintf("removal of checkpoints of run %q", runID), func(t *txn) error {
		if err := t.pointerFence(runID, l); err != nil {
			return err
		}
		for _, epoch := range epochs {
			r, err := t.pointer(runID, epoch)
			if err != nil {
				return err
			}
			if r.epoch == 0 || r.pinned != 0 {
				continue
			}
			if _, err := t.exec("drop pointer", s.st.dropPointer, r.runID, r.epoch); err != nil {
				return err
			}
			dropped = append(dropped, epoch)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(dropped)
	return dropped, nil
}

// ListPointers is control.Checkpoints'.
func (s *Store) ListPointers(ctx context.Context, runID string) (out []control.Pointer, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return s.query(ctx, tx, selectPointers+` WHERE ? IN ('', run_id) ORDER BY run_id, epoch`, []any{runID}, func(rows *sql.Rows) error {
			var r pointerRow
			if err := s.scanned(rows.Scan(r.columns()...), "a checkpoint"); err != nil {
				return err
			}
			if r.crc != r.sum() {
				return s.corrupt("the checkpoint of run %q at epoch %d is damaged", r.runID, r.epoch)
			}
			out = append(out, r.pointer())
			return nil
		})
	})
	if err != nil {
		return nil, s.fail(ctx, "listing of checkpoints", err)
	}
	return out, nil
}
