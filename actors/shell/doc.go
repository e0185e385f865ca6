// Package shell is a small typed layer over protoactor's local actors, and its only importer in this module. It keeps what is
// sound there (mailboxes, scheduling, the parent and child tree) and replaces what is not:
//
//   - A message that fails is never skipped. Every panic and every error of a behaviour is caught in one place, reported to the
//     parent as Failed, and the actor stops: no restart, and nothing behind the failing message is processed. (protoactor drops
//     the message in hand, makes a fresh state and goes on with the next one.) Panics while stopping are caught and reported too.
//   - A reference means one actor, not a name. A later actor of the same name never gets a message meant for the one before.
//   - What could not be delivered is a dead letter, counted and observable, also what still stood in the mailbox of an actor that
//     stopped. A message that implements Discarder is told, so that it can give its memory back.
//   - Watch reports the end of an actor once, after its failure, if that is why it ended.
//   - Shutdown stops the actors in the reverse order of their start, waits for them, and may be called twice.
//   - A nil message is refused; the logger is the caller's; protoactor's own metrics and its dead-letter log are off.
//
// Mailboxes are unbounded: whoever sends at a rate that the receiver does not set must use credits.
//
// # Writing an actor
//
// A Behaviour handles messages of one type, usually a sealed interface with one implementation for each message. It may implement
// Starter, Stopper, Supervisor and Watcher beside Receive. Nothing in it may block: work that waits runs in a goroutine and sends its
// result back with Send, which is safe everywhere.
//
//	type counter struct{ n int }
//
//	func (k *counter) Receive(c *shell.Context, m add) error { k.n += m.by; return nil }
//
//	ref, err := shell.Spawn(system, shell.Spec{Name: "counter"}, &counter{})
//	shell.Send(ref, add{by: 1})
//
// # The life of an actor
//
//	  Spawn
//	    │ Started
//	    ▼          Stop, or the Stop of its parent
//	┌───────┐ ───────────────────────────────────┐
//	│running│                                    ▼ Stopping
//	└───────┘ ── panic or error ──▶ Failed ─▶ ┌────────┐ children stopped,  ┌─────┐
//	                            to the parent │stopping│ ─ Stopped ────────▶ │ended│ ─▶ Terminated to watchers, Done closed
//	                                          └────────┘                     └─────┘
//
// From stopping on, messages become dead letters.
package shell
