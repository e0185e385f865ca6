package controltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Place makes one empty store for a test and returns what opens a journal on it, any number of times, also several at once, as
// different processes would. It fails the test when it cannot.
type Place func(t *testing.T) (open func() control.Journal)

// Journal is the conformance suite of journals. Run it under the race detector too. What it cannot do from inside a process, a kill at any
// moment, is left to the store's own tests; Workload has what they need.
func Journal(t *testing.T, place Place) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &session{ctx: t.Context(), opener: place(t)}
			t.Cleanup(s.closeAll)
			if err := c.run(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is one test of the suite. It returns what is wrong instead of failing a testing.T, so that the suite itself can be tested on
// journals that are wrong on purpose.
type check struct {
	name string
	run  func(s *session) error
}

var checks = []check{
	{"new run", checkNewRun},
	{"round trip of every field", checkRoundTrip},
	{"history of random epochs", checkHistory},
	{"blobs are put, replaced and deleted", checkBlobs},
	{"outputs in the order of epochs", checkOutputs},
	{"large rows and blobs", checkLarge},
	{"many quarantined records", checkManyQuarantined},
	{"nothing of a commit is kept", checkKeepsNothing},
	{"readers' errors come back", checkReaderErrors},
	{"readers may use the journal", checkNestedReaders},
	{"compare and set", checkCompareAndSet},
	{"refusals leave nothing", checkRefusals},
	{"one winner of eight", checkRace},
	{"readers beside commits", checkConcurrentReaders},
	{"cancelled at every point", checkCancellation},
	{"headers that differ", checkMismatch},
	{"partitions are added", checkGrowth},
	{"a run is made once", checkMade},
	{"a finished run", checkFinished},
	{"runs do not mix", checkTwoRuns},
	{"a run is whole or by partitions", checkRunScopes},
	{"a run begins with its first epoch", checkBegin},
	{"unknown runs and partitions", checkUnknown},
	{"listing", checkListing},
}

// session is a store under test.
type session struct {
	ctx    context.Context
	opener func() control.Journal
	opened []control.Journal
}

// open opens another handle; it is closed at the end of the test.
func (s *session) open() control.Journal {
	j := s.opener()
	s.opened = append(s.opened, j)
	return j
}

func (s *session) closeAll() {
	for _, j := range s.opened {
		_ = j.Close() // a second Close may complain
	}
}

// both applies a commit to the journal and the model; both must accept it.
func (s *session) both(j control.Journal, m *Memory, c control.Commit) error {
	if err := m.Commit(s.ctx, c); err != nil {
		return fmt.Errorf("the model refuses epoch %d: %w", c.Epoch, err)
	}
	if err := j.Commit(s.ctx, c); err != nil {
		return fmt.Errorf("epoch %d: %w", c.Epoch, err)
	}
	return nil
}

// same compares a run in the journal with the model.
func (s *session) same(j control.Journal, m *Memory, h control.RunHeader) error {
	want, err := Read(s.ctx, m, h)
	if err != nil {
		return fmt.Errorf("the model: %w", err)
	}
	got, err := Read(s.ctx, j, h)
	if err != nil {
		return err
	}
	if d := Diff(want, got); d != "" {
		return fmt.Errorf("%s", d)
	}
	return nil
}

// start opens a run in a journal and in a new model.
func (s *session) start(h control.RunHeader) (control.Journal, *Memory, error) {
	j, m := s.open(), NewMemory()
	if _, err := m.OpenRun(s.ctx, h); err != nil {
		return nil, nil, fmt.Errorf("the model: %w", err)
	}
	if _, err := j.OpenRun(s.ctx, h); err != nil {
		return nil, nil, err
	}
	return j, m, nil
}

// wants says whether err carries the code.
func wants(what string, err error, code *codes.Code) error {
	if !codes.Has(err, code) {
		return fmt.Errorf("%s: got %v, want %s", what, err, code.Name)
	}
	return nil
}
