package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirstream/weir/flow"
)

const sinkHead = `flow: weir/1
name: f
id: e
key: k
time: t
operators: [{name: a, type: last, input: x}]
outputs: [{name: %s, from: a}]
`

const everySink = `sinks:
  - {name: lines, type: jsonl, folder: out}
  - {name: tables, type: csv, folder: out}
  - {name: results, type: kafka, topic: results, brokers: "a:1,b:2", tls: true, tls_ca: ca.pem, sasl: PLAIN, user: u, password: "env:P"}
  - {name: copies, type: kafka-idempotent, topic: copies}
  - {name: db, type: postgres, database: "env:DB", table: s.results, create: true}
  - {name: shards, type: kinesis, stream: rows, region: eu-west-1, endpoint: "http://127.0.0.1:1"}
  - {name: columns, type: parquet, folder: out, every: 1h}
  - {name: view, type: clickhouse, database: "file:/etc/weir/clickhouse.url", table: results, create: true}
  - {name: too-late, type: jsonl, folder: late}
late: {sink: too-late}
`

// Every type of sink is read, is in the normal form and in the schema, and changes nothing of the fingerprint.
func TestSinks(t *testing.T) {
	t.Parallel()
	bare := parse(t, fmt.Sprintf(sinkHead, "a"))
	p := parse(t, fmt.Sprintf(sinkHead, "a")+everySink)
	if p.Fingerprint != bare.Fingerprint {
		t.Error("sinks change the fingerprint")
	}
	if len(p.Sinks) != 9 || p.LateSink != "too-late" || p.Sinks[4].Fields["table"] != "s.results" || p.Sinks[4].Fields["create"] != "true" {
		t.Errorf("read as %+v", p.Sinks)
	}
	seen := map[string]bool{}
	for _, s := range p.Sinks {
		seen[s.Type] = true
	}
	for _, name := range flow.SinkTypes() {
		if !seen[name] && !extra(name) {
			t.Errorf("the test has no sink of type %s", name)
		}
	}
	doc := document(t, p)
	if back := parse(t, doc); !reflect.DeepEqual(comparable(back), comparable(p)) {
		t.Errorf("read back as %+v", back.Sinks)
	}
	if err := validate(t, compileSchema(t, nil), doc); err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
	if text := p.Text(1); !strings.Contains(text, "sinks        lines: jsonl folder out\n") || !strings.Contains(text, "too-late: jsonl folder late, takes late events and no rows") {
		t.Errorf("shown as\n%s", text)
	}
}

// extra are types that other tests show.
func extra(name string) bool { return name == "parquet" || name == "clickhouse" }

// What is wrong with a sink is said at its place, with the cure, and nothing that may be a secret is shown.
func TestWrongSinks(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t, nil)
	for name, c := range map[string]struct {
		output, sinks string
		want          string // "line:column path", and words
		words         []string
		// bySchema: the schema sees it too.
		bySchema bool
	}{
		"no list":           {"a", `sinks: {name: x}`, "8:8 sinks", []string{"a list"}, true},
		"no mapping":        {"a", `sinks: [x]`, "8:9 sinks[0]", []string{"a mapping", "type: postgres"}, true},
		"no name":           {"a", `sinks: [{type: jsonl, folder: o}]`, "8:9 sinks[0].name", []string{"missing"}, true},
		"name with quotes":  {"a", `sinks: [{name: My Sink, type: jsonl, folder: o}]`, "8:16 sinks[0].name", []string{"is not a name", "lower-case"}, true},
		"number as name":    {"a", `sinks: [{name: 7, type: jsonl, folder: o}]`, "8:16 sinks[0].name", []string{`"7"`}, true},
		"name twice":        {"a", "sinks:\n  - {name: o, type: jsonl, folder: o}\n  - {name: o, type: csv, folder: p}", "10:12 sinks[1].name", []string{"sinks[0]"}, false},
		"place twice":       {"a", "sinks:\n  - {name: o, type: kafka, topic: t}\n  - {name: p, type: kafka-idempotent, topic: t}", "10:5 sinks[1]", []string{"same place", "sinks[0]"}, false},
		"schema respelt":    {"a", "sinks:\n  - {name: o, type: postgres, database: env:D, table: ee}\n  - {name: p, type: postgres, database: env:D, table: public.ee}", "10:5 sinks[1]", []string{"same place", "sinks[0]"}, false},
		"progress as table": {"a", "sinks:\n  - {name: o, type: postgres, database: env:D, table: ee_progress}\n  - {name: p, type: postgres, database: env:D, table: public.ee}", "10:5 sinks[1]", []string{"a table of sinks[0]", "another table"}, false},
		"rows as view":      {"a", "sinks:\n  - {name: o, type: clickhouse, database: env:D, table: d.ee}\n  - {name: p, type: clickhouse, database: env:D, table: d.ee_rows}", "10:5 sinks[1]", []string{"a table of sinks[0]"}, false},
		"no type":           {"a", `sinks: [{name: o, folder: o}]`, "8:9 sinks[0].type", []string{"missing"}, true},
		"unknown type":      {"a", `sinks: [{name: o, type: postgress, table: o}]`, "8:25 sinks[0].type", []string{"did you mean postgres?", "kinesis"}, true},
		"missing folder":    {"a", `sinks: [{name: o, type: jsonl}]`, "8:9 sinks[0].folder", []string{"a folder that exists"}, true},
		"missing database":  {"a", `sinks: [{name: o, type: postgres, table: o}]`, "8:9 sinks[0].database", []string{"reference"}, true},
		"field of another":  {"a", `sinks: [{name: o, type: jsonl, folder: o, topic: t}]`, "8:43 sinks[0].topic", []string{"not a field"}, true},
		"secret in clear":   {"a", `sinks: [{name: o, type: postgres, database: "postgres://u:canary@h/d", table: o}]`, "8:45 sinks[0].database", []string{"env:NAME", "not shown"}, true},
		"empty reference":   {"a", `sinks: [{name: o, type: postgres, database: "env:", table: o}]`, "8:45 sinks[0].database", []string{"env:NAME"}, true},
		"password in clear": {"a", `sinks: [{name: o, type: kafka, topic: o, password: canary}]`, "8:52 sinks[0].password", []string{"env:NAME"}, true},
		"bad table":         {"a", `sinks: [{name: o, type: postgres, database: "env:D", table: Results}]`, "8:61 sinks[0].table", []string{"need quotes", "lower-case"}, false},
		"injected table":    {"a", `sinks: [{name: o, type: postgres, database: "env:D", table: "r; drop table x"}]`, "8:61 sinks[0].table", []string{"need quotes"}, false},
		"bad topic":         {"a", `sinks: [{name: o, type: kafka, topic: "a b"}]`, "8:39 sinks[0].topic", []string{"not the name of a topic", "249"}, false},
		"dots as topic":     {"a", `sinks: [{name: o, type: kafka, topic: ".."}]`, "8:39 sinks[0].topic", []string{"not the name of a topic"}, false},
		"bad stream":        {"a", `sinks: [{name: o, type: kinesis, stream: "a/b"}]`, "8:42 sinks[0].stream", []string{"not the name of a stream"}, false},
		"bad region":        {"a", `sinks: [{name: o, type: kinesis, stream: o, region: "eu west"}]`, "8:53 sinks[0].region", []string{"eu-west-1"}, false},
		"bad brokers":       {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "a:1,,b:2"}]`, "8:51 sinks[0].brokers", []string{"HOST:PORT"}, false},
		"endpoint in clear": {"a", `sinks: [{name: o, type: kinesis, stream: o, endpoint: "http://example.org"}]`, "8:55 sinks[0].endpoint", []string{"in the clear"}, false},
		"word for bool":     {"a", `sinks: [{name: o, type: postgres, database: "env:D", table: o, create: "yes"}]`, "8:72 sinks[0].create", []string{"true or false"}, true},
		"unknown mechanism": {"a", `sinks: [{name: o, type: kafka, topic: o, sasl: MD5}]`, "8:48 sinks[0].sasl", []string{"SCRAM-SHA-512"}, true},
		"TLS of nobody":     {"a", `sinks: [{name: o, type: kafka, topic: o, tls: true}]`, "8:47 sinks[0].tls", []string{"brokers, which is missing"}, false},
		"PLAIN in clear":    {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "b:1", sasl: PLAIN, user: u, password: "env:P"}]`, "8:64 sinks[0].sasl", []string{"tls: true"}, false},
		"no password":       {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "b:1", sasl: SCRAM-SHA-256, user: u}]`, "8:64 sinks[0].sasl", []string{"user and password"}, false},
		"no mechanism":      {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "b:1", user: u}]`, "8:9 sinks[0].sasl", []string{"SCRAM-SHA-512"}, false},
		"CA without TLS":    {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "b:1", tls_ca: c}]`, "8:66 sinks[0].tls_ca", []string{"tls: true"}, false},
		"empty folder":      {"a", `sinks: [{name: o, type: jsonl, folder: ""}]`, "8:40 sinks[0].folder", []string{"1 to 4096"}, true},
		"column taken":      {"partition", `sinks: [{name: o, type: postgres, database: "env:D", table: o}]`, "7:18 outputs[0].name", []string{"postgres (sinks[0])", "column of that name", "my_partition"}, false},
		"column of CSV":     {"time", `sinks: [{name: o, type: csv, folder: o}]`, "7:18 outputs[0].name", []string{"csv"}, false},
		"column of Parquet": {"key_bytes", `sinks: [{name: o, type: parquet, folder: o}]`, "7:18 outputs[0].name", []string{"parquet"}, false},
		"column of a view":  {"version", `sinks: [{name: o, type: clickhouse, database: env:D, table: o}]`, "7:18 outputs[0].name", []string{"clickhouse"}, false},
		"odd stretch":       {"a", `sinks: [{name: o, type: parquet, folder: o, every: 7h}]`, "8:52 sinks[0].every", []string{"a day consists"}, false},
		"user of brokers":   {"a", `sinks: [{name: o, type: kafka, topic: o, brokers: "h:1,u:canary@h:9092"}]`, "8:51 sinks[0].brokers", []string{"not shown", "HOST:PORT"}, false},
		"user of endpoint":  {"a", `sinks: [{name: o, type: kinesis, stream: o, endpoint: "https://u:canary@h"}]`, "8:55 sinks[0].endpoint", []string{"not shown", "AWS"}, false},
		"canary as topic":   {"a", `sinks: [{name: o, type: kafka, topic: "u:canary@h"}]`, "8:39 sinks[0].topic", []string{"not shown"}, false},
		"secret number":     {"a", `sinks: [{name: o, type: kafka, topic: o, password: 4711}]`, "8:52 sinks[0].password", []string{"env:NAME", "not shown"}, true},
		"folder respelt":    {"a", "sinks:\n  - {name: o, type: jsonl, folder: x}\n  - {name: p, type: jsonl, folder: ./y/../x/}", "10:5 sinks[1]", []string{"same place", "sinks[0]"}, false},
		"late respelt":      {"a", "sinks:\n  - {name: o, type: jsonl, folder: x}\n  - {name: p, type: jsonl, folder: ./x}\nlate: {sink: p}", "10:5 sinks[1]", []string{"same place", "sinks[0]"}, false},
		"case of CSV":       {"EVENT_ID", `sinks: [{name: o, type: csv, folder: o}]`, "7:18 outputs[0].name", []string{"csv", "my_EVENT_ID"}, false},
		"case of Parquet":   {"Key", `sinks: [{name: o, type: parquet, folder: o}]`, "7:18 outputs[0].name", []string{"parquet"}, false},
		"cases of outputs":  {"a, from: a}, {name: A", `sinks: [{name: o, type: parquet, folder: o}]`, "7:38 outputs[1].name", []string{`same name as "a"`}, false},
		"column of folders": {"Date", `sinks: [{name: o, type: csv, folder: o, every: 1d}]`, "7:18 outputs[0].name", []string{"folders by event time"}, false},
		"no stretch":        {"a", `sinks: [{name: o, type: csv, folder: o, every: hourly}]`, "8:48 sinks[0].every", []string{"not a duration"}, false},
		"unknown late sink": {"a", "sinks: [{name: old, type: jsonl, folder: o}]\nlate: {sink: odd}", "9:14 late.sink", []string{`no sink "odd"`, "did you mean old?"}, false},
		"late without any":  {"a", "late: {sink: odd}", "8:14 late.sink", []string{`no sink "odd"`, "none to choose from"}, false},
		"late takes none":   {"a", "sinks: [{name: o, type: csv, folder: o}]\nlate: {sink: o}", "9:14 late.sink", []string{"takes no late events", "jsonl, kafka"}, false},
		"late as a word":    {"a", "sinks: [{name: o, type: jsonl, folder: o}]\nlate: o", "9:7 late", []string{"a mapping"}, true},
	} {
		src := fmt.Sprintf(sinkHead, c.output) + c.sinks + "\n"
		_, err := flow.Parse("f", []byte(src), nil)
		var list *flow.Errors
		if !errors.As(err, &list) || len(list.List) == 0 {
			t.Errorf("%s: taken", name)
			continue
		}
		e := list.List[0]
		if got := fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Path); got != c.want || len(list.List) != 1 {
			t.Errorf("%s: %d errors, the first at %s, want one at %s", name, len(list.List), got, c.want)
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in: %v", name, word, err)
			}
		}
		if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: a secret is shown: %v", name, err)
		}
		if invalid := validate(t, schema, yamlAsJSON(t, src)) != nil; invalid != c.bySchema {
			t.Errorf("%s: refused by the schema: %v, want %v", name, invalid, c.bySchema)
		}
	}
}

// What differs from a wrong one only where it does not matter is taken.
func TestSinksThatLookWrong(t *testing.T) {
	t.Parallel()
	for output, sinks := range map[string]string{
		"Partition":             `sinks: [{name: o, type: postgres, database: "env:D", table: o}]`, // PostgreSQL has names with case
		"hour":                  `sinks: [{name: o, type: csv, folder: o, every: 1d}]`,
		"key":                   `sinks: [{name: o, type: jsonl, folder: o, every: 6h}]`,
		"date":                  "sinks: [{name: o, type: jsonl, folder: o, every: 1h}]\nlate: {sink: o}", // takes no rows
		"a, from: a}, {name: A": `sinks: [{name: o, type: jsonl, folder: x}, {name: p, type: jsonl, folder: ./x/x}]`,
		"b":                     `sinks: [{name: o, type: jsonl, folder: x}, {name: p, type: csv, folder: ./x}]`,
	} {
		if _, err := flow.Parse("f", []byte(fmt.Sprintf(sinkHead, output)+sinks+"\n"), nil); err != nil {
			t.Errorf("%s with %s: %v", output, sinks, err)
		}
	}
}

// Every type of sink and every field has its place in the reference.
func TestSinkTable(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(readReference(t), "\n### sinks\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var schema struct {
		Properties struct {
			Sinks struct {
				Items struct {
					AllOf []struct {
						If, Then struct{ Properties map[string]any }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(flow.Schema(nil), &schema); err != nil {
		t.Fatal(err)
	}
	if types := schema.Properties.Sinks.Items.AllOf; len(types) != len(flow.SinkTypes()) {
		t.Fatalf("the schema has %d types", len(types))
	}
	for i, typ := range schema.Properties.Sinks.Items.AllOf {
		name := flow.SinkTypes()[i]
		_, rows, found := strings.Cut(section, "`"+name+"`")
		if !found {
			t.Errorf("nothing is said of %s", name)
		}
		for field := range typ.Then.Properties {
			if field != "name" && field != "type" && !strings.Contains(rows, "`"+field+"`") {
				t.Errorf("nothing is said of %s of %s", field, name)
			}
		}
	}
}

// yamlAsJSON is a flow for the schema.
func yamlAsJSON(t *testing.T, src string) string {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal([]byte(src), &doc); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The graph has every operator, output and sink, and the way between them.
func TestDot(t *testing.T) {
	t.Parallel()
	p := parse(t, fmt.Sprintf(sinkHead, "a")+"sinks: [{name: lines, type: jsonl, folder: o}, {name: old, type: kafka, topic: t}]\nlate: {sink: old}\n")
	got := p.Dot()
	for _, want := range []string{
		`digraph "f" {`, `records [shape=cylinder, label="records\nevery record"];`, `records -> field0;`, `field0 -> node0;`, `node0 [label="a\nlast"];`, `node0 -> out0 -> rows;`,
		`sink0 [shape=cylinder, label="lines\njsonl"];`, `rows -> sink0;`, `records -> sink1 [style=dashed, label="late"];`,
	} {
		if !strings.Contains(got, "  "+want+"\n") && !strings.HasPrefix(got, want+"\n") {
			t.Errorf("the graph lacks %s:\n%s", want, got)
		}
	}
	odd := parse(t, strings.Replace(fmt.Sprintf(sinkHead, "a"), "input: x", `input: "a\"b\\c"`, 1)).Dot()
	if !strings.Contains(odd, `label="a\\\"b\\\\c"`) {
		t.Errorf("a name is not escaped:\n%s", odd)
	}
}
