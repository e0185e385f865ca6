package flow

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/flow/operators"
)

// Version is the version of the flow language that this package reads.
const Version = "weir/1"

// What a flow that does not say otherwise gets.
const (
	DefaultMaxFutureSkew = 24 * time.Hour
	DefaultDedupeHorizon = time.Hour
	DefaultIDs           = 1_000_000
	DefaultKeys          = 100_000
	DefaultReorder       = 1_000_000
	DefaultTicks         = 1_000_000
	DefaultHistory       = 1_000_000
)

const (
	// maxSelectValues, maxOperators and maxOutputs bound the lists of a flow.
	maxSelectValues, maxOperators, maxOutputs = 10_000, 1_000, 1_000
	// maxCount bounds the limits and other counts.
	maxCount = math.MaxInt32
	// off switches the check of future event times off.
	off = "off"
	// eventClock ticks once per event.
	eventClock = "event"
)

// topFields are the fields of a flow, in the order in which the documentation shows them.
var topFields = []string{
	"flow", "name", "select", "id", "key", "time", "lateness", "max_future_skew", "dedupe", "revision", "revisions", "sequence", "clock", "hold_key",
	"operators", "outputs", "limits", "idle", "sinks", "late",
}

// timeUnits are the words for the units, by TimeUnit.
var timeUnits = []string{RFC3339: "rfc3339", Seconds: "s", Milliseconds: "ms", Microseconds: "us", Nanoseconds: "ns"}

// String is the word that a flow writes for the unit.
func (u TimeUnit) String() string {
	if int(u) < len(timeUnits) {
		return timeUnits[u]
	}
	return fmt.Sprintf("TimeUnit(%d)", uint8(u))
}

// Parse reads a flow file and compiles it into a plan. file is a name for messages; src is YAML 1.2 or JSON. reg holds the
// operator types that the flow may name; nil is operators.Builtin(). The error is an *Errors that lists everything that is wrong
// with the file and carries the code FLOW_INVALID.
func Parse(file string, src []byte, reg *operators.Registry) (*Plan, error) {
	if reg == nil {
		reg = operators.Builtin()
	}
	r := &report{}
	root := read(src, r)
	if root == nil {
		return nil, r.err(file)
	}
	c := &compiler{report: r, registry: reg, plan: &Plan{}, unreadable: r.count() > 0}
	c.flow(root)
	if root.loose && r.count() > 0 {
		// JSON with a comma too few can be YAML that means something else: say so beside the errors that it then has.
		jsonSyntaxError(src, r, "looks like JSON and is none: ")
	}
	if err := r.err(file); err != nil {
		return nil, err
	}
	if err := c.plan.seal(); err != nil {
		return nil, err
	}
	return c.plan, nil
}

// compiler turns the document into a plan. It goes on after an error with a value that is harmless, so that one reading finds all.
type compiler struct {
	report   *report
	registry *operators.Registry
	plan     *Plan
	uses     []use
	// unreadable says that the document has values that could not be read: they are reported, and what they mean is not known.
	unreadable bool
}

// flow compiles the document.
func (c *compiler) flow(n *node) {
	if n.shape != mapping {
		c.wrong(n, "", "a mapping", `a flow starts with "flow: `+Version+`"`)
		return
	}
	if !c.version(n) {
		return
	}
	c.mapping(n, "", "", topFields...)
	if v := c.need(n, "", "name", "name: instrument-1-ema"); v != nil {
		c.plan.Name = c.name(v, "name", flowName, flowNameCure)
	}
	c.selection(n.get("select"))
	if v := c.need(n, "", "id", "id: event_id"); v != nil {
		c.plan.IDField = c.field(v, "id")
		c.use(c.plan.IDField, "id", asIdentity, v.at)
	}
	if v := c.need(n, "", "key", "key: instrument"); v != nil {
		c.plan.KeyField = c.field(v, "key")
	}
	if v := c.need(n, "", "time", "time: event_time"); v != nil {
		c.time(v)
	}
	c.bounds(n)
	if v := n.get("revision"); v != nil {
		c.plan.RevisionField = c.field(v, "revision")
		c.use(c.plan.RevisionField, "revision", asInteger, v.at)
	}
	c.revisions(n.get("revisions"))
	c.sequence(n.get("sequence"))
	c.clock(n.get("clock"))
	c.holdKey(n.get("hold_key"))
	c.operators(n)
	c.limits(n.get("limits"))
	c.idle(n.get("idle"))
	c.sinks(n)
	c.conflicts()
}

// version checks the version of the language. Nothing can be said about a file of another version.
func (c *compiler) version(n *node) bool {
	v := n.get("flow")
	if v == nil {
		c.report.add(n.at, "flow", "is missing", `a flow starts with "flow: `+Version+`"`)
		return true
	}
	s, ok := c.text(v, "flow", "the version of the flow language", "write flow: "+Version)
	if ok && s != Version {
		c.report.add(v.at, "flow", "unknown version "+quote(s), "this weir reads "+Version)
		return false
	}
	return true
}

// selection compiles select.
func (c *compiler) selection(n *node) {
	const example = `select: {field: instrument, equals: "1"}`
	if n == nil || !c.mapping(n, "select", example, "field", "equals", "in") {
		return
	}
	if v := c.need(n, "select", "field", example); v != nil {
		c.plan.SelectField = c.field(v, "select.field")
	}
	equals, in := n.get("equals"), n.get("in")
	switch {
	case equals != nil && in != nil:
		c.report.add(in.at, "select", "has both equals and in", "keep one of the two")
	case equals != nil:
		if s, ok := c.selectValue(equals, "select.equals"); ok {
			c.plan.SelectValues = []string{s}
		}
	case in != nil:
		c.selectValues(in)
	default:
		c.report.add(n.at, "select", "says no value", "add equals or in, as in "+example)
	}
}

// selectValues compiles select.in. The order of the values means nothing.
func (c *compiler) selectValues(n *node) {
	const example = `in: ["1", "2"]`
	if n.shape != list {
		c.wrong(n, "select.in", "a list", "as in "+example)
		return
	}
	if len(n.items) == 0 || len(n.items) > maxSelectValues {
		c.report.add(n.at, "select.in", fmt.Sprintf("must have 1 to %d values, has %d", maxSelectValues, len(n.items)), "as in "+example)
		return
	}
	seen := map[string]bool{}
	for i, item := range n.items {
		path := fmt.Sprintf("select.in[%d]", i)
		s, ok := c.selectValue(item, path)
		if ok && seen[s] {
			c.report.add(item.at, path, "the value "+quote(s)+" is written twice", "keep one of the two")
		}
		seen[s] = ok
		c.plan.SelectValues = append(c.plan.SelectValues, s)
	}
	slices.Sort(c.plan.SelectValues)
}

// selectValue reads a text or an integer, whose digits are the text.
func (c *compiler) selectValue(n *node, path string) (string, bool) {
	s, ok := n.value, n.shape == integer
	if !ok {
		s, ok = c.anyText(n, path, "a text or an integer", `as in equals: "1"`)
	}
	if ok && len(s) > maxSelectValue {
		c.report.add(n.at, path, fmt.Sprintf("has %d bytes, more than %d", len(s), maxSelectValue), "select by a shorter text")
		return "", false
	}
	return s, ok
}

// time compiles time: the name of a field, or a mapping.
func (c *compiler) time(n *node) {
	at, path := n, "time"
	if n.shape == mapping {
		const example = "time: {field: event_time, unit: ms}"
		c.mapping(n, path, example, "field", "unit")
		if u := n.get("unit"); u != nil {
			if s, ok := c.oneOf(u, "time.unit", timeUnits); ok {
				c.plan.TimeUnit = TimeUnit(slices.Index(timeUnits, s))
			}
		}
		path = "time.field"
		if at = c.need(n, "time", "field", example); at == nil {
			return
		}
	}
	c.plan.TimeField = c.field(at, path)
	as := asInteger
	if c.plan.TimeUnit == RFC3339 {
		as = asInstant
	}
	c.use(c.plan.TimeField, path, as, at.at)
}

// bounds compiles lateness, max_future_skew and dedupe.
func (c *compiler) bounds(n *node) {
	p := c.plan
	if v := n.get("lateness"); v != nil {
		p.Lateness = c.duration(v, "lateness", 0, maxDuration)
	}
	p.MaxFutureSkew = DefaultMaxFutureSkew
	if v := n.get("max_future_skew"); v != nil {
		switch {
		case v.shape == text && v.value == off:
			p.MaxFutureSkew = 0
		case v.shape == text && strings.EqualFold(v.value, off), v.shape == boolean:
			c.report.add(v.at, "max_future_skew", "must be a duration or off, is "+printable(v.value), "write off in small letters")
		default:
			p.MaxFutureSkew = c.duration(v, "max_future_skew", 1, maxDuration)
		}
	}
	p.DedupeHorizon = DefaultDedupeHorizon
	if v := n.get("dedupe"); v != nil && c.mapping(v, "dedupe", "dedupe: {horizon: 1h}", "horizon") {
		if h := c.need(v, "dedupe", "horizon", "dedupe: {horizon: 1h}"); h != nil {
			p.DedupeHorizon = c.duration(h, "dedupe.horizon", 0, maxDuration)
		}
	}
}

// sequence compiles sequence.
func (c *compiler) sequence(n *node) {
	const example = "sequence: {field: seq, gap_hold: 1m}"
	if n == nil || !c.mapping(n, "sequence", example, "field", "gap_hold") {
		return
	}
	if v := c.need(n, "sequence", "field", example); v != nil {
		c.plan.SequenceField = c.field(v, "sequence.field")
		c.use(c.plan.SequenceField, "sequence.field", asInteger, v.at)
	}
	if v := c.need(n, "sequence", "gap_hold", example); v != nil {
		c.plan.GapHold = c.duration(v, "sequence.gap_hold", 1, maxDuration)
	}
}

// clock compiles clock: the word event, or a mapping.
func (c *compiler) clock(n *node) {
	switch {
	case n == nil:
	case n.shape == text && n.value == eventClock:
	case n.shape == mapping:
		c.mapping(n, "clock", "clock: {every: 1m}", "every")
		if v := c.need(n, "clock", "every", "clock: {every: 1m}"); v != nil {
			c.plan.ClockEvery = c.duration(v, "clock.every", 1, maxDuration)
		}
	case n.shape == text:
		cure := "write event or {every: 1m}"
		if _, err := ParseDuration(n.value); err == nil {
			cure = "write {every: " + n.value + "}"
		}
		c.report.add(n.at, "clock", "must be event or a mapping, is "+quote(n.value), cure)
	default:
		c.wrong(n, "clock", "event or a mapping", "write event or {every: 1m}")
	}
}

// limits compiles limits.
func (c *compiler) limits(n *node) {
	l := &c.plan.Limits
	*l = Limits{IDs: DefaultIDs, Keys: DefaultKeys, Reorder: DefaultReorder, Ticks: DefaultTicks}
	if c.plan.RevisionHorizon > 0 {
		l.History = DefaultHistory
	}
	if n == nil || !c.mapping(n, "limits", "limits: {ids: 1000000}", "ids", "keys", "reorder", "ticks", "history") {
		return
	}
	if v := n.get("history"); v != nil && c.plan.RevisionHorizon == 0 {
		c.report.add(v.at, "limits.history", "bounds what is kept for revisions, and this flow keeps nothing", "remove it, or add "+revisionsExample)
		return
	}
	for key, to := range map[string]*int{"ids": &l.IDs, "keys": &l.Keys, "reorder": &l.Reorder, "ticks": &l.Ticks, "history": &l.History} {
		if v := n.get(key); v != nil {
			*to = int(c.integer(v, join("limits", key), 1, maxCount))
		}
	}
}

// idle compiles idle.
func (c *compiler) idle(n *node) {
	const example = "idle: {after_polls: 100}"
	if n == nil || !c.mapping(n, "idle", example, "after_polls") {
		return
	}
	if v := c.need(n, "idle", "after_polls", example); v != nil {
		c.plan.IdleAfterPolls = int(c.integer(v, "idle.after_polls", 0, maxCount))
	}
}
