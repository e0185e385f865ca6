package controltest

import (
	"fmt"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// checkRunScopes: a run is one, or one for each partition, and never both. Of several that are made at once in both scopes, those of one scope win.
func checkRunScopes(s *session) error {
	const parts, rounds = 3, 8
	js := make([]control.Journal, parts+1)
	for i := range js {
		js[i] = s.open()
	}
	of := func(id string) control.RunHeader { return Workload{RunID: id, Partitions: 1}.Header() }
	for round := range rounds {
		run := fmt.Sprint("scope-", round)
		errs := make([]error, len(js))
		var start, done sync.WaitGroup
		start.Add(1)
		for i, j := range js {
			id := run
			if i > 0 {
				id = control.PartID(run, int32(i-1))
			}
			done.Go(func() {
				start.Wait()
				_, errs[i] = j.OpenRun(s.ctx, of(id))
			})
		}
		start.Done()
		done.Wait()
		for i, err := range errs {
			if err != nil && !codes.Has(err, codes.RunMismatch) {
				return fmt.Errorf("run %q, %d: %w", run, i, err)
			}
			if i > 0 && (err == nil) == (errs[0] == nil) {
				return fmt.Errorf("run %q was made as a whole (%v) and by partitions (%v)", run, errs[0], err)
			}
		}
	}
	for _, c := range []struct {
		id      string
		refused bool
	}{
		{"first", false}, {"first/0", true}, {"first/x", false}, {"firs/0", false}, {"second/0", false}, {"second", true}, {"second/1", false},
		{"first", false}, {"second/0", false}, {"first/0/0", false}, {"first/0", true},
	} {
		_, err := js[0].OpenRun(s.ctx, of(c.id))
		if c.refused != codes.Has(err, codes.RunMismatch) || !c.refused && err != nil {
			return fmt.Errorf("run %q: %v, refused %v", c.id, err, c.refused)
		}
	}
	// Nothing stands of what was refused.
	err := js[0].Commit(s.ctx, control.Commit{RunID: "second", Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime})
	return wants("a commit of a run that was refused", err, codes.RunUnknown)
}
