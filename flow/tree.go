package flow

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Bounds of a flow file.
const (
	// maxSource is the size of a flow file in bytes.
	maxSource = 1 << 20
	// maxDepth is how deep mappings and lists may nest. The language itself needs four levels.
	maxDepth = 16
)

// shape is what a value of the document is.
type shape uint8

const (
	// broken is a value whose error was reported already: whoever meets it stays silent.
	broken shape = iota
	mapping
	list
	null
	boolean
	// integer is a decimal integer in its one canonical spelling: the only numbers that mean the same in every YAML and JSON.
	integer
	// number is anything else that some reader of YAML takes for a number.
	number
	text
)

// String completes the sentence "is …".
func (s shape) String() string {
	return [...]string{"unreadable", "a mapping", "a list", "empty", "true or false", "a number", "a number", "a text"}[s]
}

// node is one value of the document.
type node struct {
	shape shape
	at    pos
	// value is the text of a scalar.
	value   string
	entries []entry
	items   []*node
	// index finds an entry by its key.
	index map[string]int
	// loose is set on a document that was read as YAML.
	loose bool
}

// entry is one field of a mapping.
type entry struct {
	key   string
	at    pos
	value *node
}

var (
	canonicalInteger = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	// anyNumber is what YAML 1.1 or the core schema of YAML 1.2 may take for a number.
	anyNumber = regexp.MustCompile(`^[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$|^[-+]?0(x[0-9a-fA-F_]+|o?[0-7_]+|b[01_]+)$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$`)
)

// plainShape classifies a scalar that was written without quotes, by the core schema of YAML 1.2.
func plainShape(s string) shape {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return null
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return boolean
	}
	switch {
	case canonicalInteger.MatchString(s):
		return integer
	case anyNumber.MatchString(s):
		return number
	}
	return text
}

// converter turns a parsed YAML document into nodes and refuses what a flow file may not use.
type converter struct {
	report *report
	// end is the end of the file. The YAML reader places an empty value at the end one line further when no line end is there.
	end pos
}

// at is the place of n, in the file.
func (c converter) at(n *yaml.Node) pos {
	if n.Line > c.end.line {
		return c.end
	}
	return pos{n.Line, n.Column}
}

// node converts n, which stands depth levels below the document.
func (c converter) node(n *yaml.Node, path string, depth int) *node {
	out := &node{at: c.at(n)}
	if !c.allowed(n, out.at, path) {
		return out
	}
	if n.Kind == yaml.ScalarNode {
		out.value, out.shape = n.Value, text
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			out.shape = plainShape(n.Value)
		}
		return out
	}
	if depth == maxDepth {
		c.report.tooDeep(out.at, path)
		return out
	}
	if n.Kind == yaml.SequenceNode {
		out.shape = list
		for i, item := range n.Content {
			out.items = append(out.items, c.node(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
		return out
	}
	out.shape = mapping
	for i := 0; i+1 < len(n.Content); i += 2 {
		c.entry(out, n.Content[i], n.Content[i+1], path, depth)
	}
	return out
}

// entry adds one field to a mapping.
func (c converter) entry(to *node, key, value *yaml.Node, path string, depth int) {
	at := c.at(key)
	switch {
	case key.Kind == yaml.AliasNode:
		c.allowed(key, at, path)
		return
	case key.Kind != yaml.ScalarNode:
		c.report.add(at, path, "a field name is a mapping or a list", "write a word as the name")
		return
	case key.Tag == "!!merge":
		c.report.add(at, path, "merge keys (<<) are not part of the flow language", "write the fields out")
		return
	case !c.allowed(key, at, path):
		return
	}
	to.set(c.report, key.Value, at, path, func(path string) *node { return c.node(value, path, depth+1) })
}

// allowed refuses anchors, aliases and tags.
func (c converter) allowed(n *yaml.Node, at pos, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		c.report.add(at, path, "aliases (*"+printable(n.Value)+") are not part of the flow language", "write the value out")
	case n.Anchor != "":
		c.report.add(at, path, "anchors (&"+printable(n.Anchor)+") are not part of the flow language", "remove the anchor and write the value out where it is needed")
	case n.Style&yaml.TaggedStyle != 0:
		c.report.add(at, path, "tags ("+printable(n.Tag)+") are not part of the flow language", "remove the tag; put a text in quotes")
	default:
		return true
	}
	return false
}

// set adds a field to a mapping unless it is there already.
func (n *node) set(r *report, key string, at pos, path string, value func(path string) *node) {
	if i, twice := n.index[key]; twice {
		r.add(at, join(path, key), fmt.Sprintf("is written twice, first in line %d", n.entries[i].at.line), "keep one of the two")
		return
	}
	if n.index == nil {
		n.index = map[string]int{}
	}
	n.index[key] = len(n.entries)
	n.entries = append(n.entries, entry{key: key, at: at, value: value(join(path, key))})
}

// get is the value of a field, or nil.
func (n *node) get(key string) *node {
	if i, ok := n.index[key]; ok {
		return n.entries[i].value
	}
	return nil
}

// tooDeep reports nesting beyond maxDepth.
func (r *report) tooDeep(at pos, path string) {
	r.add(at, path, fmt.Sprintf("is nested deeper than %d levels", maxDepth), "flatten it; a flow needs four levels")
}

// join is the path of a field in a mapping.
func join(path, key string) string {
	key = printable(key)
	if path == "" {
		return key
	}
	return path + "." + key
}
