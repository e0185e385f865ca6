package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Report counts what a worker did.
type Report struct {
	// By kind of outcome.
	Ended map[Kind]int
	// Repaired counts what reconciliation put right, Found what it could only report, at the start.
	Repaired, Found int
}

// worker is one that runs. Its own fields belong to the goroutine of loop.
type worker struct {
	Config
	scratch string

	queue     []control.OutboxEvent
	claimedAt time.Time
	inHand    map[string]bool
	ended     chan Outcome
	report    Report
	// took is how long a run takes, smoothed; 0 before the first.
	took time.Duration
	// notBefore holds claims back after a run was given up.
	notBefore time.Time
	reconcile time.Time // when the next look for orphans is due
	verified  bool      // what was published has been verified once
	failures  int       // of the store, in a row
	stopped   error     // why the loop ends before its context
}

func newWorker(cfg Config) (*worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &worker{Config: cfg, inHand: map[string]bool{}, ended: make(chan Outcome, cfg.Concurrency), report: Report{Ended: map[Kind]int{}}}
	w.scratch, err = openScratch(cfg.Scratch)
	return w, err
}

// Run works until ctx ends, then finishes the runs in hand within Config.Drain and gives back what is not done. It returns nil after a
// drain in which everything was finished, Interrupted when something was given back, and an error at once when the store says that
// waiting does not help. A store that is away is waited for.
func Run(ctx context.Context, cfg Config) (Report, error) {
	w, err := newWorker(cfg)
	if err != nil {
		return Report{}, err
	}
	defer w.closeScratch()
	hard, stop := w.hard(ctx)
	defer stop()
	w.loop(ctx, hard)
	return w.report, w.drain(hard)
}

// Once deals with one run that is waiting and tells what became of it; found is false when none waits. Events that lead to no computation (their
// run was cancelled, has ended, or is another worker's) are dealt with on the way.
func Once(ctx context.Context, cfg Config) (o Outcome, found bool, err error) {
	w, err := newWorker(cfg)
	if err != nil {
		return o, false, err
	}
	defer w.closeScratch()
	hard, stop := w.hard(ctx)
	defer stop()
	again := true
	for {
		if again {
			if _, err := w.look(ctx); err != nil {
				return o, false, err
			}
		}
		events, err := w.Store.Claim(ctx, w.Owner, 1)
		if err != nil || len(events) == 0 {
			return Outcome{}, false, err
		}
		o := w.handle(hard, events[0])
		w.OnEnd(o)
		again = errors.Is(o.Err, errOrphan)
		switch {
		case again:
		case o.Err != nil:
			return o, true, o.Err
		case o.Kind == Succeeded || o.Kind == Failed:
			return o, true, nil
		}
	}
}

// hard is the context of work: it ends when the worker is killed, and when the time to drain is over.
func (w *worker) hard(ctx context.Context) (hard context.Context, stop func()) {
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopKill := context.AfterFunc(w.Kill, func() { cancel(errKilled) })
	stopDrain := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(w.Drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrained)
		case <-hard.Done():
		}
	})
	return hard, func() { stopKill(); stopDrain(); cancel(nil) }
}

// loop claims events and starts runs until ctx ends.
func (w *worker) loop(ctx, hard context.Context) {
	wake := w.Store.Wake(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait := w.turn(ctx, hard)
		if ctx.Err() != nil || w.stopped != nil {
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case o := <-w.ended:
			w.take(o)
		case _, ok := <-wake:
			if !ok {
				wake = nil // polling is the truth
			}
		case <-timer.C:
		}
	}
}

// turn does what is due and says how long nothing will be.
func (w *worker) turn(ctx, hard context.Context) time.Duration {
	now := time.Now()
	if !now.Before(w.reconcile) {
		if !w.lookForOrphans(ctx) {
			return w.backOff()
		}
		w.reconcile = time.Now().Add(w.Reconcile)
	}
	if len(w.queue) > 0 && now.Sub(w.claimedAt) >= w.StaleClaims/2 && !w.releaseQueue(ctx) {
		return w.backOff()
	}
	if len(w.queue) == 0 && len(w.inHand) < w.Concurrency && !now.Before(w.notBefore) {
		if !w.claim(ctx) {
			return w.backOff()
		}
	}
	w.failures = 0
	for len(w.queue) > 0 && len(w.inHand) < w.Concurrency {
		ev := w.queue[0]
		w.queue = w.queue[1:]
		if w.inHand[ev.RunID] {
			continue // its event was given away under our hands and came back; it is delivered with the run
		}
		w.inHand[ev.RunID] = true
		go func() {
			began := time.Now()
			o := w.handle(hard, ev)
			o.took = time.Since(began)
			w.ended <- o
		}()
	}
	return max(0, min(w.Poll, time.Until(w.reconcile)))
}

// claim takes as many events as this worker is likely to begin before others may take them for abandoned, Batch at most.
func (w *worker) claim(ctx context.Context) bool {
	n := w.Concurrency
	if w.took > 0 {
		n = max(n, int(min(int64(w.Batch), int64(w.Concurrency)*int64(w.StaleClaims/4)/int64(w.took))))
	}
	sent := time.Now()
	events, err := w.Store.Claim(ctx, w.Owner, min(n, w.Batch))
	if err != nil {
		return w.storeFailed(ctx, "claim", err)
	}
	w.queue, w.claimedAt = events, sent
	return true
}

// take notes the end of a run.
func (w *worker) take(o Outcome) {
	delete(w.inHand, o.RunID)
	w.report.Ended[o.Kind]++
	switch o.Kind {
	case Succeeded, Failed:
		if w.took == 0 {
			w.took = o.took
		}
		w.took = max(1, (3*w.took+o.took)/4)
	case GivenUp:
		w.notBefore = time.Now().Add(w.Poll)
		if errors.Is(o.Err, errOrphan) {
			w.reconcile = time.Time{}
		}
		w.Logger.Warn("a run was given up", "run", o.RunID, "token", o.Token, "error", o.Err)
	}
	w.OnEnd(o)
}

// look mends orphans. The first look verifies everything that was published, too; later ones would read all of it again for nothing.
func (w *worker) look(ctx context.Context) ([]control.Damage, error) {
	if w.verified {
		damages, err := w.Store.MendOrphans(ctx, w.StaleClaims)
		return append(damages, w.mendStaging(ctx, err, false)...), err
	}
	damages, err := w.Store.Reconcile(ctx, true, w.StaleClaims)
	w.verified = err == nil
	return append(damages, w.mendStaging(ctx, err, true)...), err
}

// lookForOrphans looks, and tells; false when the store is away.
func (w *worker) lookForOrphans(ctx context.Context) bool {
	w.touchScratch()
	damages, err := w.look(ctx)
	if err != nil {
		return w.storeFailed(ctx, "reconcile", err)
	}
	for _, d := range damages {
		if d.Repaired {
			w.report.Repaired++
			w.Logger.Info("repaired", "kind", d.Kind, "run", d.RunID, "detail", d.Detail)
			continue
		}
		w.report.Found++
		w.Logger.Error("damage that nobody but you can mend", "kind", d.Kind, "run", d.RunID, "key", d.Key, "detail", d.Detail)
	}
	return true
}

// storeFailed notes a failure of the store, and stops the worker when waiting does not help. It returns false.
func (w *worker) storeFailed(ctx context.Context, doing string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	w.failures++
	if c := codes.Of(err); c != nil && c.Verdict != codes.Retry {
		w.stopped = err
		return false
	}
	w.Logger.Warn("the store does not answer, trying again", "doing", doing, "failures", w.failures, "error", err)
	return false
}

func (w *worker) backOff() time.Duration { return backOff(w.failures) }

// releaseQueue makes what was claimed and not begun anybody's again.
func (w *worker) releaseQueue(ctx context.Context) bool {
	if len(w.queue) == 0 {
		return true
	}
	ids := make([]int64, len(w.queue))
	for i, ev := range w.queue {
		ids[i] = ev.ID
	}
	if err := w.Store.ReleaseEvents(ctx, w.Owner, ids, false); err != nil && !codes.Has(err, codes.EventNotClaimed) {
		return w.storeFailed(ctx, "release", err)
	}
	w.queue = nil
	return true
}

// drain waits for the runs in hand and gives back the rest.
func (w *worker) drain(hard context.Context) error {
	ctx, cancel := w.lastWrites(hard)
	w.releaseQueue(ctx)
	cancel()
	unfinished := false
	for len(w.inHand) > 0 {
		o := <-w.ended
		w.take(o)
		unfinished = unfinished || o.Kind == GivenUp
	}
	if w.stopped != nil {
		return w.stopped
	}
	if !unfinished {
		return nil
	}
	if w.Kill.Err() == nil {
		// What was begun and given back is RUNNING without a lease: queued again, it need not wait for another worker's next look.
		ctx, cancel := w.lastWrites(hard)
		defer cancel()
		if _, err := w.Store.MendOrphans(ctx, w.StaleClaims); err != nil {
			w.Logger.Info("what was given back waits for the next reconciliation", "error", err)
		}
	}
	return codes.New(codes.Interrupted, "a run was not done when the worker had to stop; it was given back")
}

// pause waits after a number of failures.
func pause(ctx context.Context, failures int) error {
	timer := time.NewTimer(backOff(failures + 1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// backOff grows from 50 ms to 5 s, with a quarter of jitter.
func backOff(failures int) time.Duration {
	d := min(50*time.Millisecond<<min(max(failures-1, 0), 10), 5*time.Second)
	return d - time.Duration(rand.Int64N(int64(d)/4))
}
