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
		if !strings.Contains(line, "${"+key+"}") {
			t.Errorf("%s of the example is not used", key)
		}
		line = strings.ReplaceAll(line, "${"+key+"}", values[0])
	}
	line = strings.NewReplacer("%i", "ticks-1", "%d", "/run/credentials/weir@ticks-1.service", "%S", "/nowhere/lib").Replace(line)
	args := strings.Fields(line)
	if args[0] != "/usr/local/bin/weir" || !strings.HasPrefix(flag(args, "listen"), "127.0.0.1:") {
		t.Errorf("%v", args)
	}
	accepts(t, unitFile, args[1:])
	secretless(t, unitFile, args[1:])
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
	if out, err := check(text, "verify", "--man=no"); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := check(strings.Replace(text, "ProtectSystem=", "ProtectSistem=", 1), "verify", "--man=no"); err == nil && len(out) == 0 {
		t.Error("verify finds nothing wrong with a misspelled setting")
	}
	// From 0, nothing can be done, to 100; without a sandbox a service has 96.
	if out, err := check(text, "security", "--offline=yes", "--threshold=20", "--no-pager"); err != nil {
		t.Errorf("security: %v\n%s", err, out)
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
