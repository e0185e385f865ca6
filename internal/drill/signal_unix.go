//go:build unix

package drill

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
	sigTerm = syscall.SIGTERM
)

// Supported says whether this system has what the drill needs.
func Supported() error { return nil }

// detach gives the process a group of its own, so that Ctrl-C reaches the drill alone, which ends its processes in order. A drill that is killed
// itself takes them along where the system knows how.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieTogether(cmd.SysProcAttr)
}

// isStopped says whether a process stands still.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		// The state follows the command's name, which is in parentheses and may hold anything.
		after := string(text[strings.LastIndexByte(string(text), ')')+1:])
		return strings.HasPrefix(strings.TrimSpace(after), "T")
	}
	out, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
