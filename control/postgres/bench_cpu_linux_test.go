package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/pgtest"
)

// cpuTime is what this process and those that it has started, the server's, have used; 0 for a server that it has not started.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	if !pgtest.Private() {
		return 0
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	all := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	parents := map[string]string{}
	for _, p := range processes {
		parents[filepath.Base(p)] = parentOf(p)
	}
	self := strconv.Itoa(os.Getpid())
	for pid, parent := range parents {
		if parent != self && parents[parent] != self {
			continue
		}
		text, _ := os.ReadFile("/proc/" + pid + "/schedstat") // a process may have ended
		var ns int64
		if _, err := fmt.Sscan(string(text), &ns); err == nil {
			all += time.Duration(ns)
		}
	}
	return all
}

// parentOf is the parent of a process, or "".
func parentOf(folder string) string {
	text, _ := os.ReadFile(folder + "/stat") // a process may have ended
	_, rest, _ := strings.Cut(string(text), ") ")
	if f := strings.Fields(rest); len(f) > 1 {
		return f[1]
	}
	return ""
}
