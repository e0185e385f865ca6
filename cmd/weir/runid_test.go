package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sources/logfile"
)

// A new run id that nobody could type, or tell from another, is refused before the input is opened.
func TestRunIDsThatNobodyCanType(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for _, id := range []string{"h 3", " ", " r", "r\t", "a\nb", "a\u00a0b", "a\u202eb", "a\x00b", "a\u200bb", "\x1b[2J", "-x", "--json"} {
		if strings.Contains(id, "\x00") {
			continue // no process can be given it
		}
		for _, args := range [][]string{
			{"run", "flow.yaml", "--log", "nowhere.log", "--run-id=" + id, "--store", "sqlite:weir.db"},
			{"batch", "run", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl", "--hand-over-to=" + id, "--store", "sqlite:weir.db", "--brokers", "127.0.0.1:1", "--topic", "t"},
		} {
			r := refused(t, dir, 3, []string{"RUN_ID_INVALID"}, args...)
			if strings.ContainsAny(r.stderr, "\x1b\u202e") {
				t.Errorf("%q is told as it is: %q", id, r.stderr)
			}
		}
	}
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	for _, id := range []string{"é", "a/b", "a:b", "..", "ticks_1-2.x@y", "日本"} {
		must(t, dir, "run", "flow.yaml", "--log", "arrivals.log", "--run-id", id, "--store", "sqlite:weir.db", "--artifacts", "art")
	}
}

// A run that was begun under such a name goes on all the same: releases before this one took it.
func TestRunsUnderFormerNamesGoOn(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	for _, id := range []string{"night run", "-x", "a\u200bb"} {
		begin(t, dir, id)
		must(t, dir, "run", "flow.yaml", "--log", "arrivals.log", "--run-id="+id, "--store", "sqlite:weir.db", "--emit", "out.json")
	}
	refused(t, dir, 3, []string{"RUN_ID_INVALID"}, "run", "flow.yaml", "--log", "arrivals.log", "--run-id", "night  run", "--store", "sqlite:weir.db")
}

// begin makes a run of arrivals.log with nothing committed, as a process does that is killed at once.
func begin(t *testing.T, dir, id string) {
	t.Helper()
	plan, err := (&app{}).loadFlow(filepath.Join(dir, "flow.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := logfile.NewSource(filepath.Join(dir, "arrivals.log"), logfile.SourceConfig{Partitions: 1}).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store, err := openStore(t.Context(), "sqlite:"+filepath.Join(dir, "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	header := control.RunHeader{RunID: id, Fingerprint: plan.Fingerprint, Source: "arrivals.log", SourceID: info.ID, Partitions: info.Partitions}
	if _, err := store.OpenRun(t.Context(), header); err != nil {
		t.Fatal(err)
	}
}

// What is given and means nothing is refused, and not taken for what was left out.
func TestFlagsThatMeanNothing(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for line, words := range map[string]string{
		"tap --url http://127.0.0.1:1 -n -1":                                                        "--number",
		"tap --url http://127.0.0.1:1 --partition -2":                                               "--partition",
		"run flow.yaml --log arrivals.log --run-id r --store sqlite:weir.db --max-skew -1s":         "--max-skew",
		"run flow.yaml --log arrivals.log --run-id r --store sqlite:weir.db --min-free-disk -7":     "--min-free-disk",
		"gap close r --partition 0 --key k --sequence abc --reason x":                               `"abc" for "--sequence" flag: it is not a whole number`,
		"gap close r --partition 0 --key k --sequence 99999999999999999999":                         `for "--sequence" flag: it is beyond the numbers`,
		"run flow.yaml --epoch 5":                                                                   `"5" for "--epoch" flag: it is no duration, such as`,
		"run flow.yaml --epoch x":                                                                   `it is no duration`,
		"run flow.yaml --standby=perhaps":                                                           `it is neither true nor false`,
		"replay generate --rate many":                                                               `"many" for "--rate" flag: it is not a number`,
		"runs submit --store sqlite:weir.db --flow ema --snapshot monday --key=":                    "--key is empty",
		"run flow.yaml --log arrivals.log --run-id r --store sqlite:weir.db --once-n 3 --until-n 2": "give one of them",
		"run flow.yaml --log arrivals.log --run-id r --store sqlite:weir.db --epoch 0s":             "--epoch",
		"run flow.yaml --log arrivals.log --run-id r --store sqlite:weir.db --checkpoint-every -1s": "--checkpoint-every",
		"batch worker --store sqlite:weir.db --artifacts a --flows . --snapshots . --poll 0s":       "--poll",
		"recover r --store sqlite:weir.db --partition -3 --retry --reason x":                        "--partition -3",
		"outbox release x --store sqlite:weir.db":                                                   `"x" is not the id of an event`,
	} {
		if line[:6] == "outbox" || line[:7] == "recover" {
			must(t, dir, strings.Fields("runs submit --store sqlite:weir.db --flow ema --snapshot monday --key k")...)
		}
		if r := refused(t, dir, 2, []string{words}, strings.Fields(line)...); strings.Contains(r.stderr, "strconv") || strings.Contains(r.stderr, "time:") {
			t.Errorf("%s: %s", line, r.stderr)
		}
	}
	refused(t, dir, 7, []string{"outbox event 1 is not claimed by anyone"}, strings.Fields("outbox release 1 --store sqlite:weir.db")...)
}

// A stretch of time in a log of documents says its unit.
func TestTimesInJSONLogsHaveUnits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &out}
	a.useLog(logFlags{logFormat: "json", logLevel: "info"})
	a.log.Info("committed", "commit", 1500*time.Microsecond, "epoch", 3)
	var doc map[string]any
	if err := json.Unmarshal([]byte(out.String()), &doc); err != nil || doc["commit"] != "1.5ms" || doc["epoch"] != 3.0 {
		t.Errorf("%s: %v", out.String(), err)
	}
}

// A run that was submitted is the same whenever it is submitted again, even if its snapshot is gone by then.
func TestSubmittedBeforeItsNamesWereGone(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for from, to := range map[string]string{"flow.yaml": "flows/ema.yaml", "snapshot.jsonl": "snapshots/monday.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, from))
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(to)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	submit := strings.Fields("runs submit --store sqlite:weir.db --flow ema --snapshot monday --flows flows --snapshots snapshots --json --key")
	first := parse(t, must(t, dir, append(submit, "k")...))
	if err := os.Remove(filepath.Join(dir, "snapshots/monday.jsonl")); err != nil {
		t.Fatal(err)
	}
	again := parse(t, must(t, dir, append(submit, "k")...))
	if again["id"] != first["id"] || again["created_now"] != false || first["created_now"] != true {
		t.Errorf("%v, then %v", first, again)
	}
	refused(t, dir, 3, []string{"NAME_UNKNOWN", "monday"}, append(submit, "k2")...)
	refused(t, dir, 2, []string{"--key is empty"}, append(submit, "")...)
}
