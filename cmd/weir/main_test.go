package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/internal/pgtest"
)

// The test binary is weir itself when this variable is set, so that the tests drive real processes.
const asWeir = "WEIR_TEST_AS_WEIR"

// raceOptions is the variable with the options of the race detector.
const raceOptions = "GORACE"

// patience only keeps a test that waits for something from hanging for ever.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asWeir) != "" {
		mutate(os.Getenv(asMutant))
		demoEvents /= slowdown
		if slowdown > 1 {
			drillShortTTL = 4 * time.Second
		}
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(raceOptions) == "" {
		os.Setenv(raceOptions, "atexit_sleep_ms=0") // under the race detector every process would end a second after its end
	}
	code := pgtest.Run(m, pgtest.Config{})
	kafkatest.Close()
	chtest.Stop()
	os.Exit(code)
}

// command prepares weir as a process in dir.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asWeir+"=1")
	return cmd
}

// result is what a finished command left.
type result struct {
	code           int
	stdout, stderr string
}

// weir runs a command to its end.
func weir(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	return weirWith(t, dir, stdin, nil, args...)
}

// weirWith is weir with more in its environment.
func weirWith(t *testing.T, dir, stdin string, env []string, args ...string) result {
	t.Helper()
	cmd := command(t, dir, args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
	if strings.Contains(r.stderr, "goroutine ") || strings.Contains(r.stdout, "goroutine ") {
		t.Errorf("weir %s printed a stack trace:\n%s%s", strings.Join(args, " "), r.stdout, r.stderr)
	}
	return r
}

// must runs a command that has to succeed.
func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := weir(t, dir, "", args...)
	if r.code != 0 {
		t.Fatalf("weir %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused runs a command that has to fail with an exit code, a code and words in its message.
func refused(t *testing.T, dir string, exit int, words []string, args ...string) result {
	t.Helper()
	r := weir(t, dir, "", args...)
	r.refused(t, exit, words, args...)
	return r
}

func (r result) refused(t *testing.T, exit int, words []string, args ...string) {
	t.Helper()
	if r.code != exit {
		t.Errorf("weir %s: exit %d, want %d\n%s%s", strings.Join(args, " "), r.code, exit, r.stdout, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("weir %s: the message lacks %q:\n%s", strings.Join(args, " "), w, r.stderr)
		}
	}
}

// parse reads one JSON document.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("not one JSON document: %v\n%.2000s", err, text)
	}
	return doc
}

// fixtureDir lays out the fixture's files in a new folder.
func fixtureDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string][]byte{"snapshot.jsonl": fixture.Snapshot, "flow.yaml": fixture.Flow, "faults.json": fixture.Schedule} {
		write(t, dir, name, string(data))
	}
	return dir
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
