package main

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/actors"
)

// TestAStepIsOneOfTheCommit: a fault at a step of the store that names an epoch comes in that epoch's commit, and not in a renewal of the lease while the rows
// of the epoch are published; nor does a renewal begin while the commit is under way. Once it has come, renewals wait for no commit.
func TestAStepIsOneOfTheCommit(t *testing.T) {
	t.Setenv(failpointsEnv, "store:begin@1=panic")
	synctest.Test(t, func(t *testing.T) {
		f, err := readFailpoints(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		hooks, step := f.hooks("run"), f.store()
		write := func() (err error) {
			defer func() {
				if recover() != nil {
					err = errFault
				}
			}()
			return step("begin")
		}
		renewed := make(chan error, 3)
		renew := func() { renewed <- (gated{f: f}).do(write) }
		if err := hooks.At(t.Context(), actors.Point{Name: actors.BeforeCommit, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		if renew(); <-renewed != nil {
			t.Error("it came in a renewal before the commit")
		}
		for _, want := range []error{errFault, nil} {
			err := f.commit("run", func() error {
				go renew()
				synctest.Wait()
				if waits := len(renewed) == 0; waits != (want != nil) {
					t.Errorf("a renewal beside the commit waits: %v", waits)
				}
				return write()
			})
			if err != want {
				t.Errorf("the commit came to %v, want %v", err, want)
			}
			if err := <-renewed; err != nil {
				t.Error("it came in a renewal beside the commit")
			}
		}
	})
}

var errFault = errors.New("the fault")
