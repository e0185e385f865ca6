package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Reasons of a dead letter.
const (
	// ReasonStopped: the actor has failed, is stopping or has ended.
	ReasonStopped = "stopped"
	// ReasonNil: a nil message was refused.
	ReasonNil = "nil message"
)

// DeadLetter is a message that was not processed.
type DeadLetter struct {
	To      Address
	Message any
	Reason  string
}

// ErrShutdown is the answer to Spawn once Shutdown was called.
var ErrShutdown = errors.New("shell: the actor system is shut down")

// Options of a System. All are optional.
type Options struct {
	// Logger gets what nobody else handles: failures of actors without a supervisor, and protoactor's own warnings. Defaults to none.
	Logger *slog.Logger
	// OnFailure is told of the failure of an actor without a parent, or whose parent has ended. By default it is logged. It is
	// called by any goroutine and must not block.
	OnFailure func(Failed)
	// OnDeadLetter is told of every dead letter, by any goroutine, and must not block.
	OnDeadLetter func(DeadLetter)
}

// System holds actors. Create one with NewSystem and end it with Shutdown.
type System struct {
	opts   Options
	proto  *actor.ActorSystem
	root   *actor.RootContext
	dead   atomic.Uint64
	serial atomic.Uint64
	// letters were posted, and are neither processed nor dead letters yet; none has a token once there were none.
	letters atomic.Int64
	none    chan struct{}

	mu    sync.Mutex
	names map[string]*cell
	roots []*cell
	down  chan struct{} // closed when Shutdown has begun
	ended sync.Once
}

// NewSystem makes a system without actors. It costs about two milliseconds and three megabytes, nearly all of it protoactor's registry.
func NewSystem(o Options) *System {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &System{opts: o, names: make(map[string]*cell), down: make(chan struct{}), none: make(chan struct{}, 1)}
	quiet := slog.New(warnings{o.Logger.Handler()})
	s.proto = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
	// protoactor's own subscribers go: its dead-letter log starts a goroutine with a timer. The zero event stream is ready for use.
	s.proto.EventStream = zero(s.proto.EventStream)
	s.proto.EventStream.Subscribe(s.onEvent)
	s.root = s.proto.Root
	return s
}

func zero[T any](*T) *T { return new(T) }

func (s *System) onEvent(e any) {
	d, ok := e.(*actor.DeadLetterEvent)
	if !ok {
		return
	}
	if l, ok := d.Message.(letter); ok {
		l.to.queued.Add(-1)
		s.undelivered(l, ReasonStopped)
		s.settled()
	}
}

// settled is called when nothing more becomes of a letter.
func (s *System) settled() {
	if s.letters.Add(-1) == 0 {
		s.wake()
	}
}

func (s *System) wake() {
	select {
	case s.none <- struct{}{}:
	default:
	}
}

// await waits until no letter is left, or for the end of ctx.
func (s *System) await(ctx context.Context) error {
	defer s.wake() // others may wait for the same
	for s.letters.Load() > 0 {
		select {
		case <-s.none:
		case <-ctx.Done():
			return fmt.Errorf("shell: shutdown: %d messages are left: %w", s.letters.Load(), context.Cause(ctx))
		}
	}
	return nil
}

// DeadLetters is the number of messages that were not processed so far.
func (s *System) DeadLetters() uint64 { return s.dead.Load() }

func (s *System) undelivered(l letter, reason string) {
	switch l.kind {
	case failedLetter:
		s.unsupervised(l.msg.(Failed))
	case userLetter:
		s.dead.Add(1)
		s.giveBack(DeadLetter{To: Address{l.to}, Message: l.msg, Reason: reason})
	case terminatedLetter, drainLetter:
		// Nobody is left who would care.
	}
}

// giveBack tells of a message that was not processed, and lets it give back what it holds. A panic there is logged: it would stop a mailbox, for the rest of
// which Shutdown waits.
func (s *System) giveBack(d DeadLetter) {
	defer func() {
		if r := recover(); r != nil {
			s.opts.Logger.Error("a message was not given back", "actor", d.To.Name(), "panic", fmt.Sprint(r))
		}
	}()
	if m, ok := d.Message.(Discarder); ok {
		m.Discard()
	}
	if s.opts.OnDeadLetter != nil {
		s.opts.OnDeadLetter(d)
	}
}

func (s *System) unsupervised(f Failed) {
	if s.opts.OnFailure != nil {
		s.opts.OnFailure(f)
		return
	}
	s.opts.Logger.Error("actor failed", "actor", f.Child.Name(), "incarnation", f.Incarnation, "cause", f.Cause.Error())
}

// Spec names an actor to spawn.
type Spec struct {
	// Name is unique among the children of one parent; slashes are allowed. The full name is the parent's, a slash, and this.
	Name string
	// Incarnation is handed back in Failed and Terminated.
	Incarnation uint64
}

// Spawner is where an actor can be spawned: a *System for a root, a *Context for a child.
type Spawner interface {
	system() *System
	parentCell() *cell
	spawn(p *actor.Props, id string) error
}

func (s *System) system() *System   { return s }
func (s *System) parentCell() *cell { return nil }
func (s *System) spawn(p *actor.Props, id string) error {
	_, err := s.root.SpawnNamed(p, id)
	return err
}

// stopAlways is a second line of defence: guard lets no panic through to protoactor's supervision, whose default is to restart.
var stopAlways = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })

// Spawn starts an actor. It fails when the name is empty or taken by an actor that has not ended, and after Shutdown.
func Spawn[M any](where Spawner, spec Spec, b Behaviour[M]) (Ref[M], error) {
	s := where.system()
	k := &cell{
		sys: s, parent: where.parentCell(), name: spec.Name, incarnation: spec.Incarnation,
		receive: func(c *Context, m any) error { return b.Receive(c, m.(M)) },
		signals: signalsOf(b),
		done:    make(chan struct{}),
	}
	k.ctx.cell = k
	if k.parent != nil {
		k.name = k.parent.name + "/" + spec.Name
	}
	if err := s.remember(k, spec.Name); err != nil {
		return Ref[M]{}, err
	}
	props := actor.PropsFromProducer(func() actor.Actor { return k },
		actor.WithMailbox(actor.Unbounded(k)),
		actor.WithSupervisor(stopAlways),
		actor.WithOnInit(func(c actor.Context) { k.pid = c.Self() }))
	id := strings.ReplaceAll(spec.Name, "/", ".") + "#" + strconv.FormatUint(s.serial.Add(1), 10)
	if err := where.spawn(props, id); err != nil {
		s.forget(k)
		return Ref[M]{}, fmt.Errorf("shell: spawn %s: %w", k.name, err)
	}
	return Ref[M]{Address{k}}, nil
}

func (s *System) remember(k *cell, name string) error {
	if name == "" {
		return errors.New("shell: an actor needs a name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.down:
		return ErrShutdown
	default:
	}
	if s.names[k.name] != nil {
		return fmt.Errorf("shell: an actor named %q has not ended yet", k.name)
	}
	s.names[k.name] = k
	if k.parent == nil {
		s.roots = append(s.roots, k)
	}
	return nil
}

func (s *System) forget(k *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, k.name)
	if i := slices.Index(s.roots, k); i >= 0 {
		s.roots = slices.Delete(s.roots, i, i+1)
	}
}

// Shutdown stops every actor, the last root first, each with its children before the next, and waits until all have ended and what they left
// in their mailboxes has become dead letters. When ctx ends before that, the error names the actors that still run. It may be called again,
// also by several goroutines at once, but not from within an actor.
func (s *System) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	select {
	case <-s.down:
	default:
		close(s.down)
	}
	roots := slices.Clone(s.roots)
	s.mu.Unlock()
	for _, k := range slices.Backward(roots) {
		Address{k}.Stop()
		select {
		case <-k.done:
		case <-ctx.Done():
			return fmt.Errorf("shell: shutdown: still running: %s: %w", strings.Join(s.running(), ", "), context.Cause(ctx))
		}
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	s.ended.Do(s.proto.Shutdown)
	return nil
}

func (s *System) running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.names))
	for n := range s.names {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// warnings lets a logger through from level warn on: protoactor announces its start at level info.
type warnings struct{ slog.Handler }

// Enabled is false below level warn.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs keeps the level.
func (w warnings) WithAttrs(a []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(a)} }

// WithGroup keeps the level.
func (w warnings) WithGroup(n string) slog.Handler { return warnings{w.Handler.WithGroup(n)} }
