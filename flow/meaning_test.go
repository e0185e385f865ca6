package flow_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// document is the canonical JSON of a plan's normal form.
func document(t *testing.T, p *flow.Plan) string {
	t.Helper()
	b, err := record.AppendJSON(nil, p.Document())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Equal meaning gives equal fingerprints and equal plans, however it is spelled: the order of fields and of operators, comments,
// the spelling of durations and texts, JSON or YAML, a default that is written or not.
func TestEqualMeaning(t *testing.T) {
	t.Parallel()
	const seed = 3
	for i := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, i))
		m := generateModel(rng)
		src := m.spell(rng)
		first := parse(t, src)
		for range 4 {
			other := m.spell(rng)
			again := parse(t, other)
			if again.Fingerprint != first.Fingerprint || document(t, again) != document(t, first) {
				t.Fatalf("seed %d/%d: one meaning, two plans:\n%s\n%s\n%s\n%s", seed, i, src, document(t, first), other, document(t, again))
			}
		}
	}
}

// The normal form is a flow: it is read back to an equal plan.
func TestDocumentIsAFlow(t *testing.T) {
	t.Parallel()
	const seed = 4
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, i))
		p := parse(t, generateModel(rng).spell(rng))
		back := parse(t, document(t, p))
		if got, want := comparable(back), comparable(p); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d/%d: read back as\n%+v\nwant\n%+v", seed, i, got, want)
		}
	}
}

// comparable is a plan without its functions.
func comparable(p *flow.Plan) flow.Plan {
	c := *p
	c.Nodes = slices.Clone(p.Nodes)
	for i, n := range c.Nodes {
		c.Nodes[i] = flow.Node{Name: n.Name, Type: n.Type, Field: n.Field, From: n.From, Args: n.Args, StateBytes: n.StateBytes}
	}
	return c
}

// changes are all the ways in which a meaning can change. One that does not apply to a model returns false.
var changes = map[string]func(*model) bool{
	"select another field": func(m *model) bool { m.selectField += "x"; return len(m.selectValues) > 0 },
	"select another value": func(m *model) bool { m.selectValues = append(m.selectValues, "another"); return m.selectField != "" },
	"select all": func(m *model) bool {
		was := m.selectField
		m.selectField, m.selectValues = "", nil
		return was != ""
	},
	"id":        func(m *model) bool { m.id = "other"; return true },
	"key":       func(m *model) bool { m.key = "other"; return true },
	"time":      func(m *model) bool { m.timeField = "other"; return true },
	"unit":      func(m *model) bool { m.unit = map[bool]string{true: "s", false: "ms"}[m.unit == "ms"]; return true },
	"lateness":  func(m *model) bool { m.lateness++; return true },
	"skew":      func(m *model) bool { m.skew++; return true },
	"skew off":  func(m *model) bool { was := m.skew; m.skew = 0; return was != 0 },
	"horizon":   func(m *model) bool { m.horizon++; return true },
	"revision":  func(m *model) bool { m.revision += "x"; return m.hold == 0 },
	"revisions": func(m *model) bool { m.revisable--; return m.revisable > 0 },
	"published": func(m *model) bool { m.silent = !m.silent; return m.revisable > 0 },
	"sequence":  func(m *model) bool { m.sequence += "x"; m.gapHold++; return true },
	"hold key":  func(m *model) bool { m.hold++; return m.revision == "" && m.every == 0 },
	"gap hold":  func(m *model) bool { m.gapHold++; return m.sequence != "" },
	"clock":     func(m *model) bool { m.every += time.Nanosecond; return m.hold == 0 },
	"idle":      func(m *model) bool { m.idle++; return true },
	"period":    func(m *model) bool { m.operators[0].period++; return m.operators[0].typ != "last" },
	"gap": func(m *model) bool {
		o := &m.operators[0]
		o.gap = map[string]string{"hold": "reject", "reject": "hold"}[o.gap]
		return o.gap != ""
	},
	"type": func(m *model) bool {
		o := &m.operators[0]
		o.typ = map[string]string{"ema": "sma", "sma": "ema"}[o.typ]
		return o.typ != ""
	},
	"input": func(m *model) bool { m.operators[0].field += "x"; return true },
	"input from an operator": func(m *model) bool {
		o := &m.operators[len(m.operators)-1]
		o.field, o.from = "", m.operators[0].name
		return len(m.operators) > 1
	},
	"name of an operator": func(m *model) bool {
		o := &m.operators[len(m.operators)-1]
		o.name += "x"
		m.outputs[len(m.outputs)-1] = outputModel{m.outputs[len(m.outputs)-1].name, o.name}
		return true
	},
	"another operator": func(m *model) bool {
		m.operators = append(m.operators, operatorModel{name: "more", typ: "last", field: "close"})
		m.outputs = append(m.outputs, outputModel{"more", "more"})
		return true
	},
	"another output": func(m *model) bool {
		m.outputs = append(m.outputs, outputModel{"more", m.operators[0].name})
		return true
	},
	"name of an output": func(m *model) bool {
		m.outputs[0].name += "_x"
		return true
	},
	"order of outputs": func(m *model) bool { slices.Reverse(m.outputs); return len(m.outputs) > 1 },
}

// Every change of meaning changes the fingerprint.
func TestChangedMeaning(t *testing.T) {
	t.Parallel()
	const seed = 5
	applied := map[string]int{}
	for i := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, i))
		m := generateModel(rng)
		before := parse(t, m.spell(rng))
		for name, change := range changes {
			c := m.clone()
			was := *m.clone()
			if !change(c) || reflect.DeepEqual(*c, was) {
				continue
			}
			applied[name]++
			if after := parse(t, c.spell(rng)); after.Fingerprint == before.Fingerprint {
				t.Errorf("seed %d/%d: %s changed and the fingerprint did not:\n%s", seed, i, name, document(t, after))
			}
		}
	}
	for name := range changes {
		if applied[name] == 0 {
			t.Errorf("the change %q was never applied", name)
		}
	}
}

// Name and limits are no meaning: they decide nothing that comes out.
func TestLabelsAreNoMeaning(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 0))
	m := generateModel(rng)
	before := parse(t, m.spell(rng))
	m.name, m.ids, m.keys, m.reorder, m.ticking = "another", m.ids+1, m.keys+1, m.reorder+1, m.ticking+1
	after := parse(t, m.spell(rng))
	if after.Fingerprint != before.Fingerprint {
		t.Error("the fingerprint changed with the name and the limits")
	}
	if after.Name != "another" || after.Limits == before.Limits {
		t.Errorf("the plan did not change: %+v", after)
	}
}

// The version of an operator's state is part of the meaning: a state of another version cannot be taken up.
func TestStateVersionIsMeaning(t *testing.T) {
	t.Parallel()
	fingerprint := func(version int) string {
		reg := operators.NewRegistry()
		last, _ := operators.Builtin().Lookup("last")
		last.StateVersion = version
		if err := reg.Register(last); err != nil {
			t.Fatal(err)
		}
		p, err := flow.Parse("f", []byte("{flow: weir/1, name: f, id: i, key: k, time: t, operators: [{name: a, type: last, input: x}], outputs: [a]}"), reg)
		if err != nil {
			t.Fatal(err)
		}
		return p.Fingerprint
	}
	if fingerprint(1) == fingerprint(2) {
		t.Error("another state version, the same fingerprint")
	}
}
