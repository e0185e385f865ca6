package flow

import "fmt"

// RevisionOutput is the name of the column that holds the number of a row's revision, behind the outputs of a flow that publishes revisions.
const RevisionOutput = "revision"

const revisionsExample = "revisions: {horizon: 10m}"

// revisions compiles revisions, after dedupe and revision.
func (c *compiler) revisions(n *node) {
	if n == nil || !c.mapping(n, "revisions", revisionsExample, "horizon", "publish") {
		return
	}
	p := c.plan
	p.Revised = true
	if v := n.get("publish"); v != nil {
		if v.shape == boolean && (v.value == "true" || v.value == "false") {
			p.Revised = v.value == "true"
		} else {
			c.wrong(v, "revisions.publish", "true or false", "as in revisions: {horizon: 10m, publish: false}")
		}
	}
	h := c.need(n, "revisions", "horizon", revisionsExample)
	if h == nil {
		p.RevisionHorizon = 1 // so that limits.history is not reported too
		return
	}
	p.RevisionHorizon = c.duration(h, "revisions.horizon", 1, maxDuration)
	switch {
	case p.RevisionField == "":
		c.report.add(n.at, "revisions", "needs the number of a revision, and no field holds one", "add revision: FIELD")
	case p.RevisionHorizon > p.DedupeHorizon:
		c.report.add(h.at, "revisions.horizon", fmt.Sprintf("is longer than ids are remembered, %s: a revision could not be told from an event that is late", FormatDuration(p.DedupeHorizon)),
			fmt.Sprintf("add dedupe: {horizon: %s}, or shorten it", FormatDuration(p.RevisionHorizon)))
	}
}

// Results is the number of Outputs that are values of nodes: all but the number of a row's revision.
func (p *Plan) Results() int {
	if p.Revised {
		return len(p.Outputs) - 1
	}
	return len(p.Outputs)
}

// Publishing is the plan with its results published again when a revision changes them. It is for comparisons: it keeps the fingerprint.
func (p *Plan) Publishing() *Plan {
	if p.Revised || p.RevisionHorizon == 0 {
		return p
	}
	out := *p
	out.Revised = true
	out.Outputs = append(p.Outputs[:len(p.Outputs):len(p.Outputs)], Output{Name: RevisionOutput, Node: -1})
	return &out
}

func (p *Plan) revisionsText() string {
	text := fmt.Sprintf("taken in up to %s behind the watermark, with at most %d records a partition; ", FormatDuration(p.RevisionHorizon), p.Limits.History)
	if p.Revised {
		return text + "results that they change are published again, numbered in the column " + RevisionOutput
	}
	return text + "results that were published stand"
}

func revisionsSchema() object {
	return closed("Revisions of events that were decided already.", object{
		"horizon": durationSchema("How far behind the watermark they are taken in.", nil),
		"publish": object{"type": "boolean", "default": true, "description": "Whether results that they change are published again, with the column revision. False: they count for results from then on."},
	}, "horizon")
}

// addHistory adds the records that are kept behind the watermark, and what a revision publishes again.
func (b *Bound) addHistory(p *Plan) {
	if p.RevisionHorizon == 0 {
		return
	}
	state := 0
	for _, n := range p.Nodes {
		state += n.StateBytes
	}
	each := BytesPerReorder + BytesPerIndexed + BytesPerPast + BytesPerNumber + state/32 + 3*AssumedIDBytes + BytesPerInput*len(p.Inputs)
	b.add("kept for revisions", p.Limits.History, each, fmt.Sprintf("limits.history records behind the watermark, with ids of %d bytes and %s, and their share of the next cut",
		AssumedIDBytes, plural(len(p.Inputs), "input")))
}
