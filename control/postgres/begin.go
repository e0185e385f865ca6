package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

var _ control.Beginner = (*Store)(nil)

// BeginRun is control.Beginner's.
func (s *Store) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	if err := control.CheckBegin(h, c); err != nil {
		return err
	}
	return s.beginUnder(ctx, nil, h, c)
}

// BeginRun is control.Beginner's, under the lease.
func (f *fenced) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	if err := control.CheckBegin(h, c); err != nil {
		return err
	}
	if err := control.CheckUnder(h.RunID, f.lease); err != nil {
		return err
	}
	return f.beginUnder(ctx, &f.lease, h, c)
}

func (s *Store) beginUnder(ctx context.Context, l *control.Lease, h control.RunHeader, c control.Commit) error {
	if err := s.fits(c); err != nil {
		return err
	}
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := s.beginRun(ctx, conn, l, h, c)
		if err != nil {
			endTransaction(ctx, conn)
		}
		return err
	})
	if l != nil {
		err = refusal(err, *l)
	}
	return s.fail(ctx, fmt.Sprintf("begin of run %q", h.RunID), err)
}

func (s *Store) beginRun(ctx context.Context, conn *pgx.Conn, l *control.Lease, h control.RunHeader, c control.Commit) error {
	first := &pgx.Batch{}
	s.begins(first, l)
	if err := conn.SendBatch(ctx, first).Close(); err != nil {
		return err
	}
	if err := s.step("locked", conn); err != nil {
		return err
	}
	switch _, err := lockRun(ctx, conn, h.RunID); {
	case err == nil:
		return control.IsThere(h.RunID)
	case !codes.Has(err, codes.RunUnknown):
		return err
	}
	var token control.FenceToken
	if l != nil {
		token = l.Token
	}
	row, err := createRun(ctx, conn, h, token)
	if err != nil {
		return err
	}
	stored, err := row.cuts(ctx, conn)
	if err != nil {
		return err
	}
	cuts := map[int32]partitions.Cut{}
	for _, r := range stored {
		cuts[r.cut.Partition] = r.cut
	}
	if err := check(row, cuts, c, token); err != nil {
		return err
	}
	return s.commitRow(ctx, conn, row.id, c, token)
}
