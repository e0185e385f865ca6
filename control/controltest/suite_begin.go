package controltest

import (
	"fmt"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// checkBegin: a run and its first epoch stand both or neither, for stores that offer it.
func checkBegin(s *session) error {
	j := s.open()
	if _, ok := j.(control.Beginner); !ok {
		return nil
	}
	m := NewMemory()
	first := commit(1, control.PartitionCommit{Cut: cut(0, 5), Rows: partitions.Rows{Data: []byte("row"), Count: 1}}, control.PartitionCommit{Cut: cut(1, 7)})
	far := commit(1, control.PartitionCommit{Cut: cut(2, 5)})
	late := first
	late.Epoch = 2
	other := first
	other.RunID = "other"
	for what, c := range map[string]struct {
		commit control.Commit
		code   *codes.Code
	}{
		"a partition that is not of the run": {far, codes.Internal}, "an epoch that is not the first": {late, codes.JournalConflict}, "an epoch of another run": {other, codes.Internal},
	} {
		if err := wants(what, control.BeginRun(s.ctx, j, header(2), c.commit), c.code); err != nil {
			return err
		}
		err := j.Commit(s.ctx, first)
		if err := wants("a commit after "+what, err, codes.RunUnknown); err != nil {
			return err
		}
	}
	for _, one := range []control.Journal{j, m} {
		if err := control.BeginRun(s.ctx, one, header(2), first); err != nil {
			return err
		}
	}
	if err := s.same(j, m, header(2)); err != nil {
		return err
	}
	if err := wants("a run that is there", control.BeginRun(s.ctx, s.open(), header(2), first), codes.JournalConflict); err != nil {
		return err
	}
	if err := s.both(j, m, commit(2, control.PartitionCommit{Cut: cut(1, 9)})); err != nil {
		return err
	}
	if err := s.same(j, m, header(2)); err != nil {
		return err
	}
	h := header(1)
	h.RunID = "empty"
	if _, err := j.OpenRun(s.ctx, h); err != nil {
		return err
	}
	err := control.BeginRun(s.ctx, j, h, control.Commit{RunID: h.RunID, Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime})
	if err := wants("a run without an epoch", err, codes.JournalConflict); err != nil {
		return err
	}
	h.RunID = "run/0"
	err = control.BeginRun(s.ctx, j, h, control.Commit{RunID: h.RunID, Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime})
	if err := wants("a partition of a run", err, codes.RunMismatch); err != nil {
		return fmt.Errorf("beside it: %w", err)
	}
	return nil
}
