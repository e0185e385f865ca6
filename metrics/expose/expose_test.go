package expose

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/weirstream/weir/metrics"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

func ptr[T any](v T) *T { return &v }

var now = time.Unix(1_800_000_000, 0).UTC()

// full is a report in which every metric of the table has a value.
func full() status.Report {
	ago := func(sec int) *time.Time { return ptr(now.Add(-time.Duration(sec) * time.Second)) }
	s := status.Snapshot{
		Run: `run "1"` + "\\\n<x>", Live: true, At: now, Phase: status.PhaseRunning, PhaseSince: ago(60), Epoch: 7, Incarnation: 3, Restarts: 2,
		Lease:      status.Lease{State: status.LeaseHeld, Token: 5, Until: ptr(now.Add(9 * time.Second))},
		Commit:     status.Commit{Count: 7, Failed: 1, Refused: 1, Seconds: 0.25, Total: 2.5, Last: ago(1), Began: ago(2)},
		Checkpoint: status.Checkpoint{Made: 2, Failed: 1, Last: ago(30), Bytes: 4096}, Source: status.Source{Observed: ago(3)},
		Watermark: status.EventTime{T: record.EventTime(now.Add(-time.Minute).UnixNano())}, Holders: []int32{0},
		Sinks:     []status.Sink{{Name: "postgres:results"}},
		Published: []status.Published{{Sink: "postgres:results", Rows: 12, Bytes: 340, Publications: 3, Seconds: 1.5, Retries: 2, Lag: 7}, {Sink: `csv:"out"`}},
	}
	s.Partitions = []status.Partition{{
		Partition: 0, Seconds: map[status.State]float64{status.Reading: 40, status.Paused: 20}, LagRecords: ptr(int64(12)), Readable: ptr(int64(10)), LagSeconds: ptr(5.5),
		Watermark: s.Watermark, Progress: ago(4), Gap: &status.Gap{Open: 2}, Counts: status.Counts{Records: 6, Consumed: 1, Filtered: 1, Omitted: 1, Duplicates: 1, Late: 1, Future: 1, Outputs: 1},
		Queue: status.Queue{Records: 3, Bytes: 300, WindowBytes: 9000, Aside: 2}, Aside: []status.Aside{{Reason: "LATE", Total: 1}}, Blocked: &status.Cause{Code: "INTERNAL"}, Stalled: true,
	}}
	other := s
	other.Run = "run 2"
	return status.Report{Runs: []status.Snapshot{s, other}}
}

func scrape(t *testing.T, r status.Report) (*http.Response, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	New(func() status.Report { return r }, "v1", "go1").Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Result(), rec.Body.String()
}

// Every metric of the table is exported with its type, help and labels, and nothing is that is not in the table.
func TestEveryMetricIsExported(t *testing.T) {
	t.Parallel()
	resp, text := scrape(t, full())
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics.Table() {
		f := families[m.Name]
		if f == nil {
			t.Errorf("%s is not exported", m.Name)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != string(m.Type) || f.GetHelp() != m.Help {
			t.Errorf("%s is exported as a %s, %q", m.Name, got, f.GetHelp())
		}
		for _, sample := range f.GetMetric() {
			labels := map[string]bool{}
			for _, l := range sample.GetLabel() {
				labels[l.GetName()] = true
			}
			for _, l := range m.AllLabels() {
				if !labels[l] {
					t.Errorf("%s lacks the label %s", m.Name, l)
				}
				delete(labels, l)
			}
			if len(labels) > 0 {
				t.Errorf("%s has more labels: %v", m.Name, labels)
			}
		}
		delete(families, m.Name)
	}
	for name := range families {
		t.Errorf("%s is exported and not in the table", name)
	}
}

// The values are those of the status.
func TestValues(t *testing.T) {
	t.Parallel()
	_, text := scrape(t, full())
	for _, line := range []string{
		`weir_build_info{goversion="go1",version="v1"} 1`,
		`weir_run_phase{phase="RUNNING",run="run 2"} 1`, `weir_run_phase{phase="STOPPED",run="run 2"} 0`,
		`weir_lease_remaining_seconds{run="run 2"} 9`, `weir_commits_total{outcome="failed",run="run 2"} 1`, `weir_commit_under_way_seconds{run="run 2"} 2`,
		`weir_effects_refused_total{run="run 2"} 1`, `weir_watermark_age_seconds{run="run 2"} 60`, `weir_source_up{run="run 2"} 1`,
		`weir_partition_lag_records{partition="0",run="run 2"} 12`, `weir_partition_lag_seconds{partition="0",run="run 2"} 5.5`,
		`weir_partition_state_seconds_total{partition="0",run="run 2",state="READING"} 40`, `weir_partition_holds_watermark{partition="0",run="run 2"} 1`,
		`weir_records_total{outcome="duplicate",partition="0",run="run 2"} 1`, `weir_records_quarantined_total{partition="0",reason="LATE",run="run 2"} 1`,
		`weir_partition_blocked{partition="0",run="run 2"} 1`, `weir_partition_stalled{partition="0",run="run 2"} 1`, `weir_partition_open_gaps{partition="0",run="run 2"} 2`,
		`weir_run_epoch{run="run \"1\"\\\n<x>"} 7`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("it lacks %s", line)
		}
	}
}

// What is not known is absent, not 0: a run that has just begun has no lag, no watermark and no commit.
func TestWhatIsNotKnownIsAbsent(t *testing.T) {
	t.Parallel()
	s := status.Snapshot{Run: "r", At: now, Watermark: status.NoEventTime, Partitions: []status.Partition{{Watermark: status.EventTime{T: record.MaxTime}}}}
	_, text := scrape(t, status.Report{Runs: []status.Snapshot{s}})
	for _, m := range []metrics.Metric{metrics.LagRecords, metrics.LagSeconds, metrics.Watermark, metrics.WatermarkAge, metrics.PartWatermark, metrics.CommitAge, metrics.LeaseLeft, metrics.CheckpointAge, metrics.Observed} {
		if strings.Contains(text, "\n"+m.Name+"{") {
			t.Errorf("%s has a value", m.Name)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, fmt.Sprint(math.Inf(1))) {
		t.Errorf("there are values that are none:\n%s", text)
	}
}

// TestPromtool has Prometheus' own tool look over names, types and help.
func TestPromtool(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	_, text := scrape(t, full())
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	// That the tool does look, it has to show on a bad one.
	bad := exec.Command(tool, "check", "metrics")
	bad.Stdin = strings.NewReader("# TYPE weir_bad_total gauge\nweir_bad_total 1\n")
	if out, err := bad.CombinedOutput(); err == nil || len(out) == 0 {
		t.Errorf("promtool finds nothing wrong with a gauge named _total without help: %s", out)
	}
}

// promtool finds the tool, or takes it out of the distribution's package without installing the server in it. Where it cannot be had the test is
// skipped, and fails when CI is set.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path := filepath.Join(cache, "weir", "promtool", "usr", "bin", "promtool")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		script := `set -e; cd "$1"; apt-get update -qq >/dev/null 2>&1 || true; apt-get download -qq prometheus; mkdir -p "$(dirname "$2")"; dpkg-deb -x prometheus_*.deb "$2.$$"; mv -T "$2.$$" "$2" || test -x "$2/usr/bin/promtool"`
		out, err := exec.Command("sh", "-c", script, "sh", t.TempDir(), filepath.Join(cache, "weir", "promtool")).CombinedOutput()
		if err == nil {
			return path
		}
		t.Fatalf("promtool is needed where CI is set, and could not be taken from the package prometheus: %v\n%s", err, out)
	}
	t.Skip("promtool is not there; it is in the Debian package prometheus")
	return ""
}
