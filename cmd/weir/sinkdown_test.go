//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/status"
)

// sinkDownEnv is how long the outage of TestSinkDownAtFullInput lasts at least, such as 2m. Without it, it ends as soon as everything that it is about was seen.
const sinkDownEnv = "WEIR_SINK_DOWN"

// passage is a way to a server's socket. It shuts by itself once it has let so many bytes through, which tells begun, and is opened again by set.
type passage struct {
	net.Listener
	to    string
	begun chan struct{}
	mu    sync.Mutex
	left  int64
	shut  bool
	conns map[net.Conn]bool
}

// Write counts what goes to the server.
func (g *passage) Write(b []byte) (int, error) {
	g.mu.Lock()
	before := g.left
	g.left -= int64(len(b))
	now := before > 0 && g.left <= 0
	g.mu.Unlock()
	if now {
		g.set(true)
		close(g.begun)
	}
	return len(b), nil
}

func newPassage(t *testing.T, to string, lets int64) *passage {
	t.Helper()
	folder, err := os.MkdirTemp("", "weir-way-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(folder, filepath.Base(to)))
	if err != nil {
		t.Fatal(err)
	}
	g := &passage{Listener: l, to: to, begun: make(chan struct{}), left: lets, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.pass(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.set(true)
		all.Wait()
		os.RemoveAll(folder)
	})
	return g
}

func (g *passage) pass(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("unix", g.to)
	if err != nil {
		return
	}
	defer up.Close()
	if !g.add(c, up) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(up, io.TeeReader(c, g)); up.Close() })
	both.Go(func() { _, _ = io.Copy(c, up); c.Close() })
	both.Wait()
	g.mu.Lock()
	delete(g.conns, c)
	delete(g.conns, up)
	g.mu.Unlock()
}

func (g *passage) add(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.conns[c] = !g.shut
	}
	return !g.shut
}

// set shuts it, and cuts what goes through, or opens it.
func (g *passage) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for c := range g.conns {
		if shut {
			c.Close()
		}
	}
}

var (
	boundSaid = regexp.MustCompile(`at most (\d+) MiB of memory`)
	// gcLine is a line of GODEBUG=gctrace=1: the heap that was live at the end of a cycle, in MB.
	gcLine = regexp.MustCompile(`(?m)^gc \d+ @.*->(\d+) MB, \d+ MB goal`)
)

// resident is what a process has in memory, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// TestSinkDownAtFullInput: the database of a sink goes away while a topic is read as fast as it goes. The run comes to PROCESS_PAUSED, says by status, why and
// metrics what it waits for, keeps its heap and its process below the bound that it has printed, and completes the table by itself when the database is back.
func TestSinkDownAtFullInput(t *testing.T) {
	t.Parallel()
	// So many that a partition has more to read when one epoch of rows waits for the table, the next one is full and its window is out.
	records, parts, atLeast := 120_000, "1", time.Duration(0)
	if text := os.Getenv(sinkDownEnv); text != "" {
		var err error
		if atLeast, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		records, parts = 1_200_000, "4"
	} else if testing.Short() {
		t.Skip("reads 120,000 records, which takes some seconds")
	}
	dir, addr := t.TempDir(), broker(t)
	db := pgtest.Database(t, nil)
	u, err := url.Parse(db.Super)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	way := newPassage(t, filepath.Join(query.Get("host"), ".s.PGSQL."+cmp.Or(u.Port(), "5432")), 3<<20)
	query.Set("host", filepath.Dir(way.Addr().String()))
	u.RawQuery = query.Encode()
	write(t, dir, "flow.yaml", wideFlow())
	must(t, dir, "replay", "generate", "--events", fmt.Sprint(records), "--instruments", "64", "--seed", "5", "--snapshot", "all.jsonl")
	must(t, dir, "replay", "build", "--snapshot", "all.jsonl", "--flow", "flow.yaml", "--out", "all.log")
	must(t, dir, "replay", "publish", "--log", "all.log", "--brokers", addr, "--topic", "ticks", "--create-partitions", parts)
	want := parse(t, must(t, dir, "batch", "run", "--flow", "flow.yaml", "--snapshot", "all.jsonl", "--json"))

	args := runArgs(addr, "ticks", "down", "--once-n", fmt.Sprint(records), "--epoch", "50ms", "--sink", "postgres:results", "--sink-db", "env:RESULTS", "--sink-create", "--json",
		"--listen", "127.0.0.1:0", "--observe-every", "50ms")
	l := &listener{logged: startLogged(t, dir, "down", []string{"RESULTS=" + u.String(), "GODEBUG=gctrace=1"}, args...)}
	l.await(t, "listening", func() bool { return listensOn.MatchString(l.said(t)) })
	l.url = listensOn.FindStringSubmatch(l.said(t))[1]
	select {
	case <-way.begun:
	case <-l.done:
		t.Fatalf("the process ended:\n%s", tail(l.said(t)))
	}
	began := time.Now()

	var held status.Report
	l.await(t, "every partition that has more to read to be held", func() bool {
		held = l.report(t)
		return pausedAll(held)
	})
	bound := int64(0)
	if m := boundSaid.FindStringSubmatch(l.said(t)); m != nil {
		bound, _ = strconv.ParseInt(m[1], 10, 64)
	}
	most := int64(0)
	wait := time.NewTicker(50 * time.Millisecond)
	defer wait.Stop()
	for samples := 0; samples < 10 || time.Since(began) < atLeast; samples++ {
		most = max(most, resident(t, l.Process.Pid))
		<-wait.C
	}
	l.tellsOfASink(t, dir)
	before := held.Runs[0].Counts.Records
	if after := l.report(t).Runs[0]; !pausedAll(l.report(t)) || after.Incarnation != 1 || after.Counts.Records != before {
		t.Errorf("while the table is away the run goes on: %d records, %d before, incarnation %d", after.Counts.Records, before, after.Incarnation)
	}
	way.set(false)
	outage := time.Since(began)
	select {
	case <-l.done:
	case <-time.After(patience):
		t.Fatalf("it does not end:\n%s", tail(l.said(t)))
	}
	if code := l.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit %d\n%s", code, tail(l.said(t)))
	}
	live := int64(0)
	for _, m := range gcLine.FindAllStringSubmatch(l.said(t), -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		live = max(live, n)
	}
	t.Logf("%d records, the table away for %v at record %d: live heap at most %d MB, process %d MB, bound %d MiB", records, outage.Round(time.Millisecond), before, live, most>>20, bound)
	if bound == 0 || live == 0 || live > bound || most > bound<<20 {
		t.Errorf("the bound of %d MiB is not kept: live heap %d MB, process %d MB", bound, live, most>>20)
	}
	l.complete(t, db.Super, want)
}

// wideFlow is speedFlow with twelve outputs: its rows fill an epoch soon.
func wideFlow() string {
	operators, outputs := "", "ema3"
	for period := 4; period < 15; period++ {
		operators += fmt.Sprintf("  - {name: ema%d, type: ema, input: close, period: %[1]d}\n", period)
		outputs += fmt.Sprintf(", ema%d", period)
	}
	text := strings.Replace(speedFlow, "outputs: [ema3]", "outputs: ["+outputs+"]", 1)
	return strings.Replace(text, "outputs:", operators+"outputs:", 1)
}

// pausedAll says whether the sink is down and all partitions are PROCESS_PAUSED.
func pausedAll(r status.Report) bool {
	run := r.Runs[0]
	for _, p := range run.Partitions {
		if p.Pressure.State != "PROCESS_PAUSED" {
			return false
		}
	}
	return len(run.Sinks) == 1 && len(run.Partitions) > 0
}

// tellsOfASink asks why and the metrics while a sink is down.
func (l *listener) tellsOfASink(t *testing.T, dir string) {
	t.Helper()
	why := must(t, dir, "why", "--url", l.url)
	for _, words := range []string{"SINK_DOWN", "postgres:results", "SINK_UNAVAILABLE", "WAITS_FOR_COMMIT", "BUFFER_FULL", "PROCESS_PAUSED", "measured", "threshold"} {
		if !strings.Contains(why, words) {
			t.Errorf("why lacks %q:\n%s", words, why)
		}
	}
	_, exposed := l.get(t, "/metrics")
	if !strings.Contains(exposed, `weir_sink_up{run="down",sink="postgres:results"} 0`) || strings.Contains(exposed, `weir_sink_lag_rows{run="down",sink="postgres:results"} 0`) ||
		strings.Contains(exposed, `weir_sink_retries_total{run="down",sink="postgres:results"} 0`) {
		t.Errorf("the metrics do not tell of it:\n%s", exposed)
	}
}

// complete compares the table with what a batch over the same events gives.
func (l *listener) complete(t *testing.T, db string, want map[string]any) {
	t.Helper()
	_, text, found := strings.Cut(l.said(t), "\n{\"")
	if text, _, _ = strings.Cut(`{"`+text, "\n"); !found {
		t.Fatalf("no document:\n%s", tail(l.said(t)))
	}
	if got := parse(t, text); got["values_hash"] != want["values_hash"] {
		t.Errorf("values_hash %v, a batch has %v", got["values_hash"], want["values_hash"])
	}
	var rows, different, span int64
	err := pgtest.Connect(t, db).QueryRow(t.Context(), `SELECT sum(n)::bigint, sum(d)::bigint, sum(span)::bigint FROM
		(SELECT count(*) AS n, count(DISTINCT row_number) AS d, max(row_number) + 1 AS span FROM results WHERE run_id = 'down' GROUP BY partition) p`).Scan(&rows, &different, &span)
	if err != nil {
		t.Fatal(err)
	}
	if rows != different || rows != span || rows != int64(want["rows"].(float64)) {
		t.Errorf("the table has %d rows, of which %d are different, up to row %d", rows, different, span)
	}
}

// tail is the end of a long text.
func tail(text string) string { return text[max(len(text)-4000, 0):] }
