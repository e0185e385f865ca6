package main

import (
	"fmt"
	"strings"
	"testing"
)

// Records that are given up while nobody runs a run are passed over by the next process, be it one that ends when it is blocked, or one with a number of records.
func TestRecoverARunThatEnds(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	p, start := loseRecords(t, addr, "ticks")
	for run, end := range map[string][]string{
		"counted": {"--once-n", fmt.Sprint(23 - start)},
		"leaving": {"--exit-when-blocked", "--until-n", fmt.Sprint(23 - start)},
	} {
		args := append(runArgs(addr, "ticks", run), end...)
		on := []string{"recover", run, "--store", "sqlite:" + run + ".db"}
		refused(t, dir, 6, []string{"OFFSET_LOST", fmt.Sprintf("partition %d", p)}, args...)
		choose := append(on, "--accept-gap", "--to", fmt.Sprint(start), "--partition", fmt.Sprint(p), "--who", "ana", "--reason", "the disk was lost", "--apply")
		if out := must(t, dir, choose...); !strings.Contains(out, "the next owner applies it") {
			t.Errorf("%s: %s", run, out)
		}
		must(t, dir, args...)
		doc := parse(t, must(t, dir, append(on, "--json")...))
		if got := doc["interventions"].([]any)[0].(map[string]any); got["outcome"] != "APPLIED" || (doc["status"] == "FINISHED") != (run == "counted") {
			t.Errorf("%s: %v", run, doc)
		}
		must(t, dir, append([]string{"status", run}, on[2:]...)...)
	}
}
