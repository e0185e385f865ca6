package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLeastFree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, err := leastFree([]string{dir})
	if err != nil || one <= 0 {
		t.Errorf("%d bytes, %v", one, err)
	}
	if _, err := leastFree([]string{dir, filepath.Join(dir, "missing")}); err == nil {
		t.Error("a folder that is not there has free space")
	}
}

// A run that may fill no disk reads nothing, and says nothing wrong.
func TestMinFreeDisk(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	run := startLogged(t, dir, "run", nil, runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms", "--min-free-disk", "1000000000000")...)
	run.await(t, "the warning", func() bool { return strings.Contains(run.said(t), "DISK_LOW") })
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-run.done; err != nil {
		t.Errorf("stopped with %v:\n%s", err, run.said(t))
	}
}
