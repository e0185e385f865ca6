package reshard

import (
	"context"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// DecisionShardLost is the kind of the decision with which a shard ends that the log holds no longer although it was not read to its end.
const DecisionShardLost = "SHARD_LOST"

// Owners is what PassOver writes under.
type Owners interface {
	control.Leases
	control.Fencer
}

// PassOver ends the row of a shard that is gone (Gone) where it stands, with an operator's decision, so that what goes on from it begins: with its
// state, and without the records that were lost. It returns the position up to which the shard was read. LEASE_HELD: somebody else works on it
// still.
func (f *Family) PassOver(ctx context.Context, store Owners, shard int32, ttl time.Duration, reason string) (at record.Position, err error) {
	rows, err := f.rows(ctx)
	if err != nil {
		return at, err
	}
	row, ok := rows[shard]
	if !ok {
		return at, codes.New(codes.RunUnknown, "run %q has never read shard %d, so there is nothing of it to pass over", f.cfg.Run, shard)
	}
	return end(ctx, store, row.Header, shard, ttl, func() partitions.Cut {
		// It was opened and nothing was committed: what goes on from it begins with nothing.
		return partitions.New(f.cfg.Plan, shard).Cut()
	}, []partitions.Decision{{Partition: shard, Kind: DecisionShardLost, Detail: reason}})
}

// end makes the row of a shard FINISHED where it stands; empty is its cut when it has none.
func end(ctx context.Context, store Owners, h control.RunHeader, shard int32, ttl time.Duration, empty func() partitions.Cut, why []partitions.Decision) (at record.Position, err error) {
	lease, err := store.Acquire(ctx, control.StreamLease(h.RunID), control.NewOwner(), ttl)
	if err != nil {
		return at, err
	}
	defer release(ctx, store, lease)
	journal := store.Under(lease)
	state, err := journal.OpenRun(ctx, h)
	if codes.Has(err, codes.RunFinished) {
		return state.Cuts[shard].Next, nil // an answer was lost
	}
	if err != nil {
		return at, err
	}
	cut, has := state.Cuts[shard]
	if !has {
		cut = empty()
	}
	for i := range why {
		why[i].Position = cut.Next
	}
	return cut.Next, journal.Commit(ctx, control.Commit{
		RunID: h.RunID, Epoch: state.Epoch + 1, Status: control.RunFinished, Watermark: record.MaxTime,
		Partitions: []control.PartitionCommit{{Cut: cut, Decisions: why}},
	})
}

// release gives a lease back. What goes wrong is left to the expiry.
func release(ctx context.Context, store control.Leases, l control.Lease) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = store.Release(within, l)
}
