package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// loseRecords deletes all records but the last of the fullest partition, and says which that is and where its log begins now.
func loseRecords(t *testing.T, addr, topic string) (partition int32, start int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > start+1 {
			partition, start = o.Partition, o.Offset-1
		}
	})
	var at kadm.Offsets
	at.AddOffset(topic, partition, start, -1)
	done, err := adm.DeleteRecords(t.Context(), at)
	if err = errors.Join(err, done.Error()); err != nil || start < 2 {
		t.Fatalf("nothing was deleted before %d: %v", start, err)
	}
	return partition, start
}

// A run whose records are lost stays, says so, and goes on when an operator has given them up; with --exit-when-blocked it ends.
func TestRecover(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	p, start := loseRecords(t, addr, "ticks")
	refused(t, dir, 6, []string{"OFFSET_LOST", fmt.Sprintf("partition %d", p)}, runArgs(addr, "ticks", "brief", "--exit-when-blocked")...)

	run := startLogged(t, dir, "run", nil, runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms")...)
	on := func(command string, more ...string) []string {
		return append(append(append([]string(nil), strings.Fields(command)...), more...), "--store", "sqlite:ticks-1.db")
	}
	run.await(t, "the block", func() bool { return strings.Contains(run.said(t), "a partition is blocked; the others go on") })
	for _, words := range []string{"code=OFFSET_LOST", fmt.Sprintf("partition=%d", p), "need=0", fmt.Sprintf("have=%d", start), "--accept-gap"} {
		if !strings.Contains(run.said(t), words) {
			t.Errorf("the log lacks %q:\n%s", words, run.said(t))
		}
	}
	part, to := fmt.Sprint(p), fmt.Sprint(start)
	refused(t, dir, 2, []string{"--reason is missing"}, on("recover ticks-1 --accept-gap --to", to, "--partition", part)...)
	refused(t, dir, 2, []string{"--partition", "--to"}, on("recover ticks-1 --accept-gap --reason x")...)
	refused(t, dir, 2, []string{"two choices"}, on("recover ticks-1 --accept-gap --retry")...)
	refused(t, dir, 3, []string{"REQUEST_INVALID", "no partition 99"}, on("recover ticks-1 --accept-gap --to 9 --partition 99 --reason x")...)
	refused(t, dir, 3, []string{"REQUEST_INVALID", "gives up nothing"}, on("recover ticks-1 --accept-gap --to 0 --reason x --partition", part)...)
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, on("recover other")...)
	must(t, dir, on("recover ticks-1 --accept-gap --to 999999 --apply --reason typo --partition", part)...)
	run.await(t, "the dismissal", func() bool {
		return strings.Contains(must(t, dir, on("recover ticks-1")...), fmt.Sprintf("from %d to before %d now, so 999999 lies beyond its end", start, start+1))
	})
	choose := on("recover ticks-1 --accept-gap --to", to, "--partition", part, "--who", "ana", "--reason", "the disk was lost")
	if out := must(t, dir, choose...); !strings.Contains(out, fmt.Sprintf("from 0 to before %d, at most %d records, are given up", start, start)) || !strings.Contains(out, "dry run") || !strings.Contains(out, "the log is not read") {
		t.Errorf("the dry run says\n%s", out)
	}
	if out := must(t, dir, on("recover ticks-1")...); strings.Contains(out, "the disk was lost") {
		t.Errorf("a dry run has asked for something:\n%s", out)
	}
	if doc := parse(t, must(t, dir, append(choose, "--apply", "--json")...)); doc["applied"] != true || doc["outcome"] != "PENDING" || doc["owner"] == nil {
		t.Errorf("asked for: %v", doc)
	}
	must(t, dir, on("idle confirm ticks-1 --apply --reason closed --partition", part)...)
	outcomes := func() (out string) {
		for _, i := range parse(t, must(t, dir, on("recover ticks-1 --json")...))["interventions"].([]any) {
			out += " " + i.(map[string]any)["outcome"].(string)
		}
		return out
	}
	run.await(t, "the choices", func() bool { return !strings.Contains(outcomes(), "PENDING") })
	if !strings.HasPrefix(outcomes(), " DISMISSED APPLIED") {
		t.Errorf("outcomes%s:\n%s", outcomes(), must(t, dir, on("recover ticks-1")...))
	}
	end := fmt.Sprint(start + 1)
	run.await(t, "the end of the log", func() bool {
		return parse(t, must(t, dir, on("recover ticks-1 --json")...))["positions"].(map[string]any)[part] == end
	})
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-run.done; err != nil {
		t.Errorf("stopped with %v:\n%s", err, run.said(t))
	}
}

func TestIdleAndGapOnTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	must(t, dir, strings.Fields("run flow.yaml --log arrivals.log --run-id ticks-1 --store sqlite:weir.db --until-n 9")...)
	for command, words := range map[string]string{
		"idle confirm ticks-1 --partition 0":                   "until its next record",
		"gap close ticks-1 --partition 0 --key k --sequence 7": `the number 7 of key "k" counts as lost`,
		"recover ticks-1 --retry":                              "what is blocked is read again",
	} {
		c := append(strings.Fields(command), "--store", "sqlite:weir.db")
		refused(t, dir, 2, []string{"--reason is missing"}, c...)
		c = append(c, "--reason", "x")
		if out := must(t, dir, c...); !strings.Contains(out, words) || !strings.Contains(out, "dry run") {
			t.Errorf("%s: %s", command, out)
		}
		if out := must(t, dir, append(c, "--apply")...); !strings.Contains(out, "nobody runs ticks-1 now") {
			t.Errorf("%s: %s", command, out)
		}
	}
	refused(t, dir, 2, []string{"--partition is missing"}, strings.Fields("idle confirm ticks-1 --store sqlite:weir.db --reason x")...)
	refused(t, dir, 2, []string{"--key is missing"}, strings.Fields("gap close ticks-1 --store sqlite:weir.db --reason x --partition 0")...)
	must(t, dir, strings.Fields("run flow.yaml --log arrivals.log --run-id ticks-1 --store sqlite:weir.db --once-n 23")...)
	refused(t, dir, 3, []string{"RUN_FINISHED"}, strings.Fields("idle confirm ticks-1 --store sqlite:weir.db --reason x --partition 0")...)
}
