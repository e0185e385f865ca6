package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/fixture"
)

// drill are the figures of the topic of 299 records: the 23-arrival log published 13 times to 4 partitions.
const (
	drillTimes   = 13
	drillRecords = 299
)

func checkDrill(t *testing.T, doc map[string]any) {
	t.Helper()
	if doc["values_hash"] != fixture.ValuesHash {
		t.Errorf("values_hash %v, values %v", doc["values_hash"], doc["values"])
	}
	if got := doc["positions"]; !reflect.DeepEqual(got, map[string]any{"0": 78.0, "3": 221.0}) {
		t.Errorf("positions %v", got)
	}
	for key, want := range map[string]float64{"consumed": 6, "omitted": drillTimes, "filtered": 15 * drillTimes, "duplicates_skipped": 7*drillTimes - 6, "late": 0} {
		if doc[key] != want {
			t.Errorf("%s: %v, want %v", key, doc[key], want)
		}
	}
}

func TestDrillTopic(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "drill", drillTimes)
	checkDrill(t, parse(t, must(t, dir, runArgs(addr, "drill", "whole", "--once-n", "299", "--json")...)))

	t.Run("stopped at an open cut and resumed", func(t *testing.T) {
		for _, k := range []int{1, 22, 23, 24, 150, 298, 299} {
			id := fmt.Sprintf("cut-%d", k)
			must(t, dir, runArgs(addr, "drill", id, "--until-n", fmt.Sprint(k))...)
			checkDrill(t, parse(t, must(t, dir, runArgs(addr, "drill", id, "--once-n", "299", "--json")...)))
		}
	})
	t.Run("a finished run is not resumed by accident", func(t *testing.T) {
		refused(t, dir, 3, []string{"RUN_FINISHED", "whole"}, runArgs(addr, "drill", "whole", "--once-n", "299")...)
		// Its emit document can still be written: the process may have died just before.
		must(t, dir, runArgs(addr, "drill", "whole", "--once-n", "299", "--emit", "again.json")...)
		text, err := os.ReadFile(filepath.Join(dir, "again.json"))
		if err != nil {
			t.Fatal(err)
		}
		checkDrill(t, parse(t, string(text)))
		refused(t, dir, 3, []string{"RUN_FINISHED"}, runArgs(addr, "drill", "whole", "--once-n", "299", "--emit", "again.json")...)
	})
	t.Run("another flow or topic is refused", func(t *testing.T) {
		must(t, dir, runArgs(addr, "drill", "mine", "--until-n", "10")...)
		other := strings.Replace(string(fixture.Flow), "period: 3", "period: 4", 1)
		write(t, dir, "other.yaml", other)
		args := runArgs(addr, "drill", "mine")
		args[1] = "other.yaml"
		refused(t, dir, 3, []string{"RUN_MISMATCH", "fingerprint"}, args...)
		must(t, dir, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", "second", "--create-partitions", "4")
		refused(t, dir, 3, []string{"RUN_MISMATCH", "second"}, append(runArgs(addr, "second", "mine"), "--once-n", "23")...)
	})
}

// process is a weir that runs beside the test.
type process struct {
	*exec.Cmd
	out  bytes.Buffer
	done chan error
}

func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, dir, args...), done: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

// end waits for the exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the process does not end:\n%s", p.out.String())
	}
	if strings.Contains(p.out.String(), "goroutine ") {
		t.Errorf("a stack trace:\n%s", p.out.String())
	}
	return p.ProcessState.ExitCode()
}

// await polls the journal of a run until so many records are committed.
func (p *process) await(t *testing.T, path string, records int64) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for committed(t, path) < records {
		select {
		case <-deadline.C:
			t.Fatalf("%d records are not committed:\n%s", records, p.out.String())
		case <-p.done:
			t.Fatalf("the process ended:\n%s", p.out.String())
		case <-tick.C:
		}
	}
}

func committed(t *testing.T, path string) int64 {
	t.Helper()
	if missing(path) {
		return 0
	}
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return 0 // it is being made
	}
	defer s.Close()
	runs, err := s.Runs(ctx)
	if err != nil || len(runs) == 0 {
		return 0
	}
	return runs[0].Counts.Records
}

// TestKilledAgainAndAgain: after every copy of the log that reaches the topic the worker commits at least once and is then killed with
// SIGKILL, whatever it has in hand.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	db := filepath.Join(dir, "k.db")
	args := runArgs(addr, "drill", "k", "--once-n", fmt.Sprint(drillRecords), "--epoch", "1h", "--epoch-records", "10", "--fetch", "1", "--json",
		"--ttl", successionTTL.String(), "--standby")
	line := &succession{dir: dir}
	for range drillTimes - 1 {
		publishLog(t, dir, addr, "drill", 1)
		before := committed(t, db)
		p := startWith(t, dir, line.ahead(), args...)
		p.await(t, db, before+10)
		p.Process.Signal(syscall.SIGKILL)
		p.end(t)
	}
	if n := committed(t, db); n == 0 || n >= drillRecords {
		t.Fatalf("%d records committed before the last start", n)
	}
	publishLog(t, dir, addr, "drill", 1)
	checkDrill(t, parse(t, line.next(t, "", args...).stdout))
}

// TestSignals: the first signal commits and stops, the second stops at once, and nothing is lost either way.
func TestSignals(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for _, c := range []struct {
		name    string
		signals []os.Signal
		once    bool
		code    int
	}{
		{"ctrl-c", []os.Signal{os.Interrupt}, true, 130},
		{"ctrl-c-twice", []os.Signal{os.Interrupt, os.Interrupt}, true, 130},
		{"term-daemon", []os.Signal{syscall.SIGTERM}, false, 0},
		{"term-daemon-and-group", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, false, 0}, // as timeout(1) does it
		{"term-bounded", []os.Signal{syscall.SIGTERM}, true, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := runArgs(addr, "ticks", c.name, "--epoch-records", "5")
			if c.once {
				args = append(args, "--once-n", "46")
			}
			p := start(t, dir, args...)
			p.await(t, filepath.Join(dir, c.name+".db"), 5)
			for _, s := range c.signals {
				p.Process.Signal(s)
			}
			if code := p.end(t); code != c.code {
				t.Errorf("exit %d, want %d\n%s", code, c.code, p.out.String())
			}
			doc := parse(t, must(t, dir, runArgs(addr, "ticks", c.name, "--once-n", "23", "--json")...))
			if doc["values_hash"] != fixture.ValuesHash || doc["consumed"] != 6.0 {
				t.Errorf("resumed: %v", doc)
			}
		})
	}
}
