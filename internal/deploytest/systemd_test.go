package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const unitFile = "deploy/systemd/weir@.service"

// batchUnits are those of the batch runs, which share a user and a folder.
var batchUnits = []string{"deploy/systemd/weir-worker.service", "deploy/systemd/weir-serve.service"}

// settings of a unit; a list that is set twice has both values.
func settings(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			out[key] = append(out[key], value)
		}
	}
	return out
}

func TestUnit(t *testing.T) {
	t.Parallel()
	s := settings(read(t, unitFile))
	for key, want := range map[string]string{
		"RestartPreventExitStatus": "2 3 6", "SuccessExitStatus": "130", "KillSignal": "SIGTERM", "Restart": "always", "NoNewPrivileges": "yes", "ProtectSystem": "strict",
		"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "StateDirectory": "weir/%i", "DynamicUser": "yes", "CapabilityBoundingSet": "", "UMask": "0077", "LimitCORE": "0",
	} {
		if got := strings.Join(s[key], "|"); len(s[key]) != 1 || got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if d, err := time.ParseDuration(s["TimeoutStopSec"][0] + "s"); err != nil || d < leastGrace {
		t.Errorf("the daemon is given %s to stop, and needs %s", d, leastGrace)
	}
	line := s["ExecStart"][0]
	env := read(t, "deploy/systemd/weir.env.example")
	for key, values := range settings(env) {
		used := strings.Count(line, "${"+key+"}") + strings.Count(line, "$"+key)
		if used != 1 {
			t.Errorf("%s of the example is used %d times", key, used)
		}
		line = strings.NewReplacer("${"+key+"}", values[0], "$"+key, values[0]).Replace(line)
	}
	// What the example shows as another choice has to be one.
	_, other, found := strings.Cut(env, "\n#WEIR_INPUT=")
	other, _, _ = strings.Cut(other, "\n")
	if !found {
		t.Fatal("the example has no other input")
	}
	for _, line := range []string{line, strings.Replace(line, settings(env)["WEIR_INPUT"][0], other, 1)} {
		ofUnit(t, line)
	}
}

func ofUnit(t *testing.T, line string) {
	t.Helper()
	line = strings.NewReplacer("%i", "ticks-1", "%d", "/run/credentials/weir@ticks-1.service", "%S", "/nowhere/lib").Replace(line)
	args := strings.Fields(line)
	if args[0] != "/usr/local/bin/weir" || !strings.HasPrefix(flag(args, "listen"), "127.0.0.1:") {
		t.Errorf("%v", args)
	}
	accepts(t, unitFile, args[1:])
	secretless(t, unitFile, args[1:])
}

func TestBatchUnits(t *testing.T) {
	t.Parallel()
	run := settings(read(t, unitFile))
	for _, file := range batchUnits {
		s := settings(read(t, file))
		for key, values := range run {
			switch key {
			case "Description", "ExecStart", "EnvironmentFile", "LoadCredential", "Environment", "MemoryMax", "TimeoutStopSec", "RestartPreventExitStatus", "StateDirectory":
				continue
			}
			if strings.Join(s[key], "|") != strings.Join(values, "|") {
				t.Errorf("%s: %s is %v, and %v in the unit of a run", file, key, s[key], values)
			}
		}
		if s["User"][0] != "weir-batch" || s["StateDirectory"][0] != "weir-batch" || s["RestartPreventExitStatus"][0] != "2 3" {
			t.Errorf("%s: %v", file, s)
		}
		args := strings.Fields(strings.NewReplacer("%d", "/nowhere/credentials", "%S", "/nowhere/lib").Replace(s["ExecStart"][0]))
		accepts(t, file, args[1:])
		secretless(t, file, args[1:])
		for _, c := range s["LoadCredential"] {
			if name, _, _ := strings.Cut(c, ":"); !strings.Contains(s["ExecStart"][0], "%d/"+name) {
				t.Errorf("%s: the credential %s is not used", file, name)
			}
		}
	}
}

// systemd's own tool reads the unit, with the binary where it will be, and says how much the sandbox leaves open.
func TestUnitBySystemd(t *testing.T) {
	t.Parallel()
	tool := systemdAnalyze(t)
	text := strings.ReplaceAll(read(t, unitFile), "/usr/local/bin/weir", binary(t))
	check := func(text string, args ...string) ([]byte, error) {
		path := filepath.Join(t.TempDir(), "weir@.service")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(tool, append(args, path)...).CombinedOutput()
	}
	for _, file := range append([]string{unitFile}, batchUnits...) {
		text := strings.ReplaceAll(read(t, file), "/usr/local/bin/weir", binary(t))
		if out, err := check(text, "verify", "--man=no"); err != nil || len(out) > 0 {
			t.Errorf("%s: verify: %v\n%s", file, err, out)
		}
		// From 0, nothing can be done, to 100; without a sandbox a service has 96.
		if out, err := check(text, "security", "--offline=yes", "--threshold=20", "--no-pager"); err != nil {
			t.Errorf("%s: security: %v\n%s", file, err, out)
		}
	}
	if out, err := check(strings.Replace(text, "ProtectSystem=", "ProtectSistem=", 1), "verify", "--man=no"); err == nil && len(out) == 0 {
		t.Error("verify finds nothing wrong with a misspelled setting")
	}
	if _, err := check(strings.Replace(text, "ProtectSystem=strict", "ProtectSystem=no", 1), "security", "--offline=yes", "--threshold=1", "--no-pager"); err == nil {
		t.Error("security finds nothing to say of a unit that leaves the system open")
	}
}

// systemdAnalyze finds systemd's tool. Where it is missing the test is skipped; with CI set the package is installed, and the test fails if it cannot be.
func systemdAnalyze(t *testing.T) string {
	t.Helper()
	if tool, err := exec.LookPath("systemd-analyze"); err == nil {
		return tool
	}
	if runtime.GOOS != "linux" {
		t.Skip("systemd is Linux's")
	}
	if os.Getenv("CI") == "" {
		t.Skip("systemd-analyze is not there; it is in the Debian package systemd")
	}
	const script = `apt-get update -qq >/dev/null 2>&1 || true; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd`
	out, err := exec.Command("sh", "-c", script).CombinedOutput()
	tool, missing := exec.LookPath("systemd-analyze")
	if missing != nil {
		t.Fatalf("systemd-analyze is needed where CI is set, and could not be installed with the package systemd: %v\n%s", err, out)
	}
	return tool
}
