package main

import (
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/fixture"
)

// TestTopicsUnderTwoAddresses: one topic by two addresses of its broker is one place, for two sinks, for what the run reads and for lint; the same name in another
// cluster is not.
func TestTopicsUnderTwoAddresses(t *testing.T) {
	t.Parallel()
	dir, addr, elsewhere := fixtureDir(t), broker(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for _, at := range []string{addr, elsewhere} {
		must(t, dir, "replay", "publish", "--log", "arrivals.log", "--brokers", at, "--topic", "results", "--create-partitions", "1")
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	again := net.JoinHostPort("localhost", port)
	flow := func(name, sinks string) string {
		write(t, dir, name, string(fixture.Flow)+"sinks:\n"+sinks)
		return name
	}
	sink := func(name, topic, at string) string {
		return "  - {name: " + name + ", type: kafka, topic: " + topic + ", brokers: \"" + at + "\"}\n"
	}
	twice := flow("twice.yaml", sink("one", "results", addr)+sink("two", "results", again))
	own := flow("own.yaml", sink("one", "ticks", again))
	apart := flow("apart.yaml", sink("one", "results", addr)+sink("two", "results", elsewhere))
	run := func(flow, id string) []string {
		args := runArgs(addr, "ticks", id, "--once-n", "23")
		args[1] = flow
		return args
	}
	refused(t, dir, 3, []string{"CONFIG_INVALID", `"one"`, `"two"`, "same place"}, run(twice, "twice")...)
	refused(t, dir, 3, []string{"CONFIG_INVALID", `"one"`, "reads the topic"}, run(own, "own")...)
	refused(t, dir, 3, []string{"CONFIG_INVALID", `"one"`, `"two"`}, "lint", "--connect", twice)
	must(t, dir, run(apart, "apart")...)
}

// TestBrokersBesideALog: a run that reads no topic can name the brokers of its sinks, by a flag or a flow, and nothing else by them.
func TestBrokersBesideALog(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	if _, err := kadm.NewClient(kafkaClient(t, addr)).CreateTopic(t.Context(), 1, 1, nil, "results"); err != nil {
		t.Fatal(err)
	}
	args := func(flow, id string, more ...string) []string {
		return append([]string{"run", flow, "--log", "arrivals.log", "--run-id", id, "--store", "sqlite:" + id + ".db"}, more...)
	}
	write(t, dir, "named.yaml", string(fixture.Flow)+"sinks:\n  - {name: out, type: kafka, topic: results}\n")
	must(t, dir, args("flow.yaml", "flag", "--brokers", addr, "--sink", "kafka:results")...)
	must(t, dir, args("named.yaml", "named", "--brokers", addr)...)
	refused(t, dir, 2, []string{"USAGE", "--brokers", "there is none"}, args("flow.yaml", "spare", "--brokers", addr)...)
	refused(t, dir, 2, []string{"USAGE", "not both"}, args("flow.yaml", "both", "--brokers", addr, "--topic", "results")...)
	refused(t, dir, 2, []string{"--brokers"}, args("flow.yaml", "none", "--sink", "kafka:results")...)
	rows := topicRows(t, addr, "results")
	if len(rows["flag"]) == 0 || len(rows["flag"]) != len(rows["named"]) {
		t.Errorf("%d rows by a flag, %d by a flow", len(rows["flag"]), len(rows["named"]))
	}
}
