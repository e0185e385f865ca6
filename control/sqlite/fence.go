package sqlite

import (
	"context"

	"github.com/weirstream/weir/control"
)

// under is a Store as the holder of a lease sees it.
type under struct {
	*Store
	lease control.Lease
}

// Under is control.Fencer's. The write lock of the file keeps every take-over out from the verification to COMMIT.
func (s *Store) Under(l control.Lease) control.Journal { return &under{Store: s, lease: l} }

// OpenRun is control.Journal's.
func (u *under) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return u.openRun(ctx, &u.lease, h)
}

// Commit is control.Journal's.
func (u *under) Commit(ctx context.Context, c control.Commit) error {
	return u.commit(ctx, &u.lease, c)
}

// Close does nothing: the view belongs to nobody.
func (u *under) Close() error { return nil }

func checkUnder(runID string, l *control.Lease) error {
	if l == nil {
		return nil
	}
	return control.CheckUnder(runID, *l)
}

// verified says that a lease is held, by the clock as it is while the write lock is held, and returns its token; 0 without a lease.
func (t *txn) verified(l *control.Lease) (control.FenceToken, error) {
	if l == nil {
		return 0, nil
	}
	row, err := t.lease(l.Name)
	if err != nil {
		return 0, err
	}
	return l.Token, row.CheckHolder(*l, t.s.now())
}

// raise notes the token of who writes a run, if it may.
func (r *runRow) raise(token control.FenceToken) error {
	if err := control.CheckFence(r.runID, control.FenceToken(r.fence), token); err != nil {
		return err
	}
	r.fence = max(r.fence, int64(token))
	return nil
}
