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
	e := newEngine(ctx, cfg.withDefaults())
	defer e.cancel()
	out := make(chan outcome, 2)
	var last atomic.Pointer[Result]
	system := shell.NewSystem(shell.Options{Logger: e.log, OnFailure: func(f shell.Failed) {
		// Only the run actor has no supervisor. Its failure is one of weir itself.
		out <- outcome{err: codes.New(codes.Internal, "%s failed: %w", f.Child.Name(), f.Cause)}
	}})
	publish := func(r Result) { last.Store(&r) }
	s := newSupervisor(e, out, publish)
	var err error
	if e.run, err = shell.Spawn(system, shell.Spec{Name: runName}, shell.Behaviour[toRun](s)); err != nil {
		return Result{}, codes.New(codes.Internal, "the run does not start: %w", err)
	}
	shell.Send(e.run, toRun(start{}))
	o, ok := e.await(ctx, out)
	if !ok {
		go e.clean(system) // what hangs, hangs
		if r := last.Load(); r != nil {
			o.result = *r
		}
		return o.result, o.err
	}
	if o.result.Incarnations == 0 {
		if r := last.Load(); r != nil {
			o.result = *r
		}
	}
	e.cancel()
	cleaned := make(chan struct{})
	go func() {
		defer close(cleaned)
		e.clean(system)
	}()
	timer := time.NewTimer(stepDownGrace)
	defer timer.Stop()
	select {
	case <-cleaned:
	case <-timer.C:
		e.log.Error("a call of the store or the source does not end although its context has; it is left alone", "run", cfg.RunID)
	}
	return o.result, o.err
}

// await passes on what comes from outside until the run is over. It is false when a run that was killed, or whose lease is lost, did not end
// in time.
func (e *engine) await(ctx context.Context, out <-chan outcome) (outcome, bool) {
	stop, die := ctx.Done(), e.cfg.Kill.Done()
	var grace <-chan time.Time
	lost := e.effects.Done()
	why := ErrKilled
	for {
		select {
		case o := <-out:
			return o, true
		case <-stop:
			stop = nil
			shell.Send(e.run, toRun(interrupt{}))
		case <-die:
			die, stop, lost = nil, nil, nil
			e.cancel()
			shell.Send(e.run, toRun(kill{}))
			why = ErrKilled
			timer := time.NewTimer(killGrace)
			defer timer.Stop()
			grace = timer.C
		case <-lost:
			lost, stop = nil, nil
			why = context.Cause(e.effects)
			timer := time.NewTimer(stepDownGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			return outcome{err: why}, false
		}
	}
}

// clean waits for every actor and goroutine.
func (e *engine) clean(system *shell.System) {
	if err := system.Shutdown(context.Background()); err != nil {
		e.log.Error("shutdown", "cause", err.Error())
	}
	e.background.Wait()
}
