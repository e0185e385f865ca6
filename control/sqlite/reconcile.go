package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Candidates are the runs that may be orphans or whose event may be abandoned; the rule decides.
const selectCandidates = `SELECT a.run_id FROM admission a LEFT JOIN outbox o ON o.run_id = a.run_id
		WHERE a.phase = 'RUNNING' OR a.phase = 'QUEUED' AND (o.id IS NULL OR o.delivered <> 0)
	UNION SELECT run_id FROM outbox WHERE delivered = 0 AND claimant <> '' ORDER BY 1`

const (
	selectPublications = `SELECT key, digest, run_id, value FROM publications`
	selectMissing      = `SELECT run_id FROM admission a WHERE phase = 'SUCCEEDED' AND NOT EXISTS (SELECT 1 FROM publications p WHERE p.key = 'result/' || a.run_id)`
)

// Reconcile is control.Reconciler's. It looks for damage at one consistent moment, without the write lock; before a repair it looks again,
// under the lock.
func (s *Store) Reconcile(ctx context.Context, repair bool, staleClaims time.Duration) ([]control.Damage, error) {
	return s.reconcile(ctx, repair, staleClaims, s.orphans, s.damaged)
}

// MendOrphans is control.Reconciler's.
func (s *Store) MendOrphans(ctx context.Context, staleClaims time.Duration) ([]control.Damage, error) {
	return s.reconcile(ctx, true, staleClaims, s.orphans)
}

// look is one of the things that a reconciliation looks for.
type look func(ctx context.Context, tx *sql.Tx, staleClaims time.Duration) ([]control.Damage, error)

func (s *Store) reconcile(ctx context.Context, repair bool, staleClaims time.Duration, looks ...look) (found []control.Damage, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		for _, look := range looks {
			more, err := look(ctx, tx, staleClaims)
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, "reconciliation", err)
	}
	control.SortDamages(found)
	for i := range found {
		d := &found[i]
		if !repair || d.Kind == control.PublicationDigest || d.Kind == control.ResultMissing {
			continue
		}
		err := s.write(ctx, func(t *txn) (err error) {
			d.Repaired, err = t.repair(d.RunID, staleClaims)
			return err
		})
		if err != nil {
			return found, s.fail(ctx, fmt.Sprintf("repair of run %q", d.RunID), err)
		}
	}
	return found, nil
}

func (s *Store) orphans(ctx context.Context, tx *sql.Tx, staleClaims time.Duration) (found []control.Damage, err error) {
	candidates, err := s.names(ctx, tx, selectCandidates)
	if err != nil {
		return nil, err
	}
	for _, runID := range candidates {
		st, err := s.standing(ctx, tx, runID)
		if err != nil {
			return nil, err
		}
		if d, ok := st.Diagnose(s.now(), staleClaims); ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// damaged are publications that are not what their digest says, and results that are missing.
func (s *Store) damaged(ctx context.Context, tx *sql.Tx, _ time.Duration) (found []control.Damage, err error) {
	err = s.eachPublication(ctx, tx, "", func(p control.Publication, digest []byte) error {
		if has := sha256.Sum256(p.Value); !bytes.Equal(has[:], digest) {
			found = append(found, control.DigestDamage(p.RunID, p.Key, digestText(digest), digestText(has[:])))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	missing, err := s.names(ctx, tx, selectMissing)
	for _, runID := range missing {
		found = append(found, control.MissingDamage(runID))
	}
	return found, err
}

// names reads a column of text.
func (s *Store) names(ctx context.Context, tx *sql.Tx, text string) (out []string, err error) {
	err = s.query(ctx, tx, text, nil, func(rows *sql.Rows) error {
		var name string
		err := s.scanned(rows.Scan(&name), "a run id")
		out = append(out, name)
		return err
	})
	return out, err
}

// standing reads what decides about a run.
func (s *Store) standing(ctx context.Context, tx *sql.Tx, runID string) (st control.Standing, err error) {
	st.RunID = runID
	run, err := s.scanAdmission(tx.QueryRowContext(ctx, selectAdmission+` WHERE run_id = ?`, runID), runID)
	switch {
	case err == nil:
		st.Phase = control.RunPhase(run.phase)
	case !codes.Has(err, codes.RunUnknown):
		return st, err
	}
	event, err := s.scanEvent(tx.QueryRowContext(ctx, selectOutbox+` WHERE run_id = ? AND kind = ?`, runID, control.EventRequested))
	if err != nil {
		return st, err
	}
	if event != nil {
		e := event.event()
		st.Event = &e
	}
	name := control.RunLease(runID)
	st.Lease, err = s.scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE name = ?`, name), name)
	return st, err
}

// repair looks at a run again and puts it right. It says whether there was anything to do.
func (t *txn) repair(runID string, staleClaims time.Duration) (bool, error) {
	if err := t.next("read standing"); err != nil {
		return false, err
	}
	st, err := t.s.standing(t.statement, t.tx, runID)
	if err != nil {
		return false, err
	}
	now := t.s.now()
	d, ok := st.Diagnose(now, staleClaims)
	if !ok {
		return false, nil
	}
	if d.Kind == control.RunningOrphan {
		run, err := t.admitted(runID)
		if err != nil {
			return false, err
		}
		run.phase = string(control.Queued)
		if err := t.putRun(run, now); err != nil {
			return false, err
		}
	}
	if st.Event == nil {
		return true, t.insertEvent(runID, now.UnixNano())
	}
	event, err := t.event(st.Event.ID)
	if err != nil || event == nil {
		return false, err
	}
	return true, t.pend(event)
}

// Publications is control.Reconciler's.
func (s *Store) Publications(ctx context.Context, prefix string, fn func(p control.Publication, digest string) error) error {
	r := &reading{s: s, ctx: ctx}
	err := s.read(ctx, func(tx *sql.Tx) error {
		return s.eachPublication(ctx, tx, prefix, func(p control.Publication, digest []byte) error {
			return r.give(fn(p, digestText(digest)))
		})
	})
	if r.own != nil {
		return r.own
	}
	return s.fail(ctx, "listing of publications", err)
}

// errEnough ends a scan that has left its prefix.
var errEnough = errors.New("enough")

// eachPublication calls fn with every publication under a prefix, in the order of keys. Values belong to fn.
func (s *Store) eachPublication(ctx context.Context, tx *sql.Tx, prefix string, fn func(p control.Publication, digest []byte) error) error {
	err := s.query(ctx, tx, selectPublications+` WHERE key >= ? ORDER BY key`, []any{prefix}, func(rows *sql.Rows) error {
		var p control.Publication
		var digest []byte
		if err := s.scanned(rows.Scan(&p.Key, &digest, &p.RunID, &p.Value), "a publication"); err != nil {
			return err
		}
		if !strings.HasPrefix(p.Key, prefix) {
			return errEnough
		}
		return fn(p, digest)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
