package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// broker starts a broker process on a free port and returns its address.
func broker(t *testing.T, args ...string) string {
	t.Helper()
	addr := listening(t, t.TempDir(), append([]string{"broker", "--port", "0"}, args...)...)
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Fatalf("the broker listens on %q", addr)
	}
	return addr
}

// listening starts a command that serves until the test ends, and returns the address that it says it listens on.
func listening(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := command(t, dir, append(args, "--json")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("weir %s did not end well: %v", args[0], err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready struct{ Listening string }
	if err := json.Unmarshal(line, &ready); err != nil || ready.Listening == "" {
		t.Fatalf("weir %s said %q (%v)", args[0], line, err)
	}
	return ready.Listening
}

// publishLog builds a log of the fixture's events under a schedule and publishes it so many times.
func publishLog(t *testing.T, dir, addr, topic string, times int) {
	t.Helper()
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	for range times {
		must(t, dir, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", topic, "--create-partitions", "4")
	}
}

func runArgs(addr, topic, id string, more ...string) []string {
	return append([]string{"run", "flow.yaml", "--brokers", addr, "--topic", topic, "--group", "g", "--run-id", id, "--store", "sqlite:" + id + ".db"}, more...)
}

func TestBrokerRefusals(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	refused(t, t.TempDir(), 3, []string{"PORT_IN_USE", fmt.Sprint(port)}, "broker", "--port", fmt.Sprint(port))
	dir := t.TempDir()
	write(t, dir, "file", "not a folder")
	refused(t, dir, 5, []string{"STORE_UNAVAILABLE", "file"}, "broker", "--port", "0", "--data", "file")
}

// TestBrokerKeepsItsData: a topic published to one broker process is there in the next.
func TestBrokerKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	data := t.TempDir()
	t.Run("first", func(t *testing.T) { publishLog(t, dir, broker(t, "--data", data), "ticks", 1) })
	addr := broker(t, "--data", data)
	doc := parse(t, must(t, dir, runArgs(addr, "ticks", "r1", "--once-n", "23", "--json")...))
	if doc["consumed"] != 6.0 {
		t.Errorf("%v", doc)
	}
}
