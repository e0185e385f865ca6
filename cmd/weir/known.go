package main

import (
	"context"
	"slices"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// storedRuns are the ids of a stream run, and of the runs that its partitions are. It is RunUnknown when the store holds none of them: an empty answer
// about a run whose name is misspelled would read as good news.
func storedRuns(ctx context.Context, store control.RunLister, run string) (ids []string, err error) {
	all, err := store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, info := range all {
		id := info.Header.RunID
		if _, part := group.PartitionOf(run, id); part || id == run {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, codes.New(codes.RunUnknown, "the store holds no stream run %q, and none of its partitions; %s", run, known(all))
	}
	return ids, nil
}

// pointersOf are the checkpoints of a run, or of those that its partitions are; "" asks for all.
func pointersOf(ctx context.Context, store control.ControlStore, run string) ([]control.Pointer, error) {
	all, err := store.ListPointers(ctx, run)
	if err != nil || len(all) > 0 || run == "" {
		return all, err
	}
	ids, err := storedRuns(ctx, store, run)
	for _, id := range slices.DeleteFunc(ids, func(id string) bool { return id == run }) {
		more, err := store.ListPointers(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, err
}

// refusalsOf are the refusals of a run, with those that its partitions are, or of a batch run; "" asks for all.
func refusalsOf(ctx context.Context, store control.ControlStore, run string) ([]control.Refusal, error) {
	all, err := store.ListRefusals(ctx, run)
	if err != nil || len(all) > 0 || run == "" {
		return all, err
	}
	if _, batch := store.LookupRun(ctx, run); batch == nil {
		return nil, nil
	}
	_, err = storedRuns(ctx, store, run)
	return nil, err
}
