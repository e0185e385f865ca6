package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

const gapFlow = `flow: weir/1
name: gaps
id: id
key: k
time: {field: t, unit: s}
lateness: 2s
sequence: {field: n, gap_hold: 1h}
operators:
  - {name: mean, type: sma, input: x, period: 2}
outputs: [mean]
`

// dealt are the records of an arrival log that is dealt to two partitions.
func dealt(t *testing.T, path string) (all []*kgo.Record) {
	t.Helper()
	r, err := logfile.NewSource(path, logfile.SourceConfig{Partitions: 2}).Open(t.Context(), map[int32]record.Position{0: {}, 1: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		batches, err := r.Poll(t.Context(), 0)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			for _, rec := range batches[i].Records {
				k := &kgo.Record{Partition: batches[i].Partition, Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value), Timestamp: time.Unix(0, int64(rec.Arrival))}
				for _, h := range rec.Headers {
					k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
				}
				all = append(all, k)
			}
			batches[i].Done()
		}
	}
}

// A run under which an operator has closed a gap and confirmed an input idle is compared with a replay of its log: they are equal, since the replay makes
// the same decisions; a run without them, over the same log, gives other verdicts.
func TestParityOfARunWithDecisions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "flow.yaml", gapFlow)
	var events strings.Builder
	for n := 1; n <= 20; n++ {
		if n != 7 {
			fmt.Fprintf(&events, `{"id":"a-%d","k":"a","t":%d,"n":%d,"x":%d}`+"\n", n, 1000+n, n, n*n)
		}
	}
	write(t, dir, "snapshot.jsonl", events.String())
	write(t, dir, "faults.json", `{"format":"fault-schedule/1","seed":1,"faults":[{"event_id":"a-10","kind":"DELAY","domain_ms":60000}]}`)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--flow", "flow.yaml", "--faults", "faults.json", "--out", "arrivals.log")
	all := dealt(t, filepath.Join(dir, "arrivals.log"))
	b, err := devbroker.Start(devbroker.Config{Partitions: 2, Topics: []string{"ticks"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("ticks"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), all[:18]...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	run := func(id string, more ...string) []string {
		return append([]string{"run", "flow.yaml", "--brokers", b.Addr(), "--topic", "ticks", "--run-id", id, "--store", "sqlite:runs.db"}, more...)
	}
	parity := func(id string, more ...string) []string {
		return append([]string{"parity", "--run", id, "--store", "sqlite:runs.db", "--log", "arrivals.log", "--flow", "flow.yaml"}, more...)
	}
	d := startLogged(t, dir, "run", nil, run("helped", "--epoch", "20ms", "--verbose")...)
	d.await(t, "everything but the last record", func() bool { return strings.Contains(d.said(t), "records=18") })
	refused(t, dir, 3, []string{"RUN_MISMATCH", "has not ended"}, parity("helped")...)
	p := all[0].Partition
	decide := func(what ...string) {
		t.Helper()
		must(t, dir, append(what, "helped", "--store", "sqlite:runs.db", "--reason", "so it is", "--apply")...)
	}
	for _, n := range []string{"7", "10"} {
		decide("gap", "close", "--partition", fmt.Sprint(p), "--key", "a", "--sequence", n)
	}
	decide("idle", "confirm", "--partition", fmt.Sprint(1-p))
	d.await(t, "the decisions", func() bool {
		store, err := openStore(t.Context(), "sqlite:"+filepath.Join(dir, "runs.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		pending, err := store.ListInterventions(t.Context(), "helped", true)
		if err != nil {
			t.Fatal(err)
		}
		return len(pending) == 0
	})
	if err := client.ProduceSync(t.Context(), all[18:]...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	d.await(t, "the last record", func() bool { return strings.Contains(d.said(t), "records=19") })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 {
		t.Fatalf("exit %d: %s", code, d.said(t))
	}
	must(t, dir, run("helped", "--once-n", "19")...)
	doc := parse(t, must(t, dir, parity("helped", "--json")...))
	if doc["verdict"] != "EQUAL_TO_REPLAY" || doc["stream"].(map[string]any)["late"] != 1.0 || len(doc["decisions"].([]any)) != 3 {
		t.Errorf("%v", doc)
	}
	if text := must(t, dir, parity("helped")...); !strings.Contains(text, "EQUAL_TO_REPLAY: run helped gave what a replay of its log gives; 3 recorded decisions were made again") {
		t.Errorf("%s", text)
	}
	// Without an operator nothing is late, and the replay agrees to that too.
	must(t, dir, run("alone", "--once-n", "19")...)
	if doc := parse(t, must(t, dir, parity("alone", "--json")...)); doc["verdict"] != "EQUAL_TO_REPLAY" || doc["stream"].(map[string]any)["late"] != 0.0 {
		t.Errorf("%v", doc)
	}
	// Another log is another run.
	write(t, dir, "snapshot.jsonl", strings.Replace(events.String(), `"x":400`, `"x":401`, 1))
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--flow", "flow.yaml", "--faults", "faults.json", "--out", "arrivals.log")
	refusedOut := weir(t, dir, "", parity("helped")...)
	if refusedOut.code != 4 || !strings.Contains(refusedOut.stdout, "DIFFERENT") || !strings.Contains(refusedOut.stdout, "values_hash") {
		t.Errorf("exit %d: %s%s", refusedOut.code, refusedOut.stdout, refusedOut.stderr)
	}
	refused(t, dir, 2, []string{"--run needs --store"}, "parity", "--run", "helped", "--flow", "flow.yaml")
	refused(t, dir, 2, []string{"go with --run"}, "parity", "--store", "sqlite:runs.db")
	refused(t, dir, 2, []string{"leave --snapshot"}, parity("helped", "--seeds", "3")...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, parity("nobody")...)
}
