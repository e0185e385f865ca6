package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/emit"
)

var (
	// errDrained and errKilled are causes of a computation that ends because the worker does.
	errDrained = errors.New("the worker stops and the run was not done in time")
	errKilled  = errors.New("the worker was stopped at once")
	// errOrphan is a run that is RUNNING although nobody held its lease: reconciliation makes it QUEUED first.
	errOrphan = errors.New("its last worker is gone and it has not been queued again yet")
	// errCrash makes a run end as if the process had died: nothing is released. Only tests cause it.
	errCrash = errors.New("crash")
)

// giveBackTime bounds what is written when a run is given back.
const giveBackTime = 5 * time.Second

// handle deals with one event from lease to release. ctx is not that of signals but the one that ends when nothing more may be waited for.
func (w *worker) handle(ctx context.Context, ev control.OutboxEvent) Outcome {
	o := Outcome{RunID: ev.RunID}
	if ev.Kind != control.EventRequested {
		w.Logger.Error("an event of an unknown kind is set aside", "event", ev.ID, "kind", ev.Kind)
		o.Kind, o.Err = Ignored, w.ignore(ctx, ev)
		return o
	}
	if err := w.step("claimed"); err != nil {
		return crashed(o, err)
	}
	lease, err := w.Store.Acquire(ctx, control.RunLease(ev.RunID), w.Owner, w.TTL)
	switch {
	case codes.Has(err, codes.LeaseHeld):
		// Whoever holds it delivers the event; should it die, reconciliation makes the event pending.
		o.Kind = Elsewhere
		return o
	case err != nil:
		o.Kind, o.Err = GivenUp, err
		w.giveBack(ctx, nil, ev)
		return o
	}
	h, work := keep(ctx, w.Store, lease)
	o.Token = lease.Token
	w.underLease(work, h, ev, &o)
	switch {
	case errors.Is(o.Err, errCrash):
		h.end()
	case codes.Has(o.Err, codes.StaleFence):
		h.end() // it is another's by now, or will be
	case o.Kind == GivenUp:
		w.giveBack(ctx, h, ev)
	default:
		if err := w.release(ctx, h); err != nil {
			w.Logger.Info("a lease was not released and will expire", "run", ev.RunID, "error", err)
		}
	}
	return o
}

func crashed(o Outcome, err error) Outcome {
	o.Kind, o.Err = GivenUp, err
	return o
}

// underLease starts, computes and ends a run.
func (w *worker) underLease(ctx context.Context, h *hold, ev control.OutboxEvent, o *Outcome) {
	phase, err := control.RunPhase(""), w.step("leased")
	if err == nil {
		phase, err = w.start(ctx, h, ev.RunID)
	}
	if codes.Has(err, codes.RunNotQueued) || codes.Has(err, codes.RunUnknown) {
		w.notQueued(ctx, ev, o)
		return
	}
	if err == nil {
		err = w.step("started")
	}
	switch {
	case err != nil:
	case phase == control.Cancelled:
		o.Kind, err = Cancelled, w.deliver(ctx, h, ev)
	default:
		err = w.finish(ctx, h, ev, o)
	}
	if err != nil {
		o.Kind, o.Err = GivenUp, err
	}
}

// finish computes a run that was started and ends it, one way or the other. Its error says why the run could not be ended.
func (w *worker) finish(ctx context.Context, h *hold, ev control.OutboxEvent, o *Outcome) error {
	run, err := w.lookup(ctx, ev.RunID)
	if err != nil {
		return err
	}
	res, err := w.compute(ctx, h.Lease(), run)
	if err == nil {
		err = w.publish(ctx, h, ev, &res)
	}
	if err == nil {
		o.Kind, o.ResultRefs = Succeeded, res.refs
		return nil
	}
	if ctx.Err() != nil || notTheRuns(err) {
		return reason(ctx, err)
	}
	o.Kind, o.Error = Failed, message(err, w.scratch)
	failed := func(r control.BatchRun) bool { return r.Phase == control.Failed }
	return w.effect(ctx, h, ev.RunID, failed, control.FinishRun{RunID: ev.RunID, Phase: control.Failed, Error: o.Error}, control.Deliver{EventIDs: []int64{ev.ID}})
}

// notTheRuns says whether an error is about the lease or the phase of the run, and not about its computation.
func notTheRuns(err error) bool {
	return codes.Has(err, codes.StaleFence) || codes.Has(err, codes.RunNotRunning) || codes.Has(err, codes.RunUnknown) || errors.Is(err, errCrash)
}

// reason is the cause of a context that has ended, which says more than what followed from it.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errCrash) {
		return context.Cause(ctx)
	}
	return err
}

// start moves the run and tells where to.
func (w *worker) start(ctx context.Context, h *hold, runID string) (control.RunPhase, error) {
	var moved, found control.RunPhase
	// Under the lease nobody else moves the run out of QUEUED: what is found after a lost answer is our own doing.
	ours := func(r control.BatchRun) bool {
		found = r.Phase
		return r.Phase == control.Running || r.Phase == control.Cancelled
	}
	if err := w.effect(ctx, h, runID, ours, control.StartRun{RunID: runID, Moved: &moved}); err != nil {
		return "", err
	}
	if found != "" {
		return found, nil
	}
	return moved, nil
}

// notQueued deals with an event whose run cannot be started.
func (w *worker) notQueued(ctx context.Context, ev control.OutboxEvent, o *Outcome) {
	run, err := w.lookup(ctx, ev.RunID)
	switch {
	case codes.Has(err, codes.RunUnknown):
		w.Logger.Error("an event names a run that is not there", "event", ev.ID, "run", ev.RunID)
	case err != nil:
		o.Kind, o.Err = GivenUp, err
		return
	case run.Phase == control.Running || run.Phase == control.Queued:
		o.Kind, o.Err = GivenUp, errOrphan
		return
	}
	o.Kind, o.Err = Ignored, w.ignore(ctx, ev)
}

// ignore marks an event as delivered without an effect. One that is not ours any more is somebody else's business.
func (w *worker) ignore(ctx context.Context, ev control.OutboxEvent) error {
	err := w.Store.ReleaseEvents(ctx, w.Owner, []int64{ev.ID}, true)
	if codes.Has(err, codes.EventNotClaimed) {
		return nil
	}
	return err
}

func (w *worker) deliver(ctx context.Context, h *hold, ev control.OutboxEvent) error {
	never := func(control.BatchRun) bool { return false } // delivering twice is harmless, so there is nothing to read back
	return w.effect(ctx, h, ev.RunID, never, control.Deliver{EventIDs: []int64{ev.ID}})
}

// result is what a computation leaves.
type result struct {
	// path of the emit document, size of its canonical bytes.
	path string
	size int64
	doc  emit.Doc
	refs []string
	// rows are kept where there is a staging to give them to.
	rows  *rowKeeper
	clean func()
}

// compute runs the flow. Nothing of it is visible outside.
func (w *worker) compute(ctx context.Context, l control.Lease, run control.BatchRun) (res result, err error) {
	if l.Token > w.MaxTerms {
		return res, codes.New(codes.LimitReached, "the run was taken up %d times and never ended: it may be what stops its workers", w.MaxTerms)
	}
	names, err := ParseBody(run.Body)
	if err != nil {
		return res, err
	}
	dir, err := os.MkdirTemp(w.scratch, "run-")
	if err != nil {
		return res, codes.New(codes.OutputUnwritable, "no scratch folder can be made: %w", checkpoint.Bare(err))
	}
	res = result{path: filepath.Join(dir, "emit.json"), clean: func() { _ = os.RemoveAll(dir) }}
	defer func() {
		if p := recover(); p != nil {
			err = codes.New(codes.Internal, "the computation panicked: %v", p)
		}
		if err != nil {
			res.clean()
		}
	}()
	plan, err := w.Catalog.Plan(names.Flow)
	if err != nil {
		return res, err
	}
	source, err := w.Catalog.Source(names.Snapshot, plan, dir)
	if err != nil {
		return res, err
	}
	// The rows are in the document; none has to be kept in memory beside it.
	cfg := batch.Config{Plan: plan, Source: source, Mode: emit.ModeBatch, Emit: res.path, Keep: 1}
	if err := w.keepRows(&cfg, &res); err != nil {
		return res, err
	}
	if res.doc, err = batch.Run(ctx, cfg); err != nil {
		return res, err
	}
	info, err := os.Stat(res.path)
	if err != nil {
		return res, codes.New(codes.OutputUnwritable, "the document is gone: %w", checkpoint.Bare(err))
	}
	res.size = info.Size() - int64(len("\n"))
	return res, w.step("computed")
}

// publish makes a result visible: first its rows, hidden, and the blob, durable, then everything that refers to it, in one commit; and then the rows.
func (w *worker) publish(ctx context.Context, h *hold, ev control.OutboxEvent, res *result) error {
	defer res.clean()
	name, err := digest(ctx, *res)
	if err != nil {
		return err
	}
	res.refs = []string{checkpoint.Ref(name)}
	staged := sinks.StagedName{RunID: ev.RunID, Artifact: name}
	if err := w.stage(ctx, staged, res); err != nil {
		return err
	}
	first, second := func() error { return w.putBlob(ctx, *res, name) }, func() error { return w.point(ctx, h, ev, *res) }
	if w.pointerFirst {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	if err := w.step("between"); err != nil {
		return err
	}
	if err := second(); err != nil {
		return err
	}
	if err := w.show(ctx, staged); err != nil {
		return err
	}
	return w.step("ended")
}

// point writes what refers to the blob.
func (w *worker) point(ctx context.Context, h *hold, ev control.OutboxEvent, res result) error {
	value, err := record.AppendJSON(nil, map[string]any{
		"artifact": res.refs[0], "values_hash": res.doc.ValuesHash, "rows": res.doc.Rows, "flow": res.doc.Fingerprint, "run_id": ev.RunID,
	})
	if err != nil {
		return codes.New(codes.Internal, "the result cannot be written as JSON: %w", err)
	}
	succeeded := func(r control.BatchRun) bool {
		return r.Phase == control.Succeeded && len(r.ResultRefs) == 1 && r.ResultRefs[0] == res.refs[0]
	}
	return w.effect(ctx, h, ev.RunID, succeeded,
		control.Publish{Publications: []control.Publication{{Key: control.ResultKey(ev.RunID), Value: value, RunID: ev.RunID}}},
		control.FinishRun{RunID: ev.RunID, Phase: control.Succeeded, ResultRefs: res.refs},
		control.Deliver{EventIDs: []int64{ev.ID}})
}

// effect writes under the lease. An answer that is unknown is read back before anything is tried again: stands says whether a run looks as
// the effects leave it. It goes on until the context of the work ends, which it does at the lease's deadline at the latest.
func (w *worker) effect(ctx context.Context, h *hold, runID string, stands func(control.BatchRun) bool, effects ...control.Effect) error {
	for unknown := 0; ; unknown++ {
		err := w.Store.Fenced(ctx, h.Lease(), effects...)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			if w.stood(ctx, runID, stands) {
				return nil
			}
			return context.Cause(ctx)
		case control.Refused(err) && unknown == 0:
			return err
		}
		w.Logger.Warn("the answer to a write is unknown, or it was refused after one that was: reading back", "run", runID, "error", err)
		run, lookErr := w.lookup(ctx, runID)
		switch {
		case lookErr != nil:
			return lookErr
		case stands(run):
			return nil
		case control.Refused(err):
			return err
		}
		if err := pause(ctx, unknown); err != nil {
			return err
		}
	}
}

// stood says whether effects stand whose answer was cut off by the end of the work.
func (w *worker) stood(ctx context.Context, runID string, stands func(control.BatchRun) bool) bool {
	ctx, cancel := w.lastWrites(ctx)
	defer cancel()
	run, err := w.Store.LookupRun(ctx, runID)
	return err == nil && stands(run)
}

// lookup finds a run, however long the store is away.
func (w *worker) lookup(ctx context.Context, runID string) (control.BatchRun, error) {
	for failures := 0; ; failures++ {
		run, err := w.Store.LookupRun(ctx, runID)
		switch {
		case err == nil:
			return run, nil
		case ctx.Err() != nil:
			return run, context.Cause(ctx)
		case control.Refused(err):
			return run, err
		}
		if err := pause(ctx, failures); err != nil {
			return run, err
		}
	}
}

// giveBack makes a run that was begun anybody's again, at once instead of after its lease. What fails here is mended by reconciliation.
func (w *worker) giveBack(ctx context.Context, h *hold, ev control.OutboxEvent) {
	if w.Kill.Err() != nil {
		if h != nil {
			h.end()
		}
		return
	}
	ctx, cancel := w.lastWrites(ctx)
	defer cancel()
	var err error
	if h != nil {
		err = h.release(ctx)
	}
	releaseErr := w.Store.ReleaseEvents(ctx, w.Owner, []int64{ev.ID}, false)
	if err := errors.Join(err, releaseErr); err != nil && !codes.Has(releaseErr, codes.EventNotClaimed) {
		w.Logger.Info("a run was not given back and will be found by reconciliation", "run", ev.RunID, "error", err)
	}
}

func (w *worker) release(ctx context.Context, h *hold) error {
	ctx, cancel := w.lastWrites(ctx)
	defer cancel()
	return h.release(ctx)
}

// lastWrites is a context for what is written although the work has ended: it ends soon, and at once when the worker is killed.
func (w *worker) lastWrites(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	stop := context.AfterFunc(w.Kill, cancel)
	return ctx, func() { stop(); cancel() }
}
