package flow

import (
	"fmt"
	"strconv"
	"strings"
)

// Dot is the plan as a directed graph in the language of Graphviz: what is read, the operators, the outputs, and the sinks that the flow names. It is the
// same for equal plans.
func (p *Plan) Dot() string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, "  "+format+"\n", args...) }
	s.WriteString("digraph " + strconv.Quote(p.Name) + " {\n")
	line("rankdir=LR; node [shape=box];")
	line("records [shape=cylinder, label=%s];", dotText("records", p.selectText()))
	for i, in := range p.Inputs {
		line("field%d [shape=plain, label=%s];", i, dotText(printable(in)))
		line("records -> field%d;", i)
	}
	for i, n := range p.Nodes {
		line("node%d [label=%s];", i, dotText(n.Name, n.Type+paramsText(n)))
		if n.From >= 0 {
			line("node%d -> node%d;", n.From, i)
		} else {
			line("field%d -> node%d;", n.Field, i)
		}
	}
	line("rows [shape=cds, label=%s];", dotText("rows"))
	for i, o := range p.Outputs[:p.Results()] {
		line("out%d [shape=oval, label=%s];", i, dotText(o.Name))
		line("node%d -> out%d -> rows;", o.Node, i)
	}
	if p.Revised {
		line("records -> rows [style=dotted, label=%s];", dotText("revisions"))
	}
	for i, sink := range p.Sinks {
		line("sink%d [shape=cylinder, label=%s];", i, dotText(sink.Name, sink.Type))
		if sink.Name == p.LateSink {
			line("records -> sink%d [style=dashed, label=%s];", i, dotText("late"))
		} else {
			line("rows -> sink%d;", i)
		}
	}
	s.WriteString("}\n")
	return s.String()
}

// dotText is a label of some lines.
func dotText(lines ...string) string {
	for i, l := range lines {
		l = strings.ReplaceAll(l, `\`, `\\`)
		lines[i] = strings.ReplaceAll(l, `"`, `\"`)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
