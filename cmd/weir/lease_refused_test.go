package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRefusedOfAStaleOwner: a process that is stopped for longer than its lease lasts, just before a commit, is taken over; woken, its commit is refused, and
// listed with who it was and whom it met.
func TestRefusedOfAStaleOwner(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	args := runArgs(addr, "ticks", "r", "--epoch", "1h", "--epoch-records", "4", "--fetch", "4", "--ttl", "1s", "--once-n", "23")
	first := startWith(t, dir, failpointsEnv+"=before_commit@2=stop", args...)
	first.await(t, filepath.Join(dir, "r.db"), 1)
	must(t, dir, append(args, "--standby")...)
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := first.end(t); code != 7 || !strings.Contains(first.out.String(), "STREAM_FENCE_OBSOLETO") {
		t.Errorf("exit %d:\n%s", code, first.out.String())
	}
	rows := parse(t, must(t, dir, "lease", "refused", "r", "--store", "sqlite:r.db", "--json"))["refused"].([]any)
	if len(rows) != 1 {
		t.Fatalf("%d refusals are listed: %v", len(rows), rows)
	}
	row := rows[0].(map[string]any)
	if row["effect"] != "commit an epoch" || row["fence_token"] != 1.0 || row["met_token"] != 2.0 || row["owner"] == row["met_owner"] || row["run"] != "r" || row["at"] == nil {
		t.Errorf("listed as %v", row)
	}
	text := must(t, dir, "lease", "refused", "--store", "sqlite:r.db")
	if !strings.Contains(text, "commit an epoch") || strings.Contains(must(t, dir, "lease", "refused", "another", "--store", "sqlite:r.db"), "commit") {
		t.Errorf("shown as\n%s", text)
	}
}
