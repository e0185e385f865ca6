package checkpoint_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

func epochs(all []control.Pointer) (out []uint64) {
	for _, p := range all {
		out = append(out, p.Epoch)
	}
	return out
}

// release gives the run up, so that a clean-up may drop its checkpoints.
func (w *world) release(t testing.TB) {
	t.Helper()
	if err := w.store.Release(t.Context(), w.lease); err != nil {
		t.Fatal(err)
	}
}

// TestCleanUp: what is kept, what goes, in which pass, and that a dry run says the same and does nothing.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 8 {
		w.own(t, time.Hour)
		w.feed(t, 20, 5)
		w.save(t)
		if i == 1 {
			if err := w.store.PinPointer(t.Context(), w.lease, w.runID, 2, true); err != nil {
				t.Fatal(err)
			}
		}
		w.sleep(time.Minute)
	}
	w.release(t)
	if c := w.collect(t); len(c.Dropped) != 0 || len(c.SetAside) != 0 || len(c.Kept) != 8 {
		t.Errorf("all are young: %+v", c)
	}
	w.sleep(2 * time.Hour)
	standing := len(w.standing(t))
	dry, err := w.gc().DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(w.standing(t)) != standing || len(w.pointers(t)) != 8 {
		t.Fatal("a dry run changes something")
	}
	c := w.collect(t)
	if !slices.Equal(epochs(c.Dropped), []uint64{1, 3}) || !slices.Equal(epochs(c.Kept), []uint64{2, 4, 5, 6, 7, 8}) || len(c.SetAside) == 0 || len(c.Purged) != 0 {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(epochs(dry.Dropped), epochs(c.Dropped)) || fmt.Sprint(dry.SetAside) != fmt.Sprint(c.SetAside) || dry.Referenced != c.Referenced {
		t.Errorf("a dry run says %+v\nand it did %+v", dry, c)
	}
	if got := w.standing(t); len(got) != c.Referenced {
		t.Errorf("%d blobs stand, %d are referred to", len(got), c.Referenced)
	}
	w.sleep(59 * time.Minute)
	if again := w.collect(t); len(again.Waiting) != len(c.SetAside) || len(again.Purged) != 0 {
		t.Errorf("before the grace: %+v", again)
	}
	w.sleep(time.Minute)
	if last := w.collect(t); len(last.Purged) != len(c.SetAside) || len(last.BroughtBack) != 0 {
		t.Errorf("after the grace: %+v", last)
	}
	if end := w.collect(t); len(end.Waiting)+len(end.Purged)+len(end.SetAside) != 0 || len(w.damaged(t)) > 0 {
		t.Errorf("%+v, %v", end, w.damaged(t))
	}
}

func TestCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.feed(t, 20, 5)
		w.save(t)
	}
	gc := w.gc()
	gc.Grace = time.Minute
	_, err := gc.Collect(t.Context())
	refusedWith(t, "a short grace", err, codes.ConfigInvalid, "15m")
	gc = w.gc()
	gc.Keep = -1
	_, err = gc.DryRun(t.Context())
	refusedWith(t, "keeping less than none", err, codes.ConfigInvalid)
	for _, owner := range []string{"", "another store"} {
		w.blobs.Owned = owner
		_, err = w.gc().Collect(t.Context())
		refusedWith(t, "blobs of "+owner, err, codes.ConfigInvalid)
		_, err = w.gc().DryRun(t.Context())
		refusedWith(t, "blobs of "+owner, err, codes.ConfigInvalid)
	}
	w.blobs.Owned = w.store.ID
	held, err := w.store.Acquire(t.Context(), checkpoint.CleanUpLease, "somebody", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.gc().Collect(t.Context())
	refusedWith(t, "another collector", err, codes.LeaseHeld, "somebody")
	if err := w.store.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	// The run is owned: its pointers are left to the owner, the rest is done.
	w.sleep(2 * time.Hour)
	w.own(t, time.Hour)
	gc = w.gc()
	gc.Keep = 1
	if c, err := gc.Collect(t.Context()); err != nil || len(c.Dropped) != 0 || !codes.Has(c.Owned[w.runID], codes.LeaseHeld) {
		t.Errorf("%+v, %v", c, err)
	}
	// A manifest that cannot be read hides what it refers to: nothing is removed.
	w.release(t)
	if _, err := checkpoint.PutBytes(t.Context(), w.blobs, []byte("nobody's")); err != nil {
		t.Fatal(err)
	}
	w.sleep(2 * time.Hour)
	last := w.pointers(t)[2]
	w.blobs.Damage(last.Manifest, func(b []byte) []byte { b[7]++; return b })
	before := len(w.standing(t))
	_, err = w.gc().Collect(t.Context())
	refusedWith(t, "a damaged manifest", err, codes.CheckpointCorrupt, "nothing was removed", last.Manifest)
	if after := len(w.standing(t)); after != before {
		t.Errorf("%d of %d blobs stand", after, before)
	}
}

// A predecessor that was stopped before its clean-up removes nothing of its successor's: dropping is fenced by the run's lease.
func TestDelayedCleanUpOfAPredecessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.feed(t, 20, 5)
		w.save(t)
	}
	w.release(t)
	w.sleep(2 * time.Hour)
	gc := w.gc()
	gc.Keep = 1
	s := &steps{}
	done := false
	gc.Store = storeSteps{w.store, s}
	w.store.Inject(controltest.Fault{Op: controltest.OpDropPointers, Call: 1, Do: func() {
		// The collector holds the run's lease and is stopped here; it runs out, and the next owner saves.
		w.sleep(time.Hour)
		w.own(t, 20*time.Hour)
		w.feed(t, 20, 5)
		w.save(t)
		done = true
	}})
	_, err := gc.Collect(t.Context())
	refusedWith(t, "the late drop", err, codes.StaleFence)
	if got := epochs(w.pointers(t)); !done || !slices.Equal(got, []uint64{1, 2, 3, 4}) || len(w.damaged(t)) > 0 {
		t.Errorf("checkpoints %v, damaged %v", got, w.damaged(t))
	}
}

// abandoned is a world in which a save died before its pointer: blobs that nobody refers to stand, old enough to be removed, and the next save
// counts on them.
func abandoned(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.feed(t, 60, 5)
	w.store.Inject(controltest.Fault{Op: controltest.OpKeepPointer, Call: 1, Err: errKilled})
	if _, err := w.saver().Save(t.Context(), w.lease, w.runID); err == nil {
		t.Fatal("the save did not die")
	}
	w.release(t)
	w.sleep(2 * time.Hour)
	return w
}

// settle runs whole clean-ups until nothing is left to do, and says which checkpoints are not whole then. Nobody reads a blob before, since
// reading brings back what is set aside.
func (w *world) settle(t *testing.T) (bad []string) {
	t.Helper()
	for range 4 {
		w.collect(t)
		w.sleep(2 * time.Hour)
	}
	return w.damaged(t)
}

// pass is one whole clean-up by another collector; while the lease is held it is refused.
func (w *world) pass(t *testing.T) {
	t.Helper()
	gc := w.gc()
	if _, err := gc.Collect(t.Context()); err != nil && !codes.Has(err, codes.LeaseHeld) {
		t.Errorf("another collector: %v", err)
	}
}

// A collector is stopped at each of its steps, for a moment or for hours, while a save counts on blobs that the collector is about to remove, and
// while other collectors work. Every checkpoint is whole afterwards, whatever is cleaned up then.
func TestCollectorStoppedAnywhere(t *testing.T) {
	t.Parallel()
	waits := []time.Duration{0, 30 * time.Minute, 3 * time.Hour}
	for _, wait := range waits {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, others %v", wait, others), func(t *testing.T) {
				t.Parallel()
				stoppedCollector(t, func(w *world) {
					w.sleep(wait)
					if others {
						w.pass(t)
					}
					w.own(t, time.Minute)
					w.save(t)
					w.release(t)
					w.sleep(wait)
					if others {
						w.pass(t)
					}
				})
			})
		}
	}
}

// stoppedCollector stops a collector of pass one and, when something is set aside already, of pass two, at every step.
func stoppedCollector(t *testing.T, meanwhile func(w *world)) {
	for _, second := range []bool{false, true} {
		for at := 1; ; at++ {
			w := abandoned(t)
			if second {
				w.collect(t)
				w.sleep(2 * time.Hour)
			}
			s, stopped := &steps{}, false
			s.pause(at, func() { stopped = true; meanwhile(w) })
			if _, err := w.gcOf(s).Collect(t.Context()); err != nil && !codes.Has(err, codes.StaleFence) {
				t.Fatalf("step %d: %v", at, err)
			}
			if !stopped {
				if at < 10 {
					t.Errorf("a collector of %d steps", at)
				}
				break
			}
			if bad := w.settle(t); len(bad) > 0 || len(w.pointers(t)) != 1 {
				t.Errorf("second pass %v, stopped at step %d: %d checkpoints, %v", second, at, len(w.pointers(t)), bad)
			}
		}
	}
}

// A save is stopped at each of its steps while whole clean-ups pass, for as long as a save may take or longer. It ends with a whole checkpoint, or
// without one. A collector that was stopped before goes on after it.
func TestSaverStoppedAnywhere(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Minute, 24 * time.Hour} {
		for _, wait := range []time.Duration{0, checkpoint.MaxSave - time.Second, checkpoint.MinGrace + time.Second, 3 * time.Hour} {
			t.Run(fmt.Sprintf("lease %s, stopped for %s", ttl, wait), func(t *testing.T) {
				t.Parallel()
				saved, refused := 0, 0
				for at := 1; ; at++ {
					w := abandoned(t)
					w.own(t, ttl)
					s, stopped := &steps{}, false
					s.pause(at, func() {
						stopped = true
						w.shortGrace(t)
						w.sleep(wait)
						w.shortGrace(t)
					})
					// The statement of the pointer is the last step but one: from there on only the lease bounds a stop, and that is
					// renewed by a process that works.
					_, err := w.saverOf(s).Save(t.Context(), w.lease, w.runID)
					if !stopped {
						break
					}
					switch n := len(w.pointers(t)); {
					case err == nil && n == 1:
						saved++
					case codes.Has(err, codes.StaleFence) && n == 0, codes.Has(err, codes.LimitReached) && n == 0:
						refused++
					default:
						t.Errorf("step %d: %d pointers, %v", at, n, err)
					}
					if ttl > time.Hour && wait > checkpoint.MaxSave && err == nil {
						continue // stopped after the check of the time, with a lease that lasts: excluded, see GC
					}
					if bad := w.settleShort(t); len(bad) > 0 {
						t.Errorf("step %d: %v", at, bad)
					}
				}
				if saved == 0 || wait > checkpoint.MaxSave && refused == 0 {
					t.Errorf("%d saved, %d refused", saved, refused)
				}
			})
		}
	}
}

// shortGrace is a clean-up with the shortest grace there is.
func (w *world) shortGrace(t *testing.T) {
	t.Helper()
	gc := w.gc()
	gc.Grace = checkpoint.MinGrace
	if _, err := gc.Collect(t.Context()); err != nil {
		t.Errorf("a collector: %v", err)
	}
}

func (w *world) settleShort(t *testing.T) (bad []string) {
	t.Helper()
	for range 4 {
		w.shortGrace(t)
		w.sleep(checkpoint.MinGrace)
	}
	return w.damaged(t)
}

// Three at once: a collector is stopped, a save begins and is stopped within it, another collector passes, the save ends, the collector goes on.
func TestCollectorSaverCollector(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, checkpoint.MaxSave / 2} {
		for inner := 1; inner <= 14; inner += 4 {
			t.Run(fmt.Sprintf("step %d, %s", inner, wait), func(t *testing.T) {
				t.Parallel()
				stoppedCollector(t, func(w *world) {
					w.own(t, 24*time.Hour)
					s := &steps{}
					s.pause(inner, func() {
						w.sleep(wait)
						w.pass(t)
					})
					if _, err := w.saverOf(s).Save(t.Context(), w.lease, w.runID); err != nil {
						t.Errorf("inner step %d: %v", inner, err)
					}
					w.release(t)
				})
			})
		}
	}
}

// A collector is stopped, a save begins and is stopped, the collector goes on to its end, another one passes, the save ends.
func TestStoppedCollectorGoesOnWithinASave(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, checkpoint.MaxSave - time.Second} {
		for first := 1; first <= 30; first += 3 {
			t.Run(fmt.Sprintf("step %d, %s", first, wait), func(t *testing.T) {
				t.Parallel()
				for inner := 1; ; inner++ {
					w := abandoned(t)
					late := &steps{}
					goOn, stopped, ended := make(chan bool), make(chan bool, 1), make(chan error, 1)
					late.pause(first, func() { stopped <- true; <-goOn })
					go func() {
						_, err := w.gcOf(late).Collect(t.Context())
						stopped <- false
						ended <- err
					}()
					<-stopped
					w.own(t, 24*time.Hour)
					s := &steps{}
					s.pause(inner, func() {
						close(goOn)
						if err := <-ended; err != nil {
							t.Errorf("the first collector: %v", err)
						}
						w.sleep(wait)
						w.pass(t)
					})
					if _, err := w.saverOf(s).Save(t.Context(), w.lease, w.runID); err != nil {
						t.Errorf("inner step %d: %v", inner, err)
					}
					w.release(t)
					if s.n < inner { // the save has fewer steps
						close(goOn)
						if <-ended; inner < 10 {
							t.Errorf("a save of %d steps", s.n)
						}
						return
					}
					if bad := w.settle(t); len(bad) > 0 || len(w.pointers(t)) != 1 {
						t.Errorf("inner step %d: %v", inner, bad)
					}
				}
			})
		}
	}
}

// A collector that is killed at any of its steps, in either pass, leaves every checkpoint whole, and what it left undone is done by the next.
func TestCollectorKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		for at := 1; ; at++ {
			w := abandoned(t)
			w.own(t, time.Minute)
			w.feed(t, 30, 3)
			w.save(t)
			w.release(t)
			w.sleep(2 * time.Hour)
			if second {
				w.collect(t)
				w.sleep(2 * time.Hour)
			}
			s := &steps{}
			s.kill(at)
			_, err := w.gcOf(s).Collect(t.Context())
			if !s.dead {
				if err != nil || at < 10 {
					t.Fatalf("a collector of %d steps: %v", at, err)
				}
				break
			}
			w.sleep(2 * time.Hour)
			if bad := w.settle(t); len(bad) > 0 {
				t.Errorf("second pass %v, killed at step %d: %v", second, at, bad)
			}
			if c := w.collect(t); c.Standing != c.Referenced || len(c.Waiting)+len(c.SetAside)+len(c.Purged) > 0 {
				t.Errorf("second pass %v, killed at step %d: not all is cleaned up: %+v", second, at, c)
			}
		}
	}
}

// The tests above see a collector that removes at once what it finds unreferenced.
func TestStoppedAnywhereSeesARemovalAtOnce(t *testing.T) {
	t.Parallel()
	broken := 0
	for at := 1; ; at++ {
		w := abandoned(t)
		s, stopped := &steps{}, false
		s.pause(at, func() {
			stopped = true
			w.own(t, time.Minute)
			w.save(t)
			w.release(t)
		})
		if err := removeAtOnce(t, w, s); err != nil {
			t.Fatal(err)
		}
		if !stopped {
			break
		}
		if len(w.damaged(t)) > 0 {
			broken++
		}
	}
	if broken == 0 {
		t.Error("a collector that removes at once goes unnoticed")
	}
}

func removeAtOnce(t *testing.T, w *world, s *steps) error {
	store, blobs := storeSteps{w.store, s}, blobSteps{w.blobs, s}
	var all []string
	if err := blobs.List(t.Context(), func(i checkpoint.Info) error { all = append(all, i.Name); return nil }); err != nil {
		return err
	}
	pointers, err := store.ListPointers(t.Context(), "")
	if err != nil || len(pointers) > 0 {
		return err
	}
	for _, name := range all {
		if err := s.around(func() error { w.blobs.Remove(name); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Hold renews while the work goes on, and ends it when a renewal is refused.
func TestHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := controltest.NewMemory()
		err := checkpoint.Hold(t.Context(), store, "name", "me", 0, func(ctx context.Context, l control.Lease) error {
			<-time.After(10 * checkpoint.DefaultTTL)
			if info, ok, err := store.LookupLease(ctx, "name"); err != nil || !ok || !info.Valid || info.Token != l.Token {
				t.Errorf("after ten times the ttl: %+v, %v, %v", info, ok, err)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		if info, _, _ := store.LookupLease(t.Context(), "name"); info.Valid {
			t.Error("the lease is not given back")
		}
		err = checkpoint.Hold(t.Context(), store, "name", "me", time.Second, func(ctx context.Context, _ control.Lease) error {
			store.ExpireLease("name")
			if _, err := store.Acquire(ctx, "name", "other", time.Hour); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		refusedWith(t, "taken over", err, codes.StaleFence)
		err = checkpoint.Hold(t.Context(), store, "name", "me", time.Second, func(context.Context, control.Lease) error { t.Error("it runs"); return nil })
		refusedWith(t, "held", err, codes.LeaseHeld)
		store.ExpireLease("name")
		down := codes.New(codes.StoreUnavailable, "injected")
		for i := range 10 {
			store.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 1 + i, Err: down})
		}
		err = checkpoint.Hold(t.Context(), store, "name", "me", time.Second, func(ctx context.Context, _ control.Lease) error { <-ctx.Done(); return ctx.Err() })
		refusedWith(t, "the store is down", err, codes.StaleFence, "in time")
	})
}
