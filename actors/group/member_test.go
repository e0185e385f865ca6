package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

// settle waits until everything that was written is committed, and whoever is told of it has been.
func (w *world) settle(within time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(within); ; {
		synctest.Wait() // what else is due now is done
		done := true
		for p := range w.parts {
			done = done && w.next(p) == w.log.End(p)
		}
		if done {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("not everything is committed within %v", within)
		}
		<-time.After(50 * time.Millisecond) // virtual time
	}
}

// TestStorm: partitions are moved in order, lost while another has them already, and members come and go, while records arrive. What is
// published is as if one had done it all.
func TestStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 11))
				const parts = 4
				w := newWorld(t, parts)
				owner := make([]*member, parts)
				all := []*member{w.join("m0")}
				for p := range int32(parts) {
					owner[p] = all[0]
				}
				w.give(all[0], 0, 1, 2, 3)
				for step := range 40 {
					w.append(rng, rng.IntN(20))
					time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
					p := int32(rng.IntN(parts))
					switch to := all[rng.IntN(len(all))]; rng.IntN(4) {
					case 0: // in order
						w.take(owner[p], false, p)
						owner[p] = to
						w.give(to, p)
					case 1: // the new owner has it before the old one knows
						if from := owner[p]; from != to {
							w.give(to, p)
							time.Sleep(time.Duration(rng.IntN(5)) * time.Second)
							w.take(from, true, p)
							owner[p] = to
						}
					case 2: // one joins and gets a partition
						if len(all) == 4 {
							continue
						}
						one := w.join(fmt.Sprint("m", step+1))
						all = append(all, one)
						w.take(owner[p], false, p)
						owner[p] = one
						w.give(one, p)
					case 3: // one leaves
						if len(all) == 1 {
							continue
						}
						i := rng.IntN(len(all))
						gone := all[i]
						all = slices.Delete(all, i, i+1)
						if err := gone.leave(); !errors.Is(err, actors.ErrInterrupted) {
							t.Errorf("%s leaves with %v", gone.name, err)
						}
						for p := range int32(parts) {
							w.bar(gone, p, true)
							if owner[p] == gone {
								owner[p] = all[rng.IntN(len(all))]
								w.give(owner[p], p)
							}
						}
					}
				}
				w.append(rng, 5)
				w.settle(time.Minute)
				for _, m := range all {
					if err := m.leave(); !errors.Is(err, actors.ErrInterrupted) {
						t.Errorf("%s ends with %v", m.name, err)
					}
				}
				w.check()
				if w.seen == 0 {
					t.Error("no message was seen")
				}
				for p := range int32(parts) {
					if l, ok, err := w.journal.LookupLease(context.Background(), control.StreamLease(RunID("run", p))); err != nil || !ok || l.Valid {
						t.Errorf("the lease of partition %d after the end: %+v, %v", p, l, err)
					}
				}
			})
		})
	}
}

// TestAMove: a partition that moves in order stands still for a moment, and the others not at all.
func TestAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		rng := rand.New(rand.NewPCG(1, 1))
		a, b := w.join("a"), w.join("b")
		w.give(a, 0, 1)
		w.append(rng, 50)
		w.settle(time.Minute)
		before := w.journal.Epoch("run/0")
		w.append(rng, 20)
		began := time.Now()
		w.take(a, false, 1)
		if w.next(1) != w.log.End(1) && time.Since(began) > time.Second {
			t.Errorf("drained after %v up to %s", time.Since(began), w.next(1))
		}
		w.append(rng, 20) // a may have read all of what there was while it drained: these only b can commit
		w.give(b, 1)
		w.settle(time.Minute)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the partition stood for %v", took)
		}
		if w.journal.Epoch("run/0") == before || len(a.phases(0)) != 1 {
			t.Errorf("the other one: %v", a.phases(0))
		}
		if got := a.phases(1); !slices.Equal(got, []Phase{Running, Draining, Absent}) {
			t.Errorf("phases %v", got)
		}
		if got := w.tokens("run/1"); got[0] != 1 || got[len(got)-1] != 2 {
			t.Errorf("tokens %v", got)
		}
		a.leave()
		b.leave()
		w.check()
	})
}

// TestAHastyHandlerIsNoticed: a negative control. A handler that does not wait until a partition has drained is found out by what reaches its
// actor then; and all the same nothing is published twice.
func TestAHastyHandlerIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a, b := w.join("a"), w.join("b")
		w.give(a, 0)
		w.append(rand.New(rand.NewPCG(7, 1)), 50)
		synctest.Wait()
		go a.h.Revoked(context.Background(), []int32{0})
		w.bar(a, 0, true)
		w.give(b, 0)
		w.settle(time.Minute)
		if len(w.afterwards()) == 0 {
			t.Error("it was not noticed")
		}
		w.after = nil
		a.leave()
		b.leave()
		w.check()
	})
}

// TestLost: one that loses a partition stops it without a cut, and gives its lease back, for which the next owner waits.
func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		rng := rand.New(rand.NewPCG(2, 1))
		a, b := w.join("a"), w.join("b")
		w.give(a, 0)
		w.append(rng, 20)
		w.settle(time.Minute)
		w.give(b, 0)
		time.Sleep(10 * time.Second)
		if got := w.tokens("run/0"); slices.Max(got) != 1 || b.m.Partitions()[0].Phase != Running {
			t.Errorf("while the owner is there: tokens %v, %+v", got, b.m.Partitions())
		}
		w.append(rng, 3)
		synctest.Wait() // processed, and not yet committed
		epoch := w.journal.Epoch("run/0")
		w.take(a, true, 0)
		if w.journal.Epoch("run/0") != epoch {
			t.Error("something was committed by one that has lost the partition")
		}
		began := time.Now()
		w.settle(time.Minute)
		if took := time.Since(began); took > testTTL/2 {
			t.Errorf("the next owner needed %v", took)
		}
		a.leave()
		b.leave()
		w.check()
	})
}

// TestAFailingPartition: it is tried again with growing pauses, the others go on, and it is told at the end.
func TestAFailingPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		broken := errors.New("broken")
		var starts atomic.Int64
		var fails atomic.Bool
		fails.Store(true)
		a := w.join("a", func(c *Config) {
			inner := c.Engine
			c.Engine = func(ctx context.Context, p int32) (actors.Config, error) {
				if p == 1 && fails.Load() {
					starts.Add(1)
					return actors.Config{}, broken
				}
				return inner(ctx, p)
			}
			c.Backoff = actors.Backoff{Min: time.Second, Max: 8 * time.Second}
		})
		w.give(a, 0, 1)
		time.Sleep(30 * time.Second) // at 0, 1, 3, 7, 15, 23
		if n := starts.Load(); n != 6 {
			t.Errorf("%d starts in 30 s", n)
		}
		rng := rand.New(rand.NewPCG(3, 1))
		w.append(rng, 20)
		time.Sleep(500 * time.Millisecond)
		if w.next(0) != w.log.End(0) {
			t.Error("the other partition stands")
		}
		got := a.m.Partitions()
		if len(got) != 2 || got[0].Phase != Running || got[1].Phase != Waiting || got[1].Cause != broken || got[1].Failures != 6 {
			t.Errorf("%+v", got)
		}
		if c := a.change(2); c.Phase != Waiting || c.Cause != broken || c.Pause != time.Second {
			t.Errorf("told %+v", c)
		}
		fails.Store(false)
		w.settle(20 * time.Second)
		if got := a.m.Partitions()[1]; got.Failures != 0 || got.Cause != nil || got.Phase != Running {
			t.Errorf("mended: %+v", got)
		}
		fails.Store(true)
		w.take(a, false, 1)
		w.give(a, 1)
		time.Sleep(time.Second)
		if err := a.leave(); !errors.Is(err, broken) {
			t.Errorf("it ends with %v", err)
		}
		w.check()
	})
}

// TestALostLease: an engine whose lease is lost is started again, under a new token.
func TestALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		rng := rand.New(rand.NewPCG(4, 1))
		a := w.join("a")
		w.give(a, 0)
		w.append(rng, 20)
		w.settle(time.Minute)
		var away []controltest.Fault
		for n := 2; n < 400; n++ {
			away = append(away, controltest.Fault{Op: controltest.OpRenew, Call: n, Err: codes.New(codes.StoreUnavailable, "injected")})
		}
		w.journal.Inject(away...)
		time.Sleep(time.Minute)
		w.append(rng, 20)
		w.settle(time.Minute)
		if got := w.tokens("run/0"); got[len(got)-1] < 2 {
			t.Errorf("tokens %v", got)
		}
		a.leave()
		w.check()
	})
}

// TestHopeless: when nothing but another configuration can help any of them, the member leaves and says why.
func TestHopeless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		bad := map[int32]bool{0: true, 1: true}
		a := w.join("a", func(c *Config) {
			inner := c.Engine
			c.Engine = func(ctx context.Context, p int32) (actors.Config, error) {
				if bad[p] {
					return actors.Config{}, codes.New(codes.RunMismatch, "another flow")
				}
				return inner(ctx, p)
			}
		})
		w.give(a, 0, 1, 2)
		time.Sleep(time.Minute)
		select {
		case err := <-a.err:
			t.Fatalf("it ends although one partition is in order: %v", err)
		default:
		}
		w.take(a, false, 2)
		err := <-a.err
		if !codes.Has(err, codes.RunMismatch) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestADrainThatTakesTooLong is stopped, and the lease is given back.
func TestADrainThatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		hang := make(chan struct{})
		a := w.join("a", func(c *Config) {
			inner := c.Engine
			c.Drain = 2 * time.Second
			c.Engine = func(ctx context.Context, p int32) (actors.Config, error) {
				cfg, err := inner(ctx, p)
				cfg.Hooks.At = func(ctx context.Context, at actors.Point) error {
					if at.Name == actors.BeforeCommit {
						select {
						case <-hang:
						case <-ctx.Done():
						}
					}
					return nil
				}
				return cfg, err
			}
		})
		w.give(a, 0)
		w.append(rand.New(rand.NewPCG(5, 1)), 20)
		time.Sleep(time.Second)
		began := time.Now()
		w.take(a, false, 0)
		if took := time.Since(began); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("gone after %v", took)
		}
		l, _, err := w.journal.LookupLease(t.Context(), control.StreamLease("run/0"))
		if err != nil || l.Valid {
			t.Errorf("the lease: %+v, %v", l, err)
		}
		close(hang)
		w.give(a, 0)
		w.settle(time.Minute)
		a.leave()
		w.check()
	})
}

// TestKilled: nothing more is committed, and it is over at once.
func TestKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		ctx, kill := context.WithCancel(context.Background())
		a := w.join("a", func(c *Config) { c.Kill = ctx })
		w.give(a, 0, 1)
		time.Sleep(time.Second)
		kill()
		began := time.Now()
		if err := <-a.err; !errors.Is(err, actors.ErrKilled) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAnAssignerThatFails: what it left is drained, and its error is the end.
func TestAnAssignerThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.join("a")
		w.give(a, 0)
		w.append(rand.New(rand.NewPCG(6, 1)), 20)
		time.Sleep(time.Second)
		denied := codes.New(codes.AccessDenied, "no")
		a.fail <- denied
		if err := <-a.err; err != denied {
			t.Errorf("%v", err)
		}
		b := w.join("b")
		b.fail <- nil
		if err := <-b.err; !codes.Has(err, codes.Internal) {
			t.Errorf("one that ends unasked: %v", err)
		}
		w.settle(0)
		if got := a.m.Partitions(); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		w.check()
	})
}

func TestAConfigThatIsNotWhole(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("%v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.join("a", func(c *Config) {
			c.Engine = func(context.Context, int32) (actors.Config, error) { return actors.Config{}, nil }
		})
		w.give(a, 0)
		synctest.Wait()
		if got := a.m.Partitions(); got[0].Phase != Waiting || !codes.Has(got[0].Cause, codes.Internal) {
			t.Errorf("an engine without a lease: %+v", got)
		}
		a.leave()
	})
}
