package flow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/flow/operators"
)

// output is one output as the file has it.
type output struct{ name, from string }

// outputs compiles outputs: each is the name of an operator, or {name: x, from: operator}.
func (c *compiler) outputs(n *node, byName map[string]*spec) []output {
	if n.shape != list {
		c.wrong(n, "outputs", "a list", "as in outputs: [ema3]")
		return nil
	}
	if len(n.items) == 0 || len(n.items) > maxOutputs {
		c.report.add(n.at, "outputs", fmt.Sprintf("must have 1 to %d outputs, has %d", maxOutputs, len(n.items)), "as in outputs: [ema3]")
		return nil
	}
	first := map[string]int{}
	var out []output
	for i, item := range n.items {
		o, ok := c.output(item, fmt.Sprintf("outputs[%d]", i), byName)
		if !ok {
			continue
		}
		if j, taken := first[o.name]; taken {
			c.report.add(item.at, fmt.Sprintf("outputs[%d]", i), fmt.Sprintf("%s is the name of outputs[%d] already", quote(o.name), j), "give each output a name of its own, as in {name: x, from: ema3}")
			continue
		}
		if c.plan.Revised && o.name == RevisionOutput {
			c.report.add(item.at, fmt.Sprintf("outputs[%d]", i), "revision is the column of the number of a result's revision", "give the output another name, as in {name: x, from: "+o.from+"}")
			continue
		}
		first[o.name] = i
		out = append(out, o)
	}
	return out
}

// output compiles one output.
func (c *compiler) output(n *node, path string, byName map[string]*spec) (output, bool) {
	const example = "ema3 or {name: x, from: ema3}"
	if n.shape != mapping {
		s, ok := c.text(n, path, "the name of an operator or a mapping", "as in "+example)
		return output{s, s}, ok && c.known(s, n.at, path, byName)
	}
	c.mapping(n, path, example, "name", "from")
	name, from := c.need(n, path, "name", example), c.need(n, path, "from", example)
	if name == nil || from == nil {
		return output{}, false
	}
	o := output{name: c.name(name, path+".name", word, wordCure)}
	var ok bool
	o.from, ok = c.text(from, path+".from", "the name of an operator", "as in "+example)
	return o, ok && c.known(o.from, from.at, path+".from", byName) && o.name != ""
}

// known reports an output of an operator that does not exist. Without any operator there is nothing to compare with, and that is
// reported already.
func (c *compiler) known(name string, at pos, path string, byName map[string]*spec) bool {
	if byName[name] != nil || len(byName) == 0 {
		return true
	}
	c.report.add(at, path, "there is no operator "+quote(name), suggest(name, slices.Sorted(maps.Keys(byName)))+`; for a field as it is, add an operator of type last`)
	return false
}

// unread reports operators that feed no output: they would cost memory and change nothing.
func (c *compiler) unread(specs []*spec, outputs []output, byName map[string]*spec) {
	read := map[string]bool{}
	for _, o := range outputs {
		for name := o.from; name != "" && !read[name]; name = byName[name].from {
			read[name] = true
		}
	}
	for _, s := range specs {
		if !read[s.name] {
			c.report.add(s.node.at, s.path, "the operator "+quote(s.name)+" feeds no output", "add it to outputs, or remove it")
		}
	}
}

// link fills the plan's inputs, nodes and outputs.
func (c *compiler) link(order []*spec, outputs []output) {
	p := c.plan
	for _, s := range order {
		if s.field != "" && !slices.Contains(p.Inputs, s.field) {
			p.Inputs = append(p.Inputs, s.field)
		}
	}
	slices.Sort(p.Inputs)
	at := map[string]int{}
	for i, s := range order {
		at[s.name] = i
		n := Node{Name: s.name, Type: s.typ.Name, Field: -1, From: -1, Args: s.args, New: s.fresh, StateBytes: s.typ.StateBytes(s.args), declared: s.typ}
		if s.field != "" {
			n.Field = slices.Index(p.Inputs, s.field)
		} else {
			n.From = at[s.from]
		}
		p.Nodes = append(p.Nodes, n)
	}
	for _, o := range outputs {
		p.Outputs = append(p.Outputs, Output{Name: o.name, Node: at[o.from]})
	}
	if p.Revised {
		p.Outputs = append(p.Outputs, Output{Name: RevisionOutput, Node: -1})
	}
}

// intBounds are the bounds of an integer parameter.
func intBounds(p operators.Param) (least, most int64) {
	least, most = -1<<63, 1<<63-1
	if v, ok := p.Min.(int64); ok {
		least = v
	}
	if v, ok := p.Max.(int64); ok {
		most = v
	}
	return least, most
}

// float reads a finite number.
func (c *compiler) float(n *node, path string) float64 {
	if n.shape == integer || n.shape == number {
		f, err := strconv.ParseFloat(n.value, 64)
		if err == nil && decimal(n.value) {
			return f
		}
	}
	c.wrong(n, path, "a finite decimal number", "write it as in 0.5, without quotes")
	return 0
}

// decimal says whether a number is written in decimal digits, with a point and an exponent at most.
func decimal(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune("0123456789+-.eE", r) })
}
