package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/record"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

// sinkArgs run a flow into every kind of sink.
func sinkArgs(addr, id string, more ...string) []string {
	args := append(runArgs(addr, "ticks", id, "--epoch", "1h", "--standby",
		"--sink", "jsonl:lines", "--sink", "csv:tables", "--sink", "kafka:results", "--sink", "kafka-idempotent:copies", "--sink", "postgres:results",
		"--sink-db", "env:RESULTS", "--sink-create"), more...)
	args[1] = "all.yaml"
	return args
}

// TestSinksOfAKilledRun: a process is killed with SIGKILL before its sinks, between them and the journal, or after it, in each of four epochs; the one that
// is started after it completes every target. Where the guarantee is once, each row is there once; elsewhere the open epoch is there again if the kill came
// between sinks and journal.
func TestSinksOfAKilledRun(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	db := pgtest.Database(t, nil)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopics(t.Context(), 2, 1, nil, "results", "copies"); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "all.yaml", strings.Replace(string(fixture.Flow), `select: {field: instrument, equals: "1"}`, "", 1)+"\nsinks: [{name: columns, type: parquet, folder: columns, every: 1m}]\n")
	for _, folder := range []string{"lines", "tables", "columns"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	line := &succession{dir: dir, env: []string{"RESULTS=" + db.Super}}
	whole := line.next(t, "", sinkArgs(addr, "whole", "--once-n", "23")...)
	want := rowsOfFiles(t, dir, "whole")
	if len(want) < 10 {
		t.Fatalf("the flow gives %d rows only", len(want))
	}
	runs, points := map[string][]successor{"whole": {whole}}, map[string]string{}
	for _, point := range []string{"before_commit", "store:begin", "store:commit", "after_commit"} {
		id := strings.ReplaceAll(point, ":", "-")
		points[id] = point
		for _, until := range [][]string{{"--until-n", "6"}, {"--until-n", "12"}, {"--until-n", "18"}, {"--once-n", "23"}} {
			runs[id] = append(runs[id], line.kill(t, point, sinkArgs(addr, id, until...)...))
			if point != "after_commit" || until[1] != "23" { // of which nothing is left to do
				runs[id] = append(runs[id], line.next(t, "", sinkArgs(addr, id, until...)...))
			}
		}
	}
	// Nor is it a fault when a process that is not killed goes on from its last commit: it says so.
	runs["again"] = []successor{line.next(t, "store:begin@+1=panic", sinkArgs(addr, "again", "--once-n", "23")...)}
	results, copies := topicRows(t, addr, "results"), topicCopies(t, addr, "copies")
	if len(copies["again"]) <= len(want) {
		t.Errorf("%d rows of a run that went on from its last commit are in the topic of copies", len(copies["again"]))
	}
	for id, processes := range runs {
		if got := rowsOfFiles(t, dir, id); !slices.Equal(got, want) {
			t.Errorf("%s: files hold\n%v\nwant\n%v", id, got, want)
		}
		if got := tableRows(t, db.Super, id); !slices.Equal(got, want) {
			t.Errorf("%s: the table holds\n%v\nwant\n%v", id, got, want)
		}
		if got := results[id]; !slices.Equal(sorted(got), want) {
			t.Errorf("%s: the topic holds\n%v\nwant\n%v", id, got, want)
		}
		judgeCopies(t, id, points[id], "kafka-idempotent:copies", copies[id], want, processes)
		if n := csvRows(t, dir, id); n != len(want) {
			t.Errorf("%s: the tables hold %d rows, want %d", id, n, len(want))
		}
		if got := parquetRows(t, dir, id); !slices.Equal(got, want) {
			t.Errorf("%s: files of Parquet hold\n%v\nwant\n%v", id, got, want)
		}
	}
}

func sorted(rows []string) []string {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return rows
}

// rowText is what a row is compared by.
func rowText(t *testing.T, line []byte) (run, text string) {
	t.Helper()
	var row struct {
		Run       string
		Partition int
		Row       int
		EventID   string `json:"event_id"`
		Values    struct{ Ema3 *float64 }
	}
	if err := json.Unmarshal(line, &row); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return row.Run, fmt.Sprintf("%d/%d %s %s", row.Partition, row.Row, row.EventID, valueText(row.Values.Ema3))
}

func valueText(f *float64) string {
	if f == nil {
		return "null"
	}
	return string(record.AppendFloat(nil, *f))
}

func rowsOfFiles(t *testing.T, dir, id string) (out []string) {
	t.Helper()
	for _, text := range published(t, filepath.Join(dir, "lines", id, "*.jsonl")) {
		for line := range bytes.Lines(text) {
			_, row := rowText(t, line)
			out = append(out, row)
		}
	}
	return sorted(out)
}

func csvRows(t *testing.T, dir, id string) (n int) {
	t.Helper()
	for _, text := range published(t, filepath.Join(dir, "tables", id, "*.csv")) {
		n += bytes.Count(text, []byte("\n")) - 1
	}
	return n
}

// parquetRows reads the folders of minutes with a library that knows nothing of ours.
func parquetRows(t *testing.T, dir, id string) (out []string) {
	t.Helper()
	type row struct {
		Partition int32    `parquet:"partition"`
		Row       int64    `parquet:"row"`
		EventID   string   `parquet:"event_id,optional"`
		Ema3      *float64 `parquet:"ema3,optional"`
	}
	for _, text := range published(t, filepath.Join(dir, "columns", id, "date=*", "hour=*", "minute=*", "*.parquet")) {
		rows, err := parquet.Read[row](bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			out = append(out, fmt.Sprintf("%d/%d %s %s", r.Partition, r.Row, r.EventID, valueText(r.Ema3)))
		}
	}
	return sorted(out)
}

func published(t *testing.T, pattern string) (out [][]byte) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text)
	}
	return out
}

func tableRows(t *testing.T, url, id string) (out []string) {
	t.Helper()
	found, err := pgtest.Connect(t, url).Query(t.Context(), "SELECT partition, row_number, event_id, ema3 FROM results WHERE run_id = $1", id)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var partition, row int
		var event string
		var value *float64
		if err := found.Scan(&partition, &row, &event, &value); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d/%d %s %s", partition, row, event, valueText(value)))
	}
	return sorted(out)
}

// topicRows reads the committed rows of every run from a topic.
func topicRows(t *testing.T, addr, topic string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for run, rows := range topicCopies(t, addr, topic) {
		for _, c := range rows {
			out[run] = append(out[run], c.row)
		}
	}
	return out
}

// topicCopies is topicRows with the tokens under which they were published.
func topicCopies(t *testing.T, addr, topic string) map[string][]copied {
	t.Helper()
	// The last record below the end is a marker where a transaction ended.
	cl := kafkaClient(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	out := map[string][]copied{}
	for len(left) > 0 {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, reading := left[r.Partition]
			if reading && r.Offset >= end-1 {
				delete(left, r.Partition)
			}
			if reading && r.Offset < end && !r.Attrs.IsControl() {
				run, row := rowText(t, r.Value)
				out[run] = append(out[run], copied{row, tokenOf(t, r)})
			}
		})
	}
	return out
}

func tokenOf(t *testing.T, r *kgo.Record) (n uint64) {
	t.Helper()
	for _, h := range r.Headers {
		if h.Key == sinkkafka.HeaderToken {
			if _, err := fmt.Sscan(string(h.Value), &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

func kafkaClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// TestUnfitSinks: what is wrong with a target is said at the start, with the sink and the cure, and nothing is committed.
func TestUnfitSinks(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	db := pgtest.Database(t, nil)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for name, c := range map[string]struct {
		exit  int
		words []string
		args  []string
	}{
		"no kind":      {2, []string{"KIND:WHERE", "postgres"}, []string{"--sink", "results"}},
		"unknown kind": {2, []string{"KIND:WHERE"}, []string{"--sink", "s3:bucket"}},
		"twice":        {2, []string{"twice"}, []string{"--sink", "jsonl:.", "--sink", "jsonl:."}},
		"no database":  {2, []string{"--sink-db"}, []string{"--sink", "postgres:results"}},
		"stray flag":   {2, []string{"--sink-db"}, []string{"--sink-create"}},
		"no folder":    {3, []string{"SINK_INVALID", "jsonl:nowhere", "create it"}, []string{"--sink", "jsonl:nowhere"}},
		"no file":      {3, []string{"SINK_INVALID", "parquet:flow.yaml", "no folder"}, []string{"--sink", "parquet:flow.yaml"}},
		"no topic":     {3, []string{"TOPIC_MISSING", "nothing"}, []string{"--sink", "kafka:nothing"}},
		"no table":     {3, []string{"SINK_INVALID", "postgres:results", "CREATE TABLE"}, []string{"--sink", "postgres:results", "--sink-db", db.Super}},
		"bad name":     {3, []string{"CONFIG_INVALID", "lower-case"}, []string{"--sink", "postgres:Results;", "--sink-db", db.Super}},
		"stray region": {2, []string{"--sink-region"}, []string{"--sink-region", "eu-west-1"}},
		"in the clear": {3, []string{"CONFIG_INVALID", `sink "kinesis:rows"`, "plain HTTP"}, []string{"--sink", "kinesis:rows", "--sink-region", "eu-west-1", "--sink-endpoint", "http://example.org"}},
		"same place":   {3, []string{"CONFIG_INVALID", "same place"}, []string{"--sink", "kafka:t", "--sink", "kafka-idempotent:t"}},
		"its own":      {3, []string{"CONFIG_INVALID", "reads the topic"}, []string{"--sink", "kafka:ticks"}},
		"no variable":  {3, []string{"CONFIG_INVALID", "NOT_SET_ANYWHERE"}, []string{"--sink", "postgres:results", "--sink-db", "env:NOT_SET_ANYWHERE"}},
	} {
		id := strings.ReplaceAll(name, " ", "-")
		r := refused(t, dir, c.exit, c.words, append(runArgs(addr, "ticks", id, "--once-n", "23"), c.args...)...)
		if strings.Contains(r.stderr, "canary") || c.exit == 3 && committed(t, filepath.Join(dir, id+".db")) != 0 {
			t.Errorf("%s: something was committed, or shown", name)
		}
	}
}
