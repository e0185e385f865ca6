package main

import (
	"bytes"
	"strings"
	"testing"
)

// stores of a drill: "" is its own temporary SQLite files.
var drillStores = map[string]func(t *testing.T) string{
	"sqlite":   func(*testing.T) string { return "" },
	"postgres": chaosStores["postgres"],
}

// runDrill runs a drill, with more in its environment, and returns its exit code and report.
func runDrill(t *testing.T, store string, env []string, args ...string) (int, map[string]any) {
	t.Helper()
	if store != "" {
		args = append(args, "--store", store)
	}
	cmd := command(t, t.TempDir(), append([]string{"drill", "--json"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code is judged
	code := cmd.ProcessState.ExitCode()
	if !strings.HasPrefix(out.String(), "{") {
		t.Fatalf("exit %d, no report\n%s%s", code, out.String(), errs.String())
	}
	return code, parse(t, out.String())
}

// failed are the checks of a report that did not hold.
func failed(report map[string]any) (out []string) {
	for _, c := range report["checks"].([]any) {
		if c := c.(map[string]any); c["passed"] != true {
			out = append(out, c["id"].(string)+" "+c["check"].(string)+": "+c["evidence"].(string))
		}
	}
	return out
}

// TestDrill: every check of the drill holds, and every fault happens, on both stores.
func TestDrill(t *testing.T) {
	t.Parallel()
	for name, store := range drillStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, report := runDrill(t, store(t), nil)
			if code != 0 || len(failed(report)) > 0 {
				t.Errorf("exit %d, failed:\n%s", code, strings.Join(failed(report), "\n"))
			}
			if planned, fired := report["faults_planned"].(float64), report["faults_fired"].(float64); planned < 20 || fired != planned {
				t.Errorf("%v of %v faults happened", fired, planned)
			}
			if n := report["passed"].(float64); n < 36 {
				t.Errorf("%v checks", n)
			}
			t.Logf("%v checks, %v faults, %v ms, %v", report["passed"], report["faults_fired"], report["took_ms"], report["figures"])
		})
	}
}

// TestLongDrill: one run that has a mishap at every failpoint gives what a run gives that is left alone.
func TestLongDrill(t *testing.T) {
	t.Parallel()
	needsTime := []string{"--records", "100000", "--partitions", "4", "--faults", "12", "--ttl", "2s"}
	if testing.Short() {
		needsTime = []string{"--records", "5000", "--partitions", "4", "--faults", "12", "--ttl", "1s"}
	}
	for name, store := range drillStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, report := runDrill(t, store(t), nil, needsTime...)
			if code != 0 || len(failed(report)) > 0 {
				t.Errorf("exit %d, failed:\n%s", code, strings.Join(failed(report), "\n"))
			}
			if planned, fired := report["faults_planned"].(float64), report["faults_fired"].(float64); planned != 18 || fired != planned {
				t.Errorf("%v of %v faults happened", fired, planned)
			}
		})
	}
}
