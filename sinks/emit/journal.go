package emit

import (
	"context"
	"errors"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

var errStop = errors.New("emit: the reader has stopped")

// FromJournal writes the document of a run from what stands in its journal. path may be "".
func FromJournal(ctx context.Context, j control.Journal, state control.RunState, plan *flow.Plan, path string, keep int) (Doc, error) {
	d := New(plan, ModeStream)
	d.Positions = map[int32]record.Position{}
	var runs []Run
	for _, p := range state.Header.Partitions {
		cut, ok := state.Cuts[p]
		if !ok {
			continue
		}
		d.Positions[p] = cut.Next
		d.Counts = Add(d.Counts, cut.Counts)
		runs = append(runs, journalRun(ctx, j, state.Header.RunID, p))
	}
	d.Watermark = state.Watermark
	return Write(d, plan, runs, path, keep)
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
