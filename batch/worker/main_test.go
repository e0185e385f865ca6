package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
)

func TestMain(m *testing.M) { os.Exit(chtest.Run(m)) }

// place is everything that workers share: a store, blobs, and the fixture as the flow "ema" and the snapshot "fixture".
type place struct {
	t       *testing.T
	dir     string
	store   Store
	blobs   *dir.Store
	catalog *catalog.Catalog
}

func newPlace(t *testing.T, store Store) *place {
	t.Helper()
	return openPlace(t, t.TempDir(), store)
}

func openPlace(t *testing.T, path string, store Store) *place {
	t.Helper()
	p := &place{t: t, dir: path, store: store}
	for _, name := range []string{"flows", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(p.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.write("flows/ema.yaml", string(fixture.Flow))
	p.write("snapshots/fixture.jsonl", string(fixture.Snapshot))
	var err error
	if p.blobs, err = dir.Open(filepath.Join(p.dir, "artifacts")); err != nil {
		t.Fatal(err)
	}
	if p.catalog, err = catalog.Open(filepath.Join(p.dir, "flows"), filepath.Join(p.dir, "snapshots")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.blobs.Close(), p.catalog.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) config() Config {
	return Config{Store: p.store, Blobs: p.blobs, Catalog: p.catalog, Scratch: filepath.Join(p.dir, "scratch"), TTL: 3 * time.Second, Poll: time.Second}
}

func (p *place) submit(key string) string {
	return p.submitBody(key, `{"flow":"ema","snapshot":"fixture"}`)
}

func (p *place) submitBody(key, body string) string {
	p.t.Helper()
	run, _, err := p.store.Admit(p.t.Context(), control.Request{Principal: "test", Operation: "batch.run", Key: key, Body: []byte(body)})
	if err != nil {
		p.t.Fatal(err)
	}
	return run.ID
}

func (p *place) run(id string) control.BatchRun {
	p.t.Helper()
	r, err := p.store.LookupRun(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// once runs a worker with --once, which has to deal with a run.
func (p *place) once(cfg Config) Outcome {
	p.t.Helper()
	o, found, err := Once(p.t.Context(), cfg)
	if err != nil || !found {
		p.t.Fatalf("found %v, %+v, %v", found, o, err)
	}
	return o
}

// dangling is what refers to a blob that is not there, or not whole. It must be empty at every moment, whatever was killed when.
func (p *place) dangling() []string {
	p.t.Helper()
	var bad []string
	check := func(what, ref string) {
		name, err := checkpoint.ParseRef(ref)
		if err == nil {
			_, err = checkpoint.GetBytes(p.t.Context(), p.blobs, name, 1<<20)
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if err := p.store.Publications(p.t.Context(), "", func(pub control.Publication, _ string) error {
		v, err := record.Decode(pub.Value)
		if err != nil {
			return err
		}
		check(pub.Key, v.(map[string]any)["artifact"].(string))
		return nil
	}); err != nil {
		p.t.Fatal(err)
	}
	runs, _, err := p.store.ListRuns(p.t.Context(), control.RunFilter{Limit: control.MaxPage})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range runs {
		for _, ref := range r.ResultRefs {
			check(r.ID, ref)
		}
	}
	return bad
}

// publications by key.
func (p *place) publications() map[string]string {
	p.t.Helper()
	got := map[string]string{}
	if err := p.store.Publications(p.t.Context(), "", func(pub control.Publication, _ string) error {
		got[pub.Key] = string(pub.Value)
		return nil
	}); err != nil {
		p.t.Fatal(err)
	}
	return got
}

// pending are the events that are not delivered.
func (p *place) pending() []control.OutboxEvent {
	p.t.Helper()
	events, err := p.store.ListEvents(p.t.Context(), false, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return events
}

// succeeded checks that a run ended once, with its result.
func (p *place) succeeded(id string) {
	p.t.Helper()
	r := p.run(id)
	value := p.publications()[control.ResultKey(id)]
	if r.Phase != control.Succeeded || r.Revision != 1 || len(r.ResultRefs) != 1 || r.Error != "" {
		p.t.Errorf("%+v", r)
		return
	}
	if !strings.Contains(value, fixture.ValuesHash) || !strings.Contains(value, r.ResultRefs[0]) || !strings.Contains(value, id) {
		p.t.Errorf("%s publishes %s", id, value)
	}
	if bad := p.dangling(); len(bad) > 0 {
		p.t.Errorf("dangling: %v", bad)
	}
}

// ended checks that nothing is left to be done and no lease is held.
func (p *place) ended() {
	p.t.Helper()
	if left := p.pending(); len(left) != 0 {
		p.t.Errorf("events are left: %+v", left)
	}
	leases, err := p.store.ListLeases(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, l := range leases {
		if l.Valid {
			p.t.Errorf("a lease is still held: %+v", l)
		}
	}
	if left, err := os.ReadDir(filepath.Join(p.dir, "scratch")); err != nil || len(left) != 0 {
		p.t.Errorf("scratch files are left: %v, %v", left, err)
	}
}

// intercept is a store in front of which a test may stand: before and after see each call by name, and an error of theirs takes the answer's
// place (before: nothing was done; after: it was, and the answer is lost).
type intercept struct {
	control.ControlStore
	mu            sync.Mutex
	before, after func(ctx context.Context, op string) error
	fenced        atomic.Int64
}

func newIntercept() *intercept { return &intercept{ControlStore: controltest.NewMemory()} }

func (s *intercept) on(before, after func(ctx context.Context, op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *intercept) call(ctx context.Context, op string, fn func() error) error {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, op); err != nil {
			return err
		}
	}
	err := fn()
	if err == nil && after != nil {
		return after(ctx, op)
	}
	return err
}

func (s *intercept) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (l control.Lease, err error) {
	err = s.call(ctx, "acquire", func() error { l, err = s.ControlStore.Acquire(ctx, name, owner, ttl); return err })
	return l, err
}

func (s *intercept) Renew(ctx context.Context, l control.Lease) (next control.Lease, err error) {
	err = s.call(ctx, "renew", func() error { next, err = s.ControlStore.Renew(ctx, l); return err })
	return next, err
}

func (s *intercept) Claim(ctx context.Context, claimant string, limit int) (events []control.OutboxEvent, err error) {
	err = s.call(ctx, "claim", func() error { events, err = s.ControlStore.Claim(ctx, claimant, limit); return err })
	return events, err
}

func (s *intercept) LookupRun(ctx context.Context, id string) (run control.BatchRun, err error) {
	err = s.call(ctx, "lookup", func() error { run, err = s.ControlStore.LookupRun(ctx, id); return err })
	return run, err
}

func (s *intercept) Reconcile(ctx context.Context, repair bool, stale time.Duration) (d []control.Damage, err error) {
	err = s.call(ctx, "reconcile", func() error { d, err = s.ControlStore.Reconcile(ctx, repair, stale); return err })
	return d, err
}

func (s *intercept) MendOrphans(ctx context.Context, stale time.Duration) (d []control.Damage, err error) {
	err = s.call(ctx, "orphans", func() error { d, err = s.ControlStore.MendOrphans(ctx, stale); return err })
	return d, err
}

// Fenced is called "start", "deliver", "succeed" or "fail" by its last but telling effect.
func (s *intercept) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	s.fenced.Add(1)
	op := "deliver"
	for _, e := range effects {
		switch e := e.(type) {
		case control.StartRun:
			op = "start"
		case control.FinishRun:
			op = map[control.RunPhase]string{control.Succeeded: "succeed", control.Failed: "fail"}[e.Phase]
		}
	}
	return s.call(ctx, op, func() error { return s.ControlStore.Fenced(ctx, l, effects...) })
}

// nth makes a hook that returns an error at the n-th call of an operation, counted from 1.
func nth(op string, n int64, err error) func(context.Context, string) error {
	var calls atomic.Int64
	return func(_ context.Context, got string) error {
		if got == op && calls.Add(1) == n {
			return err
		}
		return nil
	}
}

// at makes a step hook that does something at one step.
func at(step string, do func() error) func(string) error {
	return func(got string) error {
		if got == step {
			return do()
		}
		return nil
	}
}

var errAway = codes.New(codes.StoreUnavailable, "injected: the store is away")
