//go:build unix

package worker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// Environment of a child process: the folder of its place, the step at which it kills itself, and the order in which it publishes.
const (
	childDir   = "WEIR_TEST_WORKER_DIR"
	childStep  = "WEIR_TEST_WORKER_STEP"
	childOrder = "WEIR_TEST_WORKER_POINTER_FIRST"
	// childStaging is the URL of a ClickHouse in which it stages.
	childStaging = "WEIR_TEST_WORKER_STAGING"
)

// The leases of the workers that die: the next one waits for their end, and they have to be renewed by a machine that does much else, for longer
// beside a server of its own.
const (
	killTTL    = time.Second
	stagingTTL = 3 * time.Second
)

// TestWorkerThatDies is the child of the tests below: a worker that kills itself at a step, as a power switch would.
func TestWorkerThatDies(t *testing.T) {
	if os.Getenv(childDir) == "" {
		t.Log("this is the body of a child process; by itself it has nothing to do")
		return
	}
	p := openPlace(t, os.Getenv(childDir), sqliteStore(t, os.Getenv(childDir)))
	cfg := p.config()
	cfg.TTL, cfg.pointerFirst = killTTL, os.Getenv(childOrder) != ""
	die := at(os.Getenv(childStep), func() error {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	})
	cfg.step = die
	if url := os.Getenv(childStaging); url != "" {
		cfg.TTL = stagingTTL
		cfg.Staging = features(t, url, func(step string) error { return die("staging: " + step) })
	}
	_, _, err := Once(context.Background(), cfg)
	t.Fatalf("it was not killed: %v", err)
}

func sqliteStore(t *testing.T, path string) Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(path, "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// killed starts a worker that dies at a step, and waits for that.
func killed(t *testing.T, p *place, step string, pointerFirst bool, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestWorkerThatDies$")
	cmd.Env = append(os.Environ(), childDir+"="+p.dir, childStep+"="+step)
	cmd.Env = append(cmd.Env, env...)
	if pointerFirst {
		cmd.Env = append(cmd.Env, childOrder+"=1")
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, out)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v\n%s", err, out)
	}
}

// steps of a run, in their order.
var steps = []string{"claimed", "leased", "started", "computed", "between", "ended"}

// TestKilledAtEveryStep: a worker process is killed at each step of a run. Right after it nothing refers to a blob that is not there, and the
// next worker ends the run once.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := openPlace(t, dir, sqliteStore(t, dir))
			id := p.submit("a")
			killed(t, p, step, false)
			if bad := p.dangling(); len(bad) > 0 {
				t.Errorf("dangling: %v", bad)
			}
			cfg := p.config()
			cfg.TTL, cfg.Poll = killTTL, 20*time.Millisecond
			ended := make(chan Outcome, 10)
			cfg.OnEnd = func(o Outcome) { ended <- o }
			w := begin(t.Context(), cfg)
			if step != "ended" {
				for o := range ended {
					if o.Kind == Succeeded {
						break
					}
				}
			}
			if report, err := w.end(); err != nil {
				t.Errorf("%+v, %v", report, err)
			}
			p.succeeded(id)
			if left := p.pending(); len(left) != 0 {
				t.Errorf("events are left: %+v", left)
			}
		})
	}
}

func features(t *testing.T, url string, hook func(string) error) *clickhouse.Staging {
	t.Helper()
	g, err := clickhouse.NewStaging(clickhouse.Config{URL: url, Table: "features", Create: true, Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestKilledWhileStaging: a worker process is killed at each step from the first row that is staged to the end, with rows in a real ClickHouse. What is seen there at that moment is
// nothing, or all rows of a published result; the next worker completes it, and each row is seen once.
func TestKilledWhileStaging(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	if err := features(t, db.URL(chtest.Super), nil).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"computed", "staging: named", "staging: block", "staging: staged", "staged", "between", "published", "staging: found", "staging: shown", "ended"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := openPlace(t, dir, sqliteStore(t, dir))
			id := p.submit(step)
			seen := func() (rows int) {
				query := "SELECT toInt64(count()), toInt64(uniqExact(row_number)) FROM features WHERE run_id = '" + id + "'"
				if err := db.Connect(t).Query(t.Context(), query, func(row []any) error {
					if rows = int(row[0].(int64)); row[0] != row[1] {
						t.Errorf("%v rows are seen, of which %v differ", row[0], row[1])
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return rows
			}
			killed(t, p, step, false, childStaging+"="+db.URL(chtest.Super))
			if n, done := seen(), p.run(id).Phase == control.Succeeded; n != 0 && (n != wantStaged || !done) {
				t.Errorf("%d rows are seen, published: %v", n, done)
			}
			cfg := p.config()
			cfg.TTL, cfg.Poll, cfg.Staging = stagingTTL, 20*time.Millisecond, features(t, db.URL(chtest.Super), nil)
			if p.run(id).Phase == control.Succeeded { // its first look shows what is published
				if _, found, err := Once(t.Context(), cfg); found || err != nil {
					t.Errorf("%v, %v", found, err)
				}
			} else {
				ended := make(chan Outcome, 10)
				cfg.OnEnd = func(o Outcome) { ended <- o }
				w := begin(t.Context(), cfg)
				for (<-ended).Kind != Succeeded {
				}
				if report, err := w.end(); err != nil {
					t.Errorf("%+v, %v", report, err)
				}
			}
			p.succeeded(id)
			if n := seen(); n != wantStaged {
				t.Errorf("%d rows are seen in the end, want %d", n, wantStaged)
			}
		})
	}
}

// TestPointerBeforeBlob is the negative control: were the reference written before the blob, the check above would see it.
func TestPointerBeforeBlob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openPlace(t, dir, sqliteStore(t, dir))
	id := p.submit("a")
	killed(t, p, "between", true)
	if bad := p.dangling(); len(bad) != 2 {
		t.Errorf("a reference that was written before its blob is not seen: %v", bad)
	}
	// And nothing mends it: the run has SUCCEEDED.
	cfg := p.config()
	if _, found, err := Once(t.Context(), cfg); found || err != nil || p.run(id).Phase != control.Succeeded || len(p.dangling()) == 0 {
		t.Errorf("%v, %v, %+v", found, err, p.run(id))
	}
	// The other order, on a run of its own, passes the same check at the same kill.
	right := t.TempDir()
	q := openPlace(t, right, sqliteStore(t, right))
	q.submit("a")
	killed(t, q, "between", false)
	if bad := q.dangling(); len(bad) != 0 {
		t.Errorf("dangling: %v", bad)
	}
}
