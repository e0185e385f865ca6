package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
)

// chaos is a drill: runs in flight, workers that are killed and stopped under them.
type chaos struct {
	seed                          uint64
	runs, workers, kills, freezes int
	rows                          int
	ttl                           time.Duration
}

// faults counts what was done to the workers, and what came of it.
type faults struct {
	kills, freezes int
	// inTheMiddle are those after which the run that the worker had in hand was taken up by a later term. After the others the write that was
	// under way came through all the same, or there was no run in hand.
	inTheMiddle int
	// again is how often a run was taken up once more: the terms of its lease beyond the first.
	again int
}

// TestWorkerKill: 20 runs are in flight, the only worker is killed with SIGKILL in the middle and started again: 20 of 20 SUCCEEDED, none
// lost, none twice.
func TestWorkerKill(t *testing.T) {
	t.Parallel()
	for name, store := range chaosStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := chaos{seed: 1, runs: 20, workers: 1, kills: 1, rows: 30_000 / slowdown, ttl: time.Second}.run(t, store(t))
			if f.kills != 1 || f.again < f.inTheMiddle {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestWorkerChaos: 60 runs, three workers, ten times SIGKILL to one of them at random, twice SIGSTOP for longer than the lease: 60 of 60
// SUCCEEDED, each published once, no orphan, every fault counted.
func TestWorkerChaos(t *testing.T) {
	t.Parallel()
	for name, store := range chaosStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := chaos{seed: 2, runs: 60, workers: 3, kills: 10, freezes: 2, rows: 30_000 / slowdown, ttl: time.Second}.run(t, store(t))
			if f.kills != 10 || f.freezes != 2 || f.inTheMiddle < 4 || f.again < f.inTheMiddle {
				t.Errorf("%+v", f)
			}
		})
	}
}

// chaosStores give the store string to run a drill on; "" is a new SQLite file.
var chaosStores = map[string]func(t *testing.T) string{
	"sqlite":   func(*testing.T) string { return "" },
	"postgres": func(t *testing.T) string { return migrated(t).Runtime },
}

// migrated is a new database with the schema of a store.
func migrated(t *testing.T) pgtest.DB {
	return pgtest.Database(t, func(ctx context.Context, url string) error {
		_, err := postgres.Migrate(ctx, url)
		return err
	})
}

func (c chaos) run(t *testing.T, store string) faults {
	t.Helper()
	p := newPlant(t, store)
	write(t, p.dir, "snapshots/long.jsonl", lines(c.rows))
	hash := longHash(t, p)
	for i := range c.runs {
		p.submit(t, fmt.Sprint(i), "ema", "long")
	}
	d := &drill{chaos: c, plant: p, rng: rand.New(rand.NewPCG(c.seed, c.seed))}
	for range c.workers {
		d.workers = append(d.workers, d.begin(t))
	}
	// Faults are dealt out over the runs: the next one when so many have succeeded.
	for i := range c.kills + c.freezes {
		d.awaitDone(t, i*(c.runs-5)/(c.kills+c.freezes))
		if c.freezes > 0 && i%(c.kills/c.freezes+1) == c.kills/c.freezes {
			d.freeze(t)
		} else {
			d.kill(t)
		}
	}
	d.awaitDone(t, c.runs)
	for _, w := range d.workers {
		w.signal(t, syscall.SIGTERM)
	}
	for _, w := range d.workers {
		// One that lost the lease of a run on a busy machine has given that up, and says so at its end.
		if code := w.end(t); code != 0 && (code != 130 || !strings.Contains(w.said(), "a run was given up")) {
			t.Errorf("exit %d\n%s", code, w.said())
		}
	}
	p.checkOnce(t, c.runs, map[string]string{"long": hash})
	d.checkLeftovers(t)
	leases, err := p.plane.ListLeases(t.Context())
	if err != nil || len(leases) != c.runs {
		t.Errorf("%d leases, %v", len(leases), err)
	}
	for _, l := range leases {
		d.faults.again += int(l.Token) - 1
		for _, hit := range d.hits {
			if hit.Name == l.Name && hit.Token < l.Token {
				d.faults.inTheMiddle++
			}
		}
	}
	t.Logf("seed %d: %d runs SUCCEEDED once; %d kills and %d freezes, %d of them in the middle of a run; runs were taken up again %d times",
		c.seed, c.runs, d.faults.kills, d.faults.freezes, d.faults.inTheMiddle, d.faults.again)
	return d.faults
}

type drill struct {
	chaos
	plant   *plant
	rng     *rand.Rand
	workers []*workerProcess
	faults  faults
	// hits are the leases under which faults came, of runs that were RUNNING.
	hits []control.LeaseInfo
}

func (d *drill) begin(t *testing.T) *workerProcess {
	t.Helper()
	return d.plant.start(t, "--ttl", d.ttl.String(), "--poll", "50ms", "--reconcile", (d.ttl / 2).String(), "-v")
}

func (d *drill) awaitDone(t *testing.T, n int) {
	t.Helper()
	d.plant.await(t, fmt.Sprintf("success of %d runs", n), func() bool {
		got := d.plant.phases(t)
		if got[control.Failed]+got[control.Cancelled] > 0 {
			t.Fatalf("%v", got)
		}
		return got[control.Succeeded] >= n
	}, d.workers...)
}

// inHand is the lease under which a worker has a RUNNING run in hand. Owners carry the process id.
func (d *drill) inHand(t *testing.T, w *workerProcess) (l control.LeaseInfo, ok bool) {
	t.Helper()
	leases, err := d.plant.plane.ListLeases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if id := strings.TrimPrefix(l.Name, control.RunLease("")); l.Valid && strings.Contains(l.Owner, w.mark()) && d.plant.run(t, id).Phase == control.Running {
			return l, true
		}
	}
	return l, false
}

// mark is the part of a worker's owner id that tells it from the others.
func (w *workerProcess) mark() string { return fmt.Sprintf("-%d-", w.Process.Pid) }

// pick chooses a worker at random that has a run in hand at this moment, as far as anybody can tell from outside.
func (d *drill) pick(t *testing.T) int {
	t.Helper()
	i := d.rng.IntN(len(d.workers))
	d.plant.await(t, "a worker with a run in hand", func() bool {
		for range d.workers {
			if _, ok := d.inHand(t, d.workers[i]); ok {
				return true
			}
			i = (i + 1) % len(d.workers)
		}
		return d.plant.phases(t)[control.Succeeded] == d.runs
	}, d.workers...)
	return i
}

func (d *drill) kill(t *testing.T) {
	t.Helper()
	i := d.pick(t)
	w := d.workers[i]
	w.signal(t, syscall.SIGKILL)
	w.end(t)
	d.faults.kills++
	if l, ok := d.inHand(t, w); ok {
		d.hits = append(d.hits, l)
	}
	d.workers[i] = d.begin(t)
}

// freeze stops a worker until its lease has expired, and lets it go on.
func (d *drill) freeze(t *testing.T) {
	t.Helper()
	w := d.workers[d.pick(t)]
	w.signal(t, syscall.SIGSTOP)
	d.faults.freezes++
	if held, ok := d.inHand(t, w); ok {
		d.hits = append(d.hits, held)
		d.plant.await(t, "the expiry of a stopped worker's lease", func() bool {
			info, ok, err := d.plant.plane.LookupLease(t.Context(), held.Name)
			return err == nil && ok && (!info.Valid || !strings.Contains(info.Owner, w.mark()))
		}, d.workers...)
	}
	w.signal(t, syscall.SIGCONT)
}

// checkLeftovers: there is one blob for all runs, since their documents are the same; killed workers leave scratch files and temporary ones,
// never another blob.
func (d *drill) checkLeftovers(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.plant.dir, "artifacts", "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	blobs := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".tmp-") {
			blobs++
		}
	}
	if temporary := len(entries) - blobs; blobs != 1 || temporary > d.faults.kills {
		t.Errorf("%d blobs and %d temporary files", blobs, temporary)
	}
}
