package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks"
)

// lintFlags are those of `weir lint`.
type lintFlags struct {
	brokerFlags
	connect bool
}

// lookTime bounds how long one target is looked at.
const lookTime = 20 * time.Second

// lookAt looks at the targets of a flow's sinks, one after the other, and changes nothing there. It returns what it found, for a document, and the first
// error.
func (a *app) lookAt(ctx context.Context, plan *flow.Plan, o *lintFlags) (rows []any, first error) {
	rows = []any{}
	found := located{}
	for _, spec := range plan.Sinks {
		looked, err := lookAtSink(ctx, plan, spec, o, found)
		row := map[string]any{"name": spec.Name, "type": spec.Type, "ok": err == nil, "looked_at": looked}
		switch {
		case err != nil:
			if first == nil {
				first = err
			}
			c := codes.Of(err)
			if c == nil {
				c = codes.Internal
			}
			message := strings.TrimPrefix(withoutCode(err, c), fmt.Sprintf("sink %q: ", spec.Name))
			row["error"] = errorRow(c, message)
			if !a.json {
				a.notice("sink %s (%s): %s: %s\n      %s\n", spec.Name, spec.Type, c.Name, printable(message), c.Cure)
			}
		case !a.json && looked:
			a.printf("sink %s (%s): ok\n", spec.Name, spec.Type)
		case !a.json:
			a.printf("sink %s (%s): its target can be looked at by a run only\n", spec.Name, spec.Type)
		}
		rows = append(rows, row)
	}
	return rows, first
}

func errorRow(c *codes.Code, message string) map[string]any {
	return map[string]any{"code": c.Name, "message": message, "cure": c.Cure}
}

// lintPlaces refuses a flow two of whose sinks are in one place of this machine, which the language cannot know. It tells it, and notes it in the report.
func (a *app) lintPlaces(file string, plan *flow.Plan, report map[string]any) error {
	err := sinksApart(plan.Sinks)
	if err == nil {
		return nil
	}
	c := codes.Of(err)
	report["ok"], report["error"] = false, errorRow(c, withoutCode(err, c))
	if !a.json {
		a.notice("%s: %s\n      %s\n", printable(file), printable(err.Error()), c.Cure)
	}
	return err
}

func lookAtSink(ctx context.Context, plan *flow.Plan, spec flow.SinkSpec, o *lintFlags, found located) (looked bool, err error) {
	s, err := openSink(ctx, spec, &o.brokerFlags)
	if err != nil {
		return true, err
	}
	prober, can := s.(sinks.Prober)
	if !can {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	target := sinks.Target{RunID: "lint", Outputs: sinks.OutputsOf(plan), Revised: plan.Revised}
	if spec.Name == plan.LateSink {
		target = sinks.Target{RunID: "lint", Entries: true}
	}
	err = prober.Probe(within, target)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = codes.New(codes.SinkUnavailable, "the target has not answered within %s", lookTime)
	}
	if err == nil {
		err = found.add(within, spec.Name, s)
	}
	return true, err
}
