package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/fixture"
)

// TestAnotherInputIsNoticed: what stands in a target of a run was computed from one input. A fresh store that comes with the run's name and another input, or
// with one input dealt in another way, is refused before anything is left out behind the rows of the first or written after them; the very same input is not.
func TestAnotherInputIsNoticed(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for name, faults := range map[string]string{"one.log": "", "two.log": "faults.json"} {
		must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", faults, "--out", name)
	}
	for _, folder := range []string{"lines", "late"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: [{name: rows, type: jsonl, folder: lines}, {name: too-late, type: jsonl, folder: late}]\nlate: {sink: too-late}\n")
	run := func(store, log string, more ...string) []string {
		return append([]string{"run", "flow.yaml", "--log", log, "--run-id", "r", "--store", "sqlite:" + store}, more...)
	}
	must(t, dir, run("first.db", "one.log")...)
	want := rowsOfFiles(t, dir, "r")
	if len(want) == 0 {
		t.Fatal("nothing was published")
	}
	told := []string{"SINK_INVALID", "another sequence", "input or store", "another folder", "another id"}
	refused(t, dir, 3, told, run("second.db", "two.log")...)
	refused(t, dir, 3, told, run("third.db", "one.log", "--partitions", "2")...)
	must(t, dir, run("fourth.db", "one.log")...)
	if got := rowsOfFiles(t, dir, "r"); !slices.Equal(got, want) {
		t.Errorf("the folder holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAFreshStoreOverATopic: what a run of a topic has published also came of where it began and of decisions in its store, so a fresh store does not go on
// behind it, even at the same topic. The store that has published it does.
func TestAFreshStoreOverATopic(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopics(t.Context(), 2, 1, nil, "ema"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "lines"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(more ...string) []string {
		return append(runArgs(addr, "ticks", "r", "--sink", "jsonl:lines", "--sink", "kafka:ema"), more...)
	}
	must(t, dir, run("--until-n", "12")...)
	refused(t, dir, 3, []string{"SINK_INVALID", "another sequence", "input or store", " begun 20"}, run("--once-n", "23", "--store", "sqlite:fresh.db")...)
	must(t, dir, run("--once-n", "23", "--emit", "out.json")...)
	text, err := os.ReadFile(filepath.Join(dir, "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(rowsOfFiles(t, dir, "r")), len(parse(t, string(text))["values"].([]any)); got != want || got == 0 {
		t.Errorf("%d rows were published, want %d", got, want)
	}
}
