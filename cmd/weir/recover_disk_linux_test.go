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

// What --min-free-disk is when nobody says: runs that end by themselves do not wait for a disk, and a small disk is not taken for a full one.
func TestChosenFreeDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	total, err := diskBytes(dir)
	if err != nil {
		t.Fatal(err)
	}
	daemon := min(defaultFreeDisk<<20, total/16)
	for name, test := range map[string]struct {
		o    runOptions
		want int64
	}{
		"a daemon":           {runOptions{recoveryFlags: recoveryFlags{minFreeDisk: autoFreeDisk}}, daemon},
		"--once-n":           {runOptions{recoveryFlags: recoveryFlags{minFreeDisk: autoFreeDisk}, onceN: 1}, 0},
		"--until-n":          {runOptions{recoveryFlags: recoveryFlags{minFreeDisk: autoFreeDisk}, untilN: 1}, 0},
		"--log":              {runOptions{recoveryFlags: recoveryFlags{minFreeDisk: autoFreeDisk}, log: "x"}, 0},
		"what was asked for": {runOptions{recoveryFlags: recoveryFlags{minFreeDisk: 7}, onceN: 1}, 7 << 20},
	} {
		if got := test.o.leastDisk([]string{dir}); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}
