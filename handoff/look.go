package handoff

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Store is what Look asks.
type Store interface {
	control.Journal
	control.Checkpoints
	control.Leases
}

// Look reads what a store holds of a run: where it stands at one moment, then its lease, its checkpoints and the histories that it began with,
// which do not change. A run that is not there is no error.
func Look(ctx context.Context, store Store, runID string) (Journal, error) {
	j := Journal{Histories: map[string]int64{}}
	err := store.Snapshot(ctx, runID, func(v control.JournalView) error {
		j.Known, j.State = true, v.State()
		for p := range j.State.Cuts {
			err := v.Blobs(ctx, p, func(b control.BlobRef) error {
				j.HistoryOpen = j.HistoryOpen || b.Name == partitions.HistoryBlob
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case codes.Has(err, codes.RunUnknown):
		return Journal{}, nil
	case err != nil:
		return Journal{}, err
	}
	err = store.Decisions(ctx, runID, func(d partitions.Decision) error {
		if id, records, ok := partitions.HistoryOf(d); ok {
			j.Histories[id] += records
		}
		return nil
	})
	if err != nil {
		return Journal{}, err
	}
	if j.Lease, j.Leased, err = store.LookupLease(ctx, control.StreamLease(runID)); err != nil {
		return Journal{}, err
	}
	j.Pointers, err = store.ListPointers(ctx, runID)
	return j, err
}
