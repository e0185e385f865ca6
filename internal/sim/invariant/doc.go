// Package invariant says what must hold whatever goes wrong, with one checker for each promise, over a recorded history.
//
// A [History] is what several processes, their store, their source and their blobs did, in one order. Who records it does not matter: the
// simulation does, with wrappers around ports, and so may a drill. Checkers know nothing of how the history came about, and nothing of
// timing or of the order in which goroutines ran: they compare what took effect with what may.
//
//	h := invariant.NewHistory(time.Now)
//	h.Add("owner-1", invariant.Granted{…})        // by whoever sees it happen
//	violations := invariant.Check(h.Entries(), invariant.All(truth, limits)...)
//
// Where the order matters an event is recorded by whoever makes the effect visible, under the lock that orders effects: a commit where the
// store applies it, not where its caller hears of it. Both are events of their own.
package invariant
