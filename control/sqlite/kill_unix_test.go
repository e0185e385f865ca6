//go:build unix

package sqlite

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/control/controltest"
)

var killed = controltest.Workload{Seed: 4, RunID: "killed", Partitions: 2, Rows: 20, Blob: 3000}

// A process is killed before every single step of its life: opening a new file, migrating it, creating a run, two commits, and after the
// last one. Whatever then stands is a whole number of epochs, not fewer than were acknowledged and at most one more; and where that is
// tried, a second process goes on from there to the same end.
func TestKillBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	const until = 2
	seen := map[string]bool{}
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for step := 1; ; step += stride {
		path := filepath.Join(t.TempDir(), "weir.db")
		o := child(t, task{Path: path, Workload: killed, Until: until, KillAtStep: step, KillAfterMicros: -1}, nil)
		if !o.killed {
			if len(o.codes) > 0 || o.acked != until {
				t.Fatalf("step %d: the child was not killed and says:\n%s", step, o.text)
			}
			break // it had fewer steps
		}
		seen[o.step] = true
		got := stands(t, path, killed)
		if got < o.acked || got > o.acked+1 {
			t.Errorf("killed before step %d (%s): epoch %d stands, %d was acknowledged", step, o.step, got, o.acked)
		}
		if step%5 != 0 {
			continue
		}
		o = child(t, task{Path: path, Workload: killed, Until: until, KillAfterMicros: -1}, nil)
		if got := stands(t, path, killed); got != until {
			t.Errorf("killed before step %d: a second process ends at epoch %d:\n%s", step, got, o.text)
		}
	}
	if testing.Short() {
		return
	}
	for _, step := range []string{"journal mode", "begin", "mark", "create", "migrate", "note", "create run", "add partition", "read run", "compare and set", "read cut", "delete blob",
		"update blob", "insert blob", "insert output", "insert quarantine", "insert decisions", "update cut", "commit", "committed"} {
		if !seen[step] {
			t.Errorf("no process was killed before the step %q", step)
		}
	}
}

// A process that commits without end is killed twenty times at random moments; each one goes on where the last was killed.
func TestKillAtRandomMoments(t *testing.T) {
	t.Parallel()
	const seed = 20
	rng := rand.New(rand.NewPCG(seed, seed))
	path := filepath.Join(t.TempDir(), "weir.db")
	epoch := uint64(0)
	for i := range 20 {
		after := rng.Int64N(15_000)
		o := child(t, task{Path: path, Workload: killed, KillAfterMicros: after}, nil)
		if !o.killed {
			t.Fatalf("seed %d, kill %d: the child ended by itself:\n%s", seed, i, o.text)
		}
		got := stands(t, path, killed)
		if got < o.acked || got > o.acked+1 || got <= epoch {
			t.Fatalf("seed %d, kill %d after %d µs: epoch %d stands; %d stood before, %d was acknowledged", seed, i, after, got, epoch, o.acked)
		}
		epoch = got
	}
	t.Logf("20 kills, %d epochs", epoch)
}

// Four processes are given one run by mistake. Each epoch is committed by one of them; the others are refused at their next commit and end.
// One is left and ends the work.
func TestProcessesOnOneRun(t *testing.T) {
	t.Parallel()
	const until = 60
	path := filepath.Join(t.TempDir(), "weir.db")
	filled(t, path, killed, 0)
	var waits []func() outcome
	for range 4 {
		waits = append(waits, start(t, task{Path: path, Workload: killed, Until: until, KillAfterMicros: -1}, nil))
	}
	by := map[uint64]int{}
	for i, wait := range waits {
		o := wait()
		for _, epoch := range o.all {
			by[epoch]++
		}
		if len(o.codes) > 1 || len(o.codes) == 1 && !strings.HasPrefix(o.codes[0], "JOURNAL_CONFLICT ") {
			t.Errorf("process %d says:\n%s", i, o.text)
		}
	}
	if got := stands(t, path, killed); got != until || len(by) != until {
		t.Errorf("epoch %d stands, %d were acknowledged, want %d", got, len(by), until)
	}
	for epoch, n := range by {
		if n != 1 {
			t.Errorf("epoch %d was acknowledged to %d processes", epoch, n)
		}
	}
}

// A disk that is full in the middle of a commit: the reason is told, nothing of the epoch stands, and once there is room the same process
// goes on.
func TestFullDiskOfARealFile(t *testing.T) {
	t.Parallel()
	w := controltest.Workload{Seed: 6, RunID: "run", Partitions: 2, Rows: 200, Blob: 30_000}
	path := filepath.Join(t.TempDir(), "weir.db")
	o := child(t, task{Path: path, Workload: w, Until: 20, KillAfterMicros: -1, FileLimit: 600_000}, nil)
	if len(o.codes) != 1 || !strings.HasPrefix(o.codes[0], "STORE_UNAVAILABLE") || strings.Contains(o.text, "goroutine") {
		t.Fatalf("the child says:\n%s", o.text)
	}
	if !strings.Contains(o.codes[0], fmt.Sprintf("journal %s: commit of epoch ", path)) || !strings.Contains(o.codes[0], "check the disk") {
		t.Errorf("the message is not clear: %s", o.codes[0])
	}
	if got := stands(t, path, w); got != 20 || o.acked != 20 {
		t.Errorf("epoch %d stands, %d was acknowledged, want 20", got, o.acked)
	}
}

// A process is killed before every single step of a batch run, from opening a new file to the release of the lease. What stands is whole, and
// recovery leads to one published result.
func TestKillInABatchRun(t *testing.T) {
	t.Parallel()
	stride := 2
	if testing.Short() {
		stride = 9
	}
	kills := 0
	for step := 1; ; step += stride {
		path := filepath.Join(t.TempDir(), "weir.db")
		o := child(t, task{Path: path, Plane: true, KillAtStep: step, KillAfterMicros: -1}, nil)
		if !o.killed {
			if len(o.codes) > 0 || o.acked != 1 {
				t.Fatalf("step %d: the child was not killed and says:\n%s", step, o.text)
			}
			break
		}
		kills++
		s := open(t, Config{Path: path})
		_, err := whole(t.Context(), s)
		if cerr := s.Close(); err != nil || cerr != nil {
			t.Errorf("killed before step %d (%s): %v, %v", step, o.step, err, cerr)
		}
		if err := recoverRun(t, path); err != nil {
			t.Errorf("killed before step %d (%s): recovery: %v", step, o.step, err)
		}
	}
	if kills < 5 {
		t.Errorf("only %d kills", kills)
	}
}
