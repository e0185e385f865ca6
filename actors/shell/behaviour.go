package shell

import "fmt"

// Behaviour is what an actor does with a message. Receive is never called by two goroutines at once. An error, like a panic, stops
// the actor and is reported to its parent.
type Behaviour[M any] interface {
	Receive(c *Context, m M) error
}

// Receiver makes a function a Behaviour.
type Receiver[M any] func(c *Context, m M) error

// Receive calls the function.
func (f Receiver[M]) Receive(c *Context, m M) error { return f(c, m) }

// Starter is told before the first message.
type Starter interface {
	Started(c *Context) error
}

// Stopper is told when the actor is about to stop (its children still live), and again when its children have ended. Both are called
// after a failure too, even one of Started.
type Stopper interface {
	Stopping(c *Context) error
	Stopped(c *Context) error
}

// Supervisor is told of the failures of its children. A parent that is none fails itself with the child's cause.
type Supervisor interface {
	Failed(c *Context, f Failed) error
}

// Watcher is told once of the end of every actor that it watches.
type Watcher interface {
	Terminated(c *Context, t Terminated) error
}

// Discarder is a message that holds something to give back. Discard is called, by any goroutine, when the message ends as a dead letter.
type Discarder interface {
	Discard()
}

// Failed says that a child failed and is stopping.
type Failed struct {
	Child Address
	// Incarnation is the number that the child was spawned with.
	Incarnation uint64
	// Cause is the behaviour's error, or a *PanicError.
	Cause error
	// Message is the one in hand, or nil when the failure was in Started, Stopping or Stopped.
	Message any
}

// Terminated says that a watched actor has ended.
type Terminated struct {
	Who Address
	// Incarnation is the number that the actor was spawned with.
	Incarnation uint64
}

// PanicError is a panic of a behaviour. Its text has no stack: that is for a log, not for a user.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the panic's value when it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Intercept makes a behaviour that calls before with every message and goes on to b when before returns true and no error. Everything
// else that b implements is kept.
func Intercept[M any](b Behaviour[M], before func(c *Context, m M) (bool, error)) Behaviour[M] {
	return intercepted[M]{inner: b, before: before}
}

type intercepted[M any] struct {
	inner  Behaviour[M]
	before func(c *Context, m M) (bool, error)
}

func (i intercepted[M]) Receive(c *Context, m M) error {
	ok, err := i.before(c, m)
	if err != nil || !ok {
		return err
	}
	return i.inner.Receive(c, m)
}

func (i intercepted[M]) unwrap() any { return i.inner }

// signalsOf finds the value that may implement Starter, Stopper, Supervisor and Watcher.
func signalsOf(b any) any {
	for {
		w, ok := b.(interface{ unwrap() any })
		if !ok {
			return b
		}
		b = w.unwrap()
	}
}
