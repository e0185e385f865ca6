package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var planeRequest = control.Request{Principal: "alice", Operation: "batch.run", Key: "key", Body: []byte(`{"flow":"ema","snapshot":"ticks"}`), Flow: "ema", Snapshot: "ticks"}

// batchRun is a child's task: one run, from its admission to its end.
func (t task) batchRun(ctx context.Context, cfg Config) error {
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	if err := doRun(ctx, s, control.NewOwner()); err != nil {
		return err
	}
	fmt.Println("acked 1")
	return s.Close()
}

// results is what a run publishes: enough for statements of every size.
func results(runID string) (out control.Publish) {
	for i := range 75 {
		out.Publications = append(out.Publications, control.Publication{Key: fmt.Sprintf("row/%s/%d", runID, i), Value: fmt.Appendf(nil, `{"i":%d}`, i), RunID: runID})
	}
	out.Publications = append(out.Publications, control.Publication{Key: control.ResultKey(runID), Value: []byte(`{"rows":75}`), RunID: runID})
	return out
}

// doRun does what a worker does, with every call of the plane. What was done before, it takes as it is.
func doRun(ctx context.Context, s *Store, owner string) error {
	run, _, err := s.Admit(ctx, planeRequest)
	if err != nil {
		return err
	}
	l, err := s.Acquire(ctx, control.RunLease(run.ID), owner, time.Hour)
	if err != nil {
		return err
	}
	events, err := s.Claim(ctx, owner, 10)
	if err != nil {
		return err
	}
	if run.Phase == control.Queued {
		if err := s.Fenced(ctx, l, control.StartRun{RunID: run.ID}); err != nil {
			return err
		}
		if l, err = s.Renew(ctx, l); err != nil {
			return err
		}
		var ids []int64
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		err := s.Fenced(ctx, l, results(run.ID), control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: []string{"sha256:1"}}, control.Deliver{EventIDs: ids})
		if err != nil {
			return err
		}
	}
	return s.Release(ctx, l)
}

// whole says whether what stands of the run is a state between two commits, and returns its phase ("" without a run).
func whole(ctx context.Context, s *Store) (control.RunPhase, error) {
	id := control.RunIDOf(planeRequest)
	events, err := s.ListEvents(ctx, true, 0)
	if err != nil {
		return "", err
	}
	n := 0
	if err := s.Publications(ctx, "", func(control.Publication, string) error { n++; return nil }); err != nil {
		return "", err
	}
	run, err := s.LookupRun(ctx, id)
	if codes.Has(err, codes.RunUnknown) {
		if len(events)+n > 0 {
			return "", fmt.Errorf("without a run there are %d events and %d publications", len(events), n)
		}
		return "", nil
	}
	if err != nil {
		return "", err
	}
	done := run.Phase == control.Succeeded
	if len(events) != 1 || events[0].RunID != id || events[0].Delivered != done || done != (n == 76) || !done && n > 0 || done != (run.Revision == 1) {
		return "", fmt.Errorf("the run is %s in revision %d, with %d publications and the events %+v", run.Phase, run.Revision, n, events)
	}
	return run.Phase, nil
}

// recoverRun is what comes after a crash: the term ends, the reconciler repairs, another worker finishes. It ends in one way only.
func recoverRun(t *testing.T, path string) error {
	h := &planted{t: t, path: path, own: open(t, Config{Path: path})}
	defer h.own.Close()
	id := control.RunIDOf(planeRequest)
	if err := h.harness().Expire(control.RunLease(id)); err != nil {
		return err
	}
	if _, err := h.own.Reconcile(t.Context(), true, 0); err != nil {
		return err
	}
	if err := doRun(t.Context(), h.own, "second"); err != nil {
		return err
	}
	phase, err := whole(t.Context(), h.own)
	if err == nil && phase != control.Succeeded {
		err = fmt.Errorf("the run ends %s", phase)
	}
	if err != nil {
		return err
	}
	found, err := h.own.Reconcile(t.Context(), false, 0)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the reconciler finds %+v", found)
	}
	return err
}

// An error or a cancellation between any two steps of a run: what stands is whole, and recovery leads to the one end.
func TestPlaneFailsAtEveryStep(t *testing.T) {
	t.Parallel()
	injected := errors.New("injected")
	for _, cancels := range []bool{false, true} {
		seen := map[string]bool{}
		for n := 1; ; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			at := &atStep{act: func() error {
				if cancels {
					cancel()
					return nil
				}
				return injected
			}}
			path := filepath.Join(t.TempDir(), "weir.db")
			s := open(t, Config{Path: path, Hook: at.hook})
			at.n = n
			err := doRun(ctx, s, "first")
			cancel()
			at.n = 0
			switch {
			case at.name == "" && err != nil:
				t.Fatal(err)
			case at.name != "" && !cancels && !errors.Is(err, injected), at.name != "" && cancels && err != nil && !errors.Is(err, context.Canceled):
				t.Errorf("step %d (%s): %v", n, at.name, err)
			}
			if _, werr := whole(t.Context(), s); werr != nil {
				t.Errorf("step %d (%s): %v", n, at.name, werr)
			}
			if cerr := s.Close(); cerr != nil {
				t.Error(cerr)
			}
			if at.name == "" { // it had fewer steps
				break
			}
			seen[at.name] = true
			if rerr := recoverRun(t, path); rerr != nil {
				t.Errorf("step %d (%s): recovery: %v", n, at.name, rerr)
			}
		}
		for _, step := range []string{"begin", "read scope", "next run", "insert run", "next event", "insert event", "read lease", "write lease", "read events", "write event", "read admitted run", "write admitted run",
			"publish", "read event", "commit", "committed"} {
			if !seen[step] {
				t.Errorf("nothing happened at the step %q", step)
			}
		}
	}
}

// clock is a store's clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A term ends with its last nanosecond.
func TestLeaseEndsByTheStoresClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), Now: c.read})
	defer s.Close()
	l, err := s.Acquire(t.Context(), "job", "a", time.Second)
	if err != nil || !l.Until.Equal(c.now.Add(time.Second)) {
		t.Fatalf("%+v, %v", l, err)
	}
	c.move(time.Second - 1)
	if err := s.Fenced(t.Context(), l); err != nil {
		t.Errorf("one nanosecond before the end: %v", err)
	}
	if _, err := s.Acquire(t.Context(), "job", "b", time.Second); !codes.Has(err, codes.LeaseHeld) {
		t.Errorf("one nanosecond before the end: %v", err)
	}
	c.move(1)
	if err := s.Fenced(t.Context(), l); !codes.Has(err, codes.StaleFence) {
		t.Errorf("at the end: %v", err)
	}
	if next, err := s.Acquire(t.Context(), "job", "b", time.Second); err != nil || next.Token != 2 {
		t.Errorf("at the end: %+v, %v", next, err)
	}
}

// A released term stays ended when the clock of the machine is set back.
func TestReleaseSurvivesAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), Now: c.read})
	defer s.Close()
	l, err := s.Acquire(t.Context(), "job", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c.move(time.Minute)
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	c.move(-time.Hour)
	if err := s.Fenced(t.Context(), l); !codes.Has(err, codes.StaleFence) {
		t.Errorf("an effect under the released term: %v", err)
	}
	if next, err := s.Acquire(t.Context(), "job", "b", time.Hour); err != nil || next.Token != 2 {
		t.Errorf("%+v, %v", next, err)
	}
}

// The clock is read after the lock: an effect that waited for another writer until its term had ended does not run.
func TestExpiryIsJudgedAfterTheWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	c := newClock()
	started := make(chan struct{}, 1)
	s := open(t, Config{Path: path, Now: c.read, BusyTimeout: time.Minute, Hook: func(step string) error {
		if step == "begin" {
			started <- struct{}{}
		}
		return nil
	}})
	defer s.Close()
	<-started // the migration's
	other := open(t, Config{Path: path})
	defer other.Close()
	l, err := s.Acquire(t.Context(), "job", "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	<-started
	done := make(chan error, 1)
	err = other.write(t.Context(), func(*txn) error {
		go func() {
			done <- s.Fenced(t.Context(), l, control.Publish{Publications: []control.Publication{{Key: "k", Value: []byte("1")}}})
		}()
		<-started // it is on its way to the lock, which it cannot have
		c.move(2 * time.Second)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; !codes.Has(err, codes.StaleFence) {
		t.Errorf("after the wait: %v", err)
	}
	if err := s.Publications(t.Context(), "", func(p control.Publication, _ string) error { return fmt.Errorf("%q stands", p.Key) }); err != nil {
		t.Error(err)
	}
}

// The wait for a writer that is stopped in the middle of its transaction ends, and is told as what it is.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	s := open(t, Config{Path: path, BusyTimeout: 10 * time.Millisecond})
	defer s.Close()
	other := open(t, Config{Path: path})
	defer other.Close()
	err := other.write(t.Context(), func(*txn) error {
		_, err := s.Acquire(t.Context(), "job", "a", time.Second)
		if !codes.Has(err, codes.StoreUnavailable) || control.Refused(err) || !strings.Contains(err.Error(), "locked by another process") {
			t.Errorf("while another process writes: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "job", "a", time.Second); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// SQLite has no queue for its lock. A writer beside others that come again at once gets its turn all the same; how soon depends on the machine, so
// the bound is a minute (and a tenth of that would do where a core is free).
func TestNoWriterStarves(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.db")
	quiet := open(t, Config{Path: path, BusyTimeout: time.Minute})
	defer quiet.Close()
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for i := range 4 {
		s := open(t, Config{Path: path, BusyTimeout: time.Minute})
		defer s.Close()
		l, err := s.Acquire(ctx, fmt.Sprintf("job-%d", i), "a", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		busy.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := s.Fenced(ctx, l, results(fmt.Sprintf("%d-%d", i, n))); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 30 {
		if _, err := quiet.Acquire(t.Context(), "quiet", "a", time.Hour); err != nil {
			t.Error(err)
			break
		}
	}
	stop()
	busy.Wait()
}

// A changed byte in a row is noticed by whatever reads the row.
func TestDamagedRowsOfThePlane(t *testing.T) {
	t.Parallel()
	for statement, call := range map[string]func(ctx context.Context, s *Store, id string) error{
		"UPDATE leases SET token = token + 1": func(ctx context.Context, s *Store, id string) error { _, err := s.ListLeases(ctx); return err },
		"UPDATE leases SET until_ns = until_ns + 1": func(ctx context.Context, s *Store, id string) error {
			_, _, err := s.LookupLease(ctx, control.RunLease(id))
			return err
		},
		"UPDATE leases SET owner = 'x'": func(ctx context.Context, s *Store, id string) error {
			_, err := s.Acquire(ctx, control.RunLease(id), "x", time.Second)
			return err
		},
		"UPDATE admission SET phase = 'QUEUED'": func(ctx context.Context, s *Store, id string) error { _, err := s.LookupRun(ctx, id); return err },
		"UPDATE admission SET body = x'7b7d'": func(ctx context.Context, s *Store, id string) error {
			_, _, err := s.Admit(ctx, planeRequest)
			return err
		},
		"UPDATE admission SET error = 'x'": func(ctx context.Context, s *Store, id string) error { _, err := s.CancelRun(ctx, id); return err },
		"UPDATE admission SET result_refs = '[]'": func(ctx context.Context, s *Store, id string) error {
			_, _, err := s.ListRuns(ctx, control.RunFilter{})
			return err
		},
		"UPDATE outbox SET delivered = 0, claimant = ''": func(ctx context.Context, s *Store, id string) error { _, err := s.Claim(ctx, "x", 1); return err },
		"UPDATE outbox SET attempt = 9":                  func(ctx context.Context, s *Store, id string) error { _, err := s.ListEvents(ctx, true, 0); return err },
		"UPDATE outbox SET run_id = 'x'": func(ctx context.Context, s *Store, id string) error {
			return s.ReleaseEvents(ctx, "", []int64{1}, false)
		},
		"UPDATE outbox SET claimed_ns = 1, delivered = 0":   func(ctx context.Context, s *Store, id string) error { _, err := s.Reconcile(ctx, false, 0); return err },
		"UPDATE admission SET phase = 'RUNNING', crc = crc": func(ctx context.Context, s *Store, id string) error { _, err := s.Reconcile(ctx, true, 0); return err },
	} {
		h := newHarness(t)
		if err := doRun(t.Context(), h.own, "first"); err != nil {
			t.Fatal(err)
		}
		if err := h.exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if err := call(t.Context(), h.own, control.RunIDOf(planeRequest)); !codes.Has(err, codes.JournalCorrupt) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// Close ends the watchers, whatever their contexts say, and a store that is closed has none.
func TestCloseEndsWake(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	wake := s.Wake(t.Context())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range wake { // ends when it is closed
	}
	if _, ok := <-s.Wake(t.Context()); ok {
		t.Error("a closed store wakes")
	}
}

// An event's id is never given again, also when it was the newest and was removed.
func TestEventIDsAreNeverReused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if _, _, err := h.own.Admit(t.Context(), planeRequest); err != nil {
		t.Fatal(err)
	}
	if err := h.exec("DELETE FROM outbox"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.own.Reconcile(t.Context(), true, 0); err != nil {
		t.Fatal(err)
	}
	events, err := h.own.ListEvents(t.Context(), true, 0)
	if err != nil || len(events) != 1 || events[0].ID != 2 {
		t.Errorf("%+v, %v", events, err)
	}
}

// A value that SQLite does not take is refused before anything is written.
func TestLargePublication(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "weir.db"), maxBlob: 1000})
	defer s.Close()
	l, err := s.Acquire(t.Context(), "job", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	big := control.Publish{Publications: []control.Publication{{Key: "small", Value: []byte("1")}, {Key: "big", Value: make([]byte, 1001)}}}
	if err := s.Fenced(t.Context(), l, big); !codes.Has(err, codes.LimitReached) || !control.Refused(err) {
		t.Errorf("got %v", err)
	}
	if err := s.Publications(t.Context(), "", func(p control.Publication, _ string) error { return fmt.Errorf("%q stands", p.Key) }); err != nil {
		t.Error(err)
	}
}
