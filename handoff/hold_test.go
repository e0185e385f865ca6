package handoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/handoff"
)

const ttl = 3 * time.Second

func acquire(t *testing.T, store *controltest.Memory) (*handoff.Hold, context.Context) {
	t.Helper()
	h, work, err := handoff.Acquire(t.Context(), store, runID, "me", ttl, 0)
	if err != nil {
		t.Fatal(err)
	}
	return h, work
}

// A lease is kept for as long as the work takes, and free the moment it is released.
func TestALeaseIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := controltest.NewMemory()
		h, work := acquire(t, store)
		for range 40 {
			<-time.After(time.Second)
			if info, ok, err := store.LookupLease(t.Context(), control.StreamLease(runID)); err != nil || !ok || !info.Valid || info.Token != 1 || work.Err() != nil {
				t.Fatalf("%+v, %v, %v", info, err, context.Cause(work))
			}
		}
		if left := time.Until(h.Lease().Deadline); left < ttl/2 {
			t.Errorf("%s are left of the lease", left)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, _ := acquire(t, store)
		if l := next.Lease(); l.Token != 2 {
			t.Errorf("the next owner has token %d", l.Token)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that is refused ends the work at once, with the code of the engine; one that gets no answer ends it at the deadline, not later.
func TestALeaseIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault controltest.Fault
		after time.Duration
	}{
		"refused":   {controltest.Fault{Op: controltest.OpRenew, Call: 2, Err: codes.New(codes.StaleFence, "taken over")}, 2 * ttl / 3},
		"no answer": {controltest.Fault{Op: controltest.OpRenew, Call: 2, Do: func() { <-time.After(time.Hour) }, Err: errors.New("late")}, ttl/3 + ttl},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := controltest.NewMemory()
				store.Inject(c.fault)
				began := time.Now()
				h, work := acquire(t, store)
				<-work.Done()
				if took := time.Since(began); took != c.after || !codes.Has(context.Cause(work), codes.StreamFenceStale) {
					t.Errorf("after %s, want %s: %v", took, c.after, context.Cause(work))
				}
				store.AllFired(t)
				h.Release(t.Context()) // waits for the answer, and may fail: the lease is lost
			})
		})
	}
}

// A store that fails for less than the lease lasts does no harm.
func TestALeaseOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := controltest.NewMemory()
		for call := 2; call <= 5; call++ {
			store.Inject(controltest.Fault{Op: controltest.OpRenew, Call: call, Err: codes.New(codes.StoreUnavailable, "away")})
		}
		h, work := acquire(t, store)
		<-time.After(5 * ttl)
		store.AllFired(t)
		if work.Err() != nil {
			t.Errorf("%v", context.Cause(work))
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who stands by begins within a moment of the release, and stops waiting when it is told to.
func TestStandingBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := controltest.NewMemory()
		h, _ := acquire(t, store)
		got := make(chan control.Lease)
		go func() {
			next, _, err := handoff.Acquire(t.Context(), store, runID, "next", ttl, 200*time.Millisecond)
			if err != nil {
				t.Error(err)
			}
			got <- next.Lease()
			next.Release(t.Context())
		}()
		<-time.After(10 * ttl)
		released := time.Now()
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := <-got; l.Token != 2 || time.Since(released) > 200*time.Millisecond {
			t.Errorf("token %d after %s", l.Token, time.Since(released))
		}
		synctest.Wait()
		h, _ = acquire(t, store)
		gaveUp := errors.New("gave up")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(gaveUp) })
		if _, _, err := handoff.Acquire(ctx, store, runID, "another", ttl, 200*time.Millisecond); !errors.Is(err, gaveUp) {
			t.Errorf("%v", err)
		}
		h.Release(t.Context())
	})
}
