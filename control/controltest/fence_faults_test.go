package controltest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// owned is a Memory with a run that an owner has opened.
func owned(t *testing.T, ttl time.Duration) (*Memory, control.Lease, control.Journal) {
	t.Helper()
	m := NewMemory()
	l, err := m.Acquire(t.Context(), control.StreamLease(streamed.RunID), "a", ttl)
	if err != nil {
		t.Fatal(err)
	}
	j := m.Under(l)
	if _, err := j.OpenRun(t.Context(), streamed.Header()); err != nil {
		t.Fatal(err)
	}
	return m, l, j
}

// A fault before, within and after a fenced commit: it stands in the last case only.
func TestFaultsOfFencedCommits(t *testing.T) {
	t.Parallel()
	lost := errors.New("injected")
	for _, c := range []struct {
		name   string
		fault  Fault
		stands uint64
	}{
		{"before", Fault{Op: OpCommit, Call: 1, Err: lost}, 0},
		{"within", Fault{Op: OpCommit, Call: 1, Within: true, Err: lost}, 0},
		{"after", Fault{Op: OpCommit, Call: 1, After: true, Err: lost}, 1},
		{"delay within", Fault{Op: OpCommit, Call: 1, Within: true, Do: pass}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, _, j := owned(t, time.Hour)
			m.Inject(c.fault)
			if err := j.Commit(t.Context(), streamed.Commit(1)); err != c.fault.Err {
				t.Errorf("the commit says %v", err)
			}
			if got := m.Epoch(streamed.RunID); got != c.stands {
				t.Errorf("the run stands at epoch %d, want %d", got, c.stands)
			}
			m.AllFired(t)
			if err := j.Commit(t.Context(), streamed.Commit(c.stands+1)); err != nil {
				t.Errorf("the next commit: %v", err)
			}
		})
	}
}

// Every write under a lease can be stopped in its transaction.
func TestFaultsWithin(t *testing.T) {
	t.Parallel()
	injected := errors.New("injected")
	m, l, j := owned(t, time.Hour)
	ctx := t.Context()
	if err := j.Commit(ctx, streamed.Commit(1)); err != nil {
		t.Fatal(err)
	}
	c := saved{state: control.RunState{Header: streamed.Header(), Epoch: 1, Watermark: streamed.Commit(1).Watermark}}
	err := m.Snapshot(ctx, streamed.RunID, func(v control.JournalView) error { c.state = v.State(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	child, err := m.Acquire(ctx, control.StreamLease("fork"), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	keep := func() error { return m.KeepPointer(ctx, l, pointerAt(streamed.RunID, 1)) }
	for _, w := range []struct {
		op   Op
		call func() error
	}{
		{OpOpen, func() error { _, err := j.OpenRun(ctx, streamed.Header()); return err }},
		{OpFenced, func() error { return m.Fenced(ctx, l, publish("k", "1")) }},
		{OpKeepPointer, keep},
		{OpPinPointer, func() error { return m.PinPointer(ctx, l, streamed.RunID, 1, true) }},
		{OpDropPointers, func() error { _, err := m.DropPointers(ctx, l, streamed.RunID, []uint64{1}); return err }},
		{OpFork, func() error { return m.ForkRun(ctx, child, c.fork("fork")) }},
	} {
		m.Inject(Fault{Op: w.op, Call: 1, Within: true, Err: injected})
		if err := w.call(); err != injected {
			t.Errorf("%s: %v", w.op, err)
		}
		if err := w.call(); err != nil {
			t.Errorf("%s without a fault: %v", w.op, err)
		}
	}
	m.AllFired(t)
}

// An owner stalls in the transaction of a commit for longer than its lease lasts. Its heartbeats go on, nobody takes over, and what it commits is
// there for the next owner. It is what a database does that keeps the lease's row locked.
func TestAStalledCommitHoldsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		m, l, j := owned(t, ttl)
		m.Inject(Fault{Op: OpCommit, Call: 1, Within: true, Do: func() {
			<-time.After(ttl / 2)
			if _, err := m.Renew(t.Context(), l); err != nil {
				t.Errorf("the heartbeat beside a stalled commit: %v", err)
			}
			<-time.After(5 * ttl / 2)
		}})
		begun := time.Now()
		done := make(chan error, 1)
		go func() { done <- j.Commit(t.Context(), streamed.Commit(1)) }()
		synctest.Wait()
		if _, err := m.Acquire(t.Context(), l.Name, "b", ttl); !codes.Has(err, codes.LeaseHeld) {
			t.Errorf("a lease that lasts: %v", err)
		}
		<-time.After(2 * ttl)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Acquire(short, l.Name, "b", ttl); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a take-over that may not wait: %v", err)
		}
		next, err := m.Acquire(t.Context(), l.Name, "b", ttl)
		if err != nil || next.Token != 2 || time.Since(begun) != 3*ttl {
			t.Errorf("a take-over: token %d after %v, %v", next.Token, time.Since(begun), err)
		}
		if got := m.Epoch(streamed.RunID); got != 1 {
			t.Errorf("the next owner finds epoch %d", got)
		}
		if err := <-done; err != nil {
			t.Errorf("the stalled commit: %v", err)
		}
		if err := j.Commit(t.Context(), streamed.Commit(2)); !codes.Has(err, codes.StaleFence) {
			t.Errorf("the old owner's next commit: %v", err)
		}
		m.AllFired(t)
	})
}

// An owner that stalls before its transaction begins is refused when it goes on.
func TestACommitThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 6 * time.Second
		m, l, j := owned(t, ttl)
		m.Inject(Fault{Op: OpCommit, Call: 1, Do: func() { <-time.After(5 * ttl / 2) }})
		done := make(chan error, 1)
		go func() { done <- j.Commit(t.Context(), streamed.Commit(1)) }()
		<-time.After(2 * ttl)
		if _, err := m.Acquire(t.Context(), l.Name, "b", ttl); err != nil {
			t.Errorf("a take-over: %v", err)
		}
		if err := <-done; !codes.Has(err, codes.StaleFence) {
			t.Errorf("the late commit: %v", err)
		}
		if got := m.Epoch(streamed.RunID); got != 0 {
			t.Errorf("the run stands at epoch %d", got)
		}
	})
}

// A client that panics in the transaction leaves nothing, and the lease can be taken over.
func TestAPanicWithin(t *testing.T) {
	t.Parallel()
	m, l, j := owned(t, time.Hour)
	m.Inject(Fault{Op: OpCommit, Call: 1, Within: true, Do: func() { panic("injected") }})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		_ = j.Commit(t.Context(), streamed.Commit(1))
	}()
	if got := m.Epoch(streamed.RunID); got != 0 {
		t.Errorf("the run stands at epoch %d", got)
	}
	m.ExpireLease(l.Name)
	if next, err := m.Acquire(t.Context(), l.Name, "b", time.Hour); err != nil || next.Token != 2 {
		t.Errorf("%+v, %v", next, err)
	}
}

// Clocks of clients do not matter: only the store's judges. What a client believes of its term, by a clock that is two minutes off either way, neither
// ends it nor makes it longer.
func TestClocksOfClientsDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		m := NewMemory()
		now := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // the store's
		m.Now = func() time.Time { return now }
		l, err := m.Acquire(t.Context(), control.StreamLease(streamed.RunID), "a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		l.Until, l.Deadline = l.Until.Add(skew), l.Deadline.Add(skew)
		j := m.Under(l)
		if _, err := j.OpenRun(t.Context(), streamed.Header()); err != nil {
			t.Errorf("skew %v: open: %v", skew, err)
		}
		now = now.Add(time.Minute - 1)
		if err := j.Commit(t.Context(), streamed.Commit(1)); err != nil {
			t.Errorf("skew %v: commit in the last moment of the term: %v", skew, err)
		}
		now = now.Add(1)
		if err := j.Commit(t.Context(), streamed.Commit(2)); !codes.Has(err, codes.StaleFence) {
			t.Errorf("skew %v: commit at the end of the term: %v", skew, err)
		}
		if _, err := m.Renew(t.Context(), l); !codes.Has(err, codes.StaleFence) {
			t.Errorf("skew %v: a heartbeat at the end of the term: %v", skew, err)
		}
		next, err := m.Acquire(t.Context(), l.Name, "b", time.Minute)
		if err != nil || next.Token != 2 || !next.Until.Equal(now.Add(time.Minute)) {
			t.Errorf("skew %v: %+v, %v", skew, next, err)
		}
	}
}

// A fault is before, within or after.
func TestFaultsHaveOneMoment(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a fault within and after was taken")
		}
	}()
	NewMemory().Inject(Fault{Op: OpCommit, Call: 1, After: true, Within: true})
}
