package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/record"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/logfile"
)

// arrival is one record of the fixture's log of 23 arrivals.
type arrival struct {
	id        string
	partition int32
	lost      bool // a tombstone
}

// arrivals reads the log in the order of arrival.
func arrivals(t *testing.T, path string) []arrival {
	t.Helper()
	ctx := context.Background()
	r, err := logfile.NewSource(path, logfile.SourceConfig{Partitions: 1}).Open(ctx, map[int32]record.Position{0: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []arrival
	for {
		batches, err := r.Poll(ctx, 0)
		for _, b := range batches {
			for _, rec := range b.Records {
				a := arrival{partition: record.PartitionOf(rec.Key, 4), lost: rec.Value == nil}
				for _, h := range rec.Headers {
					if h.Key == record.HeaderEventID {
						a.id = string(h.Value)
					}
				}
				all = append(all, a)
			}
		}
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// markAfter writes the mark that would have been made after the first n arrivals.
func markAfter(t *testing.T, dir, addr, topic string, log []arrival, n int) string {
	t.Helper()
	s, err := kafka.New(kafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int32]record.Position{0: {}, 1: {}, 2: {}, 3: {}}
	for _, a := range log[:n] {
		ends[a.partition] = ends[a.partition].Next()
	}
	m := handoff.Mark(topic, info.ID, ends)
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return write(t, dir, fmt.Sprintf("mark-%d.json", n), string(b))
}

// historyAfter writes the rows of the events that are among the first n arrivals, and how many there are.
func historyAfter(t *testing.T, dir string, log []arrival, n int) (path string, rows int) {
	t.Helper()
	came := map[string]bool{}
	for _, a := range log[:n] {
		came[a.id] = came[a.id] || !a.lost
	}
	var b strings.Builder
	for line := range strings.Lines(string(fixture.Snapshot)) {
		var row struct {
			ID string `json:"event_id"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if came[row.ID] {
			b.WriteString(line)
			rows++
		}
	}
	return write(t, dir, fmt.Sprintf("history-%d.jsonl", n), b.String()), rows
}

func handOverArgs(addr, topic, run, store, history, mark string, more ...string) []string {
	return append([]string{"batch", "run", "--flow", "flow.yaml", "--snapshot", history, "--hand-over-to", run, "--store", store,
		"--brokers", addr, "--topic", topic, "--at", mark, "--group", "g"}, more...)
}

func streamArgs(addr, topic, run, store string, onceN int, more ...string) []string {
	return append([]string{"run", "flow.yaml", "--brokers", addr, "--topic", topic, "--group", "g", "--run-id", run, "--store", store, "--once-n", fmt.Sprint(onceN), "--json"}, more...)
}

// The golden fixture, with its seven faults, at splits of the 23 arrivals: the history of what came before the split, or of some more, and the
// stream from the split give the golden hash.
func TestHandOverIsGolden(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	log := arrivals(t, filepath.Join(dir, "arrivals.log"))
	if len(log) != 23 {
		t.Fatalf("%d arrivals", len(log))
	}
	for _, c := range []struct{ split, known int }{{0, 0}, {0, 23}, {1, 1}, {4, 9}, {7, 7}, {11, 23}, {12, 12}, {17, 18}, {22, 22}, {23, 23}} {
		run := fmt.Sprintf("split-%d-%d", c.split, c.known)
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			history, rows := historyAfter(t, t.TempDir(), log, c.known)
			mark := markAfter(t, t.TempDir(), addr, "ticks", log, c.split)
			store := "sqlite:" + run + ".db"
			must(t, dir, handOverArgs(addr, "ticks", run, store, history, mark, "--manifest", run+".json")...)
			checks := parse(t, must(t, dir, "handoff", "verify", run+".json", "--store", store, "--brokers", addr, "--json"))
			if checks["ok"] != true || checks["kind"] != "BATCH" {
				t.Errorf("%v", checks)
			}
			doc := parse(t, must(t, dir, streamArgs(addr, "ticks", run, store, rows+23-c.split)...))
			if doc["values_hash"] != fixture.ValuesHash || doc["consumed"] != 6.0 || doc["late"] != 0.0 {
				t.Errorf("%v", doc)
			}
			if want := map[string]any{"0": 6.0, "3": 17.0}; !reflect.DeepEqual(doc["positions"], want) {
				t.Errorf("positions %v", doc["positions"])
			}
		})
	}
}

// Killed with SIGKILL at each of its commits, before it, within it and after it, the hand-over goes on when it is started again; the stream
// refuses the half of a history.
func TestHandOverKilled(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	log := arrivals(t, filepath.Join(dir, "arrivals.log"))
	history, rows := historyAfter(t, dir, log, 20)
	mark := markAfter(t, dir, addr, "ticks", log, 15)
	for _, kind := range []string{"sqlite", "postgres"} {
		for i, point := range []string{"before_commit@1", "store:commit@1", "after_commit@1", "store:commit@2", "after_commit@3"} {
			run := fmt.Sprintf("%s-%d", kind, i)
			t.Run(kind+"/"+point, func(t *testing.T) {
				t.Parallel()
				where, line := "sqlite:"+run+".db", &succession{dir: dir}
				if kind == "postgres" {
					db := migrated(t)
					where, line.super = db.Runtime, db.Super
				}
				args := handOverArgs(addr, "ticks", run, where, history, mark, "--commit-bytes", "1", "--fetch", "4", "--standby", "--json")
				line.kill(t, point, args...)
				if begun := strings.HasPrefix(point, "after") || strings.HasSuffix(point, "@2"); begun {
					stream := streamArgs(addr, "ticks", run, where, rows+8, "--standby")
					line.run(t, "", stream...).refused(t, 6, []string{"HANDOVER_UNFINISHED", "--hand-over-to"}, stream...)
					refused(t, dir, 6, []string{"HANDOVER_UNFINISHED"}, "handoff", "export", run, "--store", where)
				} else {
					// A run without its history would be taken for a new one.
					refused(t, dir, 3, []string{"RUN_UNKNOWN"}, "journal", "show", run, "--store", where)
				}
				doc := parse(t, line.next(t, "", args...).stdout)
				if doc["kind"] != "BATCH" || doc["history"].(map[string]any)["records"] != float64(rows) {
					t.Errorf("%v", doc)
				}
				result := parse(t, line.next(t, "", streamArgs(addr, "ticks", run, where, rows+8)...).stdout)
				if result["values_hash"] != fixture.ValuesHash || result["consumed"] != 6.0 {
					t.Errorf("%v", result)
				}
			})
		}
	}
}

// A hand-over that is stopped for longer than its lease lasts, just before a commit, is taken over by another one, which ends it. Woken, the
// first is refused at that commit, and leaves no manifest.
func TestHandOverStopped(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	log := arrivals(t, filepath.Join(dir, "arrivals.log"))
	history, rows := historyAfter(t, dir, log, 20)
	mark := markAfter(t, dir, addr, "ticks", log, 15)
	args := handOverArgs(addr, "ticks", "s", "sqlite:s.db", history, mark, "--commit-bytes", "1", "--fetch", "4", "--ttl", "3s")
	first := startLogged(t, dir, "first", []string{failpointsEnv + "=before_commit@2=stop"}, append(args, "--manifest", "first.json")...)
	first.await(t, "the stop", func() bool { return strings.Contains(first.said(t), `{"action":"stop"`) })
	must(t, dir, append(args, "--manifest", "second.json", "--standby")...)
	first.Process.Signal(syscall.SIGCONT)
	if code := first.end(t); code != 7 || !strings.Contains(first.said(t), "STREAM_FENCE_OBSOLETO") {
		t.Errorf("exit %d:\n%s", code, first.said(t))
	}
	if !missing(filepath.Join(dir, "first.json")) {
		t.Error("the first has left a manifest")
	}
	must(t, dir, "handoff", "verify", "second.json", "--store", "sqlite:s.db", "--brokers", addr)
	doc := parse(t, must(t, dir, streamArgs(addr, "ticks", "s", "sqlite:s.db", rows+8)...))
	if doc["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v", doc)
	}
}

// startWith starts a process with one more variable in its environment.
func startWith(t *testing.T, dir, env string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, dir, args...), done: make(chan error, 1)}
	p.Env = append(p.Env, env)
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

// A planned change of owner: the manifest of the first holds under the second, which begins where the first ended, under the next token.
func TestOwnerToOwner(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	db := filepath.Join(dir, "o.db")
	args := []string{"run", "flow.yaml", "--brokers", addr, "--topic", "ticks", "--run-id", "o", "--store", "sqlite:o.db", "--epoch-records", "1"}
	first := start(t, dir, args...)
	first.await(t, db, 23)
	must(t, dir, "handoff", "export", "o", "--store", "sqlite:o.db", "--brokers", addr, "--out", "o.json")
	second := start(t, dir, append(args, "--standby", "--once-n", "46", "--json")...)
	first.Process.Signal(syscall.SIGTERM)
	if code := first.end(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, first.out.String())
	}
	must(t, dir, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", "ticks")
	if code := second.end(t); code != 0 || !strings.Contains(second.out.String(), fixture.ValuesHash) {
		t.Errorf("exit %d:\n%s", code, second.out.String())
	}
	// The run has ended, so it cannot be continued any more; every other claim still holds.
	r := weir(t, dir, "", "handoff", "verify", "o.json", "--store", "sqlite:o.db", "--brokers", addr)
	if r.code != 4 || strings.Count(r.stdout, "FAILED") != 1 || !strings.Contains(r.stdout, "FINISHED") {
		t.Errorf("exit %d:\n%s", r.code, r.stdout)
	}
	if !strings.Contains(r.stdout, "the run was written under token 2 last, the manifest under 1") {
		t.Errorf("the second owner has no higher token:\n%s", r.stdout)
	}
	refused(t, dir, 3, []string{"RUN_FINISHED", "nothing to hand over"}, "handoff", "export", "o", "--store", "sqlite:o.db")
}

// without leaves a flag and its value out.
func without(args []string, flag string) []string {
	i := slices.Index(args, flag)
	return append(slices.Clone(args[:i]), args[i+2:]...)
}

// oddlyDealt makes a topic whose producer does not deal by the key that the flow reads.
func oddlyDealt(t *testing.T, addr, topic string) {
	t.Helper()
	ctx := context.Background()
	p, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.EnsureTopic(ctx, 4); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		value := fmt.Appendf(nil, `{"event_id":"x%d","instrument":"1","event_time":"2026-01-05T15:00:00Z","close":1}`, i)
		if err := p.Produce(ctx, record.Record{Key: fmt.Appendf(nil, "user-%d", i), Value: value, Arrival: record.NoTime}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// A login that may only read is told so; one that may write does all of it on PostgreSQL.
func TestHandOverToAReader(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	db := pgtest.Database(t, func(ctx context.Context, url string) error {
		_, err := postgres.Migrate(ctx, url)
		return err
	})
	args := without(handOverArgs(addr, "ticks", "r", db.Reader, "snapshot.jsonl", ""), "--at")
	refused(t, dir, 3, []string{"STORE_DENIED", "weir_runtime"}, args...)
	must(t, dir, without(handOverArgs(addr, "ticks", "r", db.Runtime, "snapshot.jsonl", ""), "--at")...)
	must(t, dir, "handoff", "export", "r", "--store", db.Runtime, "--out", "r.json")
	must(t, dir, "handoff", "verify", "r.json", "--store", db.Runtime, "--brokers", addr)
}

// What does not fit is refused with its code, and nothing is written.
func TestHandOverRefusals(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	log := arrivals(t, filepath.Join(dir, "arrivals.log"))
	history, _ := historyAfter(t, dir, log, 23)
	mark := markAfter(t, dir, addr, "ticks", log, 23)
	other := strings.Replace(string(fixture.Flow), "period: 3", "period: 4", 1)
	write(t, dir, "other.yaml", other)
	shorter, _ := historyAfter(t, dir, log, 9)
	must(t, dir, handOverArgs(addr, "ticks", "there", "sqlite:there.db", history, mark, "--manifest", "there.json")...)
	must(t, dir, runArgs(addr, "ticks", "stream", "--until-n", "5")...)
	must(t, dir, runArgs(addr, "ticks", "ended", "--once-n", "23")...)
	owner := start(t, dir, runArgs(addr, "ticks", "owned", "--epoch-records", "1")...)
	owner.await(t, filepath.Join(dir, "owned.db"), 23)
	must(t, dir, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", "narrow", "--create-partitions", "2")
	oddlyDealt(t, addr, "odd")
	text, err := os.ReadFile(filepath.Join(dir, "there.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "changed.json", strings.Replace(string(text), `"epoch":1`, `"epoch":2`, 1))
	write(t, dir, "bad.jsonl", `{"event_id":"a","instrument":"1","event_time":"2026-01-05T14:30:00Z","close":"much"}`+"\n")

	over := func(run string, more ...string) []string {
		return handOverArgs(addr, "ticks", run, "sqlite:"+run+".db", history, mark, more...)
	}
	with := func(args []string, flag, value string) []string {
		args = append([]string(nil), args...)
		for i := range args {
			if args[i] == flag {
				args[i+1] = value
			}
		}
		return args
	}
	for name, c := range map[string]struct {
		exit  int
		words []string
		args  []string
	}{
		"a run that a stream began":      {3, []string{"RUN_MISMATCH", "is no hand-over of this history"}, over("stream")},
		"a run that has ended":           {3, []string{"RUN_FINISHED"}, over("ended")},
		"a run with an owner":            {7, []string{"STREAM_LEASE_OCUPADO", "owned"}, over("owned")},
		"another flow":                   {3, []string{"RUN_MISMATCH", "fingerprint"}, with(over("there", "--standby"), "--flow", "other.yaml")},
		"another history":                {3, []string{"RUN_MISMATCH", "no hand-over of this history"}, with(over("there", "--standby"), "--snapshot", shorter)},
		"another mark":                   {3, []string{"RUN_MISMATCH", "asked to"}, with(over("there", "--standby"), "--at", markAfter(t, dir, addr, "ticks", log, 9))},
		"a topic that is not there":      {3, []string{"TOPIC_MISSING", "nowhere"}, with(over("new"), "--topic", "nowhere")},
		"another topic than the mark's":  {6, []string{"TOPIC_RECREATED", "TOPIC_PARTITIONS"}, with(over("new"), "--topic", "narrow")},
		"no broker":                      {5, []string{"BROKER_UNREACHABLE"}, with(over("new"), "--brokers", "127.0.0.1:1")},
		"a manifest in place of a mark":  {3, []string{"CONFIG_INVALID", "weir handoff mark"}, with(over("new"), "--at", "there.json")},
		"a mark that was changed":        {3, []string{"DOCUMENT_INVALID", "hash"}, with(over("new"), "--at", "changed.json")},
		"a row that is not readable":     {3, []string{"SNAPSHOT_INVALID", "bad.jsonl:1"}, with(over("new"), "--snapshot", "bad.jsonl")},
		"no snapshot":                    {3, []string{"FILE_MISSING"}, with(over("new"), "--snapshot", "none.jsonl")},
		"a topic dealt otherwise":        {3, []string{"CONFIG_INVALID", "deals keys otherwise", "replay publish"}, without(with(over("new"), "--topic", "odd"), "--at")},
		"a store in a missing folder":    {5, []string{"STORE_UNAVAILABLE"}, with(over("new"), "--store", "sqlite:none/x.db")},
		"the manifest over the history":  {3, []string{"CONFIG_INVALID", "overwrite"}, over("new", "--manifest", history)},
		"a manifest in a missing folder": {1, []string{"OUTPUT_UNWRITABLE"}, over("new", "--manifest", "none/m.json")},
		"a lease too short":              {3, []string{"CONFIG_INVALID", "--ttl"}, over("new", "--ttl", "1ms")},
		"an emit document":               {2, []string{"--emit"}, over("new", "--emit", "x.json")},
		"an arrival log":                 {2, []string{"arrival log"}, []string{"batch", "run", "--flow", "flow.yaml", "--log", "arrivals.log", "--hand-over-to", "new"}},
		"no store":                       {2, []string{"--store"}, []string{"batch", "run", "--flow", "flow.yaml", "--snapshot", history, "--hand-over-to", "new"}},
		"no topic":                       {2, []string{"--topic"}, []string{"batch", "run", "--flow", "flow.yaml", "--snapshot", history, "--hand-over-to", "new", "--store", "sqlite:new.db"}},
		"flags without a run":            {2, []string{"--hand-over-to"}, []string{"batch", "run", "--flow", "flow.yaml", "--snapshot", history, "--at", mark}},
		"commits of nothing":             {2, []string{"--commit-bytes"}, over("new", "--commit-bytes", "0")},

		"export of no run":           {3, []string{"RUN_UNKNOWN", "nobody"}, []string{"handoff", "export", "nobody", "--store", "sqlite:there.db"}},
		"export from no store":       {3, []string{"FILE_MISSING"}, []string{"handoff", "export", "there", "--store", "sqlite:none.db"}},
		"export over the store":      {3, []string{"CONFIG_INVALID", "overwrite"}, []string{"handoff", "export", "there", "--store", "sqlite:there.db", "--out", "there.db"}},
		"export with another topic":  {3, []string{"RUN_MISMATCH", "narrow"}, []string{"handoff", "export", "there", "--store", "sqlite:there.db", "--brokers", addr, "--topic", "narrow"}},
		"verify of a changed file":   {3, []string{"DOCUMENT_INVALID", "was changed"}, []string{"handoff", "verify", "changed.json", "--store", "sqlite:there.db"}},
		"verify of another document": {3, []string{"DOCUMENT_INVALID"}, []string{"handoff", "verify", "faults.json", "--store", "sqlite:there.db"}},
		"verify of nothing":          {3, []string{"FILE_MISSING"}, []string{"handoff", "verify", "none.json", "--store", "sqlite:there.db"}},
		"verify without a store":     {2, []string{"--store"}, []string{"handoff", "verify", "there.json"}},
		"verify of a mark in store":  {2, []string{"--brokers"}, []string{"handoff", "verify", mark, "--store", "sqlite:there.db"}},
		"verify of a mark alone":     {2, []string{"--brokers"}, []string{"handoff", "verify", mark}},
		"mark without a topic":       {2, []string{"--topic"}, []string{"handoff", "mark", "--brokers", addr}},
		"mark of no topic":           {3, []string{"TOPIC_MISSING"}, []string{"handoff", "mark", "--brokers", addr, "--topic", "nowhere"}},
		"an empty address":           {2, []string{"empty address"}, []string{"handoff", "mark", "--brokers", "a:1,,b:2", "--topic", "ticks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, dir, c.exit, c.words, c.args...)
		})
	}
	t.Run("claims that do not hold", func(t *testing.T) {
		t.Parallel()
		r := weir(t, dir, "", "handoff", "verify", "there.json", "--store", "sqlite:stream.db", "--json")
		if doc := parse(t, r.stdout); r.code != 4 || doc["ok"] != false || !strings.Contains(r.stdout, "RUN_KNOWN") {
			t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
		}
		must(t, dir, "handoff", "verify", mark, "--brokers", addr)
		if r := weir(t, dir, "", "handoff", "verify", mark, "--brokers", addr, "--topic", "narrow"); r.code != 4 || !strings.Contains(r.stdout, "FAILED  TOPIC_ID") {
			t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
		}
	})
}
