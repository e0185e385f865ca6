package handoff

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Look reads what a store holds of a run, at one moment but for the lease. A run that is not there is no error.
func Look(ctx context.Context, store control.Checkpoints, leases control.Leases, runID string) (Journal, error) {
	var j Journal
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
	if j.Lease, j.Leased, err = leases.LookupLease(ctx, control.StreamLease(runID)); err != nil {
		return Journal{}, err
	}
	j.Pointers, err = store.ListPointers(ctx, runID)
	return j, err
}
