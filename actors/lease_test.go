package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

const testTTL = 3 * time.Second

// changes keeps what is told of a lease.
type changes struct {
	mu  sync.Mutex
	all []LeaseEvent
}

func (c *changes) add(e LeaseEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, e)
}

// String is the changes with their tokens, such as "ACQUIRED/1 RELEASED/1".
func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, e := range c.all {
		out = append(out, fmt.Sprintf("%s/%d", e.Change, e.Lease.Token))
	}
	return strings.Join(out, " ")
}

// fence puts the run of a rig under a lease of its own journal.
func (r *rig) fence(owner string) *changes {
	c := &changes{}
	r.cfg.Fencing = &Fencing{Leases: r.journal, Owner: owner, TTL: testTTL, OnLease: c.add}
	return c
}

func (r *rig) lease() control.LeaseInfo {
	r.t.Helper()
	info, ok, err := r.journal.LookupLease(context.Background(), control.StreamLease("run"))
	if err != nil || !ok {
		r.t.Fatalf("lease: %v, %v", ok, err)
	}
	return info
}

// awake is an input without an end.
func awake(_ *Config, s *sourcetest.Config) { s.Bounded = false }

func TestALeaseIsHeldForAsLongAsTheRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 60), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, awake)
		r.cfg.MaxRecords = int64(in.total())
		told := r.fence("a")
		last := in[0][len(in[0])-1]
		head := input{in[0][:len(in[0])-1], in[1]}
		r.log = head.log(sourcetest.Config{})
		r.cfg.Source = r.log
		var opened atomic.Bool
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if p.Name == BeforeOpen && !r.lease().Valid {
				t.Error("something is opened without the lease")
			}
			if p.Name == BeforeOpen {
				opened.Store(true)
			}
			return nil
		}
		time.AfterFunc(time.Hour, func() {
			if info := r.lease(); !info.Valid || info.Owner != "a" || info.Token != 1 {
				t.Errorf("after an hour: %+v", info)
			}
			r.log.Append(0, last)
		})
		r.finish(want)
		if info := r.lease(); info.Valid || told.String() != "ACQUIRED/1 RELEASED/1" || !opened.Load() {
			t.Errorf("at the end: %+v, told %s", info, told)
		}
	})
}

func TestALeaseThatAnotherHolds(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 61), 2, 40)
	want := plainLoop(t, plan, in, 7)
	hold := func(t *testing.T, r *rig) control.Lease {
		t.Helper()
		l, err := r.journal.Acquire(t.Context(), control.StreamLease("run"), "other", testTTL)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	t.Run("ends the run", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			told := r.fence("a")
			hold(t, r)
			began := time.Now()
			result, err := r.run()
			if !codes.Has(err, codes.StreamLeaseHeld) || !strings.Contains(err.Error(), `"other"`) || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if result.Incarnations != 0 || r.log.Opened() != 0 || told.String() != "" || r.lease().Owner != "other" || !r.lease().Valid {
				t.Errorf("%+v, told %s, lease %+v", result, told, r.lease())
			}
		})
	})
	t.Run("a stand-by waits until it runs out", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			told := r.fence("a")
			r.cfg.Fencing.Standby = true
			hold(t, r)
			// A store that is away now and then does not end the wait.
			for n := range 5 {
				r.journal.Inject(controltest.Fault{Op: controltest.OpAcquire, Call: 2 + 2*n, Err: codes.New(codes.StoreUnavailable, "injected")})
			}
			began := time.Now()
			r.cfg.MaxFailures = 2
			r.finish(want)
			if d := time.Since(began); d < testTTL || d > testTTL+time.Second {
				t.Errorf("ended after %v", d)
			}
			if got := told.String(); !strings.HasPrefix(got, "WAITING/1 ") || !strings.HasSuffix(got, " ACQUIRED/2 RELEASED/2") || told.all[0].Lease.Owner != "other" {
				t.Errorf("told %s", told)
			}
			r.journal.AllFired(t)
		})
	})
	t.Run("a stand-by that is interrupted ends at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			r.fence("a")
			r.cfg.Fencing.Standby = true
			hold(t, r)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) || time.Since(began) != time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("a grant that comes while the run is interrupted is given back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, small)
			told := r.fence("a")
			ctx, cancel := context.WithCancel(context.Background())
			r.journal.Inject(controltest.Fault{Op: controltest.OpAcquire, Call: 1, After: true, Do: func() {
				cancel()
				<-time.After(killGrace / 2)
			}})
			result, err := Run(ctx, r.cfg)
			if !errors.Is(err, ErrInterrupted) || result.Incarnations != 0 || r.lease().Valid || told.String() != "RELEASED/1" {
				t.Errorf("%v, %+v, told %s", err, r.lease(), told)
			}
		})
	})
}

// A renewal that the store refuses ends the run at once, without a last cut.
func TestALostLeaseEndsTheRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 62), 2, 60)
	want := plainLoop(t, plan, in, 7)
	unavailable := codes.New(codes.StoreUnavailable, "injected")
	for name, c := range map[string]struct {
		tune func(r *rig)
		// after is when the run ends, and says in the error why.
		after time.Duration
		says  string
	}{
		"taken over": {func(r *rig) {
			time.AfterFunc(2500*time.Millisecond, func() { r.steal() })
		}, 3 * time.Second, "under token 2"},
		"the store is away": {func(r *rig) {
			time.AfterFunc(2500*time.Millisecond, func() {
				for n := range 1000 {
					r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: n + 1, Err: unavailable})
				}
			})
		}, 5 * time.Second, "injected"},
		"the store does not answer": {func(r *rig) {
			time.AfterFunc(2500*time.Millisecond, func() {
				r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 1, Do: func() { <-time.After(time.Hour) }})
			})
		}, 5*time.Second + stepDownGrace, "no renewal was answered"},
		"a commit is refused": {func(r *rig) {
			time.AfterFunc(2500*time.Millisecond, func() {
				r.steal()
				r.log.Append(0, plain(1)...)
			})
			r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 3, Do: func() { <-time.After(time.Hour) }})
		}, 3*time.Second + stepDownGrace, "under token 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, small, awake)
				r.cfg.EpochRecords = 1000
				told := r.fence("a")
				var last time.Time
				r.cfg.OnProgress = func(Progress) { last = time.Now() }
				c.tune(r)
				began := time.Now()
				result, err := r.run()
				if !codes.Has(err, codes.StreamFenceStale) || !strings.Contains(err.Error(), c.says) || time.Since(began) != c.after {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if told.String() != "ACQUIRED/1 LOST/1" || result.Epoch != 1 || r.journal.Epoch("run") != 1 || last.Sub(began) != time.Second {
					t.Errorf("told %s, epoch %d, last progress after %v", told, result.Epoch, last.Sub(began))
				}
				if (c.says == "under token 2") != r.lease().Valid {
					t.Errorf("the lease of the next owner: %+v", r.lease())
				}
				<-time.After(2 * time.Hour) // what hangs in the store comes back
				synctest.Wait()
				if c.says != "under token 2" {
					// The next owner goes on from the last commit, under a higher token.
					next := newRig(t, plan, in)
					next.journal, next.cfg.Journal, next.log, next.cfg.Source = r.journal, r.journal, r.log, r.log
					next.fence("b")
					next.cfg.MaxRecords = int64(in.total())
					next.finish(want)
					if next.lease().Token != 2 {
						t.Errorf("lease %+v", next.lease())
					}
				}
			})
		})
	}
}

// steal makes another owner take the lease over although it is valid, as a wrong clock of the store would.
func (r *rig) steal() {
	r.t.Helper()
	l := r.lease()
	if err := r.journal.Release(context.Background(), control.Lease{Name: l.Name, Owner: l.Owner, Token: l.Token, TTL: testTTL}); err != nil {
		r.t.Error(err)
	}
	if _, err := r.journal.Acquire(context.Background(), l.Name, "thief", 3*time.Hour); err != nil {
		r.t.Error(err)
	}
}

// A store that is away for less than the ttl, and renewals whose answers are lost, take nothing away.
func TestRenewalsThatFailForAWhile(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 63), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, awake)
		told := r.fence("a")
		for n := range 9 {
			r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 1 + n, After: n%2 == 0, Err: codes.New(codes.StoreUnavailable, "injected")})
		}
		// One attempt that hangs leaves time for another.
		r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 12, Do: func() { <-time.After(testTTL / 3) }, Err: context.DeadlineExceeded})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) {
			t.Error(err)
		}
		r.journal.AllFired(t)
		if told.String() != "ACQUIRED/1 RELEASED/1" || r.lease().Valid {
			t.Errorf("told %s", told)
		}
		r.cfg.MaxRecords = int64(in.total())
		r.finish(want)
		if told.String() != "ACQUIRED/1 RELEASED/1 ACQUIRED/2 RELEASED/2" {
			t.Errorf("told %s", told)
		}
	})
}

func TestTheLeaseIsGivenBackAtEveryOrderlyEnd(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 64), 2, 60)
	for name, c := range map[string]struct {
		tune func(r *rig, stop, kill func())
		held bool
		code *codes.Code
	}{
		"finished": {func(*rig, func(), func()) {}, false, nil},
		"until":    {func(r *rig, _, _ func()) { r.cfg.UntilRecords = 30 }, false, nil},
		"interrupted": {func(r *rig, stop, _ func()) {
			r.log = in.log(sourcetest.Config{}) // one with an end may have come to it before anybody looks
			r.cfg.Source = r.log
			r.at(BeforeStep, 3, stop)
		}, false, codes.Interrupted},
		"given up": {func(r *rig, _, _ func()) { r.cfg.MaxFailures = 2; r.log.FailOpen(errBoom, errBoom) }, false, codes.Internal},
		"fatal":    {func(r *rig, _, _ func()) { r.at(AfterPoll, 3, func() { r.log.Truncate(0, record.Offset(20)) }) }, false, codes.OffsetLost},
		"the store is back in time": {func(r *rig, _, _ func()) {
			for n := range 5 {
				r.journal.Inject(controltest.Fault{Op: controltest.OpRelease, Call: n + 1, After: n == 4, Err: codes.New(codes.StoreUnavailable, "injected")})
			}
		}, false, nil},
		"killed": {func(r *rig, _, kill func()) {
			r.cfg.Hooks, _ = every(BeforeStep, 3, func(ctx context.Context) error { kill(); return hang(ctx) }) // or it may have ended before anybody looks
		}, true, codes.Interrupted},
		"the store stays away": {func(r *rig, _, _ func()) {
			for n := range 100 {
				r.journal.Inject(controltest.Fault{Op: controltest.OpRelease, Call: n + 1, Err: codes.New(codes.StoreUnavailable, "injected")})
			}
		}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, small)
				r.fence("a")
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				die, kill := context.WithCancel(context.Background())
				defer kill()
				r.cfg.Kill = die
				c.tune(r, stop, kill)
				began := time.Now()
				_, err := Run(ctx, r.cfg)
				if (c.code == nil) != (err == nil) || c.code != nil && !codes.Has(err, c.code) {
					t.Errorf("%v", err)
				}
				if r.lease().Valid != c.held {
					t.Errorf("lease %+v after %v", r.lease(), time.Since(began))
				}
				if time.Since(began) > releaseFor {
					t.Errorf("ended after %v", time.Since(began))
				}
			})
		})
	}
}

// at makes the run pass on to do at the n-th passing of a failpoint.
func (r *rig) at(name Failpoint, n int, do func()) {
	r.cfg.Hooks, _ = every(name, n, func(context.Context) error { do(); return nil })
}

// A fence that has gone back is the end, with a code of its own.
func TestAFenceThatHasGoneBack(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 65), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.fence("a")
		r.cfg.UntilRecords = 20
		for range 3 {
			if _, err := r.run(); err != nil {
				t.Fatal(err)
			}
		}
		r.cfg.UntilRecords = 40
		// Leases from before the others: a restored backup.
		r.cfg.Fencing.Leases = controltest.NewMemory()
		r.cfg.Journal = regressed{r.journal}
		began := time.Now()
		if result, err := r.run(); !codes.Has(err, codes.FenceRegression) || result.Incarnations != 1 || time.Since(began) != 0 {
			t.Errorf("%v after %d incarnations", err, result.Incarnations)
		}
	})
}

// regressed is a journal whose leases have gone back: the row says what the holder says.
type regressed struct{ *controltest.Memory }

func (r regressed) Under(l control.Lease) control.Journal { return regressedView{r.Memory, l} }

type regressedView struct {
	*controltest.Memory
	lease control.Lease
}

func (v regressedView) OpenRun(_ context.Context, h control.RunHeader) (control.RunState, error) {
	return control.RunState{}, control.CheckFence(h.RunID, 3, v.lease.Token)
}

// Grants that have run out when they come: a slow take-over passes, a ttl that the store cannot keep is told.
func TestGrantsThatComeTooLate(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 66), 2, 60)
	slow := func(call int) controltest.Fault {
		return controltest.Fault{Op: controltest.OpAcquire, Call: call, After: true, Do: func() { <-time.After(testTTL) }}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		told := r.fence("a")
		r.journal.Inject(slow(1), slow(2))
		r.finish(plainLoop(t, plan, in, 7))
		if !strings.HasPrefix(told.String(), "ACQUIRED/") || len(told.all) != 2 {
			t.Errorf("told %s", told)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.fence("a")
		for n := range lateGrants + 1 {
			r.journal.Inject(slow(n + 1))
		}
		if _, err := r.run(); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), "longer --ttl") {
			t.Error(err)
		}
	})
}

func TestFencingIsChecked(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	cfg := Config{Plan: plan, Source: sourcetest.New(sourcetest.Config{}), RunID: "run", Fencing: &Fencing{TTL: -1}}
	cfg.Journal = struct{ control.Journal }{controltest.NewMemory()}
	_, err := Run(t.Context(), cfg)
	for _, want := range []string{"no store of leases", "cannot write under a lease", "ttl is -1ns"} {
		if !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if f := (&Fencing{}).withDefaults(); f.TTL != DefaultTTL || f.StandEvery != DefaultStandEvery || f.Owner == "" || (&Fencing{}).withDefaults().Owner == f.Owner {
		t.Errorf("%+v", f)
	}
	if !slices.Contains(codes.All(), codes.StreamLeaseHeld) {
		t.Error("no code")
	}
}

// Two processes with one owner id by mistake pass the fence both, and the journal tells them apart: one ends, and leaves the lease to the other.
func TestTwinsWithOneOwnerID(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 67), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, plan, input{nil, nil}, awake)
		a.drip(in, 700*time.Millisecond)
		b := newRig(t, plan, nil)
		b.journal, b.cfg.Journal, b.log, b.cfg.Source = a.journal, a.journal, a.log, a.log
		var ends [2]error
		var done sync.WaitGroup
		for i, r := range []*rig{a, b} {
			r.fence("same")
			r.cfg.MaxRecords = int64(in.total())
			done.Go(func() {
				<-time.After(time.Duration(i) * 300 * time.Millisecond)
				_, ends[i] = Run(context.Background(), r.cfg)
			})
		}
		done.Wait()
		lost := ends[0]
		if lost == nil {
			lost = ends[1]
		}
		if (ends[0] == nil) == (ends[1] == nil) || !codes.Has(lost, codes.JournalConflict) || !strings.Contains(lost.Error(), `the owner "same" of run "run"`) {
			t.Fatalf("%v and %v", ends[0], ends[1])
		}
		header := control.RunHeader{RunID: "run", Fingerprint: plan.Fingerprint, Source: "log", Partitions: []int32{0, 1}}
		l, err := a.journal.Acquire(context.Background(), control.StreamLease("run"), "reader", testTTL)
		if err != nil {
			t.Fatalf("the winner did not give the lease back: %v", err)
		}
		state, err := a.journal.Under(l).OpenRun(context.Background(), header)
		if !codes.Has(err, codes.RunFinished) || l.Token != 2 {
			t.Fatalf("%v, token %d", err, l.Token)
		}
		a.compare(resultOf(state, header.Partitions, nil), want)
	})
}

// Whoever stood still between a commit and what comes after it tells nobody anything once its lease is lost: neither the group nor the caller.
func TestNothingIsToldPastTheDeadline(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 68), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, awake)
		told := r.fence("a")
		for n := range 20 {
			// The process stands still: renewals are not even sent.
			r.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: n + 1, Do: func() { <-time.After(3 * testTTL) }})
		}
		r.cfg.Hooks, _ = every(AfterCommit, 1, func(context.Context) error {
			<-time.After(2 * testTTL)
			return nil
		})
		tells := 0
		r.cfg.CommitOffsets = func(context.Context, map[int32]record.Position) error { tells++; return nil }
		r.cfg.OnProgress = func(Progress) { tells++ }
		result, err := Run(context.Background(), r.cfg)
		if !codes.Has(err, codes.StreamFenceStale) || r.journal.Epoch("run") != 1 || result.Epoch > 1 || told.String() != "ACQUIRED/1 LOST/1" {
			t.Errorf("%v, epoch %d, told %s", err, r.journal.Epoch("run"), told)
		}
		<-time.After(time.Hour)
		if tells != 0 {
			t.Errorf("told %d times", tells)
		}
	})
	t.Run("the group", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, awake)
			r.fence("a")
			ctx, stop := context.WithCancel(context.Background())
			r.cfg.CommitOffsets = func(ctx context.Context, _ map[int32]record.Position) error {
				began := time.Now()
				<-ctx.Done()
				if d := time.Since(began); d > testTTL {
					t.Errorf("the group was waited for %v, longer than the lease lasts", d)
				}
				stop()
				return ctx.Err()
			}
			if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) {
				t.Error(err)
			}
		})
	})
}
