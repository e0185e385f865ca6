package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const callAcquire = `SELECT token, lease_until FROM weir.acquire($1, $2, $3, $4)`

// Acquire is control.Leases'. A take-over that an effect of the old term holds up for longer than half a term ends the connections of those that
// have gone silent, and tries once more; what is still in the way then works, and is LeaseHeld.
func (s *Store) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	if err := control.CheckAcquire(name, owner, ttl); err != nil {
		return control.Lease{}, err
	}
	row := control.LeaseRow{Name: name, Owner: owner}
	var sent time.Time
	acquire := func(ctx context.Context, conn *pgx.Conn) error {
		sent = s.cfg.now()
		return conn.QueryRow(ctx, callAcquire, name, owner, ttl, s.lockMillis(ttl)).Scan(&row.Token, &row.Until)
	}
	err := s.write(ctx, acquire)
	if stateOf(err) == lockTimeout {
		err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return s.withoutSilent(ctx, conn, func() error { return acquire(ctx, conn) })
		})
	}
	if stateOf(err) == lockTimeout {
		return control.Lease{}, codes.New(codes.LeaseHeld, "lease %q has expired, and an effect of its last term is still running; the server ends it soon", name)
	}
	if err != nil {
		return control.Lease{}, s.fail(ctx, fmt.Sprintf("acquire lease %q", name), refusal(err, control.Lease{Name: name}))
	}
	return row.Granted(sent, ttl), nil
}

// lockTimeout is the SQLSTATE of a lock that was not to be had in time.
const lockTimeout = "55P03"

// endSilent ends those who keep $1 waiting for a lock while the server waits for their client. The server's time-out for transactions that stand
// still does not see a client that stops in the middle of what it sends.
const endSilent = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids($1)) AND wait_event = 'ClientRead' AND usename = current_user`

// withoutSilent runs fn on a connection, and until it returns ends those of the same login that keep it waiting and have gone silent.
func (s *Store) withoutSilent(ctx context.Context, conn *pgx.Conn, fn func() error) error {
	var pid int32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() {
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for watching.Err() == nil {
			_, _ = s.pool.Exec(watching, endSilent, pid) // without it fn runs into its time-out
			select {
			case <-again.C:
			case <-watching.Done():
			}
		}
	})
	return fn()
}

// Renew is control.Leases'.
func (s *Store) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	if err := control.CheckRenew(l); err != nil {
		return control.Lease{}, err
	}
	row := control.LeaseRow{Name: l.Name, Owner: l.Owner, Token: l.Token}
	var sent time.Time
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		sent = s.cfg.now()
		return conn.QueryRow(ctx, `SELECT weir.extend($1, $2, $3, $4, $5)`, l.Name, l.Owner, int64(l.Token), l.TTL, s.lockMillis(l.TTL)).Scan(&row.Until)
	})
	if err != nil {
		return control.Lease{}, s.fail(ctx, fmt.Sprintf("renew lease %q", l.Name), refusal(err, l))
	}
	return row.Granted(sent, l.TTL), nil
}

// Release is control.Leases'. It does not wait for effects under the lease; the next owner's acquisition does.
func (s *Store) Release(ctx context.Context, l control.Lease) error {
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT weir.extend($1, $2, $3, NULL, '')`, l.Name, l.Owner, int64(l.Token))
		return err
	})
	return s.fail(ctx, fmt.Sprintf("release lease %q", l.Name), refusal(err, l))
}

const selectLeases = `SELECT name, owner, fence_token, until, until > clock_timestamp() FROM weir.leases`

// ListLeases is control.Leases'.
func (s *Store) ListLeases(ctx context.Context) (out []control.LeaseInfo, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		return each(ctx, tx, selectLeases+` ORDER BY name`, nil, func(rows pgx.Rows) error {
			var i control.LeaseInfo
			err := rows.Scan(&i.Name, &i.Owner, &i.Token, &i.Until, &i.Valid)
			out = append(out, i)
			return err
		})
	})
	return out, s.fail(ctx, "listing of leases", err)
}

// LookupLease is control.Leases'.
func (s *Store) LookupLease(ctx context.Context, name string) (i control.LeaseInfo, ok bool, err error) {
	err = s.pool.QueryRow(ctx, selectLeases+` WHERE name = $1`, name).Scan(&i.Name, &i.Owner, &i.Token, &i.Until, &i.Valid)
	if errors.Is(err, pgx.ErrNoRows) {
		return control.LeaseInfo{}, false, nil
	}
	return i, err == nil, s.fail(ctx, fmt.Sprintf("look-up of lease %q", name), err)
}

// querier is what queries run on: a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// each calls fn with every row of a query.
func each(ctx context.Context, q querier, text string, args []any, fn func(pgx.Rows) error) error {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
