// Package child runs the development broker in a process of its own, for tests and benchmarks that kill it or that must not share a
// heap and a scheduler with it. The process is the test binary itself, started again:
//
//	func TestMain(m *testing.M) {
//		child.Main() // does not return in the child
//		os.Exit(m.Run())
//	}
//
//	broker := child.Start(t, devbroker.Config{DataDir: dir, Topics: []string{"ticks"}})
//	broker.Addr(), broker.Kill(), broker.Stop()
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/devbroker"
)

// env carries the configuration to the child, as JSON.
const env = "WEIR_TEST_BROKER_CHILD"

// Main runs the broker and exits when this process was started by Start; else it returns at once. Call it first in TestMain.
func Main() {
	spec, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	var cfg devbroker.Config
	if err := json.Unmarshal([]byte(spec), &cfg); err != nil {
		fail(err)
	}
	b, err := devbroker.Start(cfg)
	if err != nil {
		fail(err)
	}
	fmt.Println(b.Addr())
	// The parent holds the other end: it closes it to stop the broker, and the system closes it should the parent die.
	_, _ = io.Copy(io.Discard, os.Stdin)
	b.Close()
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Process is a broker in a process of its own.
type Process struct {
	addr  string
	cmd   *exec.Cmd
	stdin io.Closer
	done  bool
}

// Start starts a broker process and waits until it answers. It is stopped when the test ends. A broker that does not start fails
// the test with what it said.
func Start(t testing.TB, cfg devbroker.Config) *Process {
	t.Helper()
	p, err := TryStart(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryStart is Start for a broker that may refuse to start: the error holds what it said.
func TryStart(t testing.TB, cfg devbroker.Config) (*Process, error) {
	t.Helper()
	spec, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(spec))
	cmd.Stderr = &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin}
	t.Cleanup(p.Stop)
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("the broker process did not start: %s", strings.TrimSpace(said.String()))
	}
	p.addr = strings.TrimSpace(addr)
	return p, nil
}

// Addr is where the broker listens.
func (p *Process) Addr() string { return p.addr }

// Kill ends the process as a crash does: no signal handler, no clean-up, no flush.
func (p *Process) Kill() {
	if p.done {
		return
	}
	p.done = true
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Freeze stops the process in the middle of whatever it does, and returns once it stands still. Connections stay open; Thaw lets it go
// on.
func (p *Process) Freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var state syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &state, syscall.WUNTRACED, nil); err != nil {
		return err
	}
	if !state.Stopped() {
		return fmt.Errorf("the broker process ended: %v", state)
	}
	return nil
}

// Thaw undoes Freeze.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the broker in good order and waits for it. Stopping again does nothing.
func (p *Process) Stop() {
	if p.done {
		return
	}
	p.done = true
	_ = p.Thaw()
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}
