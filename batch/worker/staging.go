package worker

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/emit"
)

// Kinds of what MendStaging finds, beside those of control.Damage.
const (
	// StagedHidden is a result that is published and not shown: its worker died in between. It is shown.
	StagedHidden = "STAGED_HIDDEN"
	// StagedOrphan is what is left of a result that will never be published: its run has ended, without it.
	StagedOrphan = "STAGED_ORPHAN"
	// StagedUnknown is a result of a run that the store does not know. It may be that of another store, so it is never touched.
	StagedUnknown = "STAGED_UNKNOWN"
)

// Runs is what MendStaging asks.
type Runs interface {
	LookupRun(ctx context.Context, id string) (control.BatchRun, error)
}

// MendStaging looks for results that were staged and are not shown although their run has ended. With show, those that are published are shown; with drop, those
// that never will be are removed. A run that has not ended is left alone: its worker is at work, or will be.
func MendStaging(ctx context.Context, runs Runs, staging sinks.Staging, show, drop bool) ([]control.Damage, error) {
	var found []control.Damage
	err := staging.Hidden(ctx, func(name sinks.StagedName) error {
		run, err := runs.LookupRun(ctx, name.RunID)
		d := control.Damage{RunID: name.RunID, Key: name.Artifact}
		switch {
		case codes.Has(err, codes.RunUnknown):
			d.Kind, d.Detail, err = StagedUnknown, "rows are staged for a run that this store does not know; another store may", nil
		case err != nil:
			return err
		case run.Phase == control.Queued || run.Phase == control.Running:
			return nil
		case run.Phase == control.Succeeded && len(run.ResultRefs) == 1 && run.ResultRefs[0] == checkpoint.Ref(name.Artifact):
			d.Kind, d.Detail, d.Repaired = StagedHidden, "its result is published and its rows were not shown", show
			if show {
				err = staging.Show(ctx, name)
			}
		default:
			d.Kind, d.Detail, d.Repaired = StagedOrphan, fmt.Sprintf("it is %s, and rows are staged for a result that it does not have", run.Phase), drop
			if drop {
				err = staging.Drop(ctx, name)
			}
		}
		if err == nil {
			found = append(found, d)
		}
		return err
	})
	return found, err
}

// mendStaging shows what is published. What else is found is told when all is; a staging that is away is waited for.
func (w *worker) mendStaging(ctx context.Context, before error, all bool) []control.Damage {
	if w.Staging == nil || before != nil {
		return nil
	}
	found, err := MendStaging(ctx, w.Store, w.Staging, true, false)
	if err != nil && ctx.Err() == nil {
		w.Logger.Warn("the staging cannot be looked at; what is published there and not shown has to wait", "error", err)
	}
	var out []control.Damage
	for _, d := range found {
		if all || d.Repaired {
			out = append(out, d)
		}
	}
	return out
}

// rowKeeper keeps the rows of a result in a file without a name: their name is known once the whole document is.
type rowKeeper struct {
	spool   *emit.Spool
	pending partitions.Rows
	outputs []string
}

// keptBytes is how many bytes of rows are written at once.
const keptBytes = 64 << 10

// keepRows has the rows of a computation kept, where somebody wants them.
func (w *worker) keepRows(cfg *batch.Config, res *result) error {
	if w.Staging == nil {
		return nil
	}
	spool, err := emit.NewSpool(res.path)
	if err != nil {
		return err
	}
	k := &rowKeeper{spool: spool, outputs: sinks.OutputsOf(cfg.Plan)}
	clean := res.clean
	res.rows, res.clean, cfg.Row = k, func() { spool.Close(); clean() }, k.add
	return nil
}

func (k *rowKeeper) add(row *partitions.Row) error {
	k.pending.Append(row.Time, row.ID, row.Key, row.Values)
	if len(k.pending.Data) < keptBytes {
		return nil
	}
	return k.flush()
}

func (k *rowKeeper) flush() error {
	err := k.spool.Append(k.pending)
	k.pending = partitions.Rows{Data: k.pending.Data[:0]}
	return err
}

// each calls fn with the rows, in order.
func (k *rowKeeper) each(fn func(*partitions.Row) error) error {
	if err := k.flush(); err != nil {
		return err
	}
	return emit.Merge(len(k.outputs), []emit.Run{k.spool.Run()}, fn)
}

// stage writes the rows of a result, hidden, however long the staging is away. A refusal is the run's failure.
func (w *worker) stage(ctx context.Context, name sinks.StagedName, res *result) error {
	if w.Staging == nil {
		return nil
	}
	for failures := 0; ; failures++ {
		err := w.Staging.Stage(ctx, sinks.Staged{StagedName: name, Outputs: res.rows.outputs, Rows: res.doc.Rows}, res.rows.each)
		if err == nil {
			return w.step("staged")
		}
		if c := codes.Of(err); ctx.Err() != nil || c == nil || c.Verdict != codes.Retry {
			return err
		}
		w.Logger.Warn("the rows of a result cannot be staged, trying again", "run", name.RunID, "failures", failures+1, "error", err)
		if err := pause(ctx, failures); err != nil {
			return err
		}
	}
}

// show shows what was staged. The result is published by now: what fails here is done by the next look for orphans.
func (w *worker) show(ctx context.Context, name sinks.StagedName) error {
	if w.Staging == nil {
		return nil
	}
	if err := w.step("published"); err != nil {
		return err
	}
	ctx, cancel := w.lastWrites(ctx)
	defer cancel()
	if err := w.Staging.Show(ctx, name); err != nil {
		w.Logger.Warn("the rows of a result are not shown yet; the next look for orphans does it", "run", name.RunID, "error", err)
	}
	return nil
}
