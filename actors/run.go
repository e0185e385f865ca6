package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
)

// How long Run waits for what it started to end: once killed, and once the lease is lost.
const (
	killGrace     = 250 * time.Millisecond
	stepDownGrace = 2 * time.Second
)

// Run runs a flow over a source until it has ended, and returns what then stands in the journal. The result is valid beside an error too.
//
// It ends with nil when the run is FINISHED (MaxRecords, or the end of a bounded source) or stands at UntilRecords; with ErrInterrupted
// when ctx was cancelled and the last cut is committed; with ErrKilled when Config.Kill ended it; with a coded error otherwise:
// CONFIG_INVALID, what the source or the journal call fatal, the cause that came MaxFailures times, SOURCE_ENDED when a bounded log has
// fewer records than were asked for, or the last failure of a run that was cancelled before anything was committed again. Nothing beyond
// the last commit is published, whatever the end.
//
// A run that has FINISHED before is RUN_FINISHED, with the result that stands.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	r := newRunner(ctx, cfg.withDefaults())
	defer r.e.cancel()
	if err := r.spawn(start{}); err != nil {
		return Result{}, codes.New(codes.Internal, "the run does not start: %w", err)
	}
	o, ok := r.await(ctx)
	if !ok {
		go r.clean() // what hangs, hangs
		if last := r.last.Load(); last != nil {
			o.result = *last
		}
		return o.result, o.err
	}
	r.e.cancel()
	r.cleanInTime()
	return o.result, o.err
}

// runner is what stands outside the actors: it passes on what comes from the caller, and starts the run actor again when that fails itself.
type runner struct {
	e      *engine
	s      *supervisor
	system *shell.System
	out    chan outcome
	last   atomic.Pointer[Result]
	// failed is why the run actor has failed; revived says that it may be started again, or that it must not be.
	failed  chan error
	revived chan bool
}

func newRunner(ctx context.Context, cfg Config) *runner {
	r := &runner{e: newEngine(ctx, cfg), out: make(chan outcome, 2), failed: make(chan error, 1), revived: make(chan bool, 1)}
	r.s = newSupervisor(r.e, r.out, func(last Result) { r.last.Store(&last) })
	r.system = shell.NewSystem(shell.Options{Logger: r.e.log, OnFailure: r.onFailure})
	return r
}

// onFailure is told of failures without a supervisor: those of the run actor, and those of others that fall together with it.
func (r *runner) onFailure(f shell.Failed) {
	if f.Child.Name() != runName {
		r.e.log.Debug("failed while the run actor was down", "actor", f.Child.Name(), "cause", f.Cause.Error())
		return
	}
	select {
	case r.failed <- f.Cause:
	default: // it fails a second time while it stops
	}
}

// spawn starts the run actor, for the first time or again: what it knows is kept.
func (r *runner) spawn(first toRun) error {
	e, s := r.e, r.s
	b := shell.Intercept(shell.Behaviour[toRun](s), func(*shell.Context, toRun) (bool, error) {
		err := e.cfg.Hooks.at(e.ctx, Point{Name: OnMessage, Actor: runName, Incarnation: s.number()})
		return err == nil, err
	})
	ref, err := shell.Spawn(r.system, shell.Spec{Name: runName}, b)
	if err != nil {
		return err
	}
	e.run = ref
	shell.Send(e.run, first)
	return nil
}

// await passes on what comes from outside until the run is over. It is false when a run that was killed, or whose lease is lost, did not end
// in time.
func (r *runner) await(ctx context.Context) (outcome, bool) {
	stop, die, lost := ctx.Done(), r.e.cfg.Kill.Done(), r.e.effects.Done()
	var grace <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	why := ErrKilled
	down := false
	for {
		select {
		case o := <-r.out:
			return o, true
		case <-stop:
			stop = nil
			r.send(down, interrupt{})
		case <-die:
			die, stop, lost, why = nil, nil, nil, ErrKilled
			r.e.cancel()
			r.send(down, kill{})
			timer.Reset(killGrace)
			grace = timer.C
		case <-lost:
			lost, stop, why = nil, nil, context.Cause(r.e.effects)
			timer.Reset(stepDownGrace)
			grace = timer.C
		case <-grace:
			return outcome{err: why}, false
		case cause := <-r.failed:
			down = true
			go func() { r.revived <- r.s.revive(cause) }()
		case again := <-r.revived:
			if o, over := r.again(ctx, again); over {
				return o, true
			}
			down = false
		}
	}
}

// again starts the run actor once more, or says how the run is over.
func (r *runner) again(ctx context.Context, may bool) (o outcome, over bool) {
	if !may {
		return outcome{r.s.result(), r.s.stop}, true
	}
	if err := r.spawn(resume{}); err != nil {
		return outcome{r.s.result(), codes.New(codes.Internal, "the run actor does not start again: %w", err)}, true
	}
	// What it was told while it was down, and what it may have had in hand when it failed, is told again.
	if r.e.cfg.Kill.Err() != nil {
		r.send(false, kill{})
	}
	if ctx.Err() != nil {
		r.send(false, interrupt{})
	}
	return outcome{}, false
}

func (r *runner) send(down bool, m toRun) {
	if !down {
		shell.Send(r.e.run, m)
	}
}

// clean waits for every actor and goroutine.
func (r *runner) clean() {
	if err := r.system.Shutdown(context.Background()); err != nil {
		r.e.log.Error("shutdown", "cause", err.Error())
	}
	r.e.background.Wait()
}

func (r *runner) cleanInTime() {
	cleaned := make(chan struct{})
	go func() {
		defer close(cleaned)
		r.clean()
	}()
	timer := time.NewTimer(stepDownGrace)
	defer timer.Stop()
	select {
	case <-cleaned:
	case <-timer.C:
		r.e.log.Error("a call of the store or the source does not end although its context has; it is left alone", "run", r.e.cfg.RunID)
	}
}
