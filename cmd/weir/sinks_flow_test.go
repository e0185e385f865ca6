package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/internal/pgtest"
)

// TestEverySinkOpens: each type that a flow may name is one that weir can open, and the reverse.
func TestEverySinkOpens(t *testing.T) {
	t.Parallel()
	for _, name := range flow.SinkTypes() {
		if sinkKinds[name].open == nil {
			t.Errorf("a flow may name the type %s, and nothing opens it", name)
		}
	}
	for name := range sinkKinds {
		if !slices.Contains(flow.SinkTypes(), name) {
			t.Errorf("the type %s can be opened, and no flow may name it", name)
		}
	}
}

// TestSinksOfAFlow: the sinks that a flow names are published to beside those of the command line, under their own names.
func TestSinksOfAFlow(t *testing.T) {
	t.Parallel()
	river := newRiver(t, 1)
	dir, db, addr := river.dir, pgtest.Database(t, nil), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopics(t.Context(), 2, 1, nil, "results"); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"lines", "tables"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "db.url", db.Super)
	write(t, dir, "all.yaml", string(fixture.Flow)+`sinks:
  - {name: lines, type: jsonl, folder: lines}
  - {name: changes, type: kafka, topic: results}
  - {name: table, type: postgres, database: "file:db.url", table: results, create: true}
  - {name: shards, type: kinesis, stream: ticks, region: `+kinesistest.Region+`, endpoint: "`+river.Endpoint()+`"}
`)
	args := append(runArgs(addr, "ticks", "flowing", "--once-n", "23"), "--sink", "csv:tables")
	args[1] = "all.yaml"
	must(t, dir, args...)
	want := rowsOfFiles(t, dir, "flowing")
	if len(want) != 6 {
		t.Fatalf("%d rows are in the files, want 6", len(want))
	}
	if got := tableRows(t, db.Super, "flowing"); !slices.Equal(got, want) {
		t.Errorf("the table holds\n%v\nwant\n%v", got, want)
	}
	if got := sorted(topicRows(t, addr, "results")["flowing"]); !slices.Equal(got, want) {
		t.Errorf("the topic holds\n%v\nwant\n%v", got, want)
	}
	if n := csvRows(t, dir, "flowing"); n != len(want) {
		t.Errorf("the tables hold %d rows", n)
	}
	if got := sorted(streamRows(t, river)["flowing"]); !slices.Equal(got, want) {
		t.Errorf("the stream holds\n%v\nwant\n%v", got, want)
	}
}

// streamRows reads the rows of every run from the only shard of a stream.
func streamRows(t *testing.T, r *river) map[string][]string {
	t.Helper()
	it, err := r.api.GetShardIterator(t.Context(), &awskinesis.GetShardIteratorInput{StreamName: &r.name, ShardId: aws.String("shardId-000000000000"), ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	got, err := r.api.GetRecords(t.Context(), &awskinesis.GetRecordsInput{ShardIterator: it.ShardIterator})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range got.Records {
		run, row := rowText(t, rec.Data)
		out[run] = append(out[run], row)
	}
	return out
}

// TestUnfitSinksOfAFlow: what a run finds at its start is said with the sink's name, and what can be known without a target is found by the parser.
func TestUnfitSinksOfAFlow(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for name, c := range map[string]struct {
		exit  int
		sink  string
		words []string
	}{
		"in the file": {3, `{name: o, type: postgres, table: o}`, []string{"FLOW_INVALID", "flow.yaml:", "sinks[0].database"}},
		"no variable": {3, `{name: results, type: postgres, database: "env:NOT_SET_ANYWHERE", table: o}`, []string{"CONFIG_INVALID", `sink "results"`, "NOT_SET_ANYWHERE"}},
		"no brokers":  {3, `{name: changes, type: kafka, topic: o}`, []string{"CONFIG_INVALID", `sink "changes"`, "--brokers"}},
		"open secret": {3, `{name: results, type: postgres, database: "file:open.url", table: o}`, []string{"CONFIG_INVALID", `sink "results"`, "chmod 600"}},
	} {
		write(t, dir, "open.url", "postgres://u:canary@h/d")
		if err := os.Chmod(filepath.Join(dir, "open.url"), 0o644); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: ["+c.sink+"]\n")
		write(t, dir, "arrivals.log", "")
		r := refused(t, dir, c.exit, c.words, "run", "flow.yaml", "--log", "arrivals.log", "--run-id", "r", "--store", "sqlite:r.db")
		if strings.Contains(r.stderr, "canary") {
			t.Errorf("%s: a secret is shown", name)
		}
	}
}

// TestLintConnect: the targets are looked at, and nothing is changed there; what does not fit is named, with the cure and the right exit code.
func TestLintConnect(t *testing.T) {
	t.Parallel()
	dir, db, addr := fixtureDir(t), pgtest.Database(t, nil), broker(t)
	super := pgtest.Connect(t, db.Super)
	role := db.Name + "_lint"
	for _, text := range []string{
		"CREATE ROLE " + role + " LOGIN",
		"CREATE TABLE wrong (run_id text, partition int, row_number bigint, event_time timestamptz, event_nanos bigint, event_id text, event_key text, ema3 real, PRIMARY KEY (run_id, partition, row_number))",
	} {
		if _, err := super.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopics(t.Context(), 1, 1, nil, "there"); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "db.url", db.Super)
	write(t, dir, "poor.url", db.URL(role))
	write(t, dir, "gone.url", "postgres://u:canary@127.0.0.1:1/x")
	table := func(url, name, more string) string {
		return `{name: results, type: postgres, database: "file:` + url + `", table: ` + name + more + `}`
	}
	for name, c := range map[string]struct {
		exit  int
		sinks string
		words []string
	}{
		"all well":      {0, table("db.url", "fresh", ", create: true") + ", {name: a, type: kafka, topic: there}, {name: b, type: jsonl, folder: .}", nil},
		"missing table": {3, table("db.url", "none", ""), []string{"sink results (postgres): SINK_INVALID", "no table public.none", "CREATE TABLE"}},
		"wrong type":    {3, table("db.url", "wrong", ""), []string{"SINK_INVALID", `"ema3" of public.wrong is real`, "double precision"}},
		"no permission": {3, table("poor.url", "fresh", ", create: true"), []string{"SINK_DENIED", "GRANT CREATE ON SCHEMA"}},
		"unreachable":   {5, table("gone.url", "fresh", ""), []string{"SINK_UNAVAILABLE", "cannot be reached"}},
		"topic missing": {3, "{name: changes, type: kafka, topic: nowhere}", []string{"sink changes (kafka): TOPIC_MISSING", "nowhere"}},
		"no broker":     {5, `{name: changes, type: kafka, topic: there, brokers: "127.0.0.1:1"}`, []string{"BROKER_UNREACHABLE", "127.0.0.1:1"}},
		"no folder":     {3, "{name: files, type: csv, folder: nowhere}", []string{"sink files (csv): SINK_INVALID", "create it"}},
	} {
		write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: ["+c.sinks+"]\n")
		r := refused(t, dir, c.exit, c.words, "lint", "--connect", "--brokers", addr, "flow.yaml")
		if strings.Contains(r.stderr+r.stdout, "canary") {
			t.Errorf("%s: a secret is shown", name)
		}
		if c.exit == 0 {
			doc := parse(t, must(t, dir, "lint", "--json", "--connect", "--brokers", addr, "flow.yaml"))
			sinks := doc["files"].([]any)[0].(map[string]any)["sinks"].([]any)
			if len(sinks) != 3 || sinks[0].(map[string]any)["ok"] != true || sinks[1].(map[string]any)["looked_at"] != true {
				t.Errorf("%s: %v", name, doc)
			}
		}
	}
	var tables int
	if err := super.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("%d tables, %v: looking at a target made some", tables, err)
	}
	refused(t, dir, 2, []string{"--connect"}, "lint", "--brokers", addr, "flow.yaml")
}

// TestGraph: a flow is drawn with its sinks, as text and as a document.
func TestGraph(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: [{name: lines, type: jsonl, folder: o}]\n")
	text := must(t, dir, "graph", "flow.yaml")
	if !strings.HasPrefix(text, "digraph ") || !strings.Contains(text, "rows -> sink0;") || !strings.Contains(text, `is \"1\"`) {
		t.Errorf("%s", text)
	}
	if doc := parse(t, must(t, dir, "graph", "--json", "flow.yaml")); doc["dot"] != text {
		t.Errorf("%v", doc)
	}
	refused(t, dir, 3, []string{"FILE_MISSING"}, "graph", "none.yaml")
}
