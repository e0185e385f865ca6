//go:build unix

package sqlite

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// stopSelf stops the process until somebody lets it go on. The signal may reach another thread first, so this one waits for the end of the stop.
func stopSelf() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-goesOn
	signal.Stop(goesOn)
}

// An owner is killed before every other step of its life: taking the lease, opening the run, commits and pointers, the fork. What stands is whole,
// and the next owner, whose lease has a higher token, goes on to the same end.
func TestKillAnOwnerBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	stride := 2
	if testing.Short() {
		stride = 11
	}
	seen := map[string]bool{}
	for step := 1; ; step += stride {
		path := filepath.Join(t.TempDir(), "weir.db")
		if err := open(t, Config{Path: path}).Close(); err != nil { // what comes before an owner is TestKillBetweenAnyTwoSteps'
			t.Fatal(err)
		}
		work := task{Path: path, Workload: killed, Owner: "a", TTL: time.Hour, Until: 2, KillAtStep: step, KillAfterMicros: -1}
		o := child(t, work, nil)
		if !o.killed {
			if len(o.codes) > 0 || o.acked != work.Until+1 {
				t.Fatalf("step %d: the child was not killed and says:\n%s", step, o.text)
			}
			break
		}
		seen[o.step] = true
		s := open(t, Config{Path: path, Now: func() time.Time { return time.Now().Add(2 * time.Hour) }}) // its term has ended
		info, _, err := s.LookupLease(t.Context(), control.StreamLease(killed.RunID))
		if err != nil {
			t.Fatal(err)
		}
		done, err := owned(t.Context(), s, work, info.Token)
		if err != nil || done < o.acked || done > o.acked+1 {
			t.Errorf("killed before step %d (%s): %d stands, %d was acknowledged, %v", step, o.step, done, o.acked, err)
		}
		if err := succeeds(t, s, work); err != nil {
			t.Errorf("killed before step %d (%s): the next owner: %v", step, o.step, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d kinds of steps", len(seen))
	if testing.Short() {
		return
	}
	for _, step := range []string{"read lease", "insert pointer", "copy output", "copy quarantine", "insert blob"} {
		if !seen[step] {
			t.Errorf("no owner was killed before the step %q", step)
		}
	}
}

// stopped starts an owner and returns when it has stopped itself in the transaction of a commit.
func stopped(t *testing.T, work task) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "step commit" {
			return cmd
		}
	}
	t.Fatalf("the owner did not stop: %v, %v", lines.Err(), cmd.Wait())
	return nil
}

// An owner is stopped in the transaction of a commit, until its term is over. Whoever wants to write meanwhile, heartbeats too, is told that the store is
// not available, which is no refusal; readers go on; nothing is taken over, so nothing can be lost. When it goes on, its commit stands, and the next
// owner finds it. When it is killed instead, nothing of that commit stands.
func TestAnOwnerThatIsStoppedInItsCommit(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "weir.db")
		work := task{Path: path, Workload: faulty, Owner: "a", TTL: time.Hour, Until: 3, StopAt: 3, KillAfterMicros: -1}
		cmd := stopped(t, work)
		s := open(t, Config{Path: path, BusyTimeout: 20 * time.Millisecond, Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
		blockedBy(t, s, work)
		send, want := syscall.SIGCONT, uint64(3)
		if killed {
			send, want = syscall.SIGKILL, 2
		}
		if err := cmd.Process.Signal(send); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err != nil) != killed {
			t.Errorf("the owner ended with %v", err)
		}
		if epoch, err := faulty.CheckStored(t.Context(), s, 1); err != nil || epoch != want {
			t.Errorf("killed %t: epoch %d stands, %v; want %d", killed, epoch, err, want)
		}
		if err := succeeds(t, s, work); err != nil {
			t.Errorf("killed %t: the next owner: %v", killed, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// blockedBy says that nobody writes beside a transaction that does not end, and everybody reads.
func blockedBy(t *testing.T, s *Store, work task) {
	t.Helper()
	ctx := t.Context()
	name := control.StreamLease(work.Workload.RunID)
	l := control.Lease{Name: name, Owner: "a", Token: 1, TTL: work.TTL}
	f, err := work.Workload.Fork(ctx, 2, forkOf)
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"take-over":    func() error { _, err := s.Acquire(ctx, name, "b", time.Minute); return err },
		"renewal":      func() error { _, err := s.Renew(ctx, l); return err },
		"release":      func() error { return s.Release(ctx, l) },
		"commit":       func() error { return s.Under(l).Commit(ctx, work.Workload.Commit(3)) },
		"open":         func() error { _, err := s.Under(l).OpenRun(ctx, work.Workload.Header()); return err },
		"keep pointer": func() error { return s.KeepPointer(ctx, l, pointerTo(work.Workload, 1)) },
		"fork": func() error {
			return s.ForkRun(ctx, control.Lease{Name: control.StreamLease(forkOf), Owner: "a", Token: 1}, f)
		},
	} {
		err := call()
		if !codes.Has(err, codes.StoreUnavailable) || control.Refused(err) || !strings.Contains(err.Error(), "locked by another process") {
			t.Errorf("%s beside a process that is stopped in its commit: %v", what, err)
		}
	}
	if epoch, err := work.Workload.CheckStored(ctx, s, 1); err != nil || epoch != 2 {
		t.Errorf("readers beside it see epoch %d, %v", epoch, err)
	}
	if err := s.LoadBlobs(ctx, work.Workload.RunID, 0, func(partitions.StateBlob) error { return nil }); err != nil {
		t.Error(err)
	}
}
