package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const (
	setTimeouts = `SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)`
	callHold    = `SELECT weir.hold($1, $2, $3)`
)

// begins queues what a transaction begins with. Under a lease that is its time-outs, where they are shorter than the session's, and the lock of
// the lease's row, which is verified once it is locked. Everybody locks that row before any other, so nobody meets a deadlock over it.
func (s *Store) begins(b *pgx.Batch, l *control.Lease) {
	b.Queue("BEGIN")
	if l == nil {
		return
	}
	if ms := s.lockMillis(l.TTL); ms != "" {
		b.Queue(setTimeouts, ms)
	}
	b.Queue(callHold, l.Name, l.Owner, int64(l.Token))
}

// commits queues the end of a transaction. A server that answers COMMIT with ROLLBACK has undone it, and says no error.
func commits(b *pgx.Batch) {
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return codes.New(codes.StoreUnavailable, "the server answered COMMIT with %s: nothing of the transaction stands", tag)
		}
		return nil
	})
}

// transaction runs fn between begins and commits. fn queues what is left to send into last, which goes with the COMMIT.
func (s *Store) transaction(ctx context.Context, conn *pgx.Conn, l *control.Lease, fn func(last *pgx.Batch) error) (err error) {
	defer func() {
		if err != nil {
			endTransaction(ctx, conn)
		}
	}()
	first, last := &pgx.Batch{}, &pgx.Batch{}
	s.begins(first, l)
	if err := conn.SendBatch(ctx, first).Close(); err != nil {
		return err
	}
	if err := s.step("locked", conn); err != nil {
		return err
	}
	if err := fn(last); err != nil {
		return err
	}
	if err := s.step("commit", conn); err != nil {
		return err
	}
	commits(last)
	return conn.SendBatch(ctx, last).Close()
}

// under runs a transaction under a lease, to its commit.
func (s *Store) under(ctx context.Context, l control.Lease, doing string, fn func(ctx context.Context, conn *pgx.Conn, last *pgx.Batch) error) error {
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.transaction(ctx, conn, &l, func(last *pgx.Batch) error { return fn(ctx, conn, last) })
	})
	return s.fail(ctx, doing, refusal(err, l))
}

// Under is control.Fencer's.
func (s *Store) Under(l control.Lease) control.Journal { return &fenced{Store: s, lease: l} }

// fenced is the journal as the holder of a lease sees it; what only reads is the store's own.
type fenced struct {
	*Store
	lease control.Lease
}

var _ control.Fencer = (*Store)(nil)

// OpenRun is control.Journal's, under the lease.
func (f *fenced) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	if err := h.Validate(); err != nil {
		return control.RunState{}, err
	}
	if err := control.CheckUnder(h.RunID, f.lease); err != nil {
		return control.RunState{}, err
	}
	return f.openRun(ctx, &f.lease, h)
}

// Commit is control.Journal's, under the lease: two round trips for an epoch of ordinary size, as without one.
func (f *fenced) Commit(ctx context.Context, c control.Commit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := control.CheckUnder(c.RunID, f.lease); err != nil {
		return err
	}
	return f.commitUnder(ctx, &f.lease, c)
}

// Close does nothing: the store is its owner's.
func (f *fenced) Close() error { return nil }

// What follows is for packages that keep something else in the same database. Errors go through Fail.

// QueryRow asks for one row, by a statement that changes nothing.
func (s *Store) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	return s.pool.QueryRow(ctx, statement, args...)
}

// Query asks for rows, by a statement that changes nothing, and calls fn with each. fn must not ask the store: with all connections in such hands
// nobody would get one.
func (s *Store) Query(ctx context.Context, statement string, args []any, fn func(pgx.Rows) error) error {
	return each(ctx, s.pool, statement, args, fn)
}

// Write runs fn, which commits by itself, on a connection. fn may run again, when the server has certainly undone what it did. Its ctx outlives
// that of Write by a moment, since an answer is worth more than an unknown.
func (s *Store) Write(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	return s.write(ctx, fn)
}

// Fail gives an error of the server or the network its code and names the store, without secrets. Errors that have a code pass, and so does the
// context's own.
func (s *Store) Fail(ctx context.Context, doing string, err error) error {
	return s.fail(ctx, doing, err)
}

// StoreID is control.Checkpoints'.
func (s *Store) StoreID(ctx context.Context) (id string, err error) {
	err = s.pool.QueryRow(ctx, `SELECT id FROM weir.store`).Scan(&id)
	return id, s.fail(ctx, "store id", err)
}

// what names a run's write in an error.
func what(doing, runID string) string { return fmt.Sprintf("%s of run %q", doing, runID) }
