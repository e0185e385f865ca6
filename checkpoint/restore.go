package checkpoint

import (
	"context"
	"slices"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// Restorable says whether a checkpoint can be restored under a flow, and if not, why.
type Restorable struct {
	Pointer control.Pointer
	// Manifest is nil when it cannot be trusted.
	Manifest *Manifest
	// Plan is the flow that it was checked against.
	Plan *flow.Plan
	// Operators has a verdict for each operator of the flow or the checkpoint; nil when the manifest does not know the flow. Settings are
	// what else of the flow differs.
	Operators []OperatorVerdict
	Settings  []Change
	// Partitions were each restored, or tried.
	Partitions []PartitionVerdict
	// Mended says that Plan is another flow than the checkpoint's, and takes up its state.
	Mended bool
	// Problem is nil when it can be restored: CheckpointCorrupt, RunMismatch, RunFinished or StoreNewer otherwise.
	Problem error
}

// PartitionVerdict is what came of restoring one partition. The numbers are those of the restored machine.
type PartitionVerdict struct {
	Partition          int32
	Committed          bool
	Blobs, Bytes       int64
	Keys, IDs, Waiting int
	Err                error
}

// CheckRestore tries everything that a restore does, but for the last step, and writes nothing: the manifest against the pointer, the flow's
// fingerprint, the schema of the state, and a restored machine for every partition, compared with its cut. Without a plan (nil) the flow is the
// manifest's own. What is in the way is Restorable.Problem; the error is for what could not be looked at.
func CheckRestore(ctx context.Context, blobs Blobs, p control.Pointer, plan *flow.Plan) (*Restorable, error) {
	return checkRestore(ctx, blobs, p, plan, false)
}

// CheckMended is CheckRestore for a flow that mends that of the checkpoint: see flow.Plan.Mends.
func CheckMended(ctx context.Context, blobs Blobs, p control.Pointer, plan *flow.Plan) (*Restorable, error) {
	return checkRestore(ctx, blobs, p, plan, true)
}

func checkRestore(ctx context.Context, blobs Blobs, p control.Pointer, plan *flow.Plan, mended bool) (*Restorable, error) {
	r := &Restorable{Pointer: p, Plan: plan}
	m, err := Load(ctx, blobs, p)
	switch {
	case codes.Has(err, codes.CheckpointCorrupt) || codes.Has(err, codes.StoreNewer):
		r.Problem = err
		return r, nil
	case err != nil:
		return nil, err
	}
	r.Manifest = m
	if m.StateSchema != StateSchema {
		r.Problem = codes.New(codes.StoreNewer, "the state of run %q at epoch %d has the schema %d, and this weir reads %d", m.RunID, m.Epoch, m.StateSchema, StateSchema)
		return r, nil
	}
	own, ownErr := m.Flow.compile()
	if plan == nil {
		if r.Plan = own; ownErr != nil {
			r.Problem = ownErr
			return r, nil
		}
	}
	if err := r.compare(); err != nil {
		return nil, err
	}
	switch {
	case r.Plan.Fingerprint == m.Flow.Fingerprint:
		plan = r.Plan
	case mended && own != nil:
		if err := r.Plan.Mends(own); err != nil {
			r.Problem = codes.New(codes.RunMismatch, "the checkpoint of run %q at epoch %d: %w", m.RunID, m.Epoch, err)
			plan = own
		} else {
			plan, r.Mended = r.Plan, true
		}
	default:
		r.Problem = r.mismatch()
		plan = own // whether the state is whole can be told all the same
	}
	if plan == nil {
		return r, nil
	}
	return r, r.tryAll(ctx, blobs, plan)
}

// compile makes the plan that the manifest has in it. It knows the operators that come with weir.
func (f FlowInfo) compile() (*flow.Plan, error) {
	if f.Plan == nil {
		return nil, codes.New(codes.RunMismatch, "the checkpoint does not hold the flow it belongs to (fingerprint %.80q): name the flow's file", f.Fingerprint)
	}
	src, err := record.AppendJSON(nil, f.Plan)
	if err != nil {
		return nil, codes.New(codes.CheckpointCorrupt, "the flow in the manifest: %w", err)
	}
	plan, err := flow.Parse("the flow in the manifest", src, nil)
	if err != nil || plan.Fingerprint != f.Fingerprint {
		return nil, codes.New(codes.RunMismatch, "the flow in the manifest (fingerprint %.80q) is not one that this weir runs in the same way: name the flow's file, or use the version of weir that wrote it", f.Fingerprint)
	}
	return plan, nil
}

func (r *Restorable) tryAll(ctx context.Context, blobs Blobs, plan *flow.Plan) error {
	for _, p := range r.Manifest.Partitions {
		v := PartitionVerdict{Partition: p.Partition, Committed: p.Committed}
		if p.Committed {
			machine, err := restorePartition(ctx, r.blobs(blobs, p), plan, p)
			switch bad := corrupt(r.Pointer, "its state", err); {
			case err == nil:
				v.Blobs, v.Bytes = int64(len(p.State)), 0
				for _, ref := range p.State {
					v.Bytes += ref.Size
				}
				v.Keys, v.IDs, v.Waiting = machine.Keys(), machine.IDs(), machine.Waiting()
			case codes.Has(bad, codes.CheckpointCorrupt) || codes.Has(bad, codes.RunMismatch):
				v.Err = bad
				if r.Problem == nil {
					r.Problem = bad
				}
			default:
				return err
			}
		}
		r.Partitions = append(r.Partitions, v)
	}
	return nil
}

// loader yields the state blobs of a partition.
type loader func(ctx context.Context, yield func(partitions.StateBlob) error) error

// blobs loads the state of a partition as Plan takes it up.
func (r *Restorable) blobs(blobs Blobs, p Partition) loader {
	return func(ctx context.Context, yield func(partitions.StateBlob) error) error {
		if !r.Mended {
			return p.each(ctx, blobs, yield)
		}
		return p.each(ctx, blobs, func(b partitions.StateBlob) error {
			b, err := partitions.Mended(b, r.Manifest.Flow.Fingerprint, r.Plan)
			if err != nil {
				return err
			}
			return yield(b)
		})
	}
}

// restorePartition restores a machine from a checkpoint's blobs and makes sure that it stands where the cut says.
func restorePartition(ctx context.Context, load loader, plan *flow.Plan, p Partition) (*partitions.Machine, error) {
	m, err := partitions.Restore(plan, p.Partition, func(yield func(partitions.StateBlob) error) error { return load(ctx, yield) })
	if err != nil {
		return nil, err
	}
	finished := m.Status() == watermark.Finished
	if m.Next() != p.Cut.Next || m.Watermark() != p.Cut.Watermark || m.Counts() != p.Cut.Counts || finished != p.Cut.Finished {
		return nil, codes.New(codes.CheckpointCorrupt, "partition %d: the state stands at position %s and watermark %s, and the manifest says %s and %s, or their counts differ",
			p.Partition, m.Next(), m.Watermark(), p.Cut.Next, p.Cut.Watermark)
	}
	return m, nil
}

// Restorer makes new runs out of checkpoints. A journal never goes back: what is restored goes on under a new run id, and the old run stays as it
// is.
type Restorer struct {
	Store interface {
		control.Checkpoints
		control.Leases
	}
	Blobs Blobs
	// Plan is the flow; nil is the manifest's own.
	Plan *flow.Plan
	// Mended lets Plan be another flow than that of the checkpoint, if it takes up its state: see flow.Plan.Mends.
	Mended bool
	// Owner of the new run's lease while it is made; "" is control.NewOwner(). TTL of 0 is DefaultTTL.
	Owner string
	TTL   time.Duration
}

// Restore makes the run as out of the checkpoint of runID at epoch: that one, never another. Everything is checked before, as by CheckRestore;
// what is in the way comes as the error, with what was found out so far: CheckpointUnknown, CheckpointCorrupt, RunMismatch (also for a run that is
// there already), RunFinished for a run that had ended by then, StoreNewer. The new run either stands whole or not at all.
func (r *Restorer) Restore(ctx context.Context, runID string, epoch uint64, as string) (*Restorable, error) {
	if as == runID {
		return nil, codes.New(codes.RunMismatch, "run %q cannot be restored into itself: a journal never goes back. Name a new run", runID)
	}
	storeID, err := CheckOwner(ctx, r.Store, r.Blobs)
	if err != nil {
		return nil, err
	}
	p, err := Find(ctx, r.Store, runID, epoch)
	if err != nil {
		return nil, err
	}
	found, err := checkRestore(ctx, r.Blobs, p, r.Plan, r.Mended)
	if err != nil {
		return nil, err
	}
	m := found.Manifest
	switch {
	case found.Problem != nil:
	case m.StoreID != storeID:
		found.Problem = codes.New(codes.RunMismatch, "the checkpoint of run %q at epoch %d was taken from the store %q, and this is %q", runID, epoch, m.StoreID, storeID)
	case m.Status == control.RunFinished:
		found.Problem = codes.New(codes.RunFinished, "run %q had ended at epoch %d, so there is nothing to go on with. Name an earlier epoch", runID, epoch)
	}
	if found.Problem != nil {
		return found, found.Problem
	}
	header, err := r.header(ctx, m, as)
	if err != nil {
		return found, err
	}
	if found.Mended {
		header.Fingerprint = found.Plan.Fingerprint
	}
	return found, r.fork(ctx, found, header)
}

// header is the new run's: the checkpoint's, with the partitions that the old run has got since, which start at the beginning of their log.
func (r *Restorer) header(ctx context.Context, m *Manifest, as string) (control.RunHeader, error) {
	h := m.Header()
	h.RunID = as
	err := r.Store.Snapshot(ctx, m.RunID, func(v control.JournalView) error {
		now := v.State().Header
		for _, n := range now.Partitions {
			if !slices.Contains(h.Partitions, n) {
				h.Partitions = append(h.Partitions, n)
			}
		}
		if h.SourceID == "" {
			h.SourceID = now.SourceID
		}
		return nil
	})
	slices.Sort(h.Partitions)
	if err != nil {
		return h, err
	}
	return h, h.Validate()
}

func (r *Restorer) fork(ctx context.Context, found *Restorable, header control.RunHeader) error {
	m := found.Manifest
	owner := r.Owner
	if owner == "" {
		owner = control.NewOwner()
	}
	parts := map[int32]Partition{}
	for _, part := range m.Partitions {
		parts[part.Partition] = part
	}
	return Hold(ctx, r.Store, control.StreamLease(header.RunID), owner, r.TTL, func(ctx context.Context, l control.Lease) error {
		err := r.Store.ForkRun(ctx, l, control.Fork{
			From: m.RunID, Epoch: m.Epoch, Header: header, Mended: found.Mended, Watermark: m.Watermark, Cuts: m.Cuts(),
			Load: func(n int32, yield func(partitions.StateBlob) error) error {
				return found.blobs(r.Blobs, parts[n])(ctx, yield)
			},
		})
		return corrupt(found.Pointer, "its state", err)
	})
}
