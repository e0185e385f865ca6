package emit

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
)

var errStop = errors.New("emit: the reader has stopped")

// FromJournal writes the document of a run with the rows that stand in its journal. d names everything else; its positions name the
// partitions. path may be "".
func FromJournal(ctx context.Context, j control.Journal, runID string, d Doc, plan *flow.Plan, path string, keep int) (Doc, error) {
	var runs []Run
	for _, p := range slices.Sorted(maps.Keys(d.Positions)) {
		runs = append(runs, journalRun(ctx, j, runID, p))
	}
	replayed, err := Replayed(ctx, j, runID)
	if err != nil {
		return d, err
	}
	d.Replayed = replayed
	return Write(d, plan, runs, path, keep)
}

// Replayed is how many records of a run's quarantine came in by a replay.
func Replayed(ctx context.Context, j control.Journal, runID string) (n int64, err error) {
	err = j.Decisions(ctx, runID, func(d partitions.Decision) error {
		if a, ok := d.Aside(); ok && a.Outcome == partitions.OutcomeConsumed {
			n++
		}
		return nil
	})
	return n, err
}

// Write merges runs into a document.
func Write(d Doc, plan *flow.Plan, runs []Run, path string, keep int) (Doc, error) {
	w, err := NewWriter(plan, path)
	if err != nil {
		return d, err
	}
	w.Keep = keep
	if err := Merge(len(plan.Outputs), runs, w.Row); err != nil {
		w.Discard()
		return d, err
	}
	return w.Finish(d)
}

func journalRun(ctx context.Context, j control.Journal, runID string, partition int32) Run {
	return func(yield func([]byte, error) bool) {
		err := j.Outputs(ctx, runID, partition, func(rows partitions.Rows) error {
			if !yield(rows.Data, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// Add sums the counts of partitions.
func Add(a, b partitions.Counts) partitions.Counts {
	return partitions.Counts{
		Records: a.Records + b.Records, Consumed: a.Consumed + b.Consumed, Filtered: a.Filtered + b.Filtered,
		Omitted: a.Omitted + b.Omitted, Duplicates: a.Duplicates + b.Duplicates, Late: a.Late + b.Late,
		Future: a.Future + b.Future, Outputs: a.Outputs + b.Outputs,
	}
}
