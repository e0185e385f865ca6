package flow

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// seal computes the fingerprint of a plan that is complete.
func (p *Plan) seal() error {
	b, err := record.AppendJSON(nil, p.meaning())
	if err != nil {
		return codes.New(codes.Internal, "the meaning of flow %s has no canonical form: %w", p.Name, err)
	}
	p.Fingerprint = record.Hash(b)
	return nil
}

// meaning is what the fingerprint is the hash of: all that decides which values come out, in one normal form. Defaults are filled
// in, durations are integers of nanoseconds, operators stand in the order of the plan. The name of the flow is a label and not
// meaning. Limits are not meaning either: they stop a run, they never change a value. The state version of each operator type is,
// since a state of another version cannot be taken up.
func (p *Plan) meaning() map[string]any {
	m := p.language(func(d time.Duration) any { return int64(d) })
	versions := map[string]any{}
	for _, n := range p.Nodes {
		versions[n.Type] = n.declared.StateVersion
	}
	m["state_versions"] = versions
	return m
}

// language writes the meaning of the plan as a document of the flow language, with durations in the given form.
func (p *Plan) language(duration func(time.Duration) any) map[string]any {
	m := map[string]any{
		"flow": Version, "id": p.IDField, "key": p.KeyField,
		"time":            map[string]any{"field": p.TimeField, "unit": p.TimeUnit.String()},
		"lateness":        duration(p.Lateness),
		"max_future_skew": off,
		"dedupe":          map[string]any{"horizon": duration(p.DedupeHorizon)},
		"clock":           eventClock,
		"idle":            map[string]any{"after_polls": p.IdleAfterPolls},
		"operators":       p.operators(duration),
		"outputs":         p.outputs(),
	}
	if p.SelectField != "" {
		m["select"] = map[string]any{"field": p.SelectField, "in": p.SelectValues}
	}
	if p.MaxFutureSkew > 0 {
		m["max_future_skew"] = duration(p.MaxFutureSkew)
	}
	if p.RevisionField != "" {
		m["revision"] = p.RevisionField
	}
	if p.RevisionHorizon > 0 {
		m["revisions"] = map[string]any{"horizon": duration(p.RevisionHorizon), "publish": p.Revised}
	}
	if p.HoldKey > 0 {
		m["hold_key"] = map[string]any{"records": p.HoldKey}
	}
	if p.SequenceField != "" {
		m["sequence"] = map[string]any{"field": p.SequenceField, "gap_hold": duration(p.GapHold)}
	}
	if p.ClockEvery > 0 {
		m["clock"] = map[string]any{"every": duration(p.ClockEvery)}
	}
	return m
}

func (p *Plan) operators(duration func(time.Duration) any) []any {
	out := make([]any, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		m := map[string]any{"name": n.Name, "type": n.Type}
		if n.From >= 0 {
			m["input"] = map[string]any{"operator": p.Nodes[n.From].Name}
		} else {
			m["input"] = map[string]any{"field": p.Inputs[n.Field]}
		}
		for _, param := range n.declared.Params {
			m[param.Name] = n.Args.Value(param.Name)
			if param.Kind == operators.Duration {
				m[param.Name] = duration(n.Args.Duration(param.Name))
			}
		}
		out = append(out, m)
	}
	return out
}

func (p *Plan) outputs() []any {
	out := make([]any, 0, len(p.Outputs))
	for _, o := range p.Outputs[:p.Results()] {
		out = append(out, map[string]any{"name": o.Name, "from": p.Nodes[o.Node].Name})
	}
	return out
}

// Document is the flow in the one normal form of the language, for canonical JSON (record.AppendJSON): everything written out,
// durations in their normal spelling, operators in the order of the plan. Parse reads it back to an equal plan.
func (p *Plan) Document() map[string]any {
	m := p.language(func(d time.Duration) any { return FormatDuration(d) })
	m["name"] = p.Name
	if len(p.Sinks) > 0 {
		m["sinks"] = p.sinkDocument()
	}
	if p.LateSink != "" {
		m["late"] = map[string]any{"sink": p.LateSink}
	}
	limits := map[string]any{"ids": p.Limits.IDs, "keys": p.Limits.Keys, "reorder": p.Limits.Reorder, "ticks": p.Limits.Ticks}
	if p.RevisionHorizon > 0 {
		limits["history"] = p.Limits.History
	}
	m["limits"] = limits
	return m
}

// Describe is what `weir plan --json` shows: the fingerprint, the flow in its normal form, the inputs that are read from each
// record, the nodes in the order in which they run, and the memory bound for a number of partitions.
func (p *Plan) Describe(partitions int) map[string]any {
	nodes := make([]any, 0, len(p.Nodes))
	for i, n := range p.Nodes {
		nodes = append(nodes, map[string]any{
			"position": i, "name": n.Name, "type": n.Type, "reads": p.reads(n), "state_version": n.declared.StateVersion, "state_bytes": n.StateBytes,
		})
	}
	return map[string]any{
		"fingerprint": p.Fingerprint, "flow": p.Document(), "inputs": p.Inputs, "nodes": nodes, "memory": p.MemoryBound(partitions).Document(),
	}
}

// reads says in words what a node reads.
func (p *Plan) reads(n Node) string {
	if n.From >= 0 {
		return fmt.Sprintf("operator %s", p.Nodes[n.From].Name)
	}
	return fmt.Sprintf("field %s", p.Inputs[n.Field])
}
