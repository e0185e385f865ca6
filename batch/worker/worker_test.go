package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

// running is a worker in a goroutine.
type running struct {
	stop   context.CancelFunc
	done   chan struct{}
	report Report
	err    error
}

func begin(ctx context.Context, cfg Config) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.report, r.err = Run(ctx, cfg)
	}()
	return r
}

// end stops it and waits.
func (r *running) end() (Report, error) {
	r.stop()
	<-r.done
	return r.report, r.err
}

// TestSideBySide: three workers of two slots share sixty runs; each is done once, by one of them, in its first term.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, controltest.NewMemory())
		var ids []string
		for i := range 60 {
			ids = append(ids, p.submit(fmt.Sprint(i)))
		}
		var workers []*running
		for range 3 {
			cfg := p.config()
			cfg.Concurrency = 2
			cfg.step = at("computed", func() error { <-time.After(time.Second); return nil })
			workers = append(workers, begin(t.Context(), cfg))
		}
		<-time.After(5 * time.Minute)
		total := 0
		for _, w := range workers {
			report, err := w.end()
			if err != nil || report.Ended[Succeeded] == 0 || report.Ended[GivenUp] != 0 {
				t.Errorf("%+v, %v", report, err)
			}
			total += report.Ended[Succeeded]
		}
		if total != 60 {
			t.Errorf("%d runs were done", total)
		}
		for _, id := range ids {
			p.succeeded(id)
			if info, _, err := p.store.LookupLease(t.Context(), control.RunLease(id)); err != nil || info.Token != 1 {
				t.Errorf("%s: %+v, %v", id, info, err)
			}
		}
		p.ended()
	})
}

// TestRenewal: a run of many terms keeps its lease, renewed every ttl/3 although the computation does not lift a finger.
func TestRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newIntercept()
		p := newPlace(t, s)
		id := p.submit("a")
		var renewals []time.Time
		s.on(nil, func(_ context.Context, op string) error {
			if op == "renew" {
				renewals = append(renewals, time.Now())
			}
			return nil
		})
		cfg := p.config()
		cfg.step = at("computed", func() error { <-time.After(10 * cfg.TTL); return nil })
		began := time.Now()
		if o := p.once(cfg); o.Token != 1 {
			t.Errorf("%+v", o)
		}
		for i, at := range renewals {
			if want := began.Add(time.Duration(i+1) * cfg.TTL / 3); !at.Equal(want) {
				t.Errorf("renewal %d after %s, want %s", i, at.Sub(began), want.Sub(began))
			}
		}
		if len(renewals) < 29 {
			t.Errorf("%d renewals", len(renewals))
		}
		p.succeeded(id)
		p.ended()
	})
}

// TestStepDown: a worker whose lease cannot be renewed, or was taken, ends its computation and publishes nothing; another one does. The first
// one's calls may be answered with a refusal, with failures, or not at all.
func TestStepDown(t *testing.T) {
	t.Parallel()
	for name, renew := range map[string]func(ctx context.Context) error{
		"refused":   func(context.Context) error { return codes.New(codes.StaleFence, "injected") },
		"away":      func(context.Context) error { return errAway },
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"deaf":      func(context.Context) error { <-time.After(time.Hour); return errAway },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := controltest.NewMemory()
				s := &intercept{ControlStore: memory}
				s.on(func(ctx context.Context, op string) error {
					if op == "renew" {
						return renew(ctx)
					}
					return nil
				}, nil)
				p := newPlace(t, s)
				id := p.submit("a")
				cfg := p.config()
				cfg.Owner = "first"
				lost := make(chan struct{})
				cfg.step = at("computed", func() error { <-lost; return nil })
				var outcomes []Outcome
				cfg.OnEnd = func(o Outcome) { outcomes = append(outcomes, o) }
				first := begin(t.Context(), cfg)
				<-time.After(2 * cfg.TTL)
				// By now the lease has expired, and its holder knows: the second worker takes the run.
				other := p.config()
				other.Store, other.Owner = memory, "second"
				if o := p.once(other); o.RunID != id || o.Token != 2 {
					t.Errorf("%+v", o)
				}
				writes := s.fenced.Load()
				close(lost)
				synctest.Wait()
				first.stop()
				<-time.After(2 * time.Hour)
				report, err := first.end()
				if report.Ended[GivenUp] != 1 || len(outcomes) != 1 || !codes.Has(outcomes[0].Err, codes.StaleFence) {
					t.Errorf("%+v, %v, %+v", report, err, outcomes)
				}
				if got := s.fenced.Load(); got != writes {
					t.Errorf("%d writes after the lease was lost", got-writes)
				}
				p.succeeded(id)
			})
		})
	}
}

// TestAZombieIsRefused: a worker that does not notice that its lease went to another, as after SIGSTOP, finds its effect refused.
func TestAZombieIsRefused(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"leased", "started", "computed", "between"} {
		p := newPlace(t, controltest.NewMemory())
		id := p.submit("a")
		cfg := p.config()
		cfg.Owner, cfg.TTL = "zombie", time.Hour // its own clock says nothing
		cfg.step = at(step, func() error {
			// What a take-over after the expiry leaves: the same as a release by a hand from outside, and another owner's term.
			info, _, err := p.store.LookupLease(t.Context(), control.RunLease(id))
			if err != nil {
				return err
			}
			if err := p.store.Release(t.Context(), control.Lease{Name: info.Name, Owner: info.Owner, Token: info.Token}); err != nil {
				return err
			}
			if _, err := p.store.Reconcile(t.Context(), true, 0); err != nil {
				return err
			}
			other := p.config()
			other.Owner = "successor"
			if o := p.once(other); o.Kind != Succeeded || o.Token != 2 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		o, _, err := Once(t.Context(), cfg)
		if o.Kind != GivenUp || !codes.Has(err, codes.StaleFence) {
			t.Errorf("%s: %+v, %v", step, o, err)
		}
		p.succeeded(id)
		p.ended()
	}
}

// TestCrashAtEveryStep: a worker that dies at any step, and with any of its claims, leaves what the next one ends once.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"claimed", "leased", "started", "computed", "between", "ended"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlace(t, controltest.NewMemory())
				first, second := p.submit("a"), p.submit("b")
				cfg := p.config()
				cfg.step = at(step, func() error { return errCrash })
				if _, _, err := Once(t.Context(), cfg); !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
				if bad := p.dangling(); len(bad) > 0 {
					t.Errorf("dangling: %v", bad)
				}
				w := begin(t.Context(), p.config())
				<-time.After(10 * cfg.TTL)
				if report, err := w.end(); err != nil {
					t.Errorf("%+v, %v", report, err)
				}
				p.succeeded(first)
				p.succeeded(second)
				p.ended()
			})
		})
	}
}

// TestWakeAndPoll: woken, a worker does not wait for its poll; not woken, it does what there is at the next poll.
func TestWakeAndPoll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deaf bool
		took time.Duration
	}{"woken": {false, 0}, "polling": {true, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store Store = controltest.NewMemory()
				if c.deaf {
					store = deaf{store}
				}
				p := newPlace(t, store)
				cfg := p.config()
				cfg.Poll, cfg.Reconcile = time.Minute, time.Hour
				ended := make(chan time.Time, 1)
				cfg.OnEnd = func(Outcome) { ended <- time.Now() }
				w := begin(t.Context(), cfg)
				synctest.Wait()
				began := time.Now()
				id := p.submit("a")
				if took := (<-ended).Sub(began); took != c.took {
					t.Errorf("after %s, want %s", took, c.took)
				}
				if _, err := w.end(); err != nil {
					t.Error(err)
				}
				p.succeeded(id)
			})
		})
	}
}

// deaf is a store that wakes nobody.
type deaf struct{ Store }

func (deaf) Wake(context.Context) <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestStoreAway: a store that does not answer is waited for, with back-off; one that is damaged ends the worker with its code.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"claim", "reconcile", "acquire"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newIntercept()
				p := newPlace(t, s)
				id := p.submit("a")
				var calls int
				var mu sync.Mutex
				s.on(func(_ context.Context, got string) error {
					mu.Lock()
					defer mu.Unlock()
					if got == op {
						if calls++; calls <= 8 {
							return errAway
						}
					}
					return nil
				}, nil)
				w := begin(t.Context(), p.config())
				<-time.After(5 * time.Second)
				mu.Lock()
				if calls < 3 || calls > 8 {
					t.Errorf("%d calls in 5 s", calls)
				}
				mu.Unlock()
				<-time.After(5 * time.Minute)
				if _, err := w.end(); err != nil {
					t.Error(err)
				}
				p.succeeded(id)
				p.ended()

				s.on(nth(op, 1, codes.New(codes.JournalCorrupt, "injected")), nil)
				if op == "acquire" {
					return // one run's trouble; the next claim tells
				}
				w = begin(t.Context(), p.config())
				<-w.done
				if !codes.Has(w.err, codes.JournalCorrupt) {
					t.Errorf("%v", w.err)
				}
			})
		})
	}
}

// TestVerifiesOnce: what was published is verified at the start; later looks are for orphans only.
func TestVerifiesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newIntercept()
		p := newPlace(t, s)
		p.submit("a")
		calls := map[string]int{}
		var mu sync.Mutex
		s.on(func(_ context.Context, op string) error {
			mu.Lock()
			defer mu.Unlock()
			calls[op]++
			return nil
		}, nil)
		cfg := p.config()
		cfg.Reconcile = time.Minute
		w := begin(t.Context(), cfg)
		<-time.After(10*time.Minute + time.Second)
		if _, err := w.end(); err != nil || calls["reconcile"] != 1 || calls["orphans"] != 10 {
			t.Errorf("%v, %v", calls, err)
		}
	})
}

// TestOrphans: what dead workers left is taken up at the start; a run whose lease is valid is left alone until it expires.
func TestOrphans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, controltest.NewMemory())
		dead, delivered, held := p.submit("dead"), p.submit("delivered"), p.submit("held")
		events, err := p.store.Claim(t.Context(), "dead", 3)
		if err != nil || len(events) != 3 {
			t.Fatal(events, err)
		}
		for id, ttl := range map[string]time.Duration{dead: time.Second, held: time.Hour} {
			l, err := p.store.Acquire(t.Context(), control.RunLease(id), "dead", ttl)
			if err == nil {
				err = p.store.Fenced(t.Context(), l, control.StartRun{RunID: id})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.store.ReleaseEvents(t.Context(), "dead", []int64{events[1].ID}, true); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		w := begin(t.Context(), p.config())
		<-time.After(time.Minute)
		p.succeeded(dead)
		p.succeeded(delivered)
		if r := p.run(held); r.Phase != control.Running {
			t.Errorf("a run with a valid lease: %+v", r)
		}
		<-time.After(time.Hour)
		report, err := w.end()
		if err != nil || report.Repaired < 3 || report.Found != 0 {
			t.Errorf("%+v, %v", report, err)
		}
		p.succeeded(held)
		p.ended()
	})
}

// TestDrain: what is in hand is finished, what was claimed beyond it is anybody's at once; what takes too long is given back, QUEUED.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes  time.Duration
		kill   bool
		done   int
		queued int
		code   *codes.Code
	}{
		"in time":  {takes: 5 * time.Second, done: 3, queued: 2},
		"too long": {takes: 30 * time.Second, done: 2, queued: 3, code: codes.Interrupted},
		"killed":   {takes: 30 * time.Second, kill: true, done: 2, queued: 2, code: codes.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlace(t, controltest.NewMemory())
				for i := range 5 {
					p.submit(fmt.Sprint(i))
				}
				cfg := p.config()
				cfg.Drain, cfg.TTL = 10*time.Second, time.Minute
				kill, killNow := context.WithCancel(context.Background())
				cfg.Kill = kill
				n := 0
				third := make(chan struct{})
				cfg.step = at("started", func() error {
					if n++; n < 3 {
						return nil
					}
					close(third)
					<-time.After(c.takes)
					return nil
				})
				w := begin(t.Context(), cfg)
				<-third
				w.stop()
				if c.kill {
					killNow()
				}
				<-w.done
				killNow()
				if codes.Of(w.err) != c.code || w.report.Ended[Succeeded] != c.done {
					t.Errorf("%+v, %v", w.report, w.err)
				}
				runs, _, err := p.store.ListRuns(t.Context(), control.RunFilter{Phase: control.Queued})
				if err != nil || len(runs) != c.queued {
					t.Errorf("%d runs are QUEUED, %v", len(runs), err)
				}
				if c.kill {
					return
				}
				for _, e := range p.pending() {
					if e.Claimant != "" {
						t.Errorf("still claimed: %+v", e)
					}
				}
				next := p.config()
				next.Owner = "next"
				if o := p.once(next); o.Kind != Succeeded {
					t.Errorf("the next worker has to wait: %+v", o)
				}
			})
		})
	}
}

// TestClaimsFollowThePace: a worker claims what it is likely to begin soon, Batch at most, so that the others have something to do too.
func TestClaimsFollowThePace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration
		most  int
	}{"quick runs": {time.Millisecond, 7}, "slow runs": {time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newIntercept()
				p := newPlace(t, s)
				for i := range 20 {
					p.submit(fmt.Sprint(i))
				}
				limits := &limits{intercept: s}
				cfg := p.config()
				cfg.Store, cfg.Batch = limits, 7
				cfg.step = at("computed", func() error { <-time.After(c.takes); return nil })
				w := begin(t.Context(), cfg)
				<-time.After(time.Hour)
				if _, err := w.end(); err != nil {
					t.Error(err)
				}
				if limits.most != c.most {
					t.Errorf("at most %d events were claimed at once, want %d", limits.most, c.most)
				}
				p.ended()
			})
		})
	}
}

type limits struct {
	*intercept
	most int
}

func (l *limits) Claim(ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
	l.most = max(l.most, limit)
	return l.intercept.Claim(ctx, claimant, limit)
}

// TestStrangeEvents are set aside: of a kind that is not known, of a run that is not there, of a run that another worker has.
func TestStrangeEvents(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	id := p.submit("a")
	strange := &strange{Store: p.store, change: func(e *control.OutboxEvent) { e.Kind = "run.dreamt" }}
	cfg := p.config()
	cfg.Store = strange
	if o, found, err := Once(t.Context(), cfg); found || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if len(p.pending()) != 0 || p.run(id).Phase != control.Queued {
		t.Errorf("%+v", p.run(id))
	}
	// Its event is mended by reconciliation, and comes under the name of a run that is not there.
	strange.change = func(e *control.OutboxEvent) { e.RunID = "run_nobody" }
	if o, found, err := Once(t.Context(), cfg); found || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if len(p.pending()) != 0 || p.run(id).Phase != control.Queued {
		t.Errorf("%+v", p.run(id))
	}
	strange.change = func(*control.OutboxEvent) {}
	if o := p.once(cfg); o.RunID != id || o.Kind != Succeeded {
		t.Errorf("%+v", o)
	}
	second := p.submit("b")
	if _, err := p.store.Acquire(t.Context(), control.RunLease(second), "another", time.Hour); err != nil {
		t.Fatal(err)
	}
	var seen []Outcome
	cfg.OnEnd = func(o Outcome) { seen = append(seen, o) }
	if o, found, err := Once(t.Context(), cfg); found || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if len(seen) != 1 || seen[0].Kind != Elsewhere || p.run(second).Phase != control.Queued || len(p.pending()) != 1 {
		t.Errorf("%+v, %+v", seen, p.run(second))
	}
}

type strange struct {
	Store
	change func(*control.OutboxEvent)
}

func (s *strange) Claim(ctx context.Context, claimant string, limit int) ([]control.OutboxEvent, error) {
	events, err := s.Store.Claim(ctx, claimant, limit)
	for i := range events {
		s.change(&events[i])
	}
	return events, err
}

// TestScratch: what a dead worker left is removed once nobody has touched it for an hour; a live one's is not.
func TestScratch(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	at := filepath.Join(p.dir, "scratch")
	for name, age := range map[string]time.Duration{"worker-dead": 2 * time.Hour, "worker-live": time.Minute, "somebody-elses": 100 * time.Hour} {
		path := filepath.Join(at, name)
		when := time.Now().Add(-age)
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "run-1"), 0o700), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	p.submit("a")
	p.once(p.config())
	left, err := filepath.Glob(filepath.Join(at, "*"))
	if err != nil || len(left) != 2 || strings.Contains(fmt.Sprint(left), "dead") {
		t.Errorf("%v, %v", left, err)
	}
	cfg := p.config()
	cfg.Scratch = filepath.Join(p.dir, "flows", "ema.yaml")
	if _, err := Run(t.Context(), cfg); !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("%v", err)
	}
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	if _, err := Run(t.Context(), Config{}); !codes.Has(err, codes.Internal) {
		t.Errorf("%v", err)
	}
	cfg := p.config()
	cfg.Poll = -1
	if _, _, err := Once(t.Context(), cfg); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("%v", err)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	want := Names{Flow: "ema", Snapshot: "fixture.1"}
	body, err := want.Body()
	if err != nil || string(body) != `{"flow":"ema","snapshot":"fixture.1"}` {
		t.Fatalf("%s, %v", body, err)
	}
	if got, err := ParseBody(body); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
