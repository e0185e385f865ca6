package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

func TestConformsAsControl(t *testing.T) {
	t.Parallel()
	controltest.Control(t, func(t *testing.T) *controltest.Harness { return newHarness(t).harness() })
}

// planted is a store as the suite drives it. Damage is planted through a handle of its own.
type planted struct {
	t     *testing.T
	path  string
	own   *Store
	hooks controltest.Hooks
}

func newHarness(t *testing.T) *planted {
	h := &planted{t: t, path: filepath.Join(t.TempDir(), "weir.db")}
	h.own = open(t, Config{Path: h.path})
	t.Cleanup(func() { _ = h.own.Close() })
	return h
}

func (h *planted) harness() *controltest.Harness {
	return &controltest.Harness{
		Open: func() control.ControlStore {
			return h.hooks.Open(func(hook func(step string) error) control.ControlStore {
				return open(h.t, Config{Path: h.path, BusyTimeout: time.Minute, Hook: hook})
			})
		},
		AfterCommit: h.hooks.AfterCommit,
		Hook:        h.hooks.Set,
		OneWriter:   true,
		SetToken: func(name string, token control.FenceToken) error {
			return h.write(func(t *txn) error {
				row, err := t.lease(name)
				if err != nil || row.Token == 0 {
					return err
				}
				row.Token = token
				return t.putLease(row, true)
			})
		},
		Expire: func(name string) error {
			return h.write(func(t *txn) error {
				row, err := t.lease(name)
				if err != nil || row.Token == 0 {
					return err
				}
				row.Until = h.own.now().Add(-time.Second)
				return t.putLease(row, true)
			})
		},
		SetEvent: func(id int64, claimant string, age time.Duration, delivered bool) error {
			return h.write(func(t *txn) error {
				r, err := t.event(id)
				if err != nil {
					return err
				}
				r.claimant, r.claimed, r.delivered = claimant, 0, flag(delivered)
				if claimant != "" {
					r.claimed = nanos(h.own.now().Add(-age))
				}
				return t.putEvent(r)
			})
		},
		DeleteEvent: func(id int64) error { return h.exec("DELETE FROM outbox WHERE id = ?", id) },
		SetPhase: func(id string, phase control.RunPhase) error {
			return h.write(func(t *txn) error {
				r, err := t.admitted(id)
				if err != nil {
					return err
				}
				r.phase = string(phase)
				_, err = t.exec("plant", t.s.st.updateAdmission, r.phase, r.revision, r.refs, r.error, r.cancel, r.updated, r.sum(), r.id)
				return err
			})
		},
		SetPublication: func(key string, value []byte) error {
			return h.exec("UPDATE publications SET value = ? WHERE key = ?", value, key)
		},
		DeletePublication: func(key string) error { return h.exec("DELETE FROM publications WHERE key = ?", key) },
	}
}

func (h *planted) write(fn func(t *txn) error) error { return h.own.write(context.Background(), fn) }

// exec runs a statement that must change one row.
func (h *planted) exec(text string, args ...any) error {
	return h.write(func(t *txn) error {
		res, err := t.tx.ExecContext(t.statement, text, args...)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return sql.ErrNoRows
		}
		return nil
	})
}
