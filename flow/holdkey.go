package flow

import "fmt"

// DefaultHoldKey is how many records may wait for those of their key that could not be read, in one partition.
const DefaultHoldKey = 10_000

const holdKeyExample = "hold_key: true"

// holdKey compiles hold_key, after revision, clock and the defaults.
func (c *compiler) holdKey(n *node) {
	if n == nil {
		return
	}
	records := DefaultHoldKey
	switch {
	case n.shape == boolean && n.value == "false":
		return
	case n.shape == boolean && n.value == "true":
	case n.shape == mapping:
		if !c.mapping(n, "hold_key", holdKeyExample, "records") {
			return
		}
		if v := c.need(n, "hold_key", "records", "hold_key: {records: 10000}"); v != nil {
			records = int(c.integer(v, "hold_key.records", 1, maxCount))
		}
	default:
		c.wrong(n, "hold_key", "true, false or a mapping", "write "+holdKeyExample+" or hold_key: {records: 10000}")
		return
	}
	c.plan.HoldKey = records
	if c.plan.ClockEvery > 0 {
		c.report.add(n.at, "hold_key", "does not go with a clock of intervals: those of a key that waits would have passed", "remove it, or write clock: event")
	}
	if c.plan.RevisionField != "" {
		c.report.add(n.at, "hold_key", "does not go with revision: what waits is not revised", "remove one of the two")
	}
}

func (p *Plan) holdKeyText() string {
	return fmt.Sprintf("behind a record that cannot be read, the later ones of its key wait for its replay or drop, at most %d a partition", p.HoldKey)
}

func holdKeySchema() object {
	return object{"description": "Let later records of a key wait while one of it that cannot be read is set aside.", "default": false, "oneOf": []any{
		object{"type": "boolean"},
		closed("With another bound.", object{"records": countSchema("Records of one partition that may wait.", 1, DefaultHoldKey)}, "records"),
	}}
}

// addHeld adds the records that wait for those of their key that could not be read.
func (b *Bound) addHeld(p *Plan) {
	if p.HoldKey == 0 {
		return
	}
	each := BytesPerReorder + 2*AssumedIDBytes + AssumedKeyBytes + 2*BytesPerInput*len(p.Inputs)
	b.add("held records", p.HoldKey, each, fmt.Sprintf("hold_key records, with ids and keys of %d bytes and %s, and their share of the next cut", AssumedIDBytes, plural(len(p.Inputs), "input")))
}
