package actortest_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/actors/shell"
)

type (
	ping struct{ n int }
	pong struct{ n int }
	tick struct{}
)

// ponger answers a ping with a pong, and ticks by itself after a while.
type ponger struct {
	to    shell.Ref[any]
	after time.Duration
}

func (p *ponger) Receive(_ *shell.Context, m ping) error {
	shell.Send(p.to, any(pong(m)))
	if p.after > 0 {
		time.AfterFunc(p.after, func() { shell.Send(p.to, any(tick{})) })
	}
	return nil
}

func TestExpectTakesMessagesInOrder(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[any](k, "probe")
		p := actortest.Spawn(k, "ponger", shell.Behaviour[ping](&ponger{to: probe.Ref()}))
		shell.Send(p, ping{1})
		shell.Send(p, ping{2})
		for n := 1; n <= 2; n++ {
			if got := actortest.Expect[pong](probe); got.n != n {
				t.Errorf("pong %d, want %d", got.n, n)
			}
		}
	})
}

func TestExpectWaitsForATimer(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[any](k, "probe")
		p := actortest.Spawn(k, "ponger", shell.Behaviour[ping](&ponger{to: probe.Ref(), after: 30 * time.Second}))
		start := time.Now()
		shell.Send(p, ping{1})
		actortest.Expect[pong](probe)
		actortest.Expect[tick](probe)
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("%v of virtual time passed, want 30s", d)
		}
	})
}

func TestExpectNoneForAnHour(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[any](k, "probe")
		p := actortest.Spawn(k, "ponger", shell.Behaviour[ping](&ponger{to: probe.Ref(), after: time.Hour + time.Second}))
		shell.Send(p, ping{1})
		actortest.Expect[pong](probe)
		probe.ExpectNone(time.Hour)
		actortest.Expect[tick](probe)
	})
}

func TestFishPassesOverTheRest(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[any](k, "probe")
		p := actortest.Spawn(k, "ponger", shell.Behaviour[ping](&ponger{to: probe.Ref(), after: time.Second}))
		for n := range 5 {
			shell.Send(p, ping{n})
		}
		actortest.Fish(probe, func(m pong) bool { return m.n == 3 })
		actortest.Fish[tick](probe, nil)
		if rest := probe.Rest(); len(rest) != 4 {
			t.Errorf("rest %v, want four ticks", rest)
		}
	})
}

func TestFailOnAndPanicOn(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	wraps := map[string]func(shell.Behaviour[ping]) shell.Behaviour[ping]{
		"fail":  func(b shell.Behaviour[ping]) shell.Behaviour[ping] { return actortest.FailOn(3, boom, b) },
		"panic": func(b shell.Behaviour[ping]) shell.Behaviour[ping] { return actortest.PanicOn(3, boom, b) },
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			actortest.Run(t, func(k *actortest.Kit) {
				probe := actortest.NewProbe[any](k, "probe")
				p := actortest.SpawnSpec(k, shell.Spec{Name: "ponger", Incarnation: 4}, wrap(&ponger{to: probe.Ref()}))
				probe.Watch(p.Address)
				for n := 1; n <= 5; n++ {
					shell.Send(p, ping{n})
				}
				f := k.ExpectFailure(p.Address)
				if !errors.Is(f.Cause, boom) || f.Incarnation != 4 || f.Message != any(ping{3}) {
					t.Errorf("failure %+v", f)
				}
				k.ExpectStop(p.Address)
				actortest.Expect[pong](probe)
				actortest.Expect[pong](probe)
				if got := actortest.Expect[shell.Terminated](probe); got.Who != p.Address {
					t.Errorf("terminated %v", got.Who)
				}
				probe.ExpectNone(time.Hour)
				if dead := k.DeadLetters(); len(dead) != 2 || dead[0].Message != any(ping{4}) || dead[1].Reason != shell.ReasonStopped {
					t.Errorf("dead letters %v", dead)
				}
			})
		})
	}
}

func TestFailureThatComesLater(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		p := actortest.Spawn(k, "a", shell.Receiver[int](func(_ *shell.Context, n int) error { return fmt.Errorf("number %d", n) }))
		time.AfterFunc(10*time.Second, func() { shell.Send(p, 1) })
		if f := k.ExpectFailure(p.Address); f.Cause.Error() != "number 1" {
			t.Error(f.Cause)
		}
	})
}

// reporter stands in for the test of a kit that is expected to complain.
type reporter struct {
	testing.TB
	mu       sync.Mutex
	errs     []string
	cleanups []func()
}

func (r *reporter) Helper()             {}
func (r *reporter) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *reporter) Failed() bool        { r.mu.Lock(); defer r.mu.Unlock(); return len(r.errs) > 0 }
func (r *reporter) Logf(string, ...any) {}
func (r *reporter) Errorf(f string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Sprintf(f, args...))
}
func (r *reporter) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }

// complaints runs body against a kit and returns what the kit reports.
func complaints(t *testing.T, body func(k *actortest.Kit)) []string {
	r := &reporter{TB: t}
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			k := actortest.New(r)
			defer func() {
				for _, f := range slices.Backward(r.cleanups) {
					f()
				}
			}()
			body(k)
		}()
		<-done
		<-time.After(2 * time.Hour) // of virtual time: what a body left running comes to its end
	})
	return r.errs
}

func TestKitComplains(t *testing.T) {
	t.Parallel()
	idle := shell.Receiver[any](func(*shell.Context, any) error { return nil })
	for name, c := range map[string]struct {
		want string
		body func(k *actortest.Kit)
	}{
		"nothing came": {"probe: expected a actortest_test.pong, got nothing for 5s", func(k *actortest.Kit) {
			k.SetPatience(5 * time.Second)
			actortest.Expect[pong](actortest.NewProbe[any](k, "probe"))
		}},
		"another type": {"probe: expected a actortest_test.pong, got actortest_test.ping: {n:1}", func(k *actortest.Kit) {
			p := actortest.NewProbe[any](k, "probe")
			shell.Send(p.Ref(), any(ping{1}))
			actortest.Expect[pong](p)
		}},
		"something came": {"probe: expected nothing for 1h0m0s, got actortest_test.ping: {n:1}", func(k *actortest.Kit) {
			p := actortest.NewProbe[any](k, "probe")
			time.AfterFunc(time.Hour-1, func() { shell.Send(p.Ref(), any(ping{1})) })
			p.ExpectNone(time.Hour)
		}},
		"no fish": {"probe: fished for a actortest_test.pong for 1m0s, passed over 1 other messages", func(k *actortest.Kit) {
			p := actortest.NewProbe[any](k, "probe")
			shell.Send(p.Ref(), any(ping{1}))
			actortest.Fish[pong](p, nil)
		}},
		"no stop": {"a did not stop within 1m0s", func(k *actortest.Kit) {
			k.ExpectStop(actortest.Spawn(k, "a", shell.Behaviour[any](idle)).Address)
		}},
		"no failure": {"a did not fail within 1m0s", func(k *actortest.Kit) {
			k.ExpectFailure(actortest.Spawn(k, "a", shell.Behaviour[any](idle)).Address)
		}},
		"name taken": {`an actor named "a" has not ended yet`, func(k *actortest.Kit) {
			actortest.Spawn(k, "a", shell.Behaviour[any](idle))
			actortest.Spawn(k, "a", shell.Behaviour[any](idle))
		}},
		"a failure that nobody took": {"a failed: panic: boom\ngoroutine", func(k *actortest.Kit) {
			shell.Send(actortest.Spawn(k, "a", actortest.PanicOn(1, "boom", shell.Behaviour[any](idle))), any(1))
		}},
		"an actor that does not end": {"still running: a", func(k *actortest.Kit) {
			gate := make(chan struct{})
			time.AfterFunc(time.Hour, func() { close(gate) })
			shell.Send(actortest.Spawn(k, "a", shell.Behaviour[any](shell.Receiver[any](func(*shell.Context, any) error { <-gate; return nil }))), any(1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := complaints(t, c.body)
			if !strings.Contains(strings.Join(errs, "\n"), c.want) {
				t.Errorf("complaints %q, want %q", errs, c.want)
			}
		})
	}
}

func TestKitIsSilentWhenAllIsWell(t *testing.T) {
	t.Parallel()
	errs := complaints(t, func(k *actortest.Kit) {
		p := actortest.NewProbe[any](k, "probe")
		shell.Send(p.Ref(), any(ping{1}))
		actortest.Expect[ping](p)
		k.Advance(time.Hour)
		p.ExpectNone(time.Hour)
	})
	if len(errs) != 0 {
		t.Errorf("complaints %q", errs)
	}
}
