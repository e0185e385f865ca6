package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/internal/pgtest"
)

// stores of a drill: "" is its own temporary SQLite files.
var drillStores = map[string]func(t *testing.T) string{
	"sqlite":   func(*testing.T) string { return "" },
	"postgres": chaosStores["postgres"],
}

// slower is the one of two durations that suits the build.
func slower(plain, slow string) string {
	if slowdown > 1 {
		return slow
	}
	return plain
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
	report := parse(t, out.String())
	if report["checks"] == nil {
		t.Fatalf("exit %d, no report\n%s%s", code, out.String(), errs.String())
	}
	return code, report
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
			code, report := runDrill(t, store(t), nil, "--grace", "10s", "--parallel", "4", "--ttl", slower("6s", "10s"), // other tests run beside it
				"--sink", "jsonl,csv,parquet,kafka,kafka-idempotent,postgres,clickhouse", "--sink-db", pgtest.Database(t, nil).Super, "--sink-clickhouse", chtest.Database(t).URL(chtest.Super))
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
	needsTime := []string{"--records", "100000", "--partitions", "4", "--faults", "12", "--ttl", "2s", "--sink", "jsonl,kafka,kafka-idempotent"}
	if testing.Short() {
		needsTime = []string{"--records", "5000", "--partitions", "4", "--faults", "12", "--ttl", slower("1s", "3s"), "--sink", "jsonl,kafka,kafka-idempotent"}
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

// TestADrillThatIsInterrupted leaves no process behind, whether it is asked once or twice.
func TestADrillThatIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, 2} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			p := startLogged(t, t.TempDir(), "drill", []string{"TMPDIR=" + tmp}, "drill", "--ttl", "30s", "--only", "owners,kill")
			p.await(t, "an owner", func() bool { return strings.Contains(p.said(t), "owners.01") })
			children := childrenOf(t, p.Process.Pid)
			if len(children) < 2 {
				t.Fatalf("the drill has the processes %v:\n%s", children, p.said(t))
			}
			for range times {
				p.Process.Signal(os.Interrupt)
			}
			if code := p.end(t); code != 130 {
				t.Errorf("exit %d:\n%s", code, p.said(t))
			}
			for _, pid := range children {
				if err := syscall.Kill(pid, 0); err == nil {
					t.Errorf("process %d is left behind", pid)
				}
			}
			if left, _ := os.ReadDir(tmp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestADrillThatIsKilled leaves a folder, which the next drill clears away.
func TestADrillThatIsKilled(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	run := func(until string) *logged {
		p := startLogged(t, t.TempDir(), "drill", []string{"TMPDIR=" + tmp}, "drill", "--ttl", "30s", "--only", "owners")
		p.await(t, until, func() bool { return strings.Contains(p.said(t), until) })
		return p
	}
	p := run("owners.01")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("a drill that was killed leaves %v, %v", left, err)
	}
	next := run("owners.01")
	if _, err := os.Stat(left[0]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left[0], err)
	}
	next.Process.Signal(os.Interrupt)
	next.end(t)
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, pid int) (out []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	needs(t, err == nil && len(all) > 0, "/proc, to find the processes of a drill")
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == fmt.Sprint(pid) {
			id, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, id)
		}
	}
	return out
}
