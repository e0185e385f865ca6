package flow

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/flow/operators"
)

// Text is what `weir plan` shows to people: what will run, in the order in which a record passes through it.
func (p *Plan) Text(partitions int) string {
	var s strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&s, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("flow", "%s", p.Name)
	line("fingerprint", "%s", p.Fingerprint)
	line("select", "%s", p.selectText())
	line("id", "%s", quote(p.IDField))
	line("key", "%s", quote(p.KeyField))
	line("time", "%s as %s", quote(p.TimeField), p.TimeUnit)
	line("lateness", "%s: an event older than the watermark, which trails the newest event by that much, is late", FormatDuration(p.Lateness))
	if p.MaxFutureSkew > 0 {
		line("future skew", "%s: an event further ahead of its arrival is set aside", FormatDuration(p.MaxFutureSkew))
	} else {
		line("future skew", "off: an event from the future moves the watermark")
	}
	line("dedupe", "ids are remembered for %s behind the watermark", FormatDuration(p.DedupeHorizon))
	if p.RevisionField != "" {
		line("revision", "%s", quote(p.RevisionField))
	}
	if p.RevisionHorizon > 0 {
		line("revisions", "%s", p.revisionsText())
	}
	if p.HoldKey > 0 {
		line("hold_key", "%s", p.holdKeyText())
	}
	if p.SequenceField != "" {
		line("sequence", "%s; a gap holds the watermark until event time has moved on by %s", quote(p.SequenceField), FormatDuration(p.GapHold))
	}
	if p.ClockEvery > 0 {
		line("clock", "every %s: the last value of each interval of a key", FormatDuration(p.ClockEvery))
	} else {
		line("clock", "one tick per event")
	}
	if p.IdleAfterPolls > 0 {
		line("idle", "a partition is idle after %d polls that were answered empty", p.IdleAfterPolls)
	}
	for i, n := range p.Nodes {
		line(first(i, "operators"), "%s = %s(%s%s)", n.Name, n.Type, p.readsText(n), paramsText(n))
	}
	for i, o := range p.Outputs[:p.Results()] {
		from := ""
		if name := p.Nodes[o.Node].Name; name != o.Name {
			from = " = " + name
		}
		line(first(i, "outputs"), "%s%s", o.Name, from)
	}
	for i, sink := range p.Sinks {
		line(first(i, "sinks"), "%s", p.sinkText(sink))
	}
	line("limits", "per partition %d ids, %d keys, %d waiting records, %d empty ticks at once", p.Limits.IDs, p.Limits.Keys, p.Limits.Reorder, p.Limits.Ticks)
	s.WriteString(p.MemoryBound(partitions).String())
	return s.String()
}

func (p *Plan) selectText() string {
	if p.SelectField == "" {
		return "every record"
	}
	const most = 10
	values := make([]string, 0, most)
	for _, v := range p.SelectValues[:min(most, len(p.SelectValues))] {
		values = append(values, quote(v))
	}
	if more := len(p.SelectValues) - most; more > 0 {
		values = append(values, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s is %s", quote(p.SelectField), strings.Join(values, " or "))
}

func (p *Plan) readsText(n Node) string {
	if n.From >= 0 {
		return p.Nodes[n.From].Name
	}
	return quote(p.Inputs[n.Field])
}

func paramsText(n Node) string {
	var s strings.Builder
	for _, param := range n.declared.Params {
		if param.Kind == operators.Duration {
			fmt.Fprintf(&s, ", %s %s", param.Name, FormatDuration(n.Args.Duration(param.Name)))
			continue
		}
		fmt.Fprintf(&s, ", %s %v", param.Name, n.Args.Value(param.Name))
	}
	return s.String()
}

// first shows a name beside the first line of a group alone.
func first(i int, name string) string {
	if i == 0 {
		return name
	}
	return ""
}
