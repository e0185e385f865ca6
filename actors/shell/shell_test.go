package shell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/shell"
)

// trace keeps lines in the order in which they were noted.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (l *trace) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *trace) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *trace) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := l.all(); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// expectEach is expect for several actors that do not wait for one another: only the order of each one's own lines counts.
func (l *trace) expectEach(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	byActor := func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	}
	slices.SortStableFunc(l.lines, byActor)
	slices.SortStableFunc(want, byActor)
	l.mu.Unlock()
	l.expect(t, want...)
}

// tracer notes everything that an actor is told. It fails with the cause that fail gives for a message.
type tracer struct {
	name  string
	trace *trace
	fail  func(m any) error
	start func(c *shell.Context) error
	stop  func(phase string) error
}

func (a *tracer) Started(c *shell.Context) error {
	a.trace.add("%s started", a.name)
	if a.start != nil {
		return a.start(c)
	}
	return nil
}

func (a *tracer) Receive(_ *shell.Context, m any) error {
	a.trace.add("%s got %v", a.name, m)
	if a.fail != nil {
		return a.fail(m)
	}
	return nil
}

func (a *tracer) Stopping(*shell.Context) error { return a.phase("stopping") }
func (a *tracer) Stopped(*shell.Context) error  { return a.phase("stopped") }

func (a *tracer) phase(p string) error {
	a.trace.add("%s %s", a.name, p)
	if a.stop != nil {
		return a.stop(p)
	}
	return nil
}

// parent notes the failures and ends of its children.
type parent struct{ tracer }

func (p *parent) Failed(_ *shell.Context, f shell.Failed) error {
	p.trace.add("%s told: %s@%d failed: %v (message %v)", p.name, f.Child, f.Incarnation, f.Cause, f.Message)
	return nil
}

func (p *parent) Terminated(_ *shell.Context, d shell.Terminated) error {
	p.trace.add("%s told: %s@%d ended", p.name, d.Who, d.Incarnation)
	return nil
}

func bubble(t *testing.T, o shell.Options, f func(t *testing.T, s *shell.System)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := shell.NewSystem(o)
		f(t, s)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
}

func spawn(t *testing.T, where shell.Spawner, name string, b shell.Behaviour[any]) shell.Ref[any] {
	t.Helper()
	r, err := shell.Spawn(where, shell.Spec{Name: name, Incarnation: 7}, b)
	if err != nil {
		t.Fatalf("spawn %s: %v", name, err)
	}
	return r
}

// family spawns a parent "p" that watches one child "c".
func family(t *testing.T, s *shell.System, l *trace, child *tracer) (p, c shell.Ref[any]) {
	t.Helper()
	child.name, child.trace = "c", l
	b := &parent{tracer{name: "p", trace: l}}
	b.start = func(ctx *shell.Context) error {
		c = spawn(t, ctx, "c", child)
		ctx.Watch(c.Address)
		ctx.Watch(c.Address)
		return nil
	}
	p = spawn(t, s, "p", b)
	synctest.Wait()
	return p, c
}

func TestMessagesArriveInOrder(t *testing.T) {
	t.Parallel()
	bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
		var got []int
		r, err := shell.Spawn(s, shell.Spec{Name: "a"}, shell.Receiver[int](func(_ *shell.Context, n int) error {
			got = append(got, n)
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			shell.Send(r, i)
		}
		synctest.Wait()
		if len(got) != 5000 || !slices.IsSorted(got) || r.Queued() != 0 {
			t.Fatalf("%d messages, sorted %v, %d queued", len(got), slices.IsSorted(got), r.Queued())
		}
	})
}

func TestFailureStopsTheChildAndSkipsNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fail := range map[string]func(any) error{
		"error": func(m any) error {
			if m == 3 {
				return boom
			}
			return nil
		},
		"panic": func(m any) error {
			if m == 3 {
				panic(boom)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dead []any
			o := shell.Options{OnDeadLetter: func(d shell.DeadLetter) { dead = append(dead, d.Message) }}
			bubble(t, o, func(t *testing.T, s *shell.System) {
				var l trace
				_, c := family(t, s, &l, &tracer{fail: fail})
				for i := 1; i <= 5; i++ {
					shell.Send(c, any(i))
				}
				synctest.Wait()
				cause := "boom"
				if name == "panic" {
					cause = "panic: boom"
				}
				l.expectEach(t, "p started", "c started", "c got 1", "c got 2", "c got 3", "c stopping", "c stopped",
					"p told: p/c@7 failed: "+cause+" (message 3)", "p told: p/c@7 ended")
				if !slices.Equal(dead, []any{4, 5}) || s.DeadLetters() != 2 {
					t.Errorf("dead letters %v, counted %d", dead, s.DeadLetters())
				}
			})
		})
	}
}

func TestPanicKeepsItsValueAndStack(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	var got shell.Failed
	bubble(t, shell.Options{OnFailure: func(f shell.Failed) { got = f }}, func(t *testing.T, s *shell.System) {
		r := spawn(t, s, "a", shell.Receiver[any](func(*shell.Context, any) error { panic(boom) }))
		shell.Send(r, any("x"))
		synctest.Wait()
		var p *shell.PanicError
		if !errors.As(got.Cause, &p) || !errors.Is(got.Cause, boom) || !bytes.Contains(p.Stack, []byte("shell_test.go")) {
			t.Errorf("cause %#v", got.Cause)
		}
		if strings.Contains(got.Cause.Error(), "shell_test.go") {
			t.Errorf("the text shows a stack: %s", got.Cause)
		}
	})
}

func TestFailureWhileStartingAndStopping(t *testing.T) {
	t.Parallel()
	phases := []string{"started", "stopping", "stopped"}
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
				var l trace
				child := &tracer{stop: func(p string) error {
					if p == phase {
						panic("boom")
					}
					return nil
				}}
				if phase == "started" {
					child.start = func(*shell.Context) error { panic("boom") }
				}
				_, c := family(t, s, &l, child)
				c.Stop()
				synctest.Wait()
				select {
				case <-c.Done():
				default:
					t.Error("the child did not end")
				}
				l.expectEach(t, "p started", "c started", "c stopping", "c stopped",
					"p told: p/c@7 failed: panic: boom (message <nil>)", "p told: p/c@7 ended")
			})
		})
	}
}

func TestUnsupervisedFailureClimbs(t *testing.T) {
	t.Parallel()
	var got []string
	o := shell.Options{OnFailure: func(f shell.Failed) { got = append(got, f.Child.Name()+": "+f.Cause.Error()) }}
	bubble(t, o, func(t *testing.T, s *shell.System) {
		var l trace
		var c shell.Ref[any]
		p := &tracer{name: "p", trace: &l}
		p.start = func(ctx *shell.Context) error {
			c = spawn(t, ctx, "c", shell.Receiver[any](func(*shell.Context, any) error { return errors.New("boom") }))
			return nil
		}
		spawn(t, s, "p", p)
		synctest.Wait()
		shell.Send(c, any(1))
		synctest.Wait()
		if !slices.Equal(got, []string{"p: boom"}) {
			t.Errorf("got %v", got)
		}
		l.expect(t, "p started", "p stopping", "p stopped")
	})
}

func TestFailureWithoutListenerIsLoggedWithoutColour(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := shell.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	bubble(t, o, func(t *testing.T, s *shell.System) {
		r := spawn(t, s, "a", shell.Receiver[any](func(*shell.Context, any) error { return errors.New("boom") }))
		shell.Send(r, any(1))
		synctest.Wait()
	})
	text := out.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "actor=a") || !strings.Contains(text, "cause=boom") || strings.Contains(text, "\x1b") {
		t.Errorf("log %q", text)
	}
}

func TestStopLeavesTheQueueToDeadLettersAndDrainDoesNot(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{false, true} {
		t.Run(fmt.Sprint("drain=", drain), func(t *testing.T) {
			t.Parallel()
			bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
				var l trace
				gate := make(chan struct{})
				a := &tracer{name: "a", trace: &l, fail: func(any) error { <-gate; return nil }}
				r := spawn(t, s, "a", a)
				for i := 1; i <= 3; i++ {
					shell.Send(r, any(i))
				}
				synctest.Wait()
				if r.Queued() != 2 {
					t.Errorf("%d queued, want 2", r.Queued())
				}
				if drain {
					r.Drain()
				} else {
					r.Stop()
				}
				shell.Send(r, any(4))
				close(gate)
				<-r.Done()
				synctest.Wait()
				if drain {
					l.expect(t, "a started", "a got 1", "a got 2", "a got 3", "a stopping", "a stopped")
				} else {
					l.expect(t, "a started", "a got 1", "a stopping", "a stopped")
				}
				if want := map[bool]uint64{false: 3, true: 1}[drain]; s.DeadLetters() != want || r.Queued() != 0 {
					t.Errorf("%d dead letters, want %d; %d queued", s.DeadLetters(), want, r.Queued())
				}
			})
		})
	}
}

type parcel struct{ returned *atomic.Int32 }

func (p parcel) Discard() { p.returned.Add(1) }

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	var l trace
	o := shell.Options{OnDeadLetter: func(d shell.DeadLetter) { l.add("%s %T %s", d.To, d.Message, d.Reason) }}
	bubble(t, o, func(t *testing.T, s *shell.System) {
		r := spawn(t, s, "a", shell.Receiver[any](func(*shell.Context, any) error { return nil }))
		shell.Send(r, nil)
		shell.Send(shell.Ref[any]{}, any(1))
		r.Stop()
		<-r.Done()
		synctest.Wait()
		p := parcel{returned: new(atomic.Int32)}
		shell.Send(r, any(p))
		r.Stop()
		r.Drain()
		synctest.Wait()
		l.expect(t, "a <nil> nil message", "a shell_test.parcel stopped")
		if s.DeadLetters() != 2 || p.returned.Load() != 1 {
			t.Errorf("%d dead letters, parcel returned %d times", s.DeadLetters(), p.returned.Load())
		}
	})
}

func TestReferenceNeverReachesALaterActorOfTheSameName(t *testing.T) {
	t.Parallel()
	bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
		var l trace
		old := spawn(t, s, "a", &tracer{name: "old", trace: &l})
		shell.Send(old, any(1))
		synctest.Wait()
		if _, err := shell.Spawn(s, shell.Spec{Name: "a"}, shell.Behaviour[any](&tracer{})); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("a second actor of a living name: %v", err)
		}
		old.Stop()
		<-old.Done()
		young := spawn(t, s, "a", &tracer{name: "young", trace: &l})
		shell.Send(old, any(2))
		old.Stop()
		shell.Send(young, any(3))
		synctest.Wait()
		l.expect(t, "old started", "old got 1", "old stopping", "old stopped", "young started", "young got 3")
		if s.DeadLetters() != 1 {
			t.Errorf("%d dead letters, want 1", s.DeadLetters())
		}
	})
}

func TestWatchingAnEndedActorTellsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
		var l trace
		r := spawn(t, s, "a", &tracer{name: "a", trace: &l})
		r.Stop()
		<-r.Done()
		w := &parent{tracer{name: "w", trace: &l}}
		w.start = func(c *shell.Context) error {
			c.Watch(r.Address)
			c.Watch(r.Address)
			c.Watch(shell.Address{})
			return nil
		}
		spawn(t, s, "w", w)
		synctest.Wait()
		l.expect(t, "a started", "a stopping", "a stopped", "w started", "w told: a@7 ended")
	})
}

func TestShutdownIsOrderedAndRepeatable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shell.NewSystem(shell.Options{})
		var l trace
		spawn(t, s, "first", &tracer{name: "first", trace: &l})
		synctest.Wait()
		family(t, s, &l, &tracer{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := s.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		l.expect(t, "first started", "p started", "c started", "p stopping", "c stopping", "c stopped", "p stopped", "first stopping", "first stopped")
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := shell.Spawn(s, shell.Spec{Name: "late"}, shell.Behaviour[any](&tracer{})); !errors.Is(err, shell.ErrShutdown) {
			t.Errorf("spawn after shutdown: %v", err)
		}
	})
}

func TestShutdownNamesWhoStillRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shell.NewSystem(shell.Options{})
		gate := make(chan struct{})
		r := spawn(t, s, "stuck", shell.Receiver[any](func(*shell.Context, any) error { <-gate; return nil }))
		shell.Send(r, any(1))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("shutdown: %v", err)
		}
		close(gate)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slow takes a second to give back what it holds.
type slow struct{ parcel }

func (s slow) Discard() {
	<-time.After(time.Second)
	s.parcel.Discard()
}

// broken panics when it is to give back what it holds.
type broken struct{}

func (broken) Discard() { panic("boom") }

// A message that cannot be given back keeps neither the others from it nor Shutdown from its end.
func TestShutdownDespiteWhatCannotBeGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		s := shell.NewSystem(shell.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		gate := make(chan struct{})
		r := spawn(t, s, "a", shell.Receiver[any](func(*shell.Context, any) error { <-gate; return nil }))
		shell.Send(r, any(1))
		p := parcel{returned: new(atomic.Int32)}
		for _, m := range []any{p, broken{}, p} {
			shell.Send(r, m)
		}
		synctest.Wait()
		r.Stop()
		close(gate)
		<-r.Done()
		shell.Send(r, any(broken{})) // nor whoever sends it from going on
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil || p.returned.Load() != 2 || s.DeadLetters() != 4 {
			t.Errorf("shutdown: %v, with %d of 2 given back, %d dead letters", err, p.returned.Load(), s.DeadLetters())
		}
		if n := strings.Count(lines.String(), "boom"); n != 2 {
			t.Errorf("told %d times:\n%s", n, lines.String())
		}
	})
}

// What waited for an actor that is stopped is given back when Shutdown returns, whoever calls it.
func TestShutdownWaitsForWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shell.NewSystem(shell.Options{})
		gate := make(chan struct{})
		r := spawn(t, s, "a", shell.Receiver[any](func(*shell.Context, any) error { <-gate; return nil }))
		shell.Send(r, any(1))
		p := parcel{returned: new(atomic.Int32)}
		for range 3 {
			shell.Send(r, any(slow{p}))
		}
		synctest.Wait()
		r.Stop()
		close(gate)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 messages are left") {
			t.Errorf("shutdown: %v", err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := s.Shutdown(t.Context()); err != nil || p.returned.Load() != 3 {
					t.Errorf("shutdown: %v, with %d of 3 given back", err, p.returned.Load())
				}
			})
		}
		wg.Wait()
	})
}

func TestSpawnNeedsAName(t *testing.T) {
	t.Parallel()
	bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
		if _, err := shell.Spawn(s, shell.Spec{}, shell.Behaviour[any](&tracer{})); err == nil {
			t.Error("an actor without a name was spawned")
		}
	})
}

func TestInterceptKeepsTheRestOfABehaviour(t *testing.T) {
	t.Parallel()
	bubble(t, shell.Options{}, func(t *testing.T, s *shell.System) {
		var l trace
		b := shell.Intercept(shell.Behaviour[any](&tracer{name: "a", trace: &l}), func(_ *shell.Context, m any) (bool, error) { return m != 2, nil })
		b = shell.Intercept(b, func(_ *shell.Context, m any) (bool, error) {
			if m == 4 {
				return true, errors.New("boom")
			}
			return true, nil
		})
		r := spawn(t, s, "a", b)
		for i := 1; i <= 4; i++ {
			shell.Send(r, any(i))
		}
		<-r.Done()
		l.expect(t, "a started", "a got 1", "a got 3", "a stopping", "a stopped")
	})
}

func TestManySendersLoseNothing(t *testing.T) {
	t.Parallel()
	var dead atomic.Int64
	o := shell.Options{OnDeadLetter: func(shell.DeadLetter) { dead.Add(1) }}
	bubble(t, o, func(t *testing.T, s *shell.System) {
		var got atomic.Int64
		r, err := shell.Spawn(s, shell.Spec{Name: "a"}, shell.Receiver[int](func(*shell.Context, int) error { got.Add(1); return nil }))
		if err != nil {
			t.Fatal(err)
		}
		const senders, each = 8, 2000
		for range senders {
			go func() {
				for i := range each {
					shell.Send(r, i)
					if i == each/2 {
						r.Stop()
					}
				}
			}()
		}
		synctest.Wait()
		if got.Load()+dead.Load() != senders*each || int64(s.DeadLetters()) != dead.Load() || r.Queued() != 0 {
			t.Errorf("%d processed and %d dead of %d, %d queued", got.Load(), dead.Load(), senders*each, r.Queued())
		}
	})
}

func Example() {
	system := shell.NewSystem(shell.Options{})
	greeted := make(chan string)
	greeter, err := shell.Spawn(system, shell.Spec{Name: "greeter"}, shell.Receiver[string](func(_ *shell.Context, name string) error {
		greeted <- "hello, " + name
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	shell.Send(greeter, "weir")
	fmt.Println(<-greeted)
	fmt.Println(system.Shutdown(context.Background()))
	// Output:
	// hello, weir
	// <nil>
}
