package shell

// Address names one actor, whatever it accepts. It is comparable; the zero Address names none. An address outlives its actor and
// never means another one.
type Address struct{ cell *cell }

// Name is the path of names from the root, such as "run/partition/0". It is "" for the zero Address.
func (a Address) Name() string {
	if a.cell == nil {
		return ""
	}
	return a.cell.name
}

// String is the name, for logs.
func (a Address) String() string { return a.Name() }

// IsZero says that the address names no actor.
func (a Address) IsZero() bool { return a.cell == nil }

// Done is closed when the actor has ended: its children have ended, Stopped has returned, and its name is free. It is nil for the
// zero Address.
func (a Address) Done() <-chan struct{} {
	if a.cell == nil {
		return nil
	}
	return a.cell.done
}

// Queued is the number of messages that wait in the actor's mailbox, the one in hand not among them.
func (a Address) Queued() int {
	if a.cell == nil {
		return 0
	}
	return int(a.cell.queued.Load())
}

// Ref is the address of an actor that accepts messages of type M.
type Ref[M any] struct{ Address }

// Narrow gives a reference to an actor that accepts everything to someone who sends only messages of type M.
func Narrow[M any](r Ref[any]) Ref[M] { return Ref[M](r) }

// Send puts m into the actor's mailbox and returns at once. It is safe for concurrent use. Messages of one sender arrive in the
// order they were sent. What cannot be delivered, a nil message among it, becomes a dead letter.
func Send[M any](to Ref[M], m M) {
	if to.cell == nil {
		return
	}
	to.cell.post(letter{to: to.cell, kind: userLetter, msg: m})
}

// Stop stops the actor after the message in hand; what waits in its mailbox becomes dead letters. It returns at once: Done tells the end.
func (a Address) Stop() {
	if a.cell != nil {
		a.cell.sys.root.Stop(a.cell.pid)
	}
}

// Drain stops the actor after the messages that wait in its mailbox now. It returns at once: Done tells the end.
func (a Address) Drain() {
	if a.cell != nil {
		a.cell.post(letter{to: a.cell, kind: drainLetter})
	}
}
