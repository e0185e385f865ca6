//go:build linux

package main

import (
	"cmp"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/pgtest"
)

// TestSinkDownAtTheStart: the database of a sink is closed when the process starts. It waits, says by why and metrics for what, reads nothing, can be stopped, and
// completes the table when the database is there.
func TestSinkDownAtTheStart(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	db := pgtest.Database(t, nil)
	u, err := url.Parse(db.Super)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	way := newPassage(t, filepath.Join(query.Get("host"), ".s.PGSQL."+cmp.Or(u.Port(), "5432")), math.MaxInt64)
	way.set(true)
	query.Set("host", filepath.Dir(way.Addr().String()))
	u.RawQuery = query.Encode()
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	args := []string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", "down", "--store", "sqlite:down.db", "--sink", "postgres:results", "--sink-db", "env:RESULTS",
		"--sink-create", "--json", "--listen", "127.0.0.1:0"}
	begin := func(name string) *listener {
		l := &listener{logged: startLogged(t, dir, name, []string{"RESULTS=" + u.String()}, args...)}
		l.await(t, "listening", func() bool { return listensOn.MatchString(l.said(t)) })
		l.url = listensOn.FindStringSubmatch(l.said(t))[1]
		l.await(t, "the sink to be told as down", func() bool {
			r := l.report(t)
			return len(r.Runs) == 1 && len(r.Runs[0].Sinks) == 1 && r.Runs[0].Sinks[0].Attempts > 1
		})
		return l
	}
	ends := func(l *listener) int {
		t.Helper()
		select {
		case <-l.done:
		case <-time.After(patience):
			t.Fatalf("it does not end:\n%s", tail(l.said(t)))
		}
		return l.ProcessState.ExitCode()
	}
	l := begin("first")
	why := must(t, dir, "why", "--url", l.url)
	for _, words := range []string{"SINK_DOWN", "postgres:results", "SINK_UNAVAILABLE", "nothing is read"} {
		if !strings.Contains(why, words) {
			t.Errorf("why lacks %q:\n%s", words, why)
		}
	}
	if _, exposed := l.get(t, "/metrics"); !strings.Contains(exposed, `weir_sink_up{run="down",sink="postgres:results"} 0`) {
		t.Errorf("the metrics do not tell of it:\n%s", exposed)
	}
	l.Process.Signal(syscall.SIGTERM)
	if code := ends(l); code == 0 || code == 5 {
		t.Errorf("stopped by SIGTERM while it waits: exit %d\n%s", code, tail(l.said(t)))
	}
	if n := committed(t, filepath.Join(dir, "down.db")); n != 0 {
		t.Errorf("%d epochs were committed while the table was away", n)
	}
	l = begin("second")
	way.set(false)
	if code := ends(l); code != 0 {
		t.Fatalf("exit %d\n%s", code, tail(l.said(t)))
	}
	var rows, different, span int64
	err = pgtest.Connect(t, db.Super).QueryRow(t.Context(), `SELECT count(*), count(DISTINCT row_number), max(row_number) + 1 FROM results WHERE run_id = 'down'`).Scan(&rows, &different, &span)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(l.said(t), "\n{\"")
	if text, _, _ = strings.Cut(`{"`+text, "\n"); !found {
		t.Fatalf("no document:\n%s", tail(l.said(t)))
	}
	want := parse(t, must(t, dir, "batch", "run", "--flow", "flow.yaml", "--snapshot", "snapshot.jsonl", "--json"))
	if got := parse(t, text); got["values_hash"] != want["values_hash"] || rows == 0 || rows != different || rows != span || int(rows) != len(want["values"].([]any)) {
		t.Errorf("%d rows, %d of them different, up to %d; the document is %v, a batch has %v", rows, different, span, got, want)
	}
}
