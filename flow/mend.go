package flow

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/codes"
)

// Mends says whether the state that a flow has come to can be taken up under this one, which reads records otherwise and computes the same: CONFIG_INVALID
// names all that is in the way. It may differ in which records are selected, in the names and unit of what is read, in max_future_skew, and in a
// number of revisions that it reads no more; a key may be held, or more records of it.
func (p *Plan) Mends(was *Plan) error {
	var wrong []string
	check := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	check(p.Lateness != was.Lateness, "lateness")
	check(p.DedupeHorizon != was.DedupeHorizon, "dedupe")
	check(p.ClockEvery != was.ClockEvery, "clock")
	check(p.IdleAfterPolls != was.IdleAfterPolls, "idle")
	check(p.GapHold != was.GapHold || (p.SequenceField == "") != (was.SequenceField == ""), "sequence")
	check(p.RevisionHorizon != was.RevisionHorizon || p.Revised != was.Revised, "revisions")
	check(p.RevisionField == "" && was.RevisionField != "" && (p.ClockEvery > 0 || p.RevisionHorizon > 0) || p.RevisionField != "" && was.RevisionField == "", "revision")
	check(p.HoldKey < was.HoldKey, "hold_key")
	check(!sameNodes(p, was), "operators")
	check(!sameOutputs(p, was), "outputs")
	if len(wrong) == 0 {
		return nil
	}
	return codes.New(codes.ConfigInvalid, "flow %s cannot take up the state of flow %s: they differ in %s. A mended flow may read records otherwise; what it computes of them has to stay",
		p.Name, was.Name, strings.Join(wrong, ", "))
}

// sameNodes compares the operators: a node reads the same input if that has the same place, whatever the name of its field.
func sameNodes(p, was *Plan) bool {
	if len(p.Nodes) != len(was.Nodes) || len(p.Inputs) != len(was.Inputs) {
		return false
	}
	for i := range p.Nodes {
		a, b := &p.Nodes[i], &was.Nodes[i]
		if a.Name != b.Name || a.Type != b.Type || a.Field != b.Field || a.From != b.From || a.declared.StateVersion != b.declared.StateVersion {
			return false
		}
		for _, param := range a.declared.Params {
			if fmt.Sprint(a.Args.Value(param.Name)) != fmt.Sprint(b.Args.Value(param.Name)) {
				return false
			}
		}
	}
	return true
}

func sameOutputs(p, was *Plan) bool {
	if len(p.Outputs) != len(was.Outputs) {
		return false
	}
	for i := range p.Outputs {
		if p.Outputs[i] != was.Outputs[i] {
			return false
		}
	}
	return true
}
