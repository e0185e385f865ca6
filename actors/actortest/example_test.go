package actortest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/actors/shell"
)

// An example of this package needs a *testing.T for its bubble, so the bodies below are functions of one. TestExamples runs each.

type ask struct{ question string }

type answer struct{ text string }

// oracle answers at once, and again a day later.
type oracle struct{ to shell.Ref[answer] }

func (o *oracle) Receive(_ *shell.Context, m ask) error {
	if m.question == "" {
		return errors.New("no question")
	}
	shell.Send(o.to, answer{"perhaps"})
	time.AfterFunc(24*time.Hour, func() { shell.Send(o.to, answer{"yes"}) })
	return nil
}

func docExpect(t *testing.T) {
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[answer](k, "probe")
		oracle := actortest.Spawn(k, "oracle", shell.Behaviour[ask](&oracle{to: probe.Ref()}))

		shell.Send(oracle, ask{"will it rain?"})
		if got := actortest.Expect[answer](probe); got.text != "perhaps" {
			t.Errorf("first answer %q", got.text)
		}
		probe.ExpectNone(time.Hour) // a fact, and it takes no time
		k.SetPatience(48 * time.Hour)
		if got := actortest.Expect[answer](probe); got.text != "yes" {
			t.Errorf("second answer %q", got.text)
		}
	})
}

func docFailure(t *testing.T) {
	actortest.Run(t, func(k *actortest.Kit) {
		probe := actortest.NewProbe[answer](k, "probe")
		// The second message is not handled: the behaviour panics instead.
		b := actortest.PanicOn(2, "lost my ball", shell.Behaviour[ask](&oracle{to: probe.Ref()}))
		oracle := actortest.Spawn(k, "oracle", b)
		for _, q := range []string{"one?", "two?", "three?"} {
			shell.Send(oracle, ask{q})
		}

		failure := k.ExpectFailure(oracle.Address)
		if failure.Message != any(ask{"two?"}) {
			t.Errorf("failed at %v", failure.Message)
		}
		k.ExpectStop(oracle.Address)
		if dead := k.DeadLetters(); len(dead) != 1 || dead[0].Message != any(ask{"three?"}) {
			t.Errorf("dead letters %v", dead)
		}
		actortest.Fish(probe, func(a answer) bool { return a.text == "perhaps" })
	})
}

func TestExamples(t *testing.T) {
	t.Parallel()
	t.Run("expect", func(t *testing.T) { t.Parallel(); docExpect(t) })
	t.Run("failure", func(t *testing.T) { t.Parallel(); docFailure(t) })
}

// Send a message, expect the answer, know that nothing else comes, and let a day pass.
func Example() {
	var t *testing.T // the test's own
	docExpect(t)
}

// Let an actor fail on its second message and see what became of the third.
func ExamplePanicOn() {
	var t *testing.T // the test's own
	docFailure(t)
}
