package main

import (
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
	args := runArgs(addr, "ticks", "r", "--epoch", "1h", "--epoch-records", "4", "--fetch", "4", "--ttl", "3s", "--once-n", "23")
	first := startLogged(t, dir, "first", []string{failpointsEnv + "=before_commit@2=stop"}, args...)
	first.await(t, "the stop", func() bool { return strings.Contains(first.said(t), `{"action":"stop"`) })
	must(t, dir, append(args, "--standby")...)
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := first.end(t); code != 7 || !strings.Contains(first.said(t), "STREAM_FENCE_OBSOLETO") {
		t.Errorf("exit %d:\n%s", code, first.said(t))
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
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, "lease", "refused", "another", "--store", "sqlite:r.db")
	if !strings.Contains(text, "commit an epoch") {
		t.Errorf("shown as\n%s", text)
	}
}
