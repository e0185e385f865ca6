package group

import (
	"context"
	"sync"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Merged is the watermark over every partition of a run that is spread over processes: the minimum over the rows of the journal. It may be
// used by several goroutines.
type Merged struct {
	mu   sync.Mutex
	last record.EventTime
	read bool
}

// Read reads it. Every one of partitions holds it until it has a row, and so does every row of the run that is of none of them. A row that is
// FINISHED stands at record.MaxTime and holds nothing. It never goes back in the life of a Merged, also when a partition is added: that one
// holds it where it is.
//
// A row's own watermark never goes back, so that what is read from rows one after the other is at most what holds when the last was read.
func (m *Merged) Read(ctx context.Context, runs control.RunLister, run string, partitions []int32) (record.EventTime, error) {
	all, err := runs.Runs(ctx)
	if err != nil {
		return record.NoTime, err
	}
	now, ok := minimum(all, run, partitions)
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

// minimum is that over the rows of a run; false when there is none, or a partition has none.
func minimum(all []control.RunInfo, run string, partitions []int32) (record.EventTime, bool) {
	missing := make(map[int32]bool, len(partitions))
	for _, p := range partitions {
		missing[p] = true
	}
	least, any := record.MaxTime, false
	for _, row := range all {
		if p, ok := PartitionOf(run, row.Header.RunID); ok {
			delete(missing, p)
			least, any = min(least, row.Watermark), true
		}
	}
	return least, any && len(missing) == 0
}
