// Package actortest is the kit for unit tests of actors: it runs them on virtual time, sends them messages and says what came back.
//
// A test runs its body in a bubble of testing/synctest, where a clock moves only when nothing else can happen. So a wait of an hour
// costs nothing, "nothing came" is a fact and not a guess, and a test ends only when every goroutine has. Run makes the bubble, the
// actor system in it, and ends both in order:
//
//	func TestEcho(t *testing.T) {
//		actortest.Run(t, func(k *actortest.Kit) {
//			probe := actortest.NewProbe[string](k, "probe")
//			echo := actortest.Spawn(k, "echo", newEcho(probe.Ref()))
//			shell.Send(echo, "hello")
//			if got := actortest.Expect[string](probe); got != "hello" { … }
//			probe.ExpectNone(time.Hour)
//		})
//	}
//
// # What it offers
//
//	Spawn          starts an actor under the kit, which supervises it
//	NewProbe       is an actor that keeps what it is sent, in order
//	Expect[T]      takes the next message of a probe, which must be a T
//	Fish[T]        passes over messages until a T that fits
//	ExpectNone     says that nothing comes for a stretch of virtual time
//	ExpectStop     waits for the end of an actor
//	ExpectFailure  waits for the failure of an actor and takes it
//	FailOn, PanicOn  wrap a behaviour so that it fails on its n-th message
//	Settle         waits until every mailbox is empty and every goroutine waits
//	DeadLetters    are the messages that nobody processed
//
// A failure of an actor that the test did not take with ExpectFailure fails the test at its end. All waits give up after the kit's
// patience of virtual time, a minute unless SetPatience says otherwise, and fail the test with what did come instead.
package actortest
