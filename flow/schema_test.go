package flow_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// compileSchema compiles the schema of a registry under its own meta-schema.
func compileSchema(t *testing.T, reg *operators.Registry) *jsonschema.Schema {
	t.Helper()
	src := flow.Schema(reg)
	if canonical, err := record.Canonical(src); err != nil || !bytes.Equal(canonical, src) {
		t.Fatalf("the schema is not canonical JSON: %v", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("flow.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("flow.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate checks a JSON document against a schema.
func validate(t *testing.T, s *jsonschema.Schema, src string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(src)))
	if err != nil {
		t.Fatalf("%v in %s", err, src)
	}
	return s.Validate(doc)
}

// Every flow that is accepted is valid under the schema, as it was written and in its normal form.
func TestSchemaTakesWhatParseTakes(t *testing.T) {
	t.Parallel()
	s := compileSchema(t, nil)
	const seed = 8
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, i))
		src := generateModel(rng).spellJSON(rng)
		for _, doc := range []string{src, document(t, parse(t, src))} {
			if err := validate(t, s, doc); err != nil {
				t.Fatalf("seed %d/%d: %v\n%s", seed, i, err, doc)
			}
		}
	}
}

// schemaCase is a flow of which one field is changed: {"field":value} on a flow that is right otherwise; a value of "" drops it.
func schemaCase(field, value string) string {
	base := []pair{
		{"flow", `"weir/1"`}, {"name", `"f"`}, {"id", `"e"`}, {"key", `"k"`}, {"time", `"t"`},
		{"operators", `[{"name":"a","type":"ema","input":"x","period":3}]`}, {"outputs", `["a"]`},
	}
	out, found := "", false
	for _, p := range base {
		v := p.value.(string)
		if p.key == field {
			v, found = value, true
		}
		if v != "" {
			out += fmt.Sprintf(",%q:%s", p.key, v)
		}
	}
	if !found {
		out += fmt.Sprintf(",%q:%s", field, value)
	}
	return "{" + out[1:] + "}"
}

// What the schema can see it refuses, and so does Parse.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := compileSchema(t, nil)
	for _, c := range []struct{ field, value string }{
		{"flow", `"weir/2"`}, {"flow", ""}, {"name", ""}, {"id", ""}, {"key", ""}, {"time", ""}, {"operators", ""}, {"outputs", ""},
		{"name", `"A B"`}, {"name", `7`}, {"id", `""`}, {"id", `5`}, {"key", `null`}, {"nam", `"x"`},
		{"time", `{"unit":"s"}`}, {"time", `{"field":"t","unit":"sec"}`}, {"time", `{"field":"t","zone":"x"}`},
		{"select", `{"field":"k"}`}, {"select", `{"field":"k","equals":"a","in":["b"]}`}, {"select", `{"field":"k","in":[]}`},
		{"select", `{"field":"k","equals":1.5}`}, {"select", `{"field":"k","equals":true}`}, {"select", `{"field":"k","in":["a","a"]}`}, {"select", `{"equals":"a"}`},
		{"lateness", `5`}, {"lateness", `"5"`}, {"lateness", `"-5s"`}, {"lateness", `"1w"`}, {"lateness", `".5s"`}, {"max_future_skew", `"Off"`}, {"max_future_skew", `false`},
		{"dedupe", `{}`}, {"dedupe", `"1h"`}, {"sequence", `{"field":"s"}`}, {"sequence", `{"gap_hold":"1s"}`}, {"revision", `1`}, {"revisions", `{}`}, {"revisions", `{"horizon":10}`}, {"revisions", `{"horizon":"1m","publish":"yes"}`}, {"limits", `{"history":0}`},
		{"clock", `"1m"`}, {"clock", `{}`}, {"clock", `{"every":60}`}, {"limits", `{"ids":0}`}, {"limits", `{"id":5}`}, {"limits", `{"keys":"5"}`}, {"limits", `{"ticks":2147483648}`},
		{"idle", `{}`}, {"idle", `{"after_polls":-1}`},
		{"operators", `[]`}, {"operators", `{}`}, {"operators", `["a"]`}, {"operators", `[{"name":"a","type":"emma","input":"x"}]`},
		{"operators", `[{"name":"a","input":"x"}]`}, {"operators", `[{"name":"a","type":"ema","input":"x"}]`}, {"operators", `[{"name":"a","type":"ema","input":"x","period":0}]`},
		{"operators", `[{"name":"a","type":"ema","input":"x","period":3,"gap":"keep"}]`}, {"operators", `[{"name":"a","type":"last","input":"x","period":3}]`},
		{"operators", `[{"name":"a b","type":"last","input":"x"}]`}, {"operators", `[{"name":"a","type":"last","input":{"field":"x","operator":"y"}}]`}, {"operators", `[{"name":"a","type":"last","input":{}}]`},
		{"outputs", `[]`}, {"outputs", `"a"`}, {"outputs", `[5]`}, {"outputs", `[{"name":"a"}]`}, {"outputs", `[{"name":"a","from":"a","as":"b"}]`},
	} {
		src := schemaCase(c.field, c.value)
		if err := validate(t, s, src); err == nil {
			t.Errorf("the schema takes %s", src)
		}
		if _, err := flow.Parse("f", []byte(src), nil); err == nil {
			t.Errorf("Parse takes %s", src)
		}
	}
	if err := validate(t, s, schemaCase("name", `"g"`)); err != nil {
		t.Errorf("the flow that the cases change is itself refused: %v", err)
	}
}

// The parameters of a registered type are in the schema, whatever their kind.
func TestSchemaOfOwnType(t *testing.T) {
	t.Parallel()
	reg := operators.Builtin()
	if err := reg.Register(everyKind()); err != nil {
		t.Fatal(err)
	}
	s := compileSchema(t, reg)
	for params, ok := range map[string]bool{
		`"n":5`: true, `"n":5,"f":0.25,"d":"90s","w":"b"`: true, `"n":5,"f":1`: true, `"n":5,"d":"1ns"`: true,
		``: false, `"n":0`: false, `"n":10`: false, `"n":"5"`: false, `"n":5,"f":1.5`: false, `"n":5,"f":"0.5"`: false, `"n":5,"d":5`: false, `"n":5,"w":"c"`: false, `"n":5,"x":1`: false,
	} {
		if params != "" {
			params = "," + params
		}
		src := schemaCase("operators", `[{"name":"a","type":"every","input":"x"`+params+`}]`)
		if err := validate(t, s, src); (err == nil) != ok {
			t.Errorf("the schema on %s: %v", src, err)
		}
		if _, err := flow.Parse("f", []byte(src), reg); (err == nil) != ok {
			t.Errorf("Parse on %s: %v", src, err)
		}
	}
}

// everyKind is a type with a parameter of every kind; its operator is the built-in last.
func everyKind() operators.Type {
	last, _ := operators.Builtin().Lookup("last")
	last.Name = "every"
	last.Params = []operators.Param{
		{Name: "n", Kind: operators.Int, Required: true, Min: 1, Max: 9},
		{Name: "f", Kind: operators.Float, Default: 0.5, Min: 0.0, Max: 1.0},
		{Name: "d", Kind: operators.Duration, Default: time.Minute, Max: time.Hour},
		{Name: "w", Kind: operators.Enum, Enum: []string{"a", "b"}, Default: "a"},
	}
	return last
}
