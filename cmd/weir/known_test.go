package main

import (
	"strings"
	"syscall"
	"testing"
)

// Questions about a run that the store does not hold are refused; an empty answer about one that it does hold is none.
func TestQuestionsAboutUnknownRuns(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	must(t, dir, strings.Fields("run flow.yaml --log arrivals.log --run-id ticks-1 --store sqlite:weir.db")...)
	id, _ := parse(t, must(t, dir, strings.Fields("runs submit --flow ema --snapshot monday --key k --store sqlite:weir.db --json")...))["id"].(string)
	on := func(command string) []string { return append(strings.Fields(command), "--store", "sqlite:weir.db") }
	for _, command := range []string{"checkpoint list", "lease refused", "status", "why", "journal show", "recover", "quarantine list"} {
		r := refused(t, dir, 3, []string{"RUN_UNKNOWN", `"tick-1"`}, on(command+" tick-1")...)
		if r.stdout != "" {
			t.Errorf("%s: %s", command, r.stdout)
		}
		refused(t, dir, 3, nil, on(command+" tick-1 --json")...)
	}
	for _, command := range []string{"checkpoint list", "lease refused"} {
		refused(t, dir, 2, []string{"the run id is empty"}, append(on(command), "")...)
		for _, run := range []string{"", " ticks-1"} {
			if out := must(t, dir, on(command+run)...); out != "none\n" {
				t.Errorf("%s%s: %s", command, run, out)
			}
		}
	}
	if out := must(t, dir, on("lease refused "+id)...); out != "none\n" || id == "" {
		t.Errorf("of the batch run %q: %s", id, out)
	}
}

// The checkpoints of a run that is shared out are those of the runs of its partitions.
func TestCheckpointsOfASharedRun(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	args := append(runArgs(addr, "ticks", "weir", "--scope", "partition", "--group", "g", "--artifacts", "art", "--epoch", "50ms"), "--verbose")
	run := startLogged(t, dir, "run", nil, args...)
	run.await(t, "a commit", func() bool { return strings.Contains(run.said(t), "msg=committed") })
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-run.done; err != nil {
		t.Fatalf("stopped with %v:\n%s", err, run.said(t))
	}
	out := must(t, dir, "checkpoint", "list", "weir", "--store", "sqlite:weir.db")
	if !strings.Contains(out, "\nweir/") || strings.Contains(out, "none") {
		t.Errorf("listed:\n%s", out)
	}
	must(t, dir, "checkpoint", "verify", "weir", "--store", "sqlite:weir.db", "--artifacts", "art")
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, "checkpoint", "list", "wei", "--store", "sqlite:weir.db")
}

// A command that is misspelled is named, whatever flags stand beside it; its flags are not told to be unknown.
func TestAMisspelledCommandWithFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for line, meant := range map[string]string{
		"quarantine lst ticks-1 --store sqlite:weir.db":    "weir quarantine list",
		"quarantine --store sqlite:weir.db lst ticks-1":    "weir quarantine list",
		"--json checkpoint lsit --store sqlite:weir.db":    "weir checkpoint list",
		"-v lease refsed --store=sqlite:weir.db":           "weir lease refused",
		"rn flow.yaml --run-id r":                          "weir run",
		"batch wrker --store sqlite:weir.db --artifacts a": "weir batch worker",
	} {
		r := refused(t, dir, 2, []string{"unknown command", "Did you mean `" + meant + "`?"}, strings.Fields(line)...)
		if strings.Contains(r.stderr, "unknown flag") || strings.HasPrefix(line, "--json") && !strings.Contains(r.stdout, meant) {
			t.Errorf("%s: %s%s", line, r.stderr, r.stdout)
		}
	}
	refused(t, dir, 2, []string{"unknown flag: --nope"}, "quarantine", "--nope")
	refused(t, dir, 2, []string{"unknown flag: --stor", "Did you mean `--store`?"}, "quarantine", "list", "--stor", "x")
}

// What helps is told once, also where the message says it already.
func TestACureIsToldOnce(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	args := strings.Fields("run flow.yaml --log arrivals.log --run-id ticks-1 --store sqlite:weir.db")
	must(t, dir, args...)
	r := refused(t, dir, 3, []string{"RUN_FINISHED", "ticks-1"}, args...)
	if n := strings.Count(r.stderr, "new --run-id"); n != 1 {
		t.Errorf("the cure is told %d times:\n%s", n, r.stderr)
	}
	doc := parse(t, refused(t, dir, 3, nil, append(args, "--json")...).stdout)["error"].(map[string]any)
	if doc["cure"] != "Use a new --run-id." {
		t.Errorf("%v", doc)
	}
}
