package sqlite

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var _ control.Beginner = (*Store)(nil)

// BeginRun is control.Beginner's.
func (s *Store) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	return s.beginRun(ctx, nil, h, c)
}

// BeginRun is control.Beginner's, under the lease.
func (u *under) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	return u.beginRun(ctx, &u.lease, h, c)
}

func (s *Store) beginRun(ctx context.Context, l *control.Lease, h control.RunHeader, c control.Commit) error {
	if err := control.CheckBegin(h, c); err != nil {
		return err
	}
	if err := checkUnder(h.RunID, l); err != nil {
		return err
	}
	if err := s.fits(c); err != nil {
		return err
	}
	err := s.write(ctx, func(t *txn) error {
		switch _, err := t.readRun(h.RunID); {
		case err == nil:
			return control.IsThere(h.RunID)
		case !codes.Has(err, codes.RunUnknown):
			return err
		}
		if _, err := t.openRun(l, h); err != nil {
			return err
		}
		return t.commit(l, c)
	})
	return s.fail(ctx, fmt.Sprintf("begin of run %q", h.RunID), err)
}
