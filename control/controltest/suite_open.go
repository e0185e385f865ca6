package controltest

import (
	"fmt"
	"reflect"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Every header that does not fit is refused, from any state of the run, and changes nothing.
func checkMismatch(s *session) error {
	w := Workload{Seed: 2, RunID: "run", Partitions: 3, Rows: 5, Blob: 50}
	j, _, err := s.start(w.Header())
	if err != nil {
		return err
	}
	for e := uint64(0); e < 3; e++ {
		if e > 0 {
			if err := j.Commit(s.ctx, w.Commit(e)); err != nil {
				return err
			}
		}
		for _, c := range []struct {
			what   string
			change func(*control.RunHeader)
			code   *codes.Code
		}{
			{"another flow", func(h *control.RunHeader) { h.Fingerprint = "sha256:4567" }, codes.RunMismatch},
			{"another topic", func(h *control.RunHeader) { h.Source = "trades" }, codes.RunMismatch},
			{"a recreated topic", func(h *control.RunHeader) { h.SourceID = "topic-2" }, codes.TopicRecreated},
			{"no identity", func(h *control.RunHeader) { h.SourceID = "" }, codes.RunMismatch},
			{"a partition less", func(h *control.RunHeader) { h.Partitions = []int32{0, 1} }, codes.RunMismatch},
			{"other partitions", func(h *control.RunHeader) { h.Partitions = []int32{0, 1, 3} }, codes.RunMismatch},
			{"no partitions", func(h *control.RunHeader) { h.Partitions = nil }, codes.Internal},
			{"no run id", func(h *control.RunHeader) { h.RunID = "" }, codes.RunIDInvalid},
		} {
			h := w.Header()
			c.change(&h)
			state, err := j.OpenRun(s.ctx, h)
			if err := wants(c.what, err, c.code); err != nil {
				return err
			}
			if !reflect.DeepEqual(state, control.RunState{}) {
				return fmt.Errorf("%s: a state comes with the refusal: %+v", c.what, state)
			}
		}
		if stands, err := w.Check(s.ctx, j); err != nil || stands != e {
			return fmt.Errorf("after refusals at epoch %d: %d stands (%v)", e, stands, err)
		}
	}
	return nil
}

func checkGrowth(s *session) error {
	h := header(2)
	h.SourceID = ""
	j, m, err := s.start(h)
	if err != nil {
		return err
	}
	if err := s.both(j, m, commit(1, control.PartitionCommit{Cut: cut(0, 5)}, control.PartitionCommit{Cut: cut(1, 6)})); err != nil {
		return err
	}
	h.Partitions, h.SourceID, h.Group = []int32{3, 2, 1, 0}, "known now", "another group"
	state, err := j.OpenRun(s.ctx, h)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(state.Header.Partitions, []int32{0, 1, 2, 3}) || state.Epoch != 1 || len(state.Cuts) != 2 || state.Cuts[1].Next != record.Offset(6) {
		return fmt.Errorf("after growing: %+v", state)
	}
	if err := s.same(j, m, h); err != nil {
		return err
	}
	if err := s.both(j, m, commit(2, control.PartitionCommit{Cut: cut(3, 1), Rows: partitions.Rows{Data: []byte("new"), Count: 1}})); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	j = s.open()
	if err := s.same(j, m, h); err != nil {
		return err
	}
	smaller := h
	smaller.Partitions = []int32{0, 1}
	_, err = j.OpenRun(s.ctx, smaller)
	if err := wants("the layout before", err, codes.RunMismatch); err != nil {
		return err
	}
	h.SourceID = "another"
	_, err = j.OpenRun(s.ctx, h)
	return wants("another identity than the one learned", err, codes.TopicRecreated)
}

// checkMade: when a run was made says which run it is, so it is the same for ever.
func checkMade(s *session) error {
	h := header(2)
	j, m, err := s.start(h)
	if err != nil {
		return err
	}
	made, err := j.OpenRun(s.ctx, h)
	if err != nil {
		return err
	}
	if err := s.both(j, m, commit(1, control.PartitionCommit{Cut: cut(0, 5)})); err != nil {
		return err
	}
	h.Partitions = []int32{0, 1, 2}
	grown, err := j.OpenRun(s.ctx, h)
	if err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	again, err := s.open().OpenRun(s.ctx, h)
	if err == nil && !(grown.Created.Equal(made.Created) && again.Created.Equal(made.Created)) {
		err = fmt.Errorf("made at %s; once it has grown at %s, and once the journal is opened again at %s", made.Created, grown.Created, again.Created)
	}
	return err
}

func checkFinished(s *session) error {
	w := Workload{Seed: 8, RunID: "run", Partitions: 2, Rows: 5, Blob: 50}
	j, m, err := s.start(w.Header())
	if err != nil {
		return err
	}
	c := w.Commit(1)
	c.Status = control.RunFinished
	if err := s.both(j, m, c); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	j = s.open()
	state, err := j.OpenRun(s.ctx, w.Header())
	if err := wants("opening a finished run", err, codes.RunFinished); err != nil {
		return err
	}
	if state.Epoch != 1 || state.Status != control.RunFinished || len(state.Cuts) == 0 {
		return fmt.Errorf("the state of the finished run is not there: %+v", state)
	}
	if err := wants("committing to a finished run", j.Commit(s.ctx, w.Commit(2)), codes.RunFinished); err != nil {
		return err
	}
	if err := wants("the last epoch again", j.Commit(s.ctx, c), codes.JournalConflict); err != nil {
		return err
	}
	h := w.Header()
	h.Partitions = append(h.Partitions, 2)
	state, err = j.OpenRun(s.ctx, h)
	if err := wants("growing a finished run", err, codes.RunFinished); err != nil {
		return err
	}
	if len(state.Header.Partitions) != 2 {
		return fmt.Errorf("a finished run grew: %+v", state.Header)
	}
	return s.same(j, m, w.Header())
}

func checkTwoRuns(s *session) error {
	j := s.open()
	var ws []Workload
	for i, id := range []string{"run", "run ", "RUN", "run\u0301", "r"} {
		ws = append(ws, Workload{Seed: uint64(i), RunID: id, Partitions: int32(i%3 + 1), Rows: 5, Blob: 50})
		if _, err := j.OpenRun(s.ctx, ws[i].Header()); err != nil {
			return err
		}
	}
	for e := uint64(1); e <= 4; e++ {
		for i, w := range ws {
			if int(e) > i+1 {
				continue // each stops at another epoch
			}
			if err := j.Commit(s.ctx, w.Commit(e)); err != nil {
				return fmt.Errorf("run %q, epoch %d: %w", w.RunID, e, err)
			}
		}
	}
	for i, w := range ws {
		if stands, err := w.Check(s.ctx, j); err != nil || stands != uint64(min(i+1, 4)) {
			return fmt.Errorf("run %q stands at %d: %v", w.RunID, stands, err)
		}
	}
	return nil
}

func checkUnknown(s *session) error {
	j, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	blobs := func(id string, p int32) error {
		return j.LoadBlobs(s.ctx, id, p, func(partitions.StateBlob) error { return nil })
	}
	outputs := func(id string, p int32) error {
		return j.Outputs(s.ctx, id, p, func(partitions.Rows) error { return nil })
	}
	for what, err := range map[string]error{
		"blobs":      blobs("no such run", 0),
		"outputs":    outputs("", 0),
		"commit":     j.Commit(s.ctx, control.Commit{RunID: "no such run", Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime}),
		"quarantine": j.Quarantine(s.ctx, "no such run", func(partitions.Quarantined) error { return nil }),
		"decisions":  j.Decisions(s.ctx, "no such run", func(partitions.Decision) error { return nil }),
	} {
		if err := wants(what+" of a run that is not there", err, codes.RunUnknown); err != nil {
			return err
		}
	}
	for what, err := range map[string]error{"blobs": blobs("run", 1), "outputs": outputs("run", -1)} {
		if err := wants(what+" of a partition that is not there", err, codes.Internal); err != nil {
			return err
		}
	}
	return s.same(j, m, header(1))
}

func checkListing(s *session) error {
	j := s.open()
	lister, ok := j.(control.RunLister)
	if !ok {
		return fmt.Errorf("%T does not list its runs", j)
	}
	if runs, err := lister.Runs(s.ctx); err != nil || len(runs) != 0 {
		return fmt.Errorf("an empty store lists %v (%v)", runs, err)
	}
	b := Workload{Seed: 1, RunID: "b", Partitions: 3}
	a := Workload{Seed: 1, RunID: "a", Partitions: 1}
	for _, w := range []Workload{b, a} {
		if _, err := j.OpenRun(s.ctx, w.Header()); err != nil {
			return err
		}
	}
	c := control.Commit{RunID: "b", Epoch: 1, Status: control.RunFinished, Watermark: 77}
	for p := range int32(2) {
		cut := cut(p, 1)
		cut.Counts = partitions.Counts{Records: 10, Consumed: 1, Filtered: 2, Omitted: 3, Duplicates: 4, Late: 5, Future: 6, Outputs: 7}
		c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: cut})
	}
	if err := j.Commit(s.ctx, c); err != nil {
		return err
	}
	runs, err := lister.Runs(s.ctx)
	if err != nil || len(runs) != 2 {
		return fmt.Errorf("%d runs are listed, want 2 (%v)", len(runs), err)
	}
	for i, r := range runs {
		if r.Created.IsZero() || r.Committed.IsZero() == (i == 1) || r.Committed.Before(r.Created) && i == 1 {
			return fmt.Errorf("run %q was created at %s and committed at %s", r.Header.RunID, r.Created, r.Committed)
		}
		runs[i].Created, runs[i].Committed = r.Committed, r.Committed
	}
	want := []control.RunInfo{
		{Header: a.Header(), Status: control.RunOpen, Watermark: record.NoTime},
		{Header: b.Header(), Status: control.RunFinished, Epoch: 1, Watermark: 77,
			Counts: partitions.Counts{Records: 20, Consumed: 2, Filtered: 4, Omitted: 6, Duplicates: 8, Late: 10, Future: 12, Outputs: 14}},
	}
	want[1].Created, want[1].Committed = runs[1].Created, runs[1].Committed
	if !reflect.DeepEqual(runs, want) {
		return fmt.Errorf("runs: %+v, want %+v", runs, want)
	}
	return nil
}
