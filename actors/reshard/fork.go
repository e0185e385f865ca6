package reshard

import (
	"context"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// DecisionForked is the kind of the decision with which the row of a finished shard ends that was taken over by another run.
const DecisionForked = "FORKED"

// Store is what Fork reads and writes.
type Store interface {
	Owners
	control.Checkpoints
	control.RunLister
}

// Fork makes the shard of another run as the one of this run stands: position, state, results. One that is finished is finished there, too. A fork
// that is there already stays as it is, wherever the original has come to since; so a call whose answer was lost may be made again. A shard of
// which nothing is committed has nothing to fork, and ok is false. The other run must not be at work on it yet.
func Fork(ctx context.Context, store Store, run, as string, shard int32, ttl time.Duration) (ok bool, err error) {
	from, to := group.RunID(run, shard), group.RunID(as, shard)
	there, err := Rows(ctx, store, as)
	if err != nil {
		return false, err
	}
	var state control.RunState
	err = store.Snapshot(ctx, from, func(v control.JournalView) error {
		state = v.State()
		if _, forked := there[shard]; forked || state.Epoch == 0 {
			return nil
		}
		return fork(ctx, store, v, to, ttl)
	})
	if err != nil || state.Epoch == 0 || state.Status != control.RunFinished {
		return state.Epoch > 0, err
	}
	h := state.Header
	h.RunID = to
	_, err = end(ctx, store, h, shard, ttl, func() partitions.Cut { return state.Cuts[shard] },
		[]partitions.Decision{{Partition: shard, Kind: DecisionForked, Detail: "it had ended in the run " + run}})
	return true, err
}

func fork(ctx context.Context, store Store, v control.JournalView, to string, ttl time.Duration) error {
	state := v.State()
	lease, err := store.Acquire(ctx, control.StreamLease(to), control.NewOwner(), ttl)
	if err != nil {
		return err
	}
	defer release(ctx, store, lease)
	h := state.Header
	h.RunID = to
	err = store.ForkRun(ctx, lease, control.Fork{
		From: state.Header.RunID, Epoch: state.Epoch, Header: h, Watermark: state.Watermark, Cuts: state.Cuts,
		Load: func(p int32, yield func(partitions.StateBlob) error) error {
			var names []string
			if err := v.Blobs(ctx, p, func(b control.BlobRef) error {
				names = append(names, b.Name)
				return nil
			}); err != nil {
				return err
			}
			return v.Load(ctx, p, names, yield)
		},
	})
	if codes.Has(err, codes.RunMismatch) {
		return codes.New(codes.RunMismatch, "%w; a rewind makes a run that is new", err)
	}
	return err
}
