package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/control"
)

// now is the store's clock: that of the machine, which all processes that can open the file share.
func (s *Store) now() time.Time { return s.cfg.Now().Round(0) }

// Acquire is control.Leases'. The clock is read while the write lock is held, so a wait for it cannot make an expired term pass.
func (s *Store) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	sent := time.Now()
	if err := control.CheckAcquire(name, owner, ttl); err != nil {
		return control.Lease{}, err
	}
	var next control.LeaseRow
	err := s.write(ctx, func(t *txn) error {
		row, err := t.lease(name)
		if err != nil {
			return err
		}
		stands := row.Token > 0
		if next, err = row.Acquired(name, owner, s.now(), ttl); err != nil {
			return err
		}
		return t.putLease(next, stands)
	})
	if err != nil {
		return control.Lease{}, s.fail(ctx, fmt.Sprintf("acquisition of lease %q", name), err)
	}
	return next.Granted(sent, ttl), nil
}

// Renew is control.Leases'. There is one writer at a time, so it waits for whatever another writer is committing, effects too; never longer. When
// that writer does not end within BusyTimeout, because it was stopped or is slow, the answer is STORE_UNAVAILABLE: nothing was changed, and nothing
// was taken over meanwhile either. The holder tries again until its own Deadline; to leave room for that, BusyTimeout should be at most ttl/3.
func (s *Store) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	sent := time.Now()
	if err := control.CheckRenew(l); err != nil {
		return control.Lease{}, err
	}
	row, err := s.holding(ctx, l, "renewal", func(row *control.LeaseRow, now time.Time) { row.Until = now.Add(l.TTL) })
	if err != nil {
		return control.Lease{}, err
	}
	return row.Granted(sent, l.TTL), nil
}

// Release is control.Leases'.
func (s *Store) Release(ctx context.Context, l control.Lease) error {
	// No time rather than the present one: a clock that steps back must not bring the term back.
	_, err := s.holding(ctx, l, "release", func(row *control.LeaseRow, _ time.Time) { row.Until = time.Time{} })
	return err
}

// holding changes a lease that l holds.
func (s *Store) holding(ctx context.Context, l control.Lease, what string, change func(row *control.LeaseRow, now time.Time)) (row control.LeaseRow, err error) {
	err = s.write(ctx, func(t *txn) (err error) {
		if row, err = t.lease(l.Name); err != nil {
			return err
		}
		now := s.now()
		if err := row.CheckHolder(l, now); err != nil {
			return err
		}
		change(&row, now)
		return t.putLease(row, true)
	})
	return row, s.fail(ctx, fmt.Sprintf("%s of lease %q", what, l.Name), err)
}

// lease reads the row of a lease; Token 0 is none.
func (t *txn) lease(name string) (control.LeaseRow, error) {
	row, err := t.query("read lease", t.s.st.lease, name)
	if err != nil {
		return control.LeaseRow{}, err
	}
	return t.s.scanLease(row, name)
}

func (s *Store) scanLease(row *sql.Row, name string) (control.LeaseRow, error) {
	var r leaseRow
	err := row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return control.LeaseRow{}, nil
	case err != nil:
		return control.LeaseRow{}, s.scanned(err, fmt.Sprintf("lease %q", name))
	case r.crc != r.sum() || r.name != name:
		return control.LeaseRow{}, s.corrupt("the row of lease %q is damaged", name)
	}
	return r.lease(), nil
}

func (t *txn) putLease(row control.LeaseRow, stands bool) error {
	r := leaseRow{name: row.Name, owner: row.Owner, token: int64(row.Token), until: nanos(row.Until)}
	st := t.s.st.insertLease
	if stands {
		st = t.s.st.updateLease
	}
	_, err := t.exec("write lease", st, r.owner, r.token, r.until, r.sum(), r.name)
	return err
}

// ListLeases is control.Leases'.
func (s *Store) ListLeases(ctx context.Context) (out []control.LeaseInfo, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		now := s.now()
		return s.query(ctx, tx, selectLeases+` ORDER BY name`, nil, func(rows *sql.Rows) error {
			var r leaseRow
			if err := s.scanned(rows.Scan(r.columns()...), "a lease"); err != nil {
				return err
			}
			if r.crc != r.sum() {
				return s.corrupt("the row of lease %q is damaged", r.name)
			}
			out = append(out, r.lease().Info(now))
			return nil
		})
	})
	return out, s.fail(ctx, "listing of leases", err)
}

// LookupLease is control.Leases'.
func (s *Store) LookupLease(ctx context.Context, name string) (info control.LeaseInfo, ok bool, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		row, err := s.scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE name = ?`, name), name)
		info, ok = row.Info(s.now()), row.Token > 0
		return err
	})
	if err != nil || !ok {
		return control.LeaseInfo{}, false, s.fail(ctx, fmt.Sprintf("look-up of lease %q", name), err)
	}
	return info, true, nil
}
