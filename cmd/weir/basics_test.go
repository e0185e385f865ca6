package main

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := must(t, t.TempDir(), "version"); !strings.HasPrefix(out, "weir ") {
		t.Errorf("%q", out)
	}
	if doc := parse(t, must(t, t.TempDir(), "version", "--json")); doc["version"] == "" || doc["go"] == "" {
		t.Errorf("%v", doc)
	}
}

func TestCanon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, args, want string }{
		{"[null, null, 2.0, 3.0, 4.0, 5.0]", "canon --hash", fixture.ValuesHash + "\n"},
		{` { "b" : 1e2, "a" : [ -0.0, 9007199254740993 ] } `, "canon", `{"a":[-0.0,9007199254740993],"b":100.0}`},
	} {
		if r := weir(t, t.TempDir(), c.in, strings.Fields(c.args)...); r.code != 0 || r.stdout != c.want {
			t.Errorf("%s of %s: exit %d, %q, %s", c.args, c.in, r.code, r.stdout, r.stderr)
		}
	}
	for _, in := range []string{"", "[1,]", `{"a":1,"a":2}`, "NaN", "1e400", "\"\xff\"", `"\ud800"`, "[] []"} {
		r := weir(t, t.TempDir(), in, "canon", "--hash")
		if r.code != 3 || r.stdout != "" || !strings.Contains(r.stderr, "DOCUMENT_INVALID") {
			t.Errorf("canon of %q: exit %d, %q, %q", in, r.code, r.stdout, r.stderr)
		}
	}
}

func TestLintPlanAndSchema(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "lint", "flow.yaml")
	if out := must(t, dir, "plan", "flow.yaml", "--partitions", "4"); !strings.Contains(out, "fingerprint") || !strings.Contains(out, "memory") {
		t.Errorf("plan:\n%s", out)
	}
	plan := parse(t, must(t, dir, "plan", "flow.yaml", "--json"))
	lint := parse(t, must(t, dir, "lint", "flow.yaml", "--json"))
	if got := lint["files"].([]any)[0].(map[string]any)["fingerprint"]; got != plan["fingerprint"] {
		t.Errorf("lint says %v, plan %v", got, plan["fingerprint"])
	}
	if schema := parse(t, must(t, dir, "schema")); schema["$schema"] == nil {
		t.Errorf("%v", schema)
	}
}

func TestLintTellsEveryErrorAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "bad.yaml", "flow: weir/1\nname: x\nid: event_id\nkee: instrument\nlateness: soon\noperators:\n  - {name: a, type: emma, input: close}\noutputs: [b]\n")
	r := refused(t, dir, 3, []string{"bad.yaml:4:", "kee", "bad.yaml:5:", "lateness", "bad.yaml:7:", "emma", "bad.yaml:8:"}, "lint", "bad.yaml")
	if r.stdout != "" {
		t.Errorf("stdout: %s", r.stdout)
	}
	doc := weir(t, dir, "", "lint", "--json", "bad.yaml")
	files := parse(t, doc.stdout)["files"].([]any)
	if errs := files[0].(map[string]any)["errors"].([]any); doc.code != 3 || len(errs) < 4 {
		t.Errorf("exit %d, %v", doc.code, errs)
	}
}

// TestUsageErrors: what is wrong on the command line is exit 2, and says what would be right.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for _, c := range []struct {
		args  string
		words []string
	}{
		{"frobnicate", []string{"unknown command"}},
		{"run", []string{"accepts 1 arg"}},
		{"run flow.yaml --run-id x", []string{"--store"}},
		{"run flow.yaml --store sqlite:x.db", []string{"--run-id"}},
		{"run flow.yaml --store sqlite:x.db --run-id x", []string{"--brokers", "--log"}},
		{"run flow.yaml --store sqlite:x.db --run-id x --log l --once-n 1 --until-n 1", []string{"--once-n", "--until-n"}},
		{"run flow.yaml --store sqlite:x.db --run-id x --log l --epoch soon", []string{"--epoch", "soon"}},
		{"run flow.yaml --nonsense", []string{"--nonsense"}},
		{"batch run --flow flow.yaml", []string{"--snapshot", "--log"}},
		{"batch run --snapshot snapshot.jsonl", []string{"--flow"}},
		{"parity --partitions 0", []string{"--partitions"}},
		{"parity --via pigeon", []string{"--via", "pigeon"}},
		{"parity --seeds 3 --faults faults.json", []string{"--seeds", "--faults"}},
		{"plan flow.yaml --partitions 0", []string{"--partitions"}},
		{"broker --port 70000", []string{"--port"}},
		{"replay publish --log x", []string{"--brokers"}},
		{"replay build --out x", []string{"--snapshot"}},
		{"canon extra", []string{"unknown command"}},
	} {
		r := refused(t, dir, 2, append(c.words, "weir: USAGE: "), strings.Fields(c.args)...)
		if r.stdout != "" {
			t.Errorf("%s: stdout %q", c.args, r.stdout)
		}
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"", "demo", "drill", "run", "batch", "batch run", "replay", "replay build", "replay faults", "replay generate", "replay publish", "parity", "broker", "lint", "plan", "schema", "canon", "version"} {
		out := must(t, t.TempDir(), append(strings.Fields(c), "--help")...)
		if !strings.Contains(out, "Examples:\n") {
			t.Errorf("weir %s --help has no example:\n%s", c, out)
		}
	}
}

// TestAFieldThatNoRecordHas is told: it is the likeliest mistake in a flow, and no checker of the flow alone can know it.
func TestAFieldThatNoRecordHas(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "typo.yaml", strings.Replace(string(fixture.Flow), "input: close", "input: price", 1))
	r := weir(t, dir, "", "batch", "run", "--flow", "typo.yaml", "--snapshot", "snapshot.jsonl")
	if r.code != 0 || !strings.Contains(r.stderr, "ema3") || !strings.Contains(r.stderr, "price") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if r := weir(t, dir, "", "batch", "run", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl"); r.stderr != "" {
		t.Errorf("nothing is wrong, but: %s", r.stderr)
	}
}

func TestAnErrorIsADocumentToo(t *testing.T) {
	t.Parallel()
	r := weir(t, t.TempDir(), "", "batch", "run", "--json", "--flow", "missing.yaml", "--snapshot", "x.jsonl")
	e, _ := parse(t, r.stdout)["error"].(map[string]any)
	if r.code != 3 || e["code"] != "FILE_MISSING" || e["cure"] == "" {
		t.Errorf("exit %d, %v", r.code, e)
	}
}
