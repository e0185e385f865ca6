package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// wakePoll is how often a watcher looks for writes of other processes. It reads one number out of shared memory.
const wakePoll = 100 * time.Millisecond

// bell wakes the watchers of this process.
type bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]bool
	// closing ends the watchers, done waits for them.
	closing chan struct{}
	closed  bool
	done    sync.WaitGroup
}

func newBell() *bell {
	return &bell{listeners: map[chan struct{}]bool{}, closing: make(chan struct{})}
}

// ring gives every listener a value, unless it has one already.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.listeners {
		give(c)
	}
}

func give(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen adds a listener; false when the store is closed.
func (b *bell) listen(c chan struct{}) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.listeners[c] = true
	b.done.Add(1)
	return true
}

// drop removes a listener and closes it.
func (b *bell) drop(c chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.listeners, c)
	close(c)
	b.done.Done()
}

// close ends all watchers.
func (b *bell) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.mu.Unlock()
	b.done.Wait()
}

// Wake is control.Outbox's. Writes of this process are signalled; those of others are noticed by SQLite's data version, so any of their
// writes wakes, one of 100 ms at the latest. The channel is closed with ctx and by Close.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	if !s.bell.listen(out) {
		close(out)
		return out
	}
	go func() {
		defer s.bell.drop(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.watch(ctx, out)
	}()
	return out
}

// watch polls the data version until ctx ends. Without a connection it only waits: the worker's own polling is the truth.
func (s *Store) watch(ctx context.Context, out chan struct{}) {
	ticker := time.NewTicker(wakePoll)
	defer ticker.Stop()
	conn, err := s.reader.Conn(ctx)
	if err == nil {
		defer conn.Close()
	}
	last := int64(-1)
	for {
		if now, ok := dataVersion(ctx, conn); ok {
			if last >= 0 && now != last {
				give(out)
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-s.bell.closing:
			return
		case <-ticker.C:
		}
	}
}

func dataVersion(ctx context.Context, conn *sql.Conn) (v int64, ok bool) {
	if conn == nil {
		return 0, false
	}
	err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v)
	return v, err == nil
}
