package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const selectsByPrice = `flow: weir/1
name: closing-ema
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
select: {field: close, equals: "1"}
lateness: 1d
operators:
  - {name: ema3, type: ema, input: close, period: 3}
outputs: [ema3]
`

// A choice that waits for the process that reads a log to its end is taken by it, and the run ends as if the flow had been right from the start.
func TestAReplayBeforeTheEndOfALog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mended := strings.Replace(selectsByPrice, "select: {field: close, equals: \"1\"}\n", "", 1)
	for name, text := range map[string]string{"p1.yaml": selectsByPrice, "p2.yaml": mended} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, dir, strings.Fields("replay generate --events 300 --instruments 5 --seed 1 --gaps 0.02 --disorder 0.2 --max-delay 30s --snapshot all.jsonl --faults faults.json")...)
	must(t, dir, strings.Fields("replay build --snapshot all.jsonl --faults faults.json --out all.log")...)
	at := func(line string, more ...string) []string {
		return append(append(strings.Fields(line), "--store", "sqlite:q.db"), more...)
	}
	run := func(id, flow string, more ...string) map[string]any {
		must(t, dir, at("run "+flow+" --log all.log --artifacts art --epoch 1h --emit "+id+".json --run-id "+id, more...)...)
		text, err := os.ReadFile(filepath.Join(dir, id+".json"))
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(text))
	}
	want := run("want", "p2.yaml")
	run("p1", "p1.yaml", "--until-n", "300")
	must(t, dir, at("checkpoint restore p1 1 --as p2 --flow p2.yaml --mended --artifacts art")...)
	must(t, dir, at("quarantine replay p2 --kinds UNREADABLE --reason mended --apply")...)
	got := run("p2", "p2.yaml")
	if got["status"] != want["status"] || got["values_hash"] != want["values_hash"] || got["replayed"] == 0.0 {
		t.Errorf("got %v\nwant %v", got, want)
	}
	doc := parse(t, must(t, dir, at("recover p2 --json")...))
	asked := doc["interventions"].([]any)
	for _, i := range asked {
		if m := i.(map[string]any); m["outcome"] != string(control.Applied) {
			t.Errorf("%v", m)
		}
	}
	if doc["status"] != "FINISHED" || len(asked) == 0 {
		t.Errorf("%v", doc)
	}
}

// scopedAsides makes a store whose run sc is shared out by partitions, each of which has set a record aside.
func scopedAsides(t *testing.T, dir string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for p := range int32(2) {
		id := control.PartID("sc", p)
		if _, err := store.OpenRun(t.Context(), control.RunHeader{RunID: id, Fingerprint: "f", Source: "in", Partitions: []int32{p}}); err != nil {
			t.Fatal(err)
		}
		err := store.Commit(t.Context(), control.Commit{RunID: id, Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime, Partitions: []control.PartitionCommit{{
			Cut: partitions.Cut{Partition: p, Next: record.Offset(10), Watermark: record.NoTime},
			Quarantine: []partitions.Quarantined{{Partition: p, Position: record.Offset(3), Reason: partitions.ReasonUnreadable, Detail: "not JSON", EventTime: record.NoTime, Arrival: record.NoTime,
				Key: []byte("k"), Value: []byte("v")}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The runs of a run that is shared out by partitions are found by its name, or named.
func TestTheQuarantineOfASharedRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scopedAsides(t, dir)
	if all := parse(t, must(t, dir, args("quarantine list sc --json", onStore)...)); all["total"] != 2.0 {
		t.Errorf("%v", all)
	}
	if one := parse(t, must(t, dir, args("quarantine list sc --partition 1 --json", onStore)...)); one["total"] != 1.0 {
		t.Errorf("%v", one)
	}
	if out := must(t, dir, args("quarantine show sc 1 3", onStore)...); !strings.Contains(out, "not JSON") {
		t.Errorf("%s", out)
	}
	out := must(t, dir, args("quarantine drop sc --reason garbage --apply", onStore)...)
	for _, part := range []string{"`weir recover sc/0`", "`weir recover sc/1`"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in %s", part, out)
		}
	}
	if one := parse(t, must(t, dir, args("quarantine replay sc --partition 1 --reason mended --apply --json", onStore)...)); one["run"] != "sc/1" || len(one["interventions"].([]any)) != 1 {
		t.Errorf("%v", one)
	}
	if out := must(t, dir, args("recover sc --partition 1", onStore)...); !strings.Contains(out, "run sc/1") {
		t.Errorf("%s", out)
	}
	refused(t, dir, 3, []string{"RUN_UNKNOWN", "sc/0, sc/1", "--partition"}, args("recover sc", onStore)...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN", "sc/0, sc/1"}, args("recover sc --retry --reason back", onStore)...)
	must(t, dir, args("idle confirm sc --partition 1 --reason closed", onStore)...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN", "sc/0, sc/1"}, args("quarantine redrive sc --brokers 127.0.0.1:1 --topic t", onStore)...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, args("quarantine list other", onStore)...)
}

// What chooses nothing, or everything by mistake, is refused.
func TestWhatChoosesNoEntries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asideStore(t, dir)
	for _, command := range []string{"quarantine list", "quarantine replay", "quarantine drop", "recover"} {
		for _, n := range []string{"-5", "-1", "2147483648"} {
			refused(t, dir, 2, []string{"--partition " + n}, args(command+" r-1 --partition="+n, onStore)...)
		}
	}
	for _, command := range []string{"list", "replay", "drop"} {
		refused(t, dir, 2, []string{"--kinds NOPE", "UNREADABLE, TOMBSTONE", "DEAD_LETTER"}, args("quarantine "+command+" r-1 --kinds NOPE", onStore)...)
	}
	for _, command := range []string{"idle confirm", "gap close --key k --sequence 1"} {
		refused(t, dir, 2, []string{"--partition"}, args(command+" r-1 --reason x --partition=-5", onStore)...)
	}
}
