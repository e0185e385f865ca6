package group

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// Rows is the journal as Merged reads it.
type Rows interface {
	control.RunLister
	Snapshot(ctx context.Context, runID string, fn func(control.JournalView) error) error
}

// Merged is the watermark over every partition of a run that is spread over processes: the minimum over the rows of the journal. It may be
// used by several goroutines.
type Merged struct {
	mu   sync.Mutex
	last record.EventTime
	read bool
}

// Read reads it. Every one of partitions holds it until it has a row, and so does every row of the run that is of none of them, but for those that are
// idle by a decision that stands in the row, or FINISHED. When none holds it, it stays where it is, and at what the idle ones have if nothing was read before.
// It never goes back in the life of a Merged, also when a partition is added or is not idle any more: that one holds it where it is.
//
// A row's own watermark never goes back, so that what is read from rows one after the other is at most what holds when the last was read.
func (m *Merged) Read(ctx context.Context, rows Rows, run string, partitions []int32) (record.EventTime, error) {
	now, ok, err := least(ctx, rows, run, partitions)
	if err != nil {
		return record.NoTime, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read {
		m.last, m.read = record.NoTime, true
	}
	if ok {
		m.last = max(m.last, now)
	}
	return m.last, nil
}

// least is the minimum over the rows of a run; false when there is none, or a partition has none. Whether a row holds it is asked of the lowest
// ones, until one does.
func least(ctx context.Context, rows Rows, run string, partitions []int32) (record.EventTime, bool, error) {
	all, err := rows.Runs(ctx)
	if err != nil {
		return record.NoTime, false, err
	}
	missing := make(map[int32]bool, len(partitions))
	for _, p := range partitions {
		missing[p] = true
	}
	var parts []control.RunInfo
	for _, row := range all {
		if p, ok := PartitionOf(run, row.Header.RunID); ok {
			delete(missing, p)
			parts = append(parts, row)
		}
	}
	if len(parts) == 0 || len(missing) > 0 {
		return record.NoTime, false, nil
	}
	slices.SortFunc(parts, func(a, b control.RunInfo) int { return cmp.Compare(a.Watermark, b.Watermark) })
	for _, row := range parts {
		switch holds, err := holdsOn(ctx, rows, row); {
		case err != nil:
			return record.NoTime, false, err
		case holds:
			return row.Watermark, true, nil
		}
	}
	return parts[0].Watermark, true, nil
}

// holdsOn says whether the row of one partition holds a watermark.
func holdsOn(ctx context.Context, rows Rows, row control.RunInfo) (holds bool, err error) {
	if row.Status == control.RunFinished {
		return false, nil
	}
	err = rows.Snapshot(ctx, row.Header.RunID, func(v control.JournalView) error {
		for _, p := range row.Header.Partitions {
			is, err := control.InputOf(ctx, v, p)
			if err != nil {
				return err
			}
			holds = holds || is != watermark.Idle && is != watermark.Finished
		}
		return nil
	})
	if codes.Has(err, codes.RunUnknown) {
		return true, nil // it is gone since it was listed
	}
	return holds, err
}
