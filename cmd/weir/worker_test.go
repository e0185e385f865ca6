package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchworker "github.com/weirstream/weir/batch/worker"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
)

// plant is a control plane with flows, snapshots and artefacts in one folder.
type plant struct {
	dir, store string
	plane      control.ControlStore
}

// newPlant lays out the fixture as the flow "ema" and the snapshot "fixture", on a store that openStore knows.
func newPlant(t *testing.T, store string) *plant {
	t.Helper()
	p := &plant{dir: t.TempDir(), store: store}
	if store == "" {
		p.store = "sqlite:" + filepath.Join(p.dir, "weir.db")
	}
	for _, name := range []string{"flows", "snapshots"} {
		if err := os.Mkdir(filepath.Join(p.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, p.dir, "flows/ema.yaml", string(fixture.Flow))
	write(t, p.dir, "snapshots/fixture.jsonl", string(fixture.Snapshot))
	plane, err := openStore(t.Context(), p.store)
	if err != nil {
		t.Fatal(err)
	}
	p.plane = plane
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *plant) submit(t *testing.T, key, flow, snapshot string) string {
	t.Helper()
	body, err := batchworker.Names{Flow: flow, Snapshot: snapshot}.Body()
	if err != nil {
		t.Fatal(err)
	}
	run, created, err := p.plane.Admit(t.Context(), control.Request{Principal: "test", Operation: "batch.run", Key: key, Body: body, Flow: flow, Snapshot: snapshot})
	if err != nil || !created {
		t.Fatalf("%s: created %v, %v", key, created, err)
	}
	return run.ID
}

func (p *plant) args(more ...string) []string {
	return append([]string{"batch", "worker", "--store", p.store, "--artifacts", "artifacts", "--flows", "flows", "--snapshots", "snapshots"}, more...)
}

func (p *plant) run(t *testing.T, id string) control.BatchRun {
	t.Helper()
	run, err := p.plane.LookupRun(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func (p *plant) runs(t *testing.T) []control.BatchRun {
	t.Helper()
	runs, next, err := p.plane.ListRuns(t.Context(), control.RunFilter{Limit: 500})
	if err != nil || next != "" {
		t.Fatal(next, err)
	}
	return runs
}

func (p *plant) phases(t *testing.T) map[control.RunPhase]int {
	t.Helper()
	n := map[control.RunPhase]int{}
	for _, r := range p.runs(t) {
		n[r.Phase]++
	}
	return n
}

// workerProcess is a weir batch worker beside the test. Its output goes to a file, so that it can be read while it runs.
type workerProcess struct {
	*exec.Cmd
	file string
	done chan error
}

func (p *plant) start(t *testing.T, args ...string) *workerProcess {
	t.Helper()
	w := &workerProcess{Cmd: command(t, p.dir, p.args(args...)...), done: make(chan error, 1)}
	out, err := os.CreateTemp(p.dir, "worker-*.out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w.file, w.Stdout, w.Stderr = out.Name(), out, out
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.done <- w.Wait() }()
	t.Cleanup(func() { _ = w.Process.Kill() }) // it has ended, if all went well
	return w
}

// said is what it has written so far.
func (w *workerProcess) said() string {
	b, err := os.ReadFile(w.file)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (w *workerProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the exit code.
func (w *workerProcess) end(t *testing.T) int {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		t.Fatalf("the worker does not end:\n%s", w.said())
	}
	if strings.Contains(w.said(), "goroutine ") {
		t.Errorf("a stack trace:\n%s", w.said())
	}
	return w.ProcessState.ExitCode()
}

// await polls until a condition holds.
func (p *plant) await(t *testing.T, what string, ok func() bool, workers ...*workerProcess) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			said := ""
			for _, w := range workers {
				said += w.said()
			}
			t.Fatalf("%s does not happen: %v\n%s", what, p.phases(t), said)
		case <-tick.C:
		}
	}
}

// checkOnce: every run SUCCEEDED once, with one publication and its blob, nothing is left to do, and nothing needs repair. hashes are those of
// the values, by snapshot.
func (p *plant) checkOnce(t *testing.T, want int, hashes map[string]string) {
	t.Helper()
	blobs, err := dir.Open(filepath.Join(p.dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	published := map[string]control.Publication{}
	if err := p.plane.Publications(t.Context(), "", func(pub control.Publication, digest string) error {
		if digest != record.Hash(pub.Value) || published[pub.RunID].Key != "" {
			t.Errorf("publication %s: digest %s, already %q", pub.Key, digest, published[pub.RunID].Key)
		}
		pub.Value = append([]byte(nil), pub.Value...)
		published[pub.RunID] = pub
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	runs := p.runs(t)
	if len(runs) != want || len(published) != want {
		t.Errorf("%d runs and %d publications, want %d", len(runs), len(published), want)
	}
	for _, r := range runs {
		value, hash := parse(t, string(published[r.ID].Value)), hashes[r.Snapshot]
		if r.Phase != control.Succeeded || r.Revision != 1 || len(r.ResultRefs) != 1 || value["artifact"] != r.ResultRefs[0] || value["values_hash"] != hash || value["run_id"] != r.ID {
			t.Errorf("%+v\n%v", r, value)
			continue
		}
		checkBlob(t, blobs, r.ResultRefs[0], hash)
	}
	if left, err := p.plane.ListEvents(t.Context(), false, 0); err != nil || len(left) != 0 {
		t.Errorf("events are left: %v, %v", left, err)
	}
	if damages, err := p.plane.Reconcile(t.Context(), false, 0); err != nil || len(damages) != 0 {
		t.Errorf("damages: %v, %v", damages, err)
	}
	leases, err := p.plane.ListLeases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if l.Valid {
			t.Errorf("a lease is still held: %+v", l)
		}
	}
}

func checkBlob(t *testing.T, blobs checkpoint.Blobs, ref, hash string) {
	t.Helper()
	name, err := checkpoint.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	b, err := checkpoint.GetBytes(context.Background(), blobs, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if doc := parse(t, string(b)); doc["values_hash"] != hash || doc["mode"] != "batch" {
		t.Errorf("blob %s: %v", ref, doc["values_hash"])
	}
	if canonical, err := record.Canonical(b); err != nil || string(canonical) != string(b) {
		t.Errorf("blob %s is not canonical: %v", ref, err)
	}
}

func TestWorkerOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "")
	if r := weir(t, p.dir, "", p.args("--once")...); r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, "no run waits") {
		t.Errorf("nothing waits: %+v", r)
	}
	first, second := p.submit(t, "a", "ema", "fixture"), p.submit(t, "b", "ema", "fixture")
	out := must(t, p.dir, p.args("--once")...)
	ref := strings.TrimSuffix(out, "\n")
	if _, err := checkpoint.ParseRef(ref); err != nil || p.run(t, first).ResultRefs[0] != ref {
		t.Fatalf("%q, %v", out, err)
	}
	if got := p.run(t, second).Phase; got != control.Queued {
		t.Errorf("the second run is %s", got)
	}
	doc := parse(t, must(t, p.dir, p.args("--once", "--json")...))
	if doc["run_id"] != second || doc["phase"] != "SUCCEEDED" || doc["result_refs"].([]any)[0] != ref {
		t.Errorf("%v: the same document has the same reference", doc)
	}
	if doc := parse(t, must(t, p.dir, p.args("--once", "--json")...)); doc["run_id"] != nil {
		t.Errorf("%v", doc)
	}
	p.checkOnce(t, 2, map[string]string{"fixture": fixture.ValuesHash})

	p.submit(t, "c", "ema", "gone")
	if r := weir(t, p.dir, "", p.args("--once")...); r.code != 1 || !strings.Contains(r.stderr, `FAILED: NAME_UNKNOWN: there is no snapshot "gone"`) {
		t.Errorf("%+v", r)
	}
	cancelled := p.submit(t, "d", "ema", "fixture")
	if _, err := p.plane.CancelRun(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	if r := weir(t, p.dir, "", p.args("--once")...); r.code != 0 || r.stdout != "" {
		t.Errorf("%+v", r)
	}
	if got := p.run(t, cancelled); got.Phase != control.Cancelled || got.ResultRefs != nil {
		t.Errorf("%+v", got)
	}
}

func TestWorkerBadInput(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "")
	with := func(more ...string) []string { return p.args(more...) }
	write(t, p.dir, "file", "x")
	refused(t, p.dir, 2, []string{"--store is missing"}, "batch", "worker")
	refused(t, p.dir, 2, []string{"--flows is missing"}, "batch", "worker", "--store", "sqlite:x.db", "--artifacts", "a")
	refused(t, p.dir, 2, []string{"--poll"}, with("--poll", "0s")...)
	refused(t, p.dir, 2, []string{"--batch"}, with("--batch", "501")...)
	refused(t, p.dir, 2, []string{"--concurrency"}, with("--concurrency", "0")...)
	refused(t, p.dir, 3, []string{"FILE_MISSING", "flows"}, with("--flows", "nowhere")...)
	refused(t, p.dir, 3, []string{"FILE_MISSING", "snapshots"}, with("--snapshots", "file")...)
	refused(t, p.dir, 1, []string{"OUTPUT_UNWRITABLE", "file"}, with("--artifacts", "file")...)
	refused(t, p.dir, 3, []string{"STORE_INVALID"}, with("--store", "mysql:x")...)
	refused(t, p.dir, 5, []string{"STORE_UNAVAILABLE", "nowhere"}, with("--store", "sqlite:nowhere/weir.db")...)
	refused(t, p.dir, 3, []string{"STORE_INVALID"}, with("--store", "sqlite:flows/ema.yaml")...)
}

// lines is JSON Lines of n rows for the flow "ema", long enough for a signal to hit the middle of a run.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"close":%d.5,"event_id":"e%07d","event_time":%q,"instrument":"1"}`+"\n", i%97, i, time.Unix(int64(60*i), 0).UTC().Format(time.RFC3339))
	}
	return b.String()
}

// TestWorkerSignals: the first SIGTERM finishes the run in hand and gives back what waits; too long a run is given back; the second signal
// stops at once. Whatever happened, the next worker ends everything once.
func TestWorkerSignals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		args    []string
		signals []syscall.Signal
		code    int
		says    string
		// done is how many runs have succeeded when the worker has ended.
		done int
	}{
		{"term", nil, []syscall.Signal{syscall.SIGTERM}, 0, "the runs in hand were finished", 1},
		{"ctrl-c", nil, []syscall.Signal{syscall.SIGINT}, 130, "the runs in hand were finished", 1},
		{"term, too long", []string{"--drain", "1ms"}, []syscall.Signal{syscall.SIGTERM}, 130, "given back", 0},
		{"term twice", nil, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, 130, "stopped at once", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, "")
			write(t, p.dir, "snapshots/long.jsonl", lines(200_000/slowdown))
			var ids []string
			for i, snapshot := range []string{"long", "fixture", "fixture"} {
				ids = append(ids, p.submit(t, fmt.Sprint(i), "ema", snapshot))
			}
			w := p.start(t, append(c.args, "--ttl", "2s", "--poll", "20ms")...)
			p.await(t, "a start", func() bool { return p.run(t, ids[0]).Phase == control.Running }, w)
			for _, s := range c.signals {
				w.signal(t, s)
				p.await(t, "a notice", func() bool { return strings.Contains(w.said(), "stopping after") }, w)
			}
			if code := w.end(t); code != c.code || !strings.Contains(w.said(), c.says) {
				t.Errorf("exit %d, want %d\n%s", code, c.code, w.said())
			}
			if got := p.phases(t); got[control.Succeeded] != c.done {
				t.Errorf("%v, want %d done", got, c.done)
			}
			if c.says != "stopped at once" {
				if events, err := p.plane.ListEvents(t.Context(), false, 0); err != nil || len(events) != 3-c.done || events[0].Claimant != "" {
					t.Errorf("what was not done is not anybody's: %+v, %v", events, err)
				}
				if got := p.phases(t); got[control.Queued] != 3-c.done {
					t.Errorf("%v, want the rest QUEUED", got)
				}
			}
			w = p.start(t, "--ttl", "2s", "--poll", "20ms", "--reconcile", "200ms")
			p.await(t, "the end of all runs", func() bool { return p.phases(t)[control.Succeeded] == 3 }, w)
			w.signal(t, syscall.SIGTERM)
			if code := w.end(t); code != 0 {
				t.Errorf("exit %d\n%s", code, w.said())
			}
			p.checkOnce(t, 3, map[string]string{"long": longHash(t, p), "fixture": fixture.ValuesHash})
		})
	}
}

// longHash is what weir batch run gives for the snapshot "long".
func longHash(t *testing.T, p *plant) string {
	t.Helper()
	out := must(t, p.dir, "batch", "run", "--flow", "flows/ema.yaml", "--snapshot", "snapshots/long.jsonl", "--json")
	hash, ok := parse(t, out)["values_hash"].(string)
	if !ok {
		t.Fatal(out)
	}
	return hash
}
