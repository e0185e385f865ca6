package postgres

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

// joined are those who write into the transactions of runs.
type joined struct {
	mu sync.Mutex
	by map[string][]*func(context.Context, *pgx.Conn, control.FenceToken) error
}

// Join has fn called in the transaction of every epoch of a run that this store commits: after the journal's own rows, just before COMMIT, under the run's
// lease. What fn returns undoes the epoch. fn may be called again for one epoch, when the server has undone it, and is told under which token the epoch is
// committed, 0 for none. leave ends that.
func (s *Store) Join(runID string, fn func(ctx context.Context, conn *pgx.Conn, token control.FenceToken) error) (leave func()) {
	j, mine := &s.joined, &fn
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.by == nil {
		j.by = map[string][]*func(context.Context, *pgx.Conn, control.FenceToken) error{}
	}
	j.by[runID] = append(slices.Clone(j.by[runID]), mine)
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(j.by[runID]), func(f *func(context.Context, *pgx.Conn, control.FenceToken) error) bool { return f == mine })
		if j.by[runID] = rest; len(rest) == 0 {
			delete(j.by, runID)
		}
	}
}

// Borrow runs fn on one of the store's connections, as its role, outside of any transaction. fn leaves the connection as it was.
func (s *Store) Borrow(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.fail(ctx, "connect", err)
	}
	defer conn.Release()
	return s.fail(ctx, "look around", fn(ctx, conn.Conn()))
}

// join sends what is queued and has those write who joined the run.
func (f *flush) join(c control.Commit, token control.FenceToken) error {
	f.s.joined.mu.Lock()
	all := f.s.joined.by[c.RunID]
	f.s.joined.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := f.send(); err != nil {
		return err
	}
	for _, fn := range all {
		if err := (*fn)(f.ctx, f.conn, token); err != nil {
			return err
		}
	}
	return f.s.step("joined", f.conn)
}
