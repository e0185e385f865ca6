package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// TestOneFolderOfTwoSinks: one folder that is spelled in two ways, for rows and late events or by a flow and the command line, is found before anything is
// written: by lint, by lint --connect and by a run.
func TestOneFolderOfTwoSinks(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "arrivals.log", "")
	for _, folder := range []string{"x", "y"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": "x", "again": "link", "up": "."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const clash = "write to the same place"
	flowOf := func(late string) {
		write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: [{name: rows, type: jsonl, folder: x}, {name: too-late, type: jsonl, folder: '"+late+"'}]\nlate: {sink: too-late}\n")
	}
	run := []string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", "r", "--store", "sqlite:r.db"}
	for _, late := range []string{"link", "again", "up/x", filepath.Join(dir, "x"), "../" + filepath.Base(dir) + "/x"} {
		flowOf(late)
		for _, args := range [][]string{{"lint", "flow.yaml"}, {"lint", "--connect", "flow.yaml"}, run} {
			refused(t, dir, 3, []string{"CONFIG_INVALID", clash, `"rows"`, `"too-late"`}, args...)
		}
		doc := parse(t, weir(t, dir, "", "lint", "--json", "flow.yaml").stdout)["files"].([]any)[0].(map[string]any)
		if wrong, is := doc["error"].(map[string]any); doc["ok"] != false || !is || wrong["code"] != "CONFIG_INVALID" {
			t.Errorf("%s: %v", late, doc)
		}
	}
	// A folder that is not there yet is compared too.
	write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: [{name: rows, type: jsonl, folder: up/z/z}, {name: more, type: jsonl, folder: z/z}]\n")
	refused(t, dir, 3, []string{clash}, "lint", "flow.yaml")
	flowOf("./x/")
	refused(t, dir, 3, []string{"same place as sinks[0]"}, "lint", "flow.yaml")
	flowOf("y")
	must(t, dir, "lint", "--connect", "flow.yaml")
	for _, sink := range []string{"jsonl:./x", "jsonl:link", "jsonl:up/y"} {
		refused(t, dir, 3, []string{"CONFIG_INVALID", clash, sink}, append(run, "--sink", sink)...)
	}
	if made, _ := filepath.Glob(filepath.Join(dir, "[xy]", "*")); made != nil {
		t.Errorf("something was made: %v", made)
	}
	// Another format does not meet them: the next thing that is wrong is the log.
	refused(t, dir, 3, []string{"LOG_INVALID"}, append(run, "--sink", "csv:link")...)
}

// TestSwappedFolders: a run whose folders of rows and late events were exchanged between two processes is refused with the place, and goes on when they are put
// right; another flow under the same run id, on a new store, is refused too.
func TestSwappedFolders(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for _, folder := range []string{"x", "y"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	folders := func(file, text, rows, late string) {
		write(t, dir, file, text+"sinks: [{name: rows, type: jsonl, folder: "+rows+"}, {name: too-late, type: jsonl, folder: "+late+"}]\nlate: {sink: too-late}\n")
	}
	folders("right.yaml", string(fixture.Flow), "x", "y")
	folders("swapped.yaml", string(fixture.Flow), "y", "x")
	folders("other.yaml", strings.Replace(string(fixture.Flow), "lateness: ", "lateness: 1", 1), "x", "y")
	args := func(file string, until ...string) []string {
		a := append(runArgs(addr, "ticks", "r"), until...)
		a[1] = file
		return a
	}
	must(t, dir, args("right.yaml", "--until-n", "6")...)
	refused(t, dir, 3, []string{"SINK_INVALID", filepath.Join("y", "r"), "another sequence", "late ", "rows ", "another folder"}, args("swapped.yaml", "--until-n", "12")...)
	must(t, dir, args("right.yaml", "--once-n", "23")...)
	fresh := append(args("other.yaml", "--once-n", "23"), "--store", "sqlite:fresh.db")
	refused(t, dir, 3, []string{"SINK_INVALID", filepath.Join("x", "r"), "another sequence", "another id"}, fresh...)
}

// TestSecretsInAddresses: what may be a password is not shown, wherever it was written.
func TestSecretsInAddresses(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "arrivals.log", "")
	run := []string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", "r", "--store", "sqlite:r.db"}
	for name, c := range map[string]struct {
		exit int
		sink string
		args []string
	}{
		"brokers in a flow":     {3, `{name: p, type: kafka, topic: o, brokers: "u:canary@h:9092"}`, []string{"lint", "flow.yaml"}},
		"endpoint in a flow":    {3, `{name: p, type: kinesis, stream: o, endpoint: "https://u:canary@h"}`, []string{"lint", "--json", "flow.yaml"}},
		"brokers of a run":      {2, "", []string{"run", "flow.yaml", "--topic", "t", "--run-id", "r", "--store", "sqlite:r.db", "--brokers", "u:canary@h:9092"}},
		"endpoint of a run":     {3, "", append(run, "--sink", "kinesis:s", "--sink-region", "r", "--sink-endpoint", "https://u:canary@h")},
		"odd endpoint of a run": {3, "", append(run, "--sink", "kinesis:s", "--sink-region", "r", "--sink-endpoint", "https://u:canary%@h")},
	} {
		write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks: ["+c.sink+"]\n")
		r := weir(t, dir, "", c.args...)
		if r.code != c.exit || strings.Contains(r.stdout+r.stderr, "canary") {
			t.Errorf("%s: exit %d, want %d\n%s%s", name, r.code, c.exit, r.stdout, r.stderr)
		}
	}
	// A code is said once.
	write(t, dir, "flow.yaml", string(fixture.Flow)+`sinks: [{name: p, type: postgres, database: "env:NOT_SET_ANYWHERE", table: o}]`+"\n")
	for _, args := range [][]string{run, {"lint", "--connect", "flow.yaml"}} {
		r := refused(t, dir, 3, []string{"NOT_SET_ANYWHERE"}, args...)
		if n := strings.Count(r.stderr, "CONFIG_INVALID"); n != 1 {
			t.Errorf("the code is said %d times: %s", n, r.stderr)
		}
	}
}
