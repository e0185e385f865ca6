package controltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var runChecks = []controlCheck{
	{"run: start", checkStart},
	{"run: finish", checkFinish},
	{"run: cancellation", checkCancel},
	{"run: a cancellation races the start", checkCancelRace},
	{"run: one starter of eight", checkStartRace},
}

func checkStart(p *plane) error {
	s := p.open()
	run, l, err := p.queued(s, 1)
	if err != nil {
		return err
	}
	var moved control.RunPhase
	if err := s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID, Moved: &moved}); err != nil || moved != control.Running {
		return fmt.Errorf("start: moved to %q, %v", moved, err)
	}
	started, err := p.phase(s, run.ID, control.Running, 0)
	if err != nil {
		return err
	}
	if started.Updated.Before(run.Updated) || !started.Created.Equal(run.Created) {
		return fmt.Errorf("started: %+v", started)
	}
	again := func() error { return s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID}) }
	if err := p.unchanged(s, "a start of a RUNNING run", codes.RunNotQueued, again); err != nil {
		return err
	}
	if err := s.Fenced(p.ctx, l, control.FinishRun{RunID: run.ID, Phase: control.Failed, Error: "x"}); err != nil {
		return err
	}
	if err := p.unchanged(s, "a start of a FAILED run", codes.RunNotQueued, again); err != nil {
		return err
	}
	cancelled, l, err := p.queued(s, 2)
	if err != nil {
		return err
	}
	if _, err := s.CancelRun(p.ctx, cancelled.ID); err != nil {
		return err
	}
	if err := s.Fenced(p.ctx, l, control.StartRun{RunID: cancelled.ID, Moved: &moved}); err != nil || moved != control.Cancelled {
		return fmt.Errorf("start of a cancelled run: moved to %q, %v", moved, err)
	}
	if _, err := p.phase(s, cancelled.ID, control.Cancelled, 0); err != nil {
		return err
	}
	return p.unchanged(s, "a start of a CANCELLED run", codes.RunNotQueued, func() error { return s.Fenced(p.ctx, l, control.StartRun{RunID: cancelled.ID}) })
}

func checkFinish(p *plane) error {
	s := p.open()
	queued, ql, err := p.queued(s, 1)
	if err != nil {
		return err
	}
	err = p.unchanged(s, "a finish of a QUEUED run", codes.RunNotRunning, func() error {
		return s.Fenced(p.ctx, ql, control.FinishRun{RunID: queued.ID, Phase: control.Succeeded})
	})
	if err != nil {
		return err
	}
	for n, refs := range [][]string{nil, {"sha256:1"}, {"b", "a", `"it's" {1,2} \`}} {
		run, l, err := p.running(s, 10+n)
		if err != nil {
			return err
		}
		finish := control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: refs}
		if err := s.Fenced(p.ctx, l, finish); err != nil {
			return err
		}
		got, err := p.phase(s, run.ID, control.Succeeded, 1)
		if err != nil {
			return err
		}
		if !slices.Equal(got.ResultRefs, refs) || got.Error != "" {
			return fmt.Errorf("succeeded: %+v, want %q", got, refs)
		}
		for _, phase := range []control.RunPhase{control.Succeeded, control.Failed} {
			finish.Phase = phase
			if err := p.unchanged(s, "a second finish", codes.RunNotRunning, func() error { return s.Fenced(p.ctx, l, finish) }); err != nil {
				return err
			}
		}
	}
	// A failure is recorded whatever bytes its message has.
	for n, text := range []string{"plain", "it's \x00 \xff\xfe \n broken", strings.Repeat("é", control.MaxRunError), ""} {
		run, l, err := p.running(s, 20+n)
		if err != nil {
			return err
		}
		if err := s.Fenced(p.ctx, l, control.FinishRun{RunID: run.ID, Phase: control.Failed, Error: text}); err != nil {
			return fmt.Errorf("error %.20q: %w", text, err)
		}
		got, err := p.phase(s, run.ID, control.Failed, 1)
		if err != nil {
			return err
		}
		if got.Error != control.RunError(text) || !utf8.ValidString(got.Error) || len(got.Error) > control.MaxRunError || len(got.ResultRefs) > 0 {
			return fmt.Errorf("error %.20q became %.40q", text, got.Error)
		}
	}
	return nil
}

func checkCancel(p *plane) error {
	s := p.open()
	run, l, err := p.queued(s, 1)
	if err != nil {
		return err
	}
	for range 2 {
		got, err := s.CancelRun(p.ctx, run.ID)
		if err != nil || got.Phase != control.Queued || !got.CancelRequested || got.ID != run.ID || string(got.Body) != string(run.Body) {
			return fmt.Errorf("cancel while QUEUED: %+v, %v", got, err)
		}
	}
	if err := s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID}); err != nil {
		return err
	}
	untouched := func(id string, phase control.RunPhase) error {
		before, err := p.dump(s)
		if err != nil {
			return err
		}
		got, err := s.CancelRun(p.ctx, id)
		if err != nil || got.Phase != phase {
			return fmt.Errorf("cancel while %s: %+v, %v", phase, got, err)
		}
		if after, err := p.dump(s); err != nil || after != before {
			return fmt.Errorf("cancel while %s changed something: %v\n%s\n%s", phase, err, before, after)
		}
		return nil
	}
	if err := untouched(run.ID, control.Cancelled); err != nil {
		return err
	}
	second, l, err := p.running(s, 2)
	if err != nil {
		return err
	}
	if err := untouched(second.ID, control.Running); err != nil {
		return err
	}
	if err := s.Fenced(p.ctx, l, control.FinishRun{RunID: second.ID, Phase: control.Succeeded}); err != nil {
		return err
	}
	if err := untouched(second.ID, control.Succeeded); err != nil {
		return err
	}
	_, err = s.CancelRun(p.ctx, "run_0")
	return refusal("cancel of an unknown run", err, codes.RunUnknown)
}

// A cancellation and a start at the same time: the run ends CANCELLED with nothing published, or SUCCEEDED with its result, and the one who
// cancelled was told which.
func checkCancelRace(p *plane) error {
	const runs = 24
	worker, client := p.open(), p.open()
	ended := map[control.RunPhase]int{}
	for n := range runs {
		run, l, err := p.queued(worker, n)
		if err != nil {
			return err
		}
		var told control.BatchRun
		errs := together(2, func(i int) (err error) {
			if i == 0 {
				told, err = client.CancelRun(p.ctx, run.ID)
				return err
			}
			return p.work(worker, run, l)
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		got, err := client.LookupRun(p.ctx, run.ID)
		if err != nil {
			return err
		}
		ended[got.Phase]++
		published, err := p.published(client, control.ResultKey(run.ID))
		if err != nil {
			return err
		}
		wasCancelled := told.Phase == control.Queued || told.Phase == control.Cancelled
		switch {
		case got.Phase == control.Cancelled && wasCancelled && len(published) == 0 && got.Revision == 0:
		case got.Phase == control.Succeeded && !wasCancelled && len(published) == 1 && got.Revision == 1:
		default:
			return fmt.Errorf("run %d: %s in revision %d with %d publications, and the client was told %s", n, got.Phase, got.Revision, len(published), told.Phase)
		}
	}
	if ended[control.Cancelled]+ended[control.Succeeded] != runs {
		return fmt.Errorf("ends: %v", ended)
	}
	return nil
}

// work is what a worker does with a run.
func (p *plane) work(s control.ControlStore, run control.BatchRun, l control.Lease) error {
	var moved control.RunPhase
	if err := s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID, Moved: &moved}); err != nil {
		return err
	}
	if moved == control.Cancelled {
		return nil
	}
	return s.Fenced(p.ctx, l, publish(control.ResultKey(run.ID), `{"rows":1}`), control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: []string{"sha256:1"}})
}

func checkStartRace(p *plane) error {
	const clients = 8
	stores := p.opens(clients)
	for n := range 5 {
		run, l, err := p.queued(stores[0], n)
		if err != nil {
			return err
		}
		var won atomic.Int32
		errs := together(clients, func(i int) error {
			err := stores[i].Fenced(p.ctx, l, control.StartRun{RunID: run.ID}, publish(fmt.Sprintf("start/%d/%d", n, i), "1"))
			if err == nil {
				won.Add(1)
				return nil
			}
			return refusal("a later start", err, codes.RunNotQueued)
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if published, err := p.published(stores[0], fmt.Sprintf("start/%d/", n)); err != nil || won.Load() != 1 || len(published) != 1 {
			return fmt.Errorf("%d starters, %d of their publications, %v", won.Load(), len(published), err)
		}
	}
	return nil
}
