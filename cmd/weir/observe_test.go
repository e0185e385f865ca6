package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/metrics"
	"github.com/weirstream/weir/status"
)

// listener is a run that can be asked.
type listener struct {
	*logged
	url string
}

var listensOn = regexp.MustCompile(`listening on (https?://[0-9.:]+)`)

// startListening starts a run and waits until it listens.
func startListening(t *testing.T, dir, name string, args ...string) *listener {
	t.Helper()
	l := &listener{logged: startLogged(t, dir, name, nil, append(args, "--listen", "127.0.0.1:0", "--observe-every", "50ms")...)}
	l.await(t, "listening", func() bool { return listensOn.MatchString(l.said(t)) })
	l.url = listensOn.FindStringSubmatch(l.said(t))[1]
	return l
}

func (l *listener) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(l.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (l *listener) report(t *testing.T) (r status.Report) {
	t.Helper()
	_, body := l.get(t, "/v1/status")
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r
}

// caughtUp waits until the run has read everything, and knows it.
func (l *listener) caughtUp(t *testing.T, records int64) status.Report {
	t.Helper()
	var r status.Report
	l.await(t, "reading to the end of the log", func() bool {
		r = l.report(t)
		lag := int64(0)
		if r.Runs[0].Counts.Records < records {
			return false
		}
		for _, p := range r.Runs[0].Partitions {
			if p.LagRecords == nil {
				return false
			}
			lag += *p.LagRecords
		}
		return lag == 0
	})
	return r
}

// A run that listens: status and why by the process and by the store, probes, metrics, the level of the log, a tap, and an end in good order.
func TestListen(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	l := startListening(t, dir, "run", runArgs(addr, "ticks", "ticks-1", "--tap", "--epoch", "50ms", "--log-level", "warn")...)
	r := l.caughtUp(t, 23)
	run := r.Runs[0]
	if r.Format != status.Format || !r.Live || run.Phase != status.PhaseRunning || run.Lease.State != status.LeaseHeld || run.Epoch == 0 || run.Commit.Count == 0 || len(run.Partitions) != 4 {
		t.Errorf("%+v", r)
	}
	for _, p := range run.Partitions {
		sum := 0.0
		for _, s := range p.Seconds {
			sum += s
		}
		if wall := run.At.Sub(*p.Began).Seconds(); sum < wall-1e-3 || sum > wall+1e-3 {
			t.Errorf("partition %d: the seconds in its states are %v, and it has been watched for %v", p.Partition, sum, wall)
		}
	}
	if code, body := l.get(t, "/readyz?verbose"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	_, exposed := l.get(t, "/metrics")
	for _, m := range []metrics.Metric{metrics.Phase, metrics.LagRecords, metrics.StateSeconds, metrics.Commits, metrics.Quarantine, metrics.Lease, metrics.LeaseLeft, metrics.Observed} {
		if !strings.Contains(exposed, "\n"+m.Name+"{") {
			t.Errorf("/metrics lacks %s", m.Name)
		}
	}
	if !strings.Contains(exposed, `weir_records_total{outcome="omitted",partition="0",run="ticks-1"} 1`) {
		t.Errorf("the tombstone is not counted:\n%s", exposed)
	}

	live := must(t, dir, "status", "ticks-1", "--url", l.url)
	for _, words := range []string{"ticks-1, RUNNING since", "PARTITION", "HELD by", "holds the watermark"} {
		if !strings.Contains(live, words) {
			t.Errorf("status lacks %q:\n%s", words, live)
		}
	}
	if doc := parse(t, must(t, dir, "status", "--url", l.url, "--json")); doc["format"] != status.Format || doc["live"] != true {
		t.Errorf("%v", doc)
	}
	stored := must(t, dir, "status", "ticks-1", "--store", "sqlite:ticks-1.db")
	if !strings.Contains(stored, "ticks-1, OWNED") || !strings.Contains(stored, "records    23") {
		t.Errorf("by the store:\n%s", stored)
	}
	// Three partitions have had no event that counts. That is told once they have held the watermark for a while: why is asked until then.
	l.await(t, "a word on the silent partitions", func() bool {
		return strings.Contains(must(t, dir, "why", "--url", l.url), "NO_EVENT_YET: partition 0 holds the merged watermark")
	})

	l.tapped(t, dir, addr)
	l.relevelled(t)

	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.end(t); code != 0 {
		t.Errorf("exit %d\n%s", code, l.said(t))
	}
	if why := must(t, dir, "why", "ticks-1", "--store", "sqlite:ticks-1.db"); !strings.Contains(why, "NOBODY_RUNS") {
		t.Errorf("after the end: %s", why)
	}
	refused(t, dir, 5, []string{"PROCESS_UNREACHABLE"}, "status", "--url", l.url)
}

// tapped watches a stream of events while the log is published again and again.
func (l *listener) tapped(t *testing.T, dir, addr string) {
	t.Helper()
	path := filepath.Join(dir, "tapped")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := command(t, dir, "tap", "--url", l.url, "-n", "60", "--rate", "1000")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	l.await(t, "sixty events", func() bool {
		publishLog(t, dir, addr, "ticks", 1)
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	text, readErr := os.ReadFile(path)
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	if n := strings.Count(string(text), "\n"); n != 60 {
		t.Errorf("%d events instead of 60:\n%s", n, text)
	}
	for _, words := range []string{"record ", "partition 3", "event_id", "quarantined ", "reason TOMBSTONE"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the tap lacks %q:\n%s", words, text)
		}
	}
}

// relevelled changes the level of the log, which was warn, and looks for what is logged under the new one.
func (l *listener) relevelled(t *testing.T) {
	t.Helper()
	if strings.Contains(l.said(t), "committed") {
		t.Errorf("commits are logged at level warn:\n%s", l.said(t))
	}
	req, err := http.NewRequest(http.MethodPut, l.url+"/v1/loglevel", strings.NewReader(`{"level":"info"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(l.said(t), "the level of the log is changed") {
		t.Errorf("%d\n%s", resp.StatusCode, l.said(t))
	}
}

// The canary: a record's key, value and headers, and a token, stand nowhere but in the journal and where it was asked for them: not in the log at
// level debug, in status, why or metrics, nor in what commands print.
func TestRecordDataAndTokensAreNotTold(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	const canary, token = "cAnArY-7f3a", "tOkEn-0123456789abcdef0123456789ab"
	produce(t, addr, "secrets", []string{
		`{"event_id":"` + canary + `-1","event_time":"2026-01-05T14:30:00Z","instrument":"1","close":1.5,"note":"` + canary + `"}`,
		`{"event_id":"` + canary + `-2","event_time":"2020-01-05T14:30:00Z","instrument":"1","close":1.5}`,
		`{"event_id":"` + canary + `-3","event_time":"2926-01-05T14:30:00Z","instrument":"1","close":1.5}`,
		`{"event_id":"` + canary + `-4","event_time":"` + canary + `","instrument":"1","close":1.5}`,
		`{"event_id":"` + canary + `-5","event_time":"2026-01-05T14:30:00Z","instrument":"1","close":"` + canary + `"}`,
		canary + "\n\x1b[31m{\"level\":\"forged\"}", `"` + canary, "\xff" + canary, `{"event_id":"` + canary + `-1"`,
	})
	write(t, dir, "tokens", "alice "+token+"\n")
	write(t, dir, "token", token+"\n")
	l := startListening(t, dir, "run", runArgs(addr, "secrets", "s-1", "--epoch", "20ms", "--tokens", "tokens", "--log-format", "json", "--log-level", "debug")...)
	var told strings.Builder
	ask := func(args ...string) string {
		r := weir(t, dir, "", append(args, "--url", l.url, "--token", "file:token")...)
		told.WriteString(r.stdout + r.stderr)
		return r.stdout
	}
	l.await(t, "the records", func() bool { return strings.Contains(ask("status"), "records    10,") })
	ask("status", "--json")
	ask("why", "--json")
	refusal := weir(t, dir, "", "tap", "--url", l.url, "--token", "file:token")
	if refusal.code != 3 || !strings.Contains(refusal.stderr, "--tap") {
		t.Errorf("a tap that is off: exit %d %s", refusal.code, refusal.stderr)
	}
	for _, wrong := range [][]string{{"status", "--url", l.url}, {"status", "--url", l.url, "--token", token}, {"status", "--url", l.url, "--token", "env:" + token}} {
		r := weir(t, dir, "", wrong...)
		if r.code == 0 {
			t.Errorf("%v is answered", wrong)
		}
		if strings.Contains(r.stdout, token) {
			t.Errorf("the token is printed: %s", r.stdout)
		}
	}
	req, err := http.NewRequest(http.MethodGet, l.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	exposed, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, err)
	}
	told.Write(exposed)
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.end(t)
	log := l.said(t)
	told.WriteString(log)
	for _, secret := range []string{canary, token} {
		if i := strings.Index(told.String(), secret); i >= 0 {
			t.Errorf("%q is told: …%s…", secret, told.String()[max(i-200, 0):i+len(secret)])
		}
	}
	lines := 0
	for line := range strings.Lines(log) {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" || entry.Level == "" || entry.Time == "" {
			t.Errorf("a line of the log is no document: %q (%v)", line, err)
		}
		lines++
	}
	if lines < 5 || !strings.Contains(log, `"level":"DEBUG"`) && !strings.Contains(log, `"msg":"committed"`) {
		t.Errorf("the log at level debug has %d lines:\n%s", lines, log)
	}
}

// A run that is shared out by partitions is shown whole, by its process and by the store.
func TestStatusOfPartitionsApart(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	l := startListening(t, dir, "run", apartArgs(addr, "ticks", "apart", "--epoch", "50ms")...)
	var r status.Report
	l.await(t, "four partitions", func() bool {
		r = l.report(t)
		n := int64(0)
		for _, s := range r.Runs {
			n += s.Counts.Records
		}
		return len(r.Runs) == 4 && n == 23
	})
	if r.Run != "apart" || r.Runs[2].Run != "apart/2" || r.Runs[2].Lease.State != status.LeaseHeld {
		t.Errorf("%+v", r)
	}
	text := must(t, dir, "status", "apart", "--url", l.url)
	for _, words := range []string{"apart/0", "apart/3", "merged watermark"} {
		if !strings.Contains(text, words) {
			t.Errorf("status lacks %q:\n%s", words, text)
		}
	}
	args := apartArgs(addr, "ticks", "apart")
	store := args[slices.Index(args, "--store")+1]
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.end(t)
	doc := parse(t, must(t, dir, "status", "apart", "--store", store, "--json"))
	if runs := doc["runs"].([]any); len(runs) != 4 || doc["live"] != false {
		t.Errorf("by the store: %v", doc)
	}
	if why := must(t, dir, "why", "apart", "--store", store); strings.Count(why, "NOBODY_RUNS") != 4 {
		t.Errorf("%s", why)
	}
}

func TestListenRefusals(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	write(t, dir, "tokens", "alice 0123456789abcdef0123456789abcdef\n")
	write(t, dir, "token", "0123456789abcdef0123456789abcdef\n")
	run := func(more ...string) []string { return logArgs("r", "sqlite:r.db", more...) }
	for _, c := range []struct {
		exit  int
		words []string
		args  []string
	}{
		{3, []string{"CONFIG_INVALID", "not loopback", "--tokens"}, run("--listen", "0.0.0.0:0")},
		{3, []string{"CONFIG_INVALID", "TLS certificate"}, run("--listen", "0.0.0.0:0", "--tokens", "tokens")},
		{3, []string{"CONFIG_INVALID"}, run("--listen", "nonsense")},
		{2, []string{"--listen, which is missing"}, run("--tap")},
		{2, []string{"--listen-cert and --listen-key"}, run("--listen", "127.0.0.1:0", "--listen-cert", "x")},
		{2, []string{"--stalled-after"}, run("--listen", "127.0.0.1:0", "--stalled-after", "0s")},
		{2, []string{"--log-format"}, run("--log-format", "xml")},
		{2, []string{"--log-level"}, run("--log-level", "loud")},
		{2, []string{"say whom to ask"}, []string{"status", "r"}},
		{2, []string{"say whom to ask"}, []string{"why", "r", "--store", "sqlite:r.db", "--url", "http://127.0.0.1:1"}},
		{2, []string{"name the run"}, []string{"why", "--store", "sqlite:r.db"}},
		{3, []string{"FILE_MISSING"}, []string{"status", "r", "--store", "sqlite:none.db"}},
		{2, []string{"--url is missing"}, []string{"tap"}},
		{2, []string{"--url is an address"}, []string{"tap", "--url", "ftp://x"}},
		{2, []string{"--url is an address"}, []string{"status", "--url", "http://user:pass@127.0.0.1:1"}},
		{2, []string{"reference"}, []string{"status", "--url", "http://127.0.0.1:1", "--token", "0123456789abcdef0123456789abcdef"}},
		{3, []string{"not sent over http"}, []string{"status", "--url", "http://192.0.2.1:1", "--token", "file:token"}},
		{5, []string{"PROCESS_UNREACHABLE"}, []string{"status", "--url", "http://127.0.0.1:1"}},
	} {
		r := refused(t, dir, c.exit, c.words, c.args...)
		if strings.Contains(r.stderr, "0123456789abcdef") || strings.Contains(r.stderr, "pass@") {
			t.Errorf("%v prints a secret: %s", c.args, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "r.emit.json")); err == nil {
		t.Error("a run that was refused has run")
	}
}
