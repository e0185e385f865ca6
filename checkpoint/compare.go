package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// Verdict is what became of an operator between a checkpoint and a flow.
type Verdict string

// The verdicts. Only OK takes up its state.
const (
	VerdictOK         Verdict = "OK"
	VerdictNew        Verdict = "NEW"                   // in the flow, and not in the checkpoint
	VerdictMissing    Verdict = "MISSING"               // in the checkpoint, and no longer in the flow
	VerdictType       Verdict = "TYPE CHANGED"          // another type under the name
	VerdictParameters Verdict = "PARAMETERS CHANGED"    // the same type with other parameters
	VerdictInput      Verdict = "INPUT CHANGED"         // it reads something else
	VerdictState      Verdict = "STATE VERSION CHANGED" // the type writes its state in another way by now
)

// OperatorVerdict is the verdict on one operator. Was and Is say what differs, as canonical JSON or words; they are "" where nothing does.
type OperatorVerdict struct {
	Name    string
	Verdict Verdict
	Was, Is string
}

// Change is something that differs.
type Change struct{ What, Was, Is string }

// compare fills in what differs between the checkpoint's flow and the plan.
func (r *Restorable) compare() error {
	was := r.Manifest.Flow
	if was.Plan == nil {
		return nil
	}
	is, err := describe(r.Plan, r.Plan.Fingerprint)
	if err != nil {
		return err
	}
	r.Operators = compareOperators(was, is)
	for _, key := range slices.Sorted(maps.Keys(union(was.Plan, is.Plan))) {
		if key == "operators" || key == "limits" || key == "name" {
			continue // told apart, or no part of what a flow means
		}
		if a, b := canonical(was.Plan[key]), canonical(is.Plan[key]); a != b {
			r.Settings = append(r.Settings, Change{key, a, b})
		}
	}
	return nil
}

func union(a, b map[string]any) map[string]any {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}

func canonical(v any) string {
	b, err := record.AppendJSON(nil, v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	return string(b)
}

// operator of a flow's document: name, type, input, and the parameters.
type operator map[string]any

func (o operator) text(key string) string { s, _ := o[key].(string); return s }

func (o operator) parameters() map[string]any {
	p := map[string]any{}
	for k, v := range o {
		if k != "name" && k != "type" && k != "input" {
			p[k] = v
		}
	}
	return p
}

func (f FlowInfo) operators() (list []operator) {
	all, _ := f.Plan["operators"].([]any)
	for _, v := range all {
		o, _ := v.(map[string]any)
		list = append(list, o)
	}
	return list
}

// compareOperators has the flow's operators in their order, and then those that are missing.
func compareOperators(was, is FlowInfo) (out []OperatorVerdict) {
	before := map[string]operator{}
	for _, o := range was.operators() {
		before[o.text("name")] = o
	}
	for _, o := range is.operators() {
		name := o.text("name")
		old, ok := before[name]
		delete(before, name)
		v := OperatorVerdict{Name: name, Verdict: VerdictNew, Is: o.text("type")}
		if ok {
			v = compareOperator(old, o, was.StateVersions[old.text("type")], is.StateVersions[o.text("type")])
		}
		out = append(out, v)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		out = append(out, OperatorVerdict{Name: name, Verdict: VerdictMissing, Was: before[name].text("type")})
	}
	return out
}

func compareOperator(was, is operator, wasState, isState int64) OperatorVerdict {
	v := OperatorVerdict{Name: is.text("name"), Verdict: VerdictOK}
	differ := func(verdict Verdict, a, b string) bool {
		if a != b {
			v.Verdict, v.Was, v.Is = verdict, a, b
		}
		return a != b
	}
	_ = differ(VerdictType, was.text("type"), is.text("type")) ||
		differ(VerdictState, fmt.Sprint(wasState), fmt.Sprint(isState)) ||
		differ(VerdictParameters, canonical(was.parameters()), canonical(is.parameters())) ||
		differ(VerdictInput, canonical(was["input"]), canonical(is["input"]))
	return v
}

// mismatch says in one error how the flow differs from that of the checkpoint.
func (r *Restorable) mismatch() error {
	var differ []string
	for _, o := range r.Operators {
		switch {
		case o.Verdict == VerdictOK:
		case o.Was != "" && o.Is != "":
			differ = append(differ, fmt.Sprintf("operator %q: %s (was %s, is %s)", o.Name, o.Verdict, o.Was, o.Is))
		default:
			differ = append(differ, fmt.Sprintf("operator %q: %s", o.Name, o.Verdict))
		}
	}
	for _, c := range r.Settings {
		differ = append(differ, fmt.Sprintf("%s was %s and is %s", c.What, c.Was, c.Is))
	}
	if len(differ) == 0 {
		differ = append(differ, "the checkpoint does not say more")
	}
	m := r.Manifest
	return codes.New(codes.RunMismatch, "the checkpoint of run %q at epoch %d belongs to a flow with the fingerprint %.80q, this one has %q: %s",
		m.RunID, m.Epoch, m.Flow.Fingerprint, r.Plan.Fingerprint, strings.Join(differ, "; "))
}
