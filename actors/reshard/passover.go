package reshard

import (
	"context"
	"time"

	"github.com/weirstream/weir/actors/group"
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
	id := group.RunID(f.cfg.Run, shard)
	lease, err := store.Acquire(ctx, control.StreamLease(id), control.NewOwner(), ttl)
	if err != nil {
		return at, err
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = store.Release(within, lease) // it runs out otherwise
	}()
	journal := store.Under(lease)
	state, err := journal.OpenRun(ctx, row.Header)
	if codes.Has(err, codes.RunFinished) {
		return state.Cuts[shard].Next, nil // an answer was lost
	}
	if err != nil {
		return at, err
	}
	cut, has := state.Cuts[shard]
	if !has {
		// It was opened and nothing was committed: what goes on from it begins with nothing.
		cut = partitions.New(f.cfg.Plan, shard).Cut()
	}
	return cut.Next, journal.Commit(ctx, control.Commit{
		RunID: id, Epoch: state.Epoch + 1, Status: control.RunFinished, Watermark: record.MaxTime,
		Partitions: []control.PartitionCommit{{Cut: cut, Decisions: []partitions.Decision{{Partition: shard, Position: cut.Next, Kind: DecisionShardLost, Detail: reason}}}},
	})
}
