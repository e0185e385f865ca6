package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SinkSpec is a sink as a flow names it. What it says is checked as far as that goes without looking at the target. It changes no value, so it is not
// part of the fingerprint.
type SinkSpec struct {
	// Name by which people and messages know the sink.
	Name string
	// Type is one of SinkTypes.
	Type string
	// Fields are those of its type, as texts: true or false, a word, or a reference env:NAME or file:PATH in place of a secret. One that the flow leaves out is absent.
	Fields map[string]string
}

const (
	// maxSinks bounds the sinks of a flow, maxSinkField the bytes of one field of a sink.
	maxSinks, maxSinkField = 32, 4096
	sinkExample            = "{name: results, type: postgres, database: env:RESULTS_DB, table: results}"
)

// sinks compiles sinks, and then late, which names one of them.
func (c *compiler) sinks(root *node) {
	var names []string
	n := root.get("sinks")
	if n != nil {
		names = c.sinkList(n, outputNames(root.get("outputs")), lateName(root.get("late")))
	}
	// Of a list that is none, or too long, nobody knows the names.
	c.late(root.get("late"), names, n == nil || n.shape == list && len(n.items) <= maxSinks)
}

// lateName is the sink that takes no rows, if that can be read.
func lateName(n *node) string {
	if n == nil || n.shape != mapping {
		return ""
	}
	if v := n.get("sink"); v != nil && v.shape == text {
		return v.value
	}
	return ""
}

// sinkList compiles a list of sinks. It returns the names in it, those of sinks that are wrong too; "" stands for one that cannot be read.
func (c *compiler) sinkList(n *node, outputs []named, late string) (all []string) {
	if n.shape != list {
		c.wrong(n, "sinks", "a list of sinks", "start each one with a dash, as in - "+sinkExample)
		return nil
	}
	if len(n.items) > maxSinks {
		c.report.add(n.at, "sinks", fmt.Sprintf("has %d sinks, more than %d", len(n.items), maxSinks), "publish to a topic, and from there to the rest")
		return nil
	}
	names, places := map[string]int{}, map[int]SinkSpec{}
	for i, item := range n.items {
		path := fmt.Sprintf("sinks[%d]", i)
		s, ok := c.sink(item, path, outputs, late)
		all = append(all, s.Name)
		if s.Name != "" {
			if j, taken := names[s.Name]; taken {
				c.report.add(item.get("name").at, path+".name", fmt.Sprintf("%s is the name of sinks[%d] already", quote(s.Name), j), "give each sink a name of its own")
			} else {
				names[s.Name] = i
			}
		}
		if !ok {
			continue
		}
		for _, j := range slices.Sorted(maps.Keys(places)) {
			if s.Place() == places[j].Place() {
				c.report.add(item.at, path, fmt.Sprintf("writes to the same place as sinks[%d]: each row would stand there twice, or be refused", j), "keep one of the two, or name another place")
			} else if s.Meets(places[j]) {
				c.report.add(item.at, path, fmt.Sprintf("writes into a table of sinks[%d], which keeps more than the one that it names", j), "name another table")
			}
		}
		places[i] = s
		c.plan.Sinks = append(c.plan.Sinks, s)
	}
	return all
}

// sink compiles one sink. ok says that it is whole; its name may be known without.
func (c *compiler) sink(n *node, path string, outputs []named, late string) (s SinkSpec, ok bool) {
	if n.shape != mapping {
		c.wrong(n, path, "a mapping", "as in "+sinkExample)
		return s, false
	}
	before := c.report.count()
	if v := c.need(n, path, "name", sinkExample); v != nil {
		s.Name = c.name(v, path+".name", flowName, sinkNameCure)
	}
	v := c.need(n, path, "type", sinkExample)
	if v == nil {
		return s, false
	}
	typ, isText := c.text(v, path+".type", "a type of sink", "known: "+strings.Join(SinkTypes(), ", "))
	if !isText {
		return s, false
	}
	t, known := sinkType(typ)
	if !known {
		c.report.add(v.at, path+".type", "unknown type of sink "+quote(typ), suggestAll(typ, SinkTypes()))
		return s, false
	}
	s.Type, s.Fields = typ, map[string]string{}
	fields := []string{"name", "type"}
	for _, f := range t.fields {
		fields = append(fields, f.name)
		value := n.get(f.name)
		if value == nil {
			if f.required {
				c.report.add(n.at, join(path, f.name), "is missing", fmt.Sprintf("a sink of type %s needs %s: %s", typ, f.name, f.doc))
			}
			continue
		}
		if text, good := c.sinkField(value, join(path, f.name), f); good {
			s.Fields[f.name] = text
		}
	}
	c.mapping(n, path, sinkExample, fields...)
	if t.whole != nil && c.report.count() == before {
		if field, wrong, cure := t.whole(s.Fields); field != "" {
			at := n.at
			if v := n.get(field); v != nil {
				at = v.at
			}
			c.report.add(at, join(path, field), wrong, cure)
		}
	}
	for i, o := range outputs {
		if s.Name == late && late != "" {
			break // it takes no rows
		}
		if wrong, cure := t.output(o.name, s.Fields, outputs[:i]); wrong != "" {
			c.report.add(o.at, o.path, fmt.Sprintf("a sink of type %s (%s) cannot take the output %s: %s", typ, path, quote(o.name), wrong), cure)
		}
	}
	return s, c.report.count() == before && n.shape != broken
}

// sinkField reads one field of a sink.
func (c *compiler) sinkField(n *node, path string, f sinkField) (string, bool) {
	switch f.kind {
	case sinkBool:
		if n.shape != boolean || n.value != "true" && n.value != "false" {
			c.wrong(n, path, "true or false", "write "+f.name+": true")
			return "", false
		}
		return n.value, true
	case sinkWord:
		return c.oneOf(n, path, f.words)
	}
	scalar := n.shape == text || n.shape == number || n.shape == integer || n.shape == boolean
	if f.kind == sinkSecret && scalar && !(n.shape == text && reference(n.value)) {
		// What stands there may be the secret itself, so it is not shown.
		c.report.add(n.at, path, "must be a reference, env:NAME or file:PATH, and is something else (which is not shown)", "put the secret into a variable or a file, and write "+f.name+": env:NAME")
		return "", false
	}
	s, ok := c.anyText(n, path, "a text", f.doc)
	switch {
	case !ok:
		return "", false
	case s == "" || len(s) > maxSinkField:
		c.report.add(n.at, path, fmt.Sprintf("must have 1 to %d bytes, has %d", maxSinkField, len(s)), f.doc)
		return "", false
	}
	if f.check != nil {
		switch wrong := f.check(s); {
		case wrong != "" && strings.Contains(s, "@"):
			// A user, and his password, stand before it.
			c.report.add(n.at, path, "has an @, and cannot hold a user or a password (it is not shown)", f.doc)
			return "", false
		case wrong != "":
			c.report.add(n.at, path, quote(s)+" "+wrong, f.doc)
			return "", false
		}
	}
	return s, true
}

// reference says whether a text names a secret instead of being one.
func reference(s string) bool {
	name, env := strings.CutPrefix(s, "env:")
	path, file := strings.CutPrefix(s, "file:")
	return env && name != "" || file && path != ""
}

// named is an output as the file has it.
type named struct {
	name, path string
	at         pos
}

// outputNames are the names in outputs that can be read; the rest was reported.
func outputNames(n *node) (out []named) {
	if n == nil {
		return nil
	}
	for i, item := range n.items {
		o := named{path: fmt.Sprintf("outputs[%d]", i), at: item.at}
		if item.shape == mapping {
			if item = item.get("name"); item == nil {
				continue
			}
			o.path, o.at = o.path+".name", item.at
		}
		if item.shape == text {
			o.name = item.value
			out = append(out, o)
		}
	}
	return out
}

// late compiles late: where events go that are older than the watermark. names are those of all sinks, if they are known.
func (c *compiler) late(n *node, names []string, known bool) {
	const example = "late: {sink: too-late}"
	if n == nil || !c.mapping(n, "late", example, "sink") {
		return
	}
	v := c.need(n, "late", "sink", example)
	if v == nil {
		return
	}
	name := c.name(v, "late.sink", flowName, "the name of one of sinks, as in "+example)
	i := slices.IndexFunc(c.plan.Sinks, func(s SinkSpec) bool { return s.Name == name })
	switch {
	case name == "" || i < 0 && (!known || slices.Contains(names, name) || slices.Contains(names, "")):
		// The sink may be there and have an error of its own.
	case i < 0:
		c.report.add(v.at, "late.sink", "there is no sink "+quote(name), suggest(name, names))
	default:
		if t, _ := sinkType(c.plan.Sinks[i].Type); !t.late {
			c.report.add(v.at, "late.sink", fmt.Sprintf("the sink %s is of type %s, which takes no late events", quote(name), t.name), "those that do: "+strings.Join(lateTypes(), ", "))
			return
		}
		c.plan.LateSink = name
	}
}

// sinkDocument is the sinks in the normal form of the language.
func (p *Plan) sinkDocument() []any {
	out := make([]any, 0, len(p.Sinks))
	for _, s := range p.Sinks {
		t, _ := sinkType(s.Type)
		m := map[string]any{"name": s.Name, "type": s.Type}
		for _, f := range t.fields {
			if v, given := s.Fields[f.name]; given {
				m[f.name] = v
				if f.kind == sinkBool {
					m[f.name] = v == "true"
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// sinkText is a sink in one line, for people.
func (p *Plan) sinkText(s SinkSpec) string {
	t, _ := sinkType(s.Type)
	text := s.Name + ": " + s.Type
	for _, f := range t.fields {
		if v, given := s.Fields[f.name]; given {
			text += " " + f.name + " " + printable(v)
		}
	}
	if s.Name == p.LateSink {
		text += ", takes late events and no rows"
	}
	return text
}

const sinkNameCure = "lower-case letters, digits, dots, dashes and underscores, from a letter or digit, at most 63: results"
