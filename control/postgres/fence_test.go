package postgres

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/pgtest"
)

// stream is a run of the tests of fences: its lease, and what its epochs hold.
var stream = controltest.Workload{Seed: 11, RunID: "run", Partitions: 2, Rows: 5, Blob: 2000}

// owned takes the lease of the run and opens it.
func owned(t *testing.T, s *Store, owner string, ttl time.Duration) (control.Lease, control.Journal) {
	t.Helper()
	l := acquired(t, s, control.StreamLease(stream.RunID), owner, ttl)
	j := s.Under(l)
	if _, err := j.OpenRun(t.Context(), stream.Header()); err != nil {
		t.Fatal(err)
	}
	return l, j
}

// commitEpochs commits epochs of the workload.
func commitEpochs(t *testing.T, j control.Journal, w controltest.Workload, from, to uint64) {
	t.Helper()
	for e := from; e <= to; e++ {
		if err := j.Commit(t.Context(), w.Commit(e)); err != nil {
			t.Fatalf("epoch %d: %v", e, err)
		}
	}
}

// epochOf says where a run stands, and fails unless it holds exactly what it must there. Reading opens it under the lease of the view.
func epochOf(t *testing.T, j control.Journal, w controltest.Workload) uint64 {
	t.Helper()
	at, err := w.CheckWith(t.Context(), j, func(ctx context.Context, epoch uint64) (controltest.Contents, error) {
		want, err := w.Expected(ctx, epoch)
		want.State.Fence = j.(*fenced).lease.Token
		return want, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// mustHold fails unless a run holds exactly what it must at an epoch, and stands there.
func mustHold(t *testing.T, j control.Journal, w controltest.Workload, epoch uint64) {
	t.Helper()
	if at := epochOf(t, j, w); at != epoch {
		t.Fatalf("the run stands at epoch %d, want %d", at, epoch)
	}
}

func expire(t *testing.T, super *pgx.Conn) {
	t.Helper()
	run(t, super, `UPDATE weir.leases SET until = clock_timestamp() - interval '1 ms'`)
}

// The same owner id that takes the lease again is another term: the old one writes nothing, and the run remembers the highest token.
func TestFencedTerms(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	_, old := owned(t, s, "same", time.Hour)
	commitEpochs(t, old, stream, 1, 2)
	expire(t, super)
	l, j := owned(t, open(t, db, Config{}), "same", time.Hour)
	if l.Token != 2 {
		t.Fatalf("token %d, want 2", l.Token)
	}
	if err := old.Commit(t.Context(), stream.Commit(3)); !codes.Has(err, codes.StaleFence) || !control.Refused(err) {
		t.Errorf("the old term: %v", err)
	}
	if _, err := old.OpenRun(t.Context(), stream.Header()); !codes.Has(err, codes.StaleFence) {
		t.Errorf("the old term opens: %v", err)
	}
	if err := s.Commit(t.Context(), stream.Commit(3)); !codes.Has(err, codes.StaleFence) {
		t.Errorf("without a lease: %v", err)
	}
	mustHold(t, j, stream, 2)
	commitEpochs(t, j, stream, 3, 3)
	mustHold(t, j, stream, 3)
	if state, err := j.OpenRun(t.Context(), stream.Header()); err != nil || state.Fence != 2 {
		t.Errorf("fence %d, %v", state.Fence, err)
	}
}

// Leases that have gone back, by a restored backup: the run has seen a higher token than the store gives out, and nobody writes.
func TestFenceRegression(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	run(t, super, `INSERT INTO weir.leases (name, owner, fence_token, until, acquired) VALUES ($1, 'x', 6, clock_timestamp(), clock_timestamp())`, control.StreamLease(stream.RunID))
	_, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 2)
	run(t, super, `DELETE FROM weir.leases`)
	l := acquired(t, s, control.StreamLease(stream.RunID), "b", time.Hour)
	j = s.Under(l)
	_, openErr := j.OpenRun(t.Context(), stream.Header())
	_, dropErr := s.DropPointers(t.Context(), l, stream.RunID, []uint64{1})
	for what, err := range map[string]error{"OpenRun": openErr, "Commit": j.Commit(t.Context(), stream.Commit(3)), "KeepPointer": s.KeepPointer(t.Context(), l, pointerTo(2)), "DropPointers": dropErr} {
		if !codes.Has(err, codes.FenceRegression) {
			t.Errorf("%s: %v, want FENCE_REGRESSION", what, err)
		}
	}
	if at := one[string](t, super, `SELECT epoch || '/' || fence FROM weir.journal`); at != "2/7" {
		t.Errorf("epoch and fence %s", at)
	}
}

// gate stops who comes to it once it is armed, as SIGSTOP would, until it is opened: by the test, or at its end.
type gate struct {
	armed         atomic.Bool
	stopped, over chan struct{}
	open          func()
}

func newGate() *gate {
	g := &gate{stopped: make(chan struct{}), over: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.over) })
	return g
}

// pass stops once.
func (g *gate) pass() {
	if g.armed.CompareAndSwap(true, false) {
		close(g.stopped)
		<-g.over
	}
}

// stopper stops who writes at a step.
type stopper struct {
	*gate
	at string
}

func newStopper(at string) *stopper { return &stopper{newGate(), at} }

func (p *stopper) hook(step string) error {
	if step == p.at {
		p.pass()
	}
	return nil
}

// takenOver acquires as a stand-by does, asking again and again.
func takenOver(t *testing.T, s *Store, super *pgx.Conn, name, owner string) control.Lease {
	t.Helper()
	for {
		l, err := s.Acquire(t.Context(), name, owner, time.Hour)
		if err == nil {
			return l
		}
		if !codes.Has(err, codes.LeaseHeld) {
			t.Fatal(err)
		}
		run(t, super, `SELECT pg_sleep(0.02)`)
	}
}

// An owner that stops inside the transaction of a commit, the lease held, is ended by the server after half a term, of the session's or of the lease's own if that is
// shorter, and of his epoch nothing stands. The next owner has another login, which cannot end him, and waits for him much longer than that. The old one stands at
// the first moment at which he holds anything, so that nothing of his depends on those time-outs before.
func TestStoppedInsideCommit(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	before, b := open(t, db, Config{}), open(t, db, Config{URL: db.Super, TTL: 4 * time.Minute})
	for _, cfg := range []time.Duration{ttl, time.Hour} {
		run(t, super, `DELETE FROM weir.leases`)
		run(t, super, `TRUNCATE weir.journal CASCADE`)
		l, j := owned(t, before, "a", time.Hour)
		commitEpochs(t, j, stream, 1, 1)
		p := newStopper("locked")
		a := open(t, db, Config{TTL: cfg, Hook: p.hook})
		t.Cleanup(p.open) // before the stores are closed, which waits for their connections
		if cfg > ttl {
			l.TTL = ttl
		}
		zombie := a.Under(l)
		other := stream
		other.Seed++
		p.armed.Store(true)
		wait := after(func() error { return zombie.Commit(t.Context(), other.Commit(2)) })
		<-p.stopped
		expire(t, super)
		j = b.Under(acquired(t, b, l.Name, "b", time.Hour))
		mustHold(t, j, stream, 1)
		commitEpochs(t, j, stream, 2, 2)
		p.open()
		// Where nothing of the last flush was sent, it was tried again, and refused.
		if err := wait(); !codes.Has(err, codes.StoreUnavailable) && !codes.Has(err, codes.StaleFence) {
			t.Errorf("the old owner: %v", err)
		}
		alive(t, a)
		if err := zombie.Commit(t.Context(), other.Commit(2)); !codes.Has(err, codes.StaleFence) {
			t.Errorf("the old owner tries again: %v", err)
		}
		mustHold(t, j, stream, 2)
	}
}

// stuck is a network that lets half of the next large message through and no more: a client that is stopped while it sends.
type stuck struct{ *gate }

type stuckConn struct {
	net.Conn
	s *stuck
}

func (s *stuck) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &stuckConn{conn, s}, err
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if len(b) < 1<<20 || !c.s.armed.Load() {
		return c.Conn.Write(b)
	}
	if n, err := c.Conn.Write(b[:len(b)/2]); err != nil {
		return n, err
	}
	c.s.pass()
	n, err := c.Conn.Write(b[len(b)/2:])
	return len(b)/2 + n, err
}

// An owner that stops in the middle of what it sends holds the lease's row, and no time-out of the server sees that: it waits for the rest of a
// message. The next owner ends it.
func TestStoppedWhileSending(t *testing.T) {
	t.Parallel()
	db := place(t)
	var p *stuck
	a := open(t, db, Config{dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.dial(ctx, network, address)
	}})
	super := pgtest.Connect(t, db.Super)
	large := stream.Commit(2)
	large.Partitions[0].Rows.Data = make([]byte, 3<<20)
	large.Partitions[0].Rows.Count = 1
	ended := make(chan error, 1)
	var ttl time.Duration
	expiring(t, func(term time.Duration) bool {
		ttl, p = term, &stuck{newGate()}
		run(t, super, `DELETE FROM weir.leases`)
		run(t, super, `TRUNCATE weir.journal CASCADE`)
		a.pool.Reset()
		l, j := owned(t, a, "a", time.Hour)
		commitEpochs(t, j, stream, 1, 1)
		l.TTL = ttl // what the transaction goes by
		p.armed.Store(true)
		go func() { ended <- a.Under(l).Commit(t.Context(), large) }()
		select {
		case <-p.stopped:
			return true
		case err := <-ended: // it stood still for half a term before that
			if !codes.Has(err, codes.StoreUnavailable) {
				t.Fatalf("a large epoch: %v", err)
			}
			return false
		}
	})
	t.Cleanup(p.open) // before the store is closed, which waits for its connections
	expire(t, super)
	naive := pgtest.Connect(t, db.Runtime)
	run(t, naive, `SELECT set_config('lock_timeout', $1, false)`, millis(ttl)) // longer than a transaction may stand still
	if _, err := naive.Exec(t.Context(), callAcquire, control.StreamLease(stream.RunID), "naive", time.Hour, ""); stateOf(err) != lockTimeout {
		t.Errorf("negative control: the server ended it by itself: %v", err)
	}
	b := open(t, db, Config{TTL: 2 * time.Second})
	l := takenOver(t, b, super, control.StreamLease(stream.RunID), "b")
	if l.Token != 2 {
		t.Fatalf("take-over: %+v", l)
	}
	p.open()
	if err := <-ended; !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("the old owner: %v", err)
	}
	mustHold(t, a.Under(l), stream, 1)
}

// A commit that queues for the lease's row until its term is over is refused, by the clock after the wait; one that queues for longer than
// half a term gives up. Neither leaves anything.
func TestCommitQueuesForLease(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	_, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 1)
	expiring(t, func(term time.Duration) bool {
		wait, begun := overdue(t, db, super, term, 1, func() func() error {
			return after(func() error { return j.Commit(t.Context(), stream.Commit(2)) })
		})
		if err := wait(); !codes.Has(err, codes.StaleFence) {
			t.Errorf("after the wait: %v, want STALE_FENCE", err)
		}
		return begun
	})

	l, _ := owned(t, s, "a", time.Hour)
	l.TTL = 400 * time.Millisecond // what the transaction goes by
	blocker := begun(t, db.Super)
	run(t, blocker, `SELECT FROM weir.leases FOR UPDATE`)
	if err := s.Under(l).Commit(t.Context(), stream.Commit(2)); !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("longer than half a term: %v, want STORE_UNAVAILABLE", err)
	}
	run(t, blocker, "ROLLBACK")
	mustHold(t, s.Under(l), stream, 1)
}

// counted counts the round trips of a connection: how often a read follows on a write.
type counted struct {
	mu    sync.Mutex
	wrote bool
	trips int
}

type countedConn struct {
	net.Conn
	c *counted
}

func (c *counted) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &countedConn{conn, c}, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.c.mu.Lock()
	c.c.wrote = true
	c.c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	if n > 0 && c.c.wrote {
		c.c.trips++
		c.c.wrote = false
	}
	return n, err
}

// A fenced commit of ordinary size costs two round trips, with the session's time-outs or its own.
func TestFencedCommitTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	db := place(t)
	c := &counted{}
	before := 0
	s := open(t, db, Config{TTL: 2 * time.Minute, MaxConns: 1, dial: c.dial, Hook: func(step string) error {
		if c.mu.Lock(); step == "begin" { // the pool may have looked whether a connection that was idle for a while still lives
			before = c.trips
		}
		c.mu.Unlock()
		return nil
	}})
	l, j := owned(t, s, "a", time.Hour)
	epoch := uint64(0)
	commit := func() (trips int) {
		t.Helper()
		epoch++
		commitEpochs(t, j, stream, epoch, epoch)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.trips - before
	}
	for _, ttl := range []time.Duration{time.Hour, time.Minute} {
		l.TTL = ttl
		j = s.Under(l)
		for range 8 { // statements are prepared
			commit()
		}
		if trips := commit(); trips != 2 {
			t.Errorf("a commit under a lease of %s takes %d round trips", ttl, trips)
		}
	}
}

// A panic at any step of a commit gives the lease and the run back at once: the connection is closed, and its transaction with it.
func TestPanicInsideCommit(t *testing.T) {
	t.Parallel()
	db := place(t)
	at := ""
	s := open(t, db, Config{MaxConns: 1, Hook: func(step string) error {
		if step == at {
			panic("at " + step)
		}
		return nil
	}})
	l, j := owned(t, s, "a", time.Hour)
	for i, step := range []string{"begin", "locked", "commit"} {
		func() {
			defer func() {
				if r := recover(); r != "at "+step {
					t.Errorf("%s: recovered %v", step, r)
				}
			}()
			at = step
			err := j.Commit(t.Context(), stream.Commit(uint64(i+1)))
			t.Errorf("%s: no panic, %v", step, err)
		}()
		at = ""
		if _, err := s.Renew(t.Context(), l); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		commitEpochs(t, j, stream, uint64(i+1), uint64(i+1))
	}
	mustHold(t, j, stream, 3)
}

// Whatever an owner does at once, nothing of it meets a deadlock or waits for longer than it may: everybody locks the lease first.
func TestOwnerAtWork(t *testing.T) {
	t.Parallel()
	db := place(t)
	s := open(t, db, Config{TTL: time.Minute})
	l, j := owned(t, s, "a", time.Hour)
	const epochs = 25
	commitEpochs(t, j, stream, 1, 1)
	var wg sync.WaitGroup
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over); wg.Wait() })
	defer end()
	again := func(what string, fn func(n uint64) error) {
		wg.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-over:
					return
				default:
				}
				if err := fn(n); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	again("renew", func(uint64) error { _, err := s.Renew(t.Context(), l); return err })
	again("acquire", func(uint64) error { _, err := s.Acquire(t.Context(), l.Name, "a", time.Hour); return err })
	again("open", func(uint64) error { _, err := j.OpenRun(t.Context(), stream.Header()); return err })
	again("keep", func(uint64) error { return s.KeepPointer(t.Context(), l, pointerTo(1)) })
	again("drop", func(uint64) error {
		_, err := s.DropPointers(t.Context(), l, stream.RunID, []uint64{1, 2})
		return err
	})
	again("publish", func(n uint64) error {
		return s.Fenced(t.Context(), l, publication(fmt.Sprint("one", n), `1`), publication(fmt.Sprint("two", n), `2`))
	})
	again("snapshot", func(uint64) error {
		return s.Snapshot(t.Context(), stream.RunID, func(v control.JournalView) error {
			return v.Blobs(t.Context(), 0, func(control.BlobRef) error { return nil })
		})
	})
	commitEpochs(t, j, stream, 2, epochs)
	end()
	mustHold(t, j, stream, epochs)
}
