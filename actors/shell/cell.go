package shell

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

type letterKind uint8

const (
	userLetter letterKind = iota
	// failedLetter and terminatedLetter travel through the same mailbox as messages, so that a failure is known before the end
	// that it causes. (protoactor's own Terminated overtakes messages, and a parent that watches its child hears it twice.)
	failedLetter
	terminatedLetter
	drainLetter
)

// letter is the only message that protoactor carries for us. It is never nil: a nil message makes protoactor's mailbox spin.
type letter struct {
	to   *cell
	kind letterKind
	msg  any
}

// cell is one actor: protoactor's Actor on the one side, a Behaviour on the other. The fields without a lock belong to the goroutine
// that processes the mailbox.
type cell struct {
	sys         *System
	parent      *cell
	name        string
	incarnation uint64
	receive     func(c *Context, m any) error
	signals     any
	// pid is unique for the life of the process, since protoactor's ids are reused by name and an old one would reach a new actor.
	pid    *actor.PID
	ctx    Context
	queued atomic.Int64
	done   chan struct{}

	// taken is set when the letter in hand reached the cell; a stopped actor's mailbox drops letters without a word.
	taken bool
	// closed is set by a failure or by Stopping: nothing more is processed.
	closed bool

	mu       sync.Mutex
	ended    bool
	watchers []*cell
}

// Receive is protoactor's entry: life-cycle messages and letters.
func (k *cell) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		k.ctx.inner = c
		if s, ok := k.signals.(Starter); ok {
			k.guard(nil, func() error { return s.Started(&k.ctx) })
		}
	case *actor.Stopping:
		k.closed = true
		if s, ok := k.signals.(Stopper); ok {
			k.guard(nil, func() error { return s.Stopping(&k.ctx) })
		}
	case *actor.Stopped:
		if s, ok := k.signals.(Stopper); ok {
			k.guard(nil, func() error { return s.Stopped(&k.ctx) })
		}
		k.end()
	case letter:
		k.taken = true
		k.queued.Add(-1)
		k.open(m)
	}
}

func (k *cell) open(l letter) {
	if k.closed {
		k.sys.undelivered(l, ReasonStopped)
		return
	}
	switch l.kind {
	case userLetter:
		k.guard(l.msg, func() error { return k.receive(&k.ctx, l.msg) })
	case failedLetter:
		f := l.msg.(Failed)
		k.guard(l.msg, func() error {
			if s, ok := k.signals.(Supervisor); ok {
				return s.Failed(&k.ctx, f)
			}
			return f.Cause
		})
	case terminatedLetter:
		if w, ok := k.signals.(Watcher); ok {
			k.guard(l.msg, func() error { return w.Terminated(&k.ctx, l.msg.(Terminated)) })
		}
	case drainLetter:
		k.closed = true
		k.sys.root.Stop(k.pid)
	}
}

// guard is the one place where failures are caught.
func (k *cell) guard(msg any, f func() error) {
	defer func() {
		if r := recover(); r != nil {
			k.fail(msg, &PanicError{Value: r, Stack: debug.Stack()})
		}
	}()
	if err := f(); err != nil {
		k.fail(msg, err)
	}
}

func (k *cell) fail(msg any, cause error) {
	f := Failed{Child: Address{k}, Incarnation: k.incarnation, Cause: cause, Message: msg}
	if k.parent != nil {
		k.parent.post(letter{to: k.parent, kind: failedLetter, msg: f})
	} else {
		k.sys.unsupervised(f)
	}
	if !k.closed {
		k.closed = true
		// A system message: it goes before everything that waits.
		k.sys.root.Stop(k.pid)
	}
}

func (k *cell) end() {
	k.sys.forget(k)
	k.mu.Lock()
	k.ended = true
	watchers := k.watchers
	k.mu.Unlock()
	for _, w := range watchers {
		k.tellTerminated(w)
	}
	close(k.done)
}

// addWatcher says whether w is to be told at once: it is new, and the actor has ended. Watchers are remembered beyond the end, so that
// one who watches again, before and after it, is still told once.
func (k *cell) addWatcher(w *cell) (tell bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.watchers, w) {
		return false
	}
	k.watchers = append(k.watchers[:len(k.watchers):len(k.watchers)], w)
	return k.ended
}

func (k *cell) tellTerminated(w *cell) {
	w.post(letter{to: w, kind: terminatedLetter, msg: Terminated{Who: Address{k}, Incarnation: k.incarnation}})
}

func (k *cell) post(l letter) {
	if l.kind == userLetter && l.msg == nil {
		k.sys.undelivered(l, ReasonNil)
		return
	}
	k.queued.Add(1)
	k.sys.letters.Add(1)
	k.sys.root.Send(k.pid, l)
}

// The cell listens to its mailbox, to see letters that a stopped actor drops.

// MailboxStarted does nothing.
func (k *cell) MailboxStarted() {}

// MessagePosted does nothing.
func (k *cell) MessagePosted(any) {}

// MailboxEmpty does nothing.
func (k *cell) MailboxEmpty() {}

// MessageReceived is called after protoactor processed a message, or dropped it.
func (k *cell) MessageReceived(m any) {
	l, ok := m.(letter)
	if !ok {
		return
	}
	if !k.taken {
		k.queued.Add(-1)
		k.sys.undelivered(l, ReasonStopped)
	}
	k.taken = false
	k.sys.settled()
}
