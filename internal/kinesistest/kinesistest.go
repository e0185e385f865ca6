package kinesistest

import (
	"bufio"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Region that the emulator answers for, and the credentials that it takes (any others would do too).
const (
	Region    = "us-east-1"
	AccessKey = "weir"
	SecretKey = "canary-kinesis-5d2e"
)

//go:embed emulator.js package.json package-lock.json
var files embed.FS

// release names the cache folder: it changes with the lock file.
const release = "kinesalite-3.3.3"

// errNone means that there is no emulator to be had here; tests are skipped with its text.
type errNone struct{ reason string }

func (e errNone) Error() string { return e.reason }

// Emulator is a running emulator.
type Emulator struct {
	port string
	cmd  *exec.Cmd

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts an emulator that ends with the test, with this process, or when its standard input ends.
func Start(t testing.TB) *Emulator {
	t.Helper()
	e, err := start()
	var none errNone
	switch {
	case errors.As(err, &none) && os.Getenv("CI") == "":
		t.Skipf("Kinesis emulator: %s", none.reason)
	case err != nil:
		t.Fatalf("kinesistest: %v", err)
	}
	t.Cleanup(e.stop)
	return e
}

func start() (*Emulator, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errNone{"no Node.js to run it (node on PATH)"}
	}
	dir, err := packages()
	if err != nil {
		return nil, err
	}
	script, err := files.ReadFile("emulator.js")
	if err != nil {
		return nil, err
	}
	// The script is handed over on the command line, so that nothing has to be written and removed.
	e := &Emulator{cmd: exec.Command(node, "-e", string(script), "--", dir)}
	e.cmd.Stderr = os.Stderr
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = bufio.NewReader(out)
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := e.out.ReadString('\n')
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "READY ")
	if err != nil || !ok {
		e.stop()
		return nil, fmt.Errorf("the emulator did not start: %q, %w", line, err)
	}
	e.port = port
	return e, nil
}

func (e *Emulator) stop() {
	_ = e.in.Close()
	_ = e.cmd.Wait() // it ends with its standard input
}

// Endpoint is its address, http://127.0.0.1:PORT.
func (e *Emulator) Endpoint() string { return "http://127.0.0.1:" + e.port }

// Shift sets its clock ahead by d, which may be negative.
func (e *Emulator) Shift(t testing.TB, d time.Duration) {
	t.Helper()
	e.tell(t, map[string]any{"cmd": "shift", "ms": d.Milliseconds()})
}

// Fault is an error that an operation answers with. "HANG_UP" as Type closes the connection instead.
type Fault struct {
	// Operation, such as "GetRecords", and the error's Type, such as "ExpiredIteratorException".
	Operation, Type, Message string
	// Every n-th call fails; defaults to each. Times is how often in all; 0 is without end.
	Every, Times int
}

// Fail injects a fault, beside those that are there.
func (e *Emulator) Fail(t testing.TB, f Fault) {
	t.Helper()
	times := f.Times
	if times == 0 {
		times = -1
	}
	e.tell(t, map[string]any{"cmd": "fail", "op": f.Operation, "type": f.Type, "message": f.Message, "every": max(f.Every, 1), "times": times})
}

// Heal takes all faults away.
func (e *Emulator) Heal(t testing.TB) {
	t.Helper()
	e.tell(t, map[string]any{"cmd": "heal"})
}

// Calls is how often each operation was asked for so far.
func (e *Emulator) Calls(t testing.TB) map[string]int {
	t.Helper()
	calls := map[string]int{}
	if err := json.Unmarshal(e.tell(t, map[string]any{"cmd": "calls"}), &calls); err != nil {
		t.Fatalf("kinesistest: %v", err)
	}
	return calls
}

// tell sends a command and returns the answer.
func (e *Emulator) tell(t testing.TB, command map[string]any) []byte {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	line, err := json.Marshal(command)
	if err != nil {
		t.Fatalf("kinesistest: %v", err)
	}
	if _, err := e.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("kinesistest: the emulator is gone: %v", err)
	}
	answer, err := e.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("kinesistest: the emulator is gone: %v", err)
	}
	var wrong struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &wrong) == nil && wrong.Error != "" {
		t.Fatalf("kinesistest: %v: %s", command, wrong.Error)
	}
	return answer
}

// packages is a folder with node_modules. It is filled beside its place and renamed when it is whole, so that several test binaries, or one that
// was killed, do not meet half of it.
func packages() (string, error) {
	if dir := os.Getenv("WEIR_TEST_KINESIS_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "weir-test", release)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errNone{"neither its packages (WEIR_TEST_KINESIS_DIR) nor npm to fetch them"}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(scratch, name), text, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = scratch
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	if err := os.Rename(scratch, dir); err != nil {
		// Another test binary was faster.
		if _, there := os.Stat(dir); there != nil {
			return "", errors.Join(err, there)
		}
	}
	return dir, nil
}
