package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/fixture"
)

// speedFlow computes over every record.
const speedFlow = `flow: weir/1
name: speed
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 5s
dedupe: {horizon: 1m}
operators:
  - {name: ema3, type: ema, input: close, period: 3}
outputs: [ema3]
limits: {ids: 400000, keys: 1000, reorder: 400000, ticks: 400000}
`

// apartArgs run a topic by partitions.
func apartArgs(addr, topic, id string, more ...string) []string {
	return runArgs(addr, topic, id, append([]string{"--scope", "partition", "--group", id, "--epoch", "50ms"}, more...)...)
}

// apart is how many records are committed of each partition of a run.
func apart(t *testing.T, path, run string) map[int32]int64 {
	t.Helper()
	out := map[int32]int64{}
	if missing(path) {
		return out
	}
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return out // it is being made
	}
	defer s.Close()
	runs, err := s.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if p, ok := group.PartitionOf(run, r.Header.RunID); ok {
			out[p] = r.Counts.Records
		}
	}
	return out
}

// until waits for something that processes bring about.
func until(t *testing.T, what string, procs []*process, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline.C:
			var said []string
			for _, p := range procs {
				if p.Process.Signal(syscall.SIGKILL) == nil {
					<-p.done
				}
				said = append(said, p.out.String())
			}
			t.Fatalf("it does not happen: %s\n%s", what, strings.Join(said, "\n---\n"))
		case <-tick.C:
		}
	}
}

func total(by map[int32]int64) (n int64) {
	for _, r := range by {
		n += r
	}
	return n
}

// TestScopePartition: two processes share a topic out. What they publish together is what one publishes that has all of it.
func TestScopePartition(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "shared", drillTimes)
	must(t, dir, runArgs(addr, "shared", "whole", "--until-n", "299")...)
	want := parse(t, must(t, dir, "journal", "emit", "whole", "--flow", "flow.yaml", "--store", "sqlite:whole.db", "--json"))

	a := start(t, dir, apartArgs(addr, "shared", "apart", "--json", "--artifacts", "kept")...)
	path := filepath.Join(dir, "apart.db")
	until(t, "one process has all partitions", []*process{a}, func() bool { return len(apart(t, path, "apart")) == 4 })
	b := start(t, dir, apartArgs(addr, "shared", "apart")...)
	until(t, "everything is committed", []*process{a, b}, func() bool { return total(apart(t, path, "apart")) == drillRecords })
	until(t, "the second has some", []*process{a, b}, func() bool {
		r := weir(t, dir, "", "lease", "list", "--store", "sqlite:apart.db")
		return strings.Count(r.stdout, fmt.Sprintf("-%d-", b.Process.Pid)) == 2 && strings.Count(r.stdout, fmt.Sprintf("-%d-", a.Process.Pid)) == 2
	})
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := b.end(t); code != 0 || !strings.Contains(b.out.String(), "everything processed is committed") {
		t.Errorf("exit %d\n%s", code, b.out.String())
	}
	for _, words := range []string{"assigned\n", "lease stream/apart/", "revoked; committing what is in hand", "released, token", "given up"} {
		if !strings.Contains(b.out.String(), words) {
			t.Errorf("%q is not told:\n%s", words, b.out.String())
		}
	}
	publishLog(t, dir, addr, "shared", 1)
	until(t, "one goes on with all of them", []*process{a}, func() bool { return total(apart(t, path, "apart")) == drillRecords+23 })
	merged := func(command ...string) string {
		return parse(t, must(t, dir, append(command, "--store", "sqlite:apart.db", "--json")...))["watermark"].(string)
	}
	if mark := merged("journal", "show", "apart"); mark != "none" {
		t.Errorf("two partitions have had no event, and event time is closed up to %s", mark)
	}
	for _, p := range parse(t, must(t, dir, "journal", "show", "apart", "--store", "sqlite:apart.db", "--json"))["partitions"].([]any) {
		if p := p.(map[string]any); p["watermark"] == "none" { // two have nothing at all, one nothing that the flow selects
			must(t, dir, "idle", "confirm", "apart", "--store", "sqlite:apart.db", "--partition", fmt.Sprint(p["partition"]), "--reason", "nothing comes", "--apply")
		}
	}
	until(t, "idle partitions hold nothing", []*process{a}, func() bool { return merged("journal", "show", "apart") != "none" })
	if emitted, shown := merged("journal", "emit", "apart", "--flow", "flow.yaml"), merged("journal", "show", "apart"); emitted != shown {
		t.Errorf("the document says %s, the journal %s", emitted, shown)
	}
	if told := parse(t, must(t, dir, "status", "apart", "--store", "sqlite:apart.db", "--json")); told["watermark"] == nil || strings.Count(fmt.Sprint(told), "input:IDLE") != 3 {
		t.Errorf("%v", told)
	}
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := a.end(t); code != 0 || !strings.Contains(a.out.String(), `"scope":"partition","stopped":true`) {
		t.Errorf("exit %d\n%s", code, a.out.String())
	}
	got := parse(t, must(t, dir, "journal", "emit", "apart", "--flow", "flow.yaml", "--store", "sqlite:apart.db", "--out", "apart.json", "--json"))
	for _, key := range []string{"values", "values_hash", "events", "consumed", "late", "future"} {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Errorf("%s: %v, want %v", key, got[key], want[key])
		}
	}
	if got["values_hash"] == fixture.ValuesHash || got["consumed"] != 6.0 {
		t.Errorf("an open run has released everything: %v", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "apart.json"))
	if doc := parse(t, string(text)); err != nil || doc["values_hash"] != want["values_hash"] {
		t.Errorf("the file: %v, %v", doc, err)
	}
	for p := range 4 {
		r := weir(t, dir, "", "checkpoint", "list", fmt.Sprintf("apart/%d", p), "--store", "sqlite:apart.db")
		if p == 3 && !strings.Contains(r.stdout, "apart/3") {
			t.Errorf("no checkpoint of partition %d: %s%s", p, r.stdout, r.stderr)
		}
	}
	shown := must(t, dir, "journal", "show", "apart", "--store", "sqlite:apart.db")
	doc := parse(t, must(t, dir, "journal", "show", "apart", "--store", "sqlite:apart.db", "--json"))
	if n := len(doc["partitions"].([]any)); n != 4 || strings.Count(shown, "IDLE") != 3 || !strings.Contains(shown, "apart/3") || !strings.Contains(shown, "by partitions") {
		t.Errorf("%v\n%s", doc, shown)
	}
	t.Run("another flow is refused by every partition", func(t *testing.T) {
		write(t, dir, "other.yaml", strings.Replace(string(fixture.Flow), "period: 3", "period: 4", 1))
		args := apartArgs(addr, "shared", "apart")
		args[1] = "other.yaml"
		refused(t, dir, 3, []string{"RUN_MISMATCH", "no partition can be worked on"}, args...)
		refused(t, dir, 3, []string{"RUN_MISMATCH", "fingerprint"}, "journal", "emit", "apart", "--flow", "other.yaml", "--store", "sqlite:apart.db")
	})
	refused(t, dir, 3, []string{"RUN_MISMATCH", "--scope partition"}, runArgs(addr, "shared", "apart")...)
	refused(t, dir, 3, []string{"RUN_MISMATCH", "by partitions"}, apartArgs(addr, "shared", "whole")...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN", "nobody"}, "journal", "emit", "nobody", "--flow", "flow.yaml", "--store", "sqlite:apart.db")
}

func TestScopeRefusals(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	base := []string{"run", "flow.yaml", "--brokers", "127.0.0.1:1", "--topic", "t", "--run-id", "r", "--store", "sqlite:r.db", "--scope", "partition"}
	for _, c := range []struct {
		args, words []string
	}{
		{nil, []string{"--group"}},
		{[]string{"--group", "g", "--once-n", "5"}, []string{"--once-n", "--scope run"}},
		{[]string{"--group", "g", "--until-n", "5"}, []string{"--until-n", "--scope run"}},
		{[]string{"--group", "g", "--emit", "e.json"}, []string{"--emit", "weir journal emit r"}},
		{[]string{"--group", "g", "--session", "-1s"}, []string{"--session"}},
		{[]string{"--scope", "cluster"}, []string{"--scope must be run or partition"}},
	} {
		refused(t, dir, 2, c.words, append(base, c.args...)...)
	}
	refused(t, dir, 2, []string{"--log has none"}, "run", "flow.yaml", "--log", "x.log", "--run-id", "r", "--store", "sqlite:r.db", "--scope", "partition")
	refused(t, dir, 3, []string{"CONFIG_INVALID", "heartbeat"}, append(base, "--group", "g", "--session", "100ms")...)
}

// TestScopePartitionsAdded: partitions that are added while daemons run are read from their beginning, and hold the merged watermark until then.
// What the group's offsets say, or that they are gone, changes nothing.
func TestScopePartitionsAdded(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	topic := newSmallTopic(t, addr, "grows", 2)
	send := topic.send
	send(0, 10)
	send(1, 10)
	path := filepath.Join(dir, "grow.db")
	a, b := start(t, dir, apartArgs(addr, "grows", "grow")...), start(t, dir, apartArgs(addr, "grows", "grow")...)
	both := []*process{a, b}
	until(t, "both partitions are read", both, func() bool { return total(apart(t, path, "grow")) == 20 })
	if _, err := topic.adm.CreatePartitions(t.Context(), 2, "grows"); err != nil {
		t.Fatal(err)
	}
	send(2, 10)
	send(3, 10)
	until(t, "the new ones too", both, func() bool { return total(apart(t, path, "grow")) == 40 })
	stop := func() {
		t.Helper()
		for _, p := range both {
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range both {
			if code := p.end(t); code != 0 {
				t.Errorf("exit %d\n%s", code, p.out.String())
			}
		}
	}
	stop()
	for n, change := range []func() error{
		func() error {
			var offsets kadm.Offsets
			for p := range int32(4) {
				offsets.AddOffset("grows", p, 3+int64(p)*2, -1)
			}
			return topic.adm.CommitAllOffsets(t.Context(), "grow", offsets)
		},
		func() error {
			_, err := topic.adm.DeleteGroup(t.Context(), "grow")
			return err
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(4) {
			send(p, 5)
		}
		a = start(t, dir, apartArgs(addr, "grows", "grow")...)
		both = []*process{a}
		until(t, "it goes on where the journal stands", both, func() bool { return total(apart(t, path, "grow")) >= int64(60+20*n) })
		stop()
		if got := total(apart(t, path, "grow")); got != int64(60+20*n) {
			t.Errorf("%d records", got)
		}
	}
	doc := parse(t, must(t, dir, "journal", "emit", "grow", "--flow", "flow.yaml", "--store", "sqlite:grow.db", "--json"))
	if doc["consumed"] != 80.0 || doc["duplicates_skipped"] != 0.0 || doc["late"] != 0.0 {
		t.Errorf("%v", doc)
	}
}

// smallTopic is a topic that a test fills by partition, event after event.
type smallTopic struct {
	t          *testing.T
	addr, name string
	adm        *kadm.Client
	sent       int
}

func newSmallTopic(t *testing.T, addr, name string, partitions int32) *smallTopic {
	t.Helper()
	s := &smallTopic{t: t, addr: addr, name: name}
	s.adm = kadm.NewClient(s.client())
	made, err := s.adm.CreateTopic(t.Context(), partitions, 1, nil, name)
	if err = errors.Join(err, made.Err); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *smallTopic) client() *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// send writes n events to a partition, by a client that knows of partitions which were just added.
func (s *smallTopic) send(p int32, n int) {
	s.t.Helper()
	client := s.client()
	for range n {
		value := fmt.Sprintf(`{"event_id":"e%d","instrument":"1","event_time":"2024-01-01T00:%02d:%02dZ","close":%d,"revision":0}`, s.sent, s.sent/60%60, s.sent%60, s.sent)
		if err := client.ProduceSync(s.t.Context(), &kgo.Record{Topic: s.name, Partition: p, Key: []byte("1"), Value: []byte(value)}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
		s.sent++
	}
}

// TestScopeRecover: a partition whose records were removed is blocked, the others go on, and it goes on once an operator has given them up.
func TestScopeRecover(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	topic := newSmallTopic(t, addr, "gap", 2)
	topic.send(0, 10)
	topic.send(1, 10)
	path := filepath.Join(dir, "gap.db")
	d := start(t, dir, apartArgs(addr, "gap", "gap")...)
	until(t, "everything is committed", []*process{d}, func() bool { return total(apart(t, path, "gap")) == 20 })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 {
		t.Fatalf("exit %d\n%s", code, d.out.String())
	}
	topic.send(0, 10)
	topic.send(1, 10)
	var before kadm.Offsets
	before.AddOffset("gap", 0, 15, -1)
	gone, err := topic.adm.DeleteRecords(t.Context(), before)
	if err = errors.Join(err, gone.Error()); err != nil {
		t.Fatal(err)
	}
	d = start(t, dir, apartArgs(addr, "gap", "gap")...)
	until(t, "the other partition goes on", []*process{d}, func() bool { return apart(t, path, "gap")[1] == 20 })
	if got := apart(t, path, "gap")[0]; got != 10 {
		t.Errorf("partition 0 stands at %d", got)
	}
	must(t, dir, "recover", "gap/0", "--store", "sqlite:gap.db", "--partition", "0", "--accept-gap", "--to", "15", "--who", "ana", "--reason", "retention was too short", "--apply")
	until(t, "it goes on behind the gap", []*process{d}, func() bool { return apart(t, path, "gap")[0] == 15 })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 || !strings.Contains(d.out.String(), "OFFSET_LOST") {
		t.Errorf("exit %d\n%s", code, d.out.String())
	}
}

// A run id that reads as that of a partition is refused wherever a run by itself gets its name, so that nobody takes over a partition of a shared run.
func TestRunIDsOfPartitionsAreNotGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "flow.yaml", string(fixture.Flow))
	write(t, dir, "data.jsonl", string(fixture.Snapshot))
	for _, args := range [][]string{
		{"run", "flow.yaml", "--brokers", "127.0.0.1:1", "--topic", "ticks", "--run-id", "pp/0", "--store", "sqlite:a.db"},
		{"run", "flow.yaml", "--brokers", "127.0.0.1:1", "--topic", "ticks", "--run-id", "pp/0", "--store", "sqlite:a.db", "--scope", "partition", "--group", "g"},
		{"batch", "run", "--flow", "flow.yaml", "--snapshot", "data.jsonl", "--hand-over-to", "pp/12", "--store", "sqlite:a.db", "--brokers", "127.0.0.1:1", "--topic", "ticks"},
	} {
		out := weir(t, dir, "", args...)
		if out.code != 3 || !strings.Contains(out.stderr, "RUN_ID_INVALID") || !strings.Contains(out.stderr, "pp/") {
			t.Errorf("%v: exit %d\n%s", args, out.code, out.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "a.db")); err == nil {
			t.Errorf("%v: a store was made", args)
		}
	}
}
