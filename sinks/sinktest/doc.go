// Package sinktest is one suite for every sink: it checks exactly what a sink declares in its Features, and nothing else.
//
//	func TestSuite(t *testing.T) {
//		sinktest.Run(t, func(t testing.TB) sinktest.Place { … })
//	}
//
// A sink that is to be tested calls a hook between any two of its steps. The suite counts the steps of a publication and then repeats it once for each
// of them: killed there, cut off there by its context, and with another owner who does all of his work there, before the first goes on. What a
// reader of the target sees afterwards is compared with the rows that were given.
package sinktest

import (
	"testing"

	"github.com/weirstream/weir/sinks"
)

// Place is a target of its own, for one check.
type Place struct {
	// Sink describes the target. hook is called between any two steps of opening and publishing, with the step's name; what it returns ends the
	// write there. nil is no hook.
	Sink func(hook func(step string) error) sinks.Sink
	// Seen is what a reader of the target sees of a run, of each partition in the order in which it is found.
	Seen func(t testing.TB, run string) []Seen
	// Outputs are the columns. Defaults to Outputs.
	Outputs []string
	// PlainText is for a target that takes no ids and keys with control characters or broken UTF-8.
	PlainText bool
	// Stopped is called while an owner stands between two steps, before another comes: a target that ends who stands still there for too long does it now, so that
	// no check depends on how fast a machine is. That it does so by itself is for a test of the sink's own. nil is a target where nobody waits.
	Stopped func(t testing.TB)
}

func (p Place) stopped(t testing.TB) {
	t.Helper()
	if p.Stopped != nil {
		p.Stopped(t)
	}
}

// Seen is a row as it is found in a target. Text is that of sinks.JSON.
type Seen struct {
	Partition int32
	Number    int64
	Text      string
}

// Outputs are the columns of the rows of this suite.
var Outputs = []string{"ema12", "close"}

type check struct {
	name string
	run  func(t testing.TB, p Place)
}

var checks = []check{
	{"Publishes", publishes}, {"OtherBoundaries", otherBoundaries}, {"Holes", holes}, {"Runs", runsApart}, {"LaterPartitions", laterPartitions},
	{"Kills", kills}, {"Cancels", cancels}, {"Owners", owners}, {"StaleOpen", staleOpen}, {"Heirs", heirs}, {"Many", many},
}

// Run runs the suite. open makes a new, empty place for each check.
func Run(t *testing.T, open func(t testing.TB) Place) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}
