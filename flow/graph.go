package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/flow/operators"
)

// spec is one operator as the file has it.
type spec struct {
	node       *node
	path, name string
	typ        operators.Type
	args       operators.Args
	fresh      func() operators.Operator
	// field is the record's field that the operator reads; from is the operator that it reads, when field is "".
	field, from string
	inputAt     pos
}

// operatorFields are the fields that every operator has.
var operatorFields = []string{"name", "type", "input"}

// operators compiles operators and outputs.
func (c *compiler) operators(n *node) {
	before := c.report.count()
	var specs []*spec
	if v := c.need(n, "", "operators", "operators: [{name: ema3, type: ema, input: close, period: 3}]"); v != nil {
		specs = c.specs(v)
	}
	byName := c.names(specs)
	for _, s := range specs {
		if s.from != "" && byName[s.from] == nil {
			c.report.add(s.inputAt, s.path+".input", "there is no operator "+quote(s.from), c.operatorCure(s.from, byName))
		}
	}
	var outputs []output
	if v := c.need(n, "", "outputs", "outputs: [ema3]"); v != nil {
		outputs = c.outputs(v, byName)
	}
	order := c.order(byName)
	if c.unreadable || c.report.count() > before {
		return
	}
	c.unread(specs, outputs, byName)
	c.link(order, outputs)
}

// operatorCure suggests the name of an operator, or says how a field is read.
func (c *compiler) operatorCure(name string, byName map[string]*spec) string {
	names := make([]string, 0, len(byName))
	for n := range byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return suggest(name, names) + "; to read a field of the records write its name alone"
}

// specs compiles the list of operators, each by itself.
func (c *compiler) specs(n *node) []*spec {
	if n.shape != list {
		c.wrong(n, "operators", "a list of operators", "start each one with a dash, as in - {name: ema3, type: ema, input: close, period: 3}")
		return nil
	}
	if len(n.items) == 0 || len(n.items) > maxOperators {
		c.report.add(n.at, "operators", fmt.Sprintf("must have 1 to %d operators, has %d", maxOperators, len(n.items)), "add one, as in - {name: ema3, type: ema, input: close, period: 3}")
		return nil
	}
	out := make([]*spec, 0, len(n.items))
	for i, item := range n.items {
		if s := c.spec(item, fmt.Sprintf("operators[%d]", i)); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// spec compiles one operator. It returns nil when it is not even a mapping.
func (c *compiler) spec(n *node, path string) *spec {
	const example = "{name: ema3, type: ema, input: close, period: 3}"
	if n.shape != mapping {
		c.wrong(n, path, "a mapping", "as in "+example)
		return nil
	}
	s := &spec{node: n, path: path}
	if v := c.need(n, path, "name", "name: ema3"); v != nil {
		s.name = c.name(v, path+".name", word, wordCure)
	}
	if v := c.need(n, path, "input", "input: close"); v != nil {
		c.input(s, v)
	}
	v := c.need(n, path, "type", "type: "+strings.Join(c.registry.Names(), " or type: "))
	if v == nil {
		return s
	}
	name, ok := c.text(v, path+".type", "a type of operator", "known: "+strings.Join(c.registry.Names(), ", "))
	if !ok {
		return s
	}
	if s.typ, ok = c.registry.Lookup(name); !ok {
		c.report.add(v.at, path+".type", "unknown type of operator "+quote(name), suggestAll(name, c.registry.Names()))
		return s
	}
	c.args(s, v.at)
	return s
}

// input compiles what an operator reads: the name of a field, {field: name} or {operator: name}.
func (c *compiler) input(s *spec, n *node) {
	path := s.path + ".input"
	s.inputAt = n.at
	if n.shape != mapping {
		f, ok := c.anyText(n, path, "the name of a field or {operator: name}", "as in input: close or input: {operator: ema3}")
		if ok {
			s.field = c.fieldName(f, n.at, path)
			c.use(s.field, path, asNumber, n.at)
		}
		return
	}
	c.mapping(n, path, "", "field", "operator")
	field, operator := n.get("field"), n.get("operator")
	switch {
	case field != nil && operator != nil:
		c.report.add(n.at, path, "names both a field and an operator", "keep one of the two")
	case field != nil:
		s.field = c.field(field, path+".field")
		c.use(s.field, path+".field", asNumber, field.at)
	case operator != nil:
		s.inputAt = operator.at
		s.from = c.name(operator, path+".operator", word, "the name of an operator, as in input: {operator: ema3}")
	default:
		c.report.add(n.at, path, "names neither a field nor an operator", "as in input: close or input: {operator: ema3}")
	}
}

// args compiles the parameters of an operator, whose type stands at the given place.
func (c *compiler) args(s *spec, at pos) {
	known := slices.Clone(operatorFields)
	values, before := map[string]any{}, c.report.count()
	for _, p := range s.typ.Params {
		known = append(known, p.Name)
		v, path := s.node.get(p.Name), join(s.path, p.Name)
		switch {
		case v != nil:
			if value, ok := c.param(v, path, p); ok {
				values[p.Name] = value
			}
		case p.Required:
			c.report.add(s.node.at, path, "is missing", fmt.Sprintf("type %s needs %s: %s", s.typ.Name, p.Name, p.Kind))
		}
	}
	c.mapping(s.node, s.path, "", known...)
	if c.report.count() > before {
		return
	}
	var err error
	if s.args, err = s.typ.Args(values); err == nil {
		s.fresh, err = s.typ.Compile(s.args)
	}
	if err != nil {
		c.report.add(at, s.path, err.Error(), "change the parameters of this "+s.typ.Name)
	}
}

// param reads the value of a parameter.
func (c *compiler) param(n *node, path string, p operators.Param) (any, bool) {
	before := c.report.count()
	var v any
	switch p.Kind {
	case operators.Int:
		least, most := intBounds(p)
		v = c.integer(n, path, least, most)
	case operators.Float:
		v = c.float(n, path)
	case operators.Duration:
		least, _ := p.Min.(time.Duration)
		most, bounded := p.Max.(time.Duration)
		if !bounded {
			most = maxDuration
		}
		v = c.duration(n, path, max(0, least), most)
	default:
		v, _ = c.oneOf(n, path, p.Enum)
	}
	if c.report.count() > before || n.shape == broken {
		return nil, false
	}
	if err := p.Check(v); err != nil {
		c.report.add(n.at, path, err.Error(), "write a value within the bounds")
		return nil, false
	}
	return v, true
}

// names finds operators by name and reports those that share one.
func (c *compiler) names(specs []*spec) map[string]*spec {
	byName := map[string]*spec{}
	for _, s := range specs {
		if s.name == "" {
			continue
		}
		if first := byName[s.name]; first != nil {
			at := s.node.get("name").at
			c.report.add(at, s.path+".name", fmt.Sprintf("%s is the name of %s already, in line %d", quote(s.name), first.path, first.node.get("name").at.line), "give each operator a name of its own")
			continue
		}
		byName[s.name] = s
	}
	return byName
}

// order sorts operators so that each comes after what it reads; among those that are free to come next the smallest name does.
// The order in the file therefore means nothing. Cycles are reported.
func (c *compiler) order(byName map[string]*spec) []*spec {
	waiting := slices.Collect(maps.Values(byName))
	slices.SortFunc(waiting, func(a, b *spec) int { return strings.Compare(a.name, b.name) })
	done := map[string]bool{}
	var out []*spec
	for len(waiting) > 0 {
		i := slices.IndexFunc(waiting, func(s *spec) bool { return done[s.from] || byName[s.from] == nil })
		if i < 0 {
			c.cycles(waiting, byName)
			return nil
		}
		done[waiting[i].name] = true
		out = append(out, waiting[i])
		waiting = slices.Delete(waiting, i, i+1)
	}
	return out
}

// cycles reports each cycle once. Every operator in stuck reads another one; following the reads from any of them ends in a cycle.
func (c *compiler) cycles(stuck []*spec, byName map[string]*spec) {
	visited := map[*spec]bool{}
	for _, s := range stuck {
		var path []*spec
		for !visited[s] {
			visited[s] = true
			path = append(path, s)
			s = byName[s.from]
		}
		start := slices.Index(path, s)
		if start < 0 {
			continue // it ran into what an earlier walk has seen
		}
		names := make([]string, 0, len(path)+1)
		for _, p := range path[start:] {
			names = append(names, p.name)
		}
		c.report.add(s.inputAt, s.path+".input", "operators read each other in a circle: "+strings.Join(append(names, s.name), " reads "), "let one of them read a field of the records")
	}
}
