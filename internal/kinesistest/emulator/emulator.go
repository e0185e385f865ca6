// Package emulator runs kinesalite (npm), an emulator of Kinesis, behind a wrapper on loopback that shifts its clock, injects errors and mends what it
// lacks. It is for tests and for the demo.
package emulator

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

// Missing means that there is no emulator to be had here, and why.
type Missing struct{ Reason string }

// Error is the reason.
func (e Missing) Error() string { return e.Reason }

// Emulator is a running emulator. It ends with Stop, with this process, or when its standard input ends.
type Emulator struct {
	port string
	cmd  *exec.Cmd

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts an emulator; its packages are fetched once, into the user's cache folder. Missing says that it cannot be had.
func Start() (*Emulator, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, Missing{"no Node.js to run it (node on PATH)"}
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
		e.Stop()
		return nil, fmt.Errorf("the emulator did not start: %q, %w", line, err)
	}
	e.port = port
	return e, nil
}

// Stop ends it.
func (e *Emulator) Stop() {
	_ = e.in.Close()
	_ = e.cmd.Wait() // it ends with its standard input
}

// Endpoint is its address, http://127.0.0.1:PORT.
func (e *Emulator) Endpoint() string { return "http://127.0.0.1:" + e.port }

// Tell sends a command (emulator.js has them) and returns the answer.
func (e *Emulator) Tell(command map[string]any) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	line, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	if _, err := e.in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("the emulator is gone: %w", err)
	}
	answer, err := e.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the emulator is gone: %w", err)
	}
	var wrong struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &wrong) == nil && wrong.Error != "" {
		return nil, fmt.Errorf("%v: %s", command, wrong.Error)
	}
	return answer, nil
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
		return "", Missing{"neither its packages (WEIR_TEST_KINESIS_DIR) nor npm to fetch them"}
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
