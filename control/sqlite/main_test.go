package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/controltest"
)

// childEnv holds the task of a process that a test started: the test binary, run again.
const childEnv = "WEIR_SQLITE_TEST_CHILD"

// task is what a child does: it opens the journal and commits the workload's epochs, telling each one that was acknowledged.
type task struct {
	Path     string
	Workload controltest.Workload
	// Until is the last epoch; 0 goes on until something happens.
	Until uint64
	// Plane makes it do one batch run, from its admission to its end, instead of epochs.
	Plane bool
	// Owner makes it own the run: it takes the lease for TTL, commits under it, keeps a pointer after each epoch, and forks the run at the last one.
	Owner string
	TTL   time.Duration
	// StopAt is the epoch in whose commit it stops itself (SIGSTOP), just before COMMIT. 0 is none.
	StopAt uint64
	// KillAtStep is the step of a write, counted from 1 over the life of the process, before which it kills itself. 0 is none.
	KillAtStep int
	// KillAfterMicros kills it so long after its first acknowledged epoch. Negative is never.
	KillAfterMicros int64
	// FileLimit is the largest size that a file may reach, as a full disk would. When that has stopped a commit, the limit is lifted and
	// the work goes on.
	FileLimit uint64
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var t task
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			panic(err)
		}
		os.Exit(t.run(context.Background()))
	}
	os.Exit(m.Run())
}

// run is the child's main. Its standard output is lines of "acked N", "code NAME message" and "step NAME".
func (t task) run(ctx context.Context) int {
	cfg := Config{Path: t.Path, BusyTimeout: time.Minute}
	steps := 0
	cfg.Hook = func(step string) error {
		if steps++; steps == t.KillAtStep {
			fmt.Println("step", step)
			killSelf()
		}
		return nil
	}
	work := t.commits
	switch {
	case t.Plane:
		work = t.batchRun
	case t.Owner != "":
		work = t.owns
	}
	if err := work(ctx, cfg); err != nil {
		name := "NONE"
		if code := codes.Of(err); code != nil {
			name = code.Name
		}
		fmt.Println("code", name, err)
		return 1
	}
	return 0
}

func (t task) commits(ctx context.Context, cfg Config) error {
	limit := limitFiles(t.FileLimit)
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	state, err := s.OpenRun(ctx, t.Workload.Header())
	if err != nil {
		return err
	}
	for epoch := state.Epoch + 1; t.Until == 0 || epoch <= t.Until; epoch++ {
		err := s.Commit(ctx, t.Workload.Commit(epoch))
		if codes.Has(err, codes.StoreUnavailable) && limit != nil {
			fmt.Println("code", codes.Of(err).Name, err)
			limit()
			limit = nil
			if state, err = s.OpenRun(ctx, t.Workload.Header()); err != nil {
				return err
			}
			epoch = state.Epoch
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println("acked", epoch)
		if epoch == state.Epoch+1 && t.KillAfterMicros >= 0 {
			killAfter(t.KillAfterMicros)
		}
	}
	return s.Close()
}

// outcome is what a child told before its end.
type outcome struct {
	// acked is the last acknowledged epoch, all are all of them.
	acked  uint64
	all    []uint64
	step   string
	codes  []string
	killed bool
	text   string
}

// child runs a task in a process of its own, to its end.
func child(t *testing.T, task task, prepare func(*exec.Cmd)) outcome {
	t.Helper()
	return start(t, task, prepare)()
}

// start starts a task in a process of its own and returns what waits for its end.
func start(t *testing.T, task task, prepare func(*exec.Cmd)) (wait func() outcome) {
	t.Helper()
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	if prepare != nil {
		prepare(cmd)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() outcome {
		t.Helper()
		err := cmd.Wait()
		o := outcome{text: out.String(), killed: wasKilled(err)}
		for line := range strings.Lines(o.text) {
			o.add(t, line)
		}
		if err != nil && !o.killed && len(o.codes) == 0 {
			t.Fatalf("the child failed: %v\n%s", err, o.text)
		}
		return o
	}
}

func (o *outcome) add(t *testing.T, line string) {
	t.Helper()
	kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch kind {
	case "acked":
		if _, err := fmt.Sscan(rest, &o.acked); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		o.all = append(o.all, o.acked)
	case "step":
		o.step = rest
	case "code":
		o.codes = append(o.codes, rest)
	default:
		t.Fatalf("the child says:\n%s", o.text)
	}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stands opens the file, checks that it holds exactly a prefix of the workload's epochs, and returns how long that is.
func stands(t *testing.T, path string, w controltest.Workload) uint64 {
	t.Helper()
	s := open(t, Config{Path: path})
	defer s.Close()
	epoch, err := w.Check(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

// filled makes a journal that holds a workload's epochs, and closes it.
func filled(t testing.TB, path string, w controltest.Workload, epochs uint64) {
	t.Helper()
	s := open(t, Config{Path: path})
	if _, err := s.OpenRun(t.Context(), w.Header()); err != nil {
		t.Fatal(err)
	}
	for e := uint64(1); e <= epochs; e++ {
		if err := s.Commit(t.Context(), w.Commit(e)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
