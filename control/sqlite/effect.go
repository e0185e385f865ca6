package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Fenced is control.Effects'. The write lock of the file keeps every take-over out from the verification to COMMIT.
func (s *Store) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	if err := control.CheckEffects(l, effects); err != nil {
		return err
	}
	if err := s.fitsEffects(effects); err != nil {
		return err
	}
	err := s.write(ctx, func(t *txn) error {
		row, err := t.lease(l.Name)
		if err != nil {
			return err
		}
		now := s.now()
		if err := row.CheckHolder(l, now); err != nil {
			return err
		}
		for _, e := range effects {
			if err := t.effect(e, now); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(ctx, fmt.Sprintf("effects under lease %q", l.Name), err)
}

// fitsEffects refuses values that SQLite does not take, before anything is written.
func (s *Store) fitsEffects(effects []control.Effect) error {
	for _, e := range effects {
		p, ok := e.(control.Publish)
		if !ok {
			continue
		}
		for i := range p.Publications {
			if n := len(p.Publications[i].Value); n > s.cfg.maxBlob {
				return codes.New(codes.LimitReached, "journal %s: the value of publication %q has %d bytes, SQLite takes %d", s.cfg.Path, p.Publications[i].Key, n, s.cfg.maxBlob)
			}
		}
	}
	return nil
}

func (t *txn) effect(e control.Effect, now time.Time) error {
	switch e := e.(type) {
	case control.Publish:
		return t.publish(e.Publications, now)
	case control.StartRun:
		return t.startRun(e, now)
	case control.FinishRun:
		return t.finishRun(e, now)
	case control.Deliver:
		return t.deliver(e.EventIDs)
	}
	return codes.New(codes.Internal, "the effect %T is not known", e)
}

const (
	insertPublications = `INSERT INTO publications (key, digest, run_id, created_ns, value) VALUES `
	publicationsWidth  = 5
	ifAbsent           = ` ON CONFLICT (key) DO NOTHING`
)

// publish inserts what is absent, many rows by one statement, and compares the digests of what was there.
func (t *txn) publish(all []control.Publication, now time.Time) error {
	var args []any
	var digests [maxBatch][sha256.Size]byte
	at := any(now.UnixNano())
	size := func(i int) int { return len(all[i].Value) }
	for i := 0; i < len(all); {
		b := 0
		for batches[b] > 1 && !fitsBatch(i, batches[b], len(all), size) {
			b++
		}
		batch := all[i : i+batches[b]]
		i += len(batch)
		args = args[:0]
		for k := range batch {
			digests[k] = sha256.Sum256(batch[k].Value)
			args = append(args, batch[k].Key, digests[k][:], batch[k].RunID, at, batch[k].Value)
		}
		n, err := t.exec("publish", t.s.st.publish[b], args...)
		if err != nil {
			return err
		}
		if n == int64(len(batch)) {
			continue
		}
		for k := range batch {
			if err := t.sameDigest(batch[k].Key, args[k*publicationsWidth+1].([]byte)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *txn) sameDigest(key string, asked []byte) error {
	row, err := t.query("read digest", t.s.st.digest, key)
	if err != nil {
		return err
	}
	var stands []byte
	if err := row.Scan(&stands); err != nil {
		return t.s.scanned(err, fmt.Sprintf("publication %q", key))
	}
	if !bytes.Equal(stands, asked) {
		return control.Conflict(key, digestText(stands), digestText(asked))
	}
	return nil
}

func digestText(digest []byte) string { return "sha256:" + hex.EncodeToString(digest) }

func (t *txn) startRun(e control.StartRun, now time.Time) error {
	r, err := t.admitted(e.RunID)
	if err != nil {
		return err
	}
	phase, err := control.Started(r.runID, control.RunPhase(r.phase), r.cancel != 0)
	if err != nil {
		return err
	}
	if e.Moved != nil {
		*e.Moved = phase
	}
	r.phase = string(phase)
	return t.putRun(r, now)
}

func (t *txn) finishRun(e control.FinishRun, now time.Time) error {
	r, err := t.admitted(e.RunID)
	if err != nil {
		return err
	}
	if err := control.CheckFinish(r.runID, control.RunPhase(r.phase)); err != nil {
		return err
	}
	if r.phase = string(e.Phase); e.Phase == control.Succeeded {
		refs, err := json.Marshal(append([]string{}, e.ResultRefs...))
		if err != nil {
			return err
		}
		r.refs = string(refs)
	} else {
		r.error = control.RunError(e.Error)
	}
	r.revision++
	return t.putRun(r, now)
}

// admitted reads an admitted run.
func (t *txn) admitted(runID string) (*admissionRow, error) {
	row, err := t.query("read admitted run", t.s.st.admitted, runID)
	if err != nil {
		return nil, err
	}
	return t.s.scanAdmission(row, runID)
}

// scanAdmission reads a row of selectAdmission by run id. Without one it is RunUnknown.
func (s *Store) scanAdmission(row interface{ Scan(...any) error }, runID string) (*admissionRow, error) {
	var r admissionRow
	err := row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, codes.New(codes.RunUnknown, "journal %s holds no batch run %q", s.cfg.Path, runID)
	case err != nil:
		return nil, s.scanned(err, fmt.Sprintf("batch run %q", runID))
	case r.crc != r.sum() || runID != "" && r.runID != runID:
		return nil, s.corrupt("the row of batch run %q is damaged", runID)
	}
	return &r, nil
}

// putRun writes what may change of an admitted run.
func (t *txn) putRun(r *admissionRow, now time.Time) error {
	r.updated = now.UnixNano()
	_, err := t.exec("write admitted run", t.s.st.updateAdmission, r.phase, r.revision, r.refs, r.error, r.cancel, r.updated, r.sum(), r.id)
	return err
}

func (t *txn) deliver(ids []int64) error {
	for _, id := range ids {
		r, err := t.event(id)
		if err != nil {
			return err
		}
		if r == nil {
			return codes.New(codes.Internal, "the outbox has no event %d", id)
		}
		if r.delivered != 0 {
			continue
		}
		r.delivered = 1
		if err := t.putEvent(r); err != nil {
			return err
		}
	}
	return nil
}
