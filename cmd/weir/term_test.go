package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/replay"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

// logged starts weir with its standard error in a file, which may be read while it runs.
type logged struct {
	*process
	file string
}

func startLogged(t *testing.T, dir, name string, env []string, args ...string) *logged {
	t.Helper()
	p := &logged{process: &process{Cmd: command(t, dir, args...), done: make(chan error, 1)}, file: filepath.Join(dir, name+".err")}
	f, err := os.Create(p.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.Stdout, p.Stderr = f, f
	p.Env = append(p.Env, env...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

func (p *logged) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// await waits until ok, while the process runs.
func (p *logged) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("%s does not happen:\n%s", what, p.said(t))
		case err := <-p.done:
			p.done <- err
			if ok() {
				return
			}
			t.Fatalf("the process ended before %s:\n%s", what, p.said(t))
		case <-tick.C:
		}
	}
}

// feed publishes the golden log to a topic again and again until it is stopped, and says how many records that were.
func feed(t *testing.T, dir, addr, topic string) (stop func() int64) {
	t.Helper()
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	producer, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	if err := producer.EnsureTopic(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	type outcome struct {
		n   int64
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		defer producer.Close()
		var o outcome
		for ctx.Err() == nil && o.err == nil {
			var p replay.Published
			p, o.err = replay.Publish(context.WithoutCancel(ctx), replay.PublishConfig{Log: filepath.Join(dir, "arrivals.log"), Producer: producer})
			o.n += p.Arrivals
		}
		done <- o
	}()
	t.Cleanup(cancel)
	return func() int64 {
		cancel()
		o := <-done
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.n
	}
}

// TestTermUnderLoad: again and again the owner of a run gets SIGTERM while records pour in. It ends within 10 s with exit code 0, gives its lease
// back, and the stand-by starts within a second; in the end every record is counted once and the values are the golden ones.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	times := 50
	if testing.Short() {
		times = 10
	}
	dir := fixtureDir(t)
	addr := broker(t)
	stop := feed(t, dir, addr, "load")
	store := chaosStores["postgres"](t)
	eyes, err := openStore(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer eyes.Close()
	args := []string{"run", "flow.yaml", "--brokers", addr, "--topic", "load", "--group", "load", "--run-id", "load", "--store", "env:LOAD_STORE", "--ttl", "30s", "--epoch", "50ms", "--standby", "--verbose"}
	daemon := func(i int) *logged {
		return startLogged(t, dir, fmt.Sprintf("d%d", i), []string{"LOAD_STORE=" + store}, args...)
	}
	var ends, starts []time.Duration
	owner := daemon(0)
	for i := range times {
		owner.await(t, "a commit", func() bool { return strings.Contains(owner.said(t), "msg=committed") })
		next := daemon(i + 1) // not before: which of two that start takes the lease is chance
		next.await(t, "standing by", func() bool { return strings.Contains(next.said(t), "standing by") })
		told := time.Now()
		owner.Process.Signal(syscall.SIGTERM)
		if code := owner.end(t); code != 0 {
			t.Fatalf("the owner ended with %d:\n%s", code, owner.said(t))
		}
		ended := time.Now()
		if !strings.Contains(owner.said(t), "released, token") {
			t.Errorf("the lease was not given back:\n%s", owner.said(t))
		}
		next.await(t, "the take-over", func() bool { return strings.Contains(next.said(t), "msg=running") })
		ends, starts = append(ends, ended.Sub(told)), append(starts, time.Since(ended))
		owner = next
	}
	n := stop()
	owner.Process.Signal(syscall.SIGTERM)
	owner.end(t)
	lease, _, err := eyes.LookupLease(t.Context(), control.StreamLease("load"))
	if err != nil || lease.Valid || int(lease.Token) != times+1 {
		t.Errorf("the lease at the end: %+v, %v; %d owners", lease, err, times+1)
	}
	last := startLogged(t, dir, "last", []string{"LOAD_STORE=" + store}, append(args, "--once-n", fmt.Sprint(n), "--emit", "load.json")...)
	if code := last.end(t); code != 0 {
		t.Fatalf("the last owner ended with %d:\n%s", code, last.said(t))
	}
	text, err := os.ReadFile(filepath.Join(dir, "load.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc := parse(t, string(text))
	total := doc["consumed"].(float64) + doc["filtered"].(float64) + doc["omitted"].(float64) + doc["duplicates_skipped"].(float64) + doc["late"].(float64)
	if doc["values_hash"] != fixture.ValuesHash || doc["consumed"] != 6.0 || total != float64(n) {
		t.Errorf("%v of %d records counted, %v consumed, %v", total, n, doc["consumed"], doc["values_hash"])
	}
	// The second promise is a second on a quiet machine: this one may be busy, and what was measured is logged.
	if slices.Max(ends) > 10*time.Second || slices.Max(starts) > 10*time.Second {
		t.Errorf("ends %v, starts %v", ends, starts)
	}
	slices.Sort(ends)
	slices.Sort(starts)
	t.Logf("%d records; ends within %v (median %v), the next starts within %v (median %v)", n, ends[times-1], ends[times/2], starts[times-1], starts[times/2])
}

// TestTermWithoutABroker: a daemon whose broker does not answer, or is gone, ends in order all the same when it is told to.
func TestTermWithoutABroker(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]syscall.Signal{"stands still": syscall.SIGSTOP, "gone": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fixtureDir(t)
			b := startLogged(t, dir, "broker", nil, "broker", "--port", "0", "--json")
			var addr string
			b.await(t, "an address", func() bool {
				_, rest, ok := strings.Cut(b.said(t), `"listening":"`)
				addr, _, _ = strings.Cut(rest, `"`)
				return ok
			})
			publishLog(t, dir, addr, "ticks", 1)
			p := startLogged(t, dir, "daemon", nil, runArgs(addr, "ticks", "d", "--epoch", "50ms", "--verbose")...)
			p.await(t, "a commit", func() bool { return strings.Contains(p.said(t), "records=23") })
			b.Process.Signal(s)
			told := time.Now()
			p.Process.Signal(syscall.SIGTERM)
			if code := p.end(t); code != 0 || !strings.Contains(p.said(t), "released, token 1") {
				t.Errorf("exit %d:\n%s", code, p.said(t))
			}
			if took := time.Since(told); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
