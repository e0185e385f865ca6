package deploytest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirstream/weir/metrics"
)

var fetching sync.Mutex

// promtool finds Prometheus' tool, or takes it out of the distribution's package without installing the server in it. Where it cannot be had the
// test is skipped, and fails when CI is set.
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
	if os.Getenv("CI") == "" {
		t.Skip("promtool is not there; it is in the Debian package prometheus")
	}
	fetching.Lock()
	defer fetching.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	// Another package may do the same at this moment: whoever comes second finds it there.
	const script = `set -e; cd "$1"; apt-get update -qq >/dev/null 2>&1 || true; apt-get download -qq prometheus; mkdir -p "$(dirname "$2")"
dpkg-deb -x prometheus_*.deb "$2.$$"; mv -T "$2.$$" "$2" || { rm -r "$2.$$"; test -x "$2/usr/bin/promtool"; }`
	if out, err := exec.Command("sh", "-c", script, "sh", t.TempDir(), filepath.Join(cache, "weir", "promtool")).CombinedOutput(); err != nil {
		t.Fatalf("promtool is needed where CI is set, and could not be taken from the package prometheus: %v\n%s", err, out)
	}
	return path
}

func runTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(promtool(t), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "deploy/prometheus")
	runTool(t, dir, "check", "rules", "--lint-fatal", "alerts.yaml")
	runTool(t, dir, "check", "config", "--syntax-only", "prometheus.yaml")
	runTool(t, dir, "test", "rules", "alerts_test.yaml")
	// That the tests look, they have to show on an alert that never fires.
	broken := t.TempDir()
	for _, name := range []string{"alerts.yaml", "alerts_test.yaml"} {
		text := read(t, "deploy/prometheus/"+name)
		if name == "alerts.yaml" {
			text = strings.Replace(text, `phase="RECOVERY_BLOCKED"`, `phase="BLOCKED"`, 1)
		}
		if err := os.WriteFile(filepath.Join(broken, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(promtool(t), "test", "rules", "alerts_test.yaml")
	cmd.Dir = broken
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "WeirRecoveryBlocked") {
		t.Errorf("an alert that never fires passes its test: %s", out)
	}
}

var (
	metricName = regexp.MustCompile(`weir_[a-z_]+`)
	matcher    = regexp.MustCompile(`([a-z]+) *(?:=|=~|!=|!~) *"`)
	grouping   = regexp.MustCompile(`(?:by|on) *\(([^)]*)\)`)
)

// known finds what an expression names that is not in the table: metrics, and labels that none of its metrics has.
func known(expr string) (unknown []string) {
	labels := map[string]bool{"instance": true, "job": true}
	for _, name := range metricName.FindAllString(expr, -1) {
		i := slices.IndexFunc(metrics.Table(), func(m metrics.Metric) bool { return m.Name == name })
		if i < 0 {
			unknown = append(unknown, name)
			continue
		}
		for _, l := range metrics.Table()[i].AllLabels() {
			labels[l] = true
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		if !labels[m[1]] {
			unknown = append(unknown, m[1])
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !labels[l] {
				unknown = append(unknown, l)
			}
		}
	}
	return unknown
}

func TestKnown(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`sum by (run) (weir_lease_held{run="x"})`:       "",
		`weir_lease_hold`:                               "weir_lease_hold",
		`weir_lease_held{phase="x"}`:                    "phase",
		`sum by (run, partition) (weir_lease_held) > 0`: "partition",
		`up{job="weir"} == 0`:                           "",
	} {
		if got := strings.Join(known(expr), " "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	strictly(t, "deploy/prometheus/alerts.yaml", func(string) any { return &file })
	return file.Groups[0].Rules
}

// Every alert is of metrics that exist, is tested, says how bad it is and leads to a heading that exists.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var tests struct {
		Tests []struct {
			Name   string
			Series []struct{ Series, Values string } `yaml:"input_series"`
			Checks []struct {
				Alertname string
				Time      string `yaml:"eval_time"`
				Expected  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts_test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, s := range test.Series {
			if unknown := known(s.Series); unknown != nil {
				t.Errorf("%s: %s: %v", test.Name, s.Series, unknown)
			}
		}
		for _, c := range test.Checks {
			if len(c.Expected) > 0 {
				fires[c.Alertname] = true
			} else {
				quiet[c.Alertname] = true
			}
		}
	}
	headings := anchors(read(t, "docs/operating.md"))
	for _, a := range alerts(t) {
		if unknown := known(a.Expr); unknown != nil {
			t.Errorf("%s: %v is not in the table of metrics", a.Alert, unknown)
		}
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s is not shown to fire (%v) and to be quiet (%v)", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", a.Alert, s)
		}
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/operating.md") || !slices.Contains(headings, anchor) || a.Annotations["summary"] == "" {
			t.Errorf("%s leads to %q, which is none of %v", a.Alert, a.Annotations["runbook_url"], headings)
		}
	}
}

// anchors are the names by which the headings of a document are reached.
func anchors(text string) (out []string) {
	for line := range strings.Lines(text) {
		hashes, title, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.Trim(hashes, "#") != "" {
			continue
		}
		title = strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				return r
			}
			return -1
		}, strings.ToLower(title))
		out = append(out, title)
	}
	return out
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Targets                  []struct{ RefID, Expr string }
}

// board is the dashboard, as far as it is looked at.
type board struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Query string }
	}
}

func dashboard(t *testing.T) (d board, text string) {
	t.Helper()
	text = read(t, "deploy/grafana/weir.json")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d, text
}

// Every expression of the dashboard is of metrics that exist; what people look for first is on it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d, text := dashboard(t)
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q stands twice or has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %q shows nothing, or does not say what", p.Title)
		}
		for _, q := range p.Targets {
			if unknown := known(q.Expr); unknown != nil {
				t.Errorf("panel %q: %v is not in the table of metrics", p.Title, unknown)
			}
		}
	}
	for _, m := range []metrics.Metric{metrics.Phase, metrics.Lease, metrics.LagRecords, metrics.WatermarkAge, metrics.Records, metrics.StateSeconds, metrics.Quarantine, metrics.CheckpointAge,
		metrics.SinkUp, metrics.SinkRows, metrics.SinkSeconds, metrics.SinkLag} {
		if !strings.Contains(text, m.Name) {
			t.Errorf("the dashboard does not show %s", m.Name)
		}
	}
	for _, v := range d.Templating.List {
		if unknown := known(v.Query); unknown != nil {
			t.Errorf("the variable %s: %v", v.Name, unknown)
		}
	}
}

// Every expression of the dashboard can be read by Prometheus: each is put into a rule, with Grafana's variables filled in.
func TestDashboardExpressions(t *testing.T) {
	t.Parallel()
	d, _ := dashboard(t)
	rules := "groups:\n  - name: dashboard\n    rules:\n"
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			expr, err := json.Marshal(strings.NewReplacer("$__rate_interval", "5m", "$run", ".*").Replace(q.Expr))
			if err != nil {
				t.Fatal(err)
			}
			rules += fmt.Sprintf("      - {record: \"panel:%d:%s\", expr: %s}\n", p.ID, strings.ToLower(q.RefID), expr)
		}
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	runTool(t, ".", "check", "rules", path)
}
