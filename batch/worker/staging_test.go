package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/sinktest"
)

// shelf is a staging in memory.
type shelf struct {
	mu      sync.Mutex
	results map[sinks.StagedName]*shelved
	fail    func(call string) error
	hook    func(string) error
}

type shelved struct {
	outputs []string
	rows    []string
	shown   bool
}

func newShelf() *shelf { return &shelf{results: map[sinks.StagedName]*shelved{}} }

func (s *shelf) call(name string) error {
	if s.fail != nil {
		if err := s.fail(name); err != nil {
			return err
		}
	}
	if s.hook != nil {
		return s.hook(name)
	}
	return nil
}

func (s *shelf) Check(context.Context) error { return nil }

func (s *shelf) Stage(_ context.Context, r sinks.Staged, rows func(func(*partitions.Row) error) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("begin"); err != nil {
		return err
	}
	was := s.results[r.StagedName]
	now := &shelved{outputs: r.Outputs, shown: was != nil && was.shown}
	s.results[r.StagedName] = now
	if was != nil {
		now.rows = was.rows // which are the same
	}
	if err := s.call("named"); err != nil {
		return err
	}
	var texts []string
	json := sinks.NewJSON(sinks.Target{RunID: r.RunID, Outputs: r.Outputs})
	err := rows(func(row *partitions.Row) error {
		texts = append(texts, string(json.Append(nil, 0, int64(len(texts)), row)))
		return nil
	})
	if err == nil && int64(len(texts)) != r.Rows {
		err = codes.New(codes.Internal, "%d rows of %d", len(texts), r.Rows)
	}
	if err != nil {
		return err
	}
	now.rows = texts
	return s.call("staged")
}

func (s *shelf) Show(_ context.Context, name sinks.StagedName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("show"); err != nil {
		return err
	}
	r := s.results[name]
	if r == nil {
		return codes.New(codes.SinkRefused, "never staged")
	}
	r.shown = true
	return s.call("shown")
}

func (s *shelf) Hidden(_ context.Context, fn func(sinks.StagedName) error) error {
	s.mu.Lock()
	var names []sinks.StagedName
	for name, r := range s.results {
		if !r.shown {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		if err := fn(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Drop(_ context.Context, name sinks.StagedName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("drop"); err != nil {
		return err
	}
	if r := s.results[name]; r != nil && !r.shown {
		delete(s.results, name)
	}
	return nil
}

// seen is what a reader sees of a run.
func (s *shelf) seen(run string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.results {
		if name.RunID == run && r.shown {
			out = append(out, r.rows...)
		}
	}
	return out
}

// TestShelf: what the tests here stage to is a staging.
func TestShelf(t *testing.T) {
	t.Parallel()
	sinktest.RunStaging(t, func(testing.TB) sinktest.StagingPlace {
		s := newShelf()
		return sinktest.StagingPlace{
			Staging: func(hook func(string) error) sinks.Staging {
				return &shelfView{s, hook}
			},
			Seen: func(_ testing.TB, run string) (out []sinktest.Seen) {
				for i, text := range s.seen(run) {
					out = append(out, sinktest.Seen{Number: int64(i), Text: text})
				}
				return out
			},
		}
	})
}

// shelfView is a shelf with a hook of its own.
type shelfView struct {
	*shelf
	with func(string) error
}

func (v *shelfView) hooked() func() {
	v.mu.Lock()
	v.hook = v.with
	v.mu.Unlock()
	return func() { v.mu.Lock(); v.hook = nil; v.mu.Unlock() }
}

func (v *shelfView) Stage(ctx context.Context, r sinks.Staged, rows func(func(*partitions.Row) error) error) error {
	defer v.hooked()()
	return v.shelf.Stage(ctx, r, rows)
}

func (v *shelfView) Show(ctx context.Context, name sinks.StagedName) error {
	defer v.hooked()()
	return v.shelf.Show(ctx, name)
}

func (v *shelfView) Drop(ctx context.Context, name sinks.StagedName) error {
	defer v.hooked()()
	return v.shelf.Drop(ctx, name)
}

// stagedPlace is a place whose workers stage.
func stagedPlace(t *testing.T) (*place, *shelf, Config) {
	p, s := newPlace(t, controltest.NewMemory()), newShelf()
	cfg := p.config()
	cfg.Staging = s
	return p, s, cfg
}

// wantStaged are the rows of the fixture.
const wantStaged = 6

// TestStagedAndShown: the rows of a result are seen once it is published, each once, and a second run with the same artefact has its own.
func TestStagedAndShown(t *testing.T) {
	t.Parallel()
	p, s, cfg := stagedPlace(t)
	for _, key := range []string{"a", "b"} {
		id := p.submit(key)
		looked := map[string]int{}
		cfg.step = func(step string) error {
			looked[step] = len(s.seen(id))
			return nil
		}
		p.once(cfg)
		p.succeeded(id)
		rows := s.seen(id)
		if len(rows) != wantStaged || !strings.Contains(rows[0], `"values":{"ema3":`) || !strings.Contains(rows[5], `"row":5`) {
			t.Errorf("%d rows are seen: %q", len(rows), rows)
		}
		for _, step := range []string{"staged", "between", "published"} {
			if n, came := looked[step]; n != 0 || !came {
				t.Errorf("at step %q %d rows are seen (it came: %v)", step, n, came)
			}
		}
	}
	p.ended()
}

// TestStagingCrashes: a worker dies at each step, its own and those of the staging. Rows are seen only of a result that is published, all of them, and the next
// look completes what is left.
func TestStagingCrashes(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"computed", "begin", "named", "staged", "staged ", "between", "published", "show", "shown", "ended"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			p, s, cfg := stagedPlace(t)
			id := p.submit("a")
			dies := cfg
			dead := false
			die := func(got string) error {
				if dead = dead || got == step; dead {
					return errCrash
				}
				return nil
			}
			s.hook = die
			dies.step = func(got string) error {
				if got == "staged" {
					got = "staged " // that of the worker, and not of the staging
				}
				return die(got)
			}
			_, found, err := Once(t.Context(), dies)
			if !found || err != nil && !errors.Is(err, errCrash) || !dead {
				t.Fatalf("%v, %v", found, err)
			}
			s.hook = nil
			published := p.run(id).Phase == control.Succeeded
			if n := len(s.seen(id)); n != 0 && (n != wantStaged || !published) {
				t.Errorf("%d rows are seen, published: %v", n, published)
			}
			expire(t, p, id)
			for range 2 {
				if _, _, err := Once(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			p.succeeded(id)
			if n := len(s.seen(id)); n != wantStaged || len(s.results) != 1 {
				t.Errorf("%d rows of %d results in the end", n, len(s.results))
			}
		})
	}
}

// expire ends the lease that a dead worker left.
func expire(t *testing.T, p *place, id string) {
	t.Helper()
	leases, err := p.store.(control.ControlStore).ListLeases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if l.Name == control.RunLease(id) && l.Valid {
			if err := p.store.Release(t.Context(), control.Lease{Name: l.Name, Owner: l.Owner, Token: l.Token}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestStagedOrphans: what a failed run staged is found, and dropped only when that is asked for; a run that is under way, and one that the store does not know, are left alone.
func TestStagedOrphans(t *testing.T) {
	t.Parallel()
	p, s, cfg := stagedPlace(t)
	failed := p.submit("a")
	cfg.step = at("between", func() error { return codes.New(codes.OutputUnwritable, "no space left") })
	if o := p.once(cfg); o.Kind != Failed {
		t.Fatalf("%+v", o)
	}
	queued := p.submit("b")
	for _, name := range []sinks.StagedName{{RunID: queued, Artifact: "x"}, {RunID: "run_of_another_store", Artifact: "x"}} {
		s.results[name] = &shelved{}
	}
	for _, drop := range []bool{false, true} {
		found, err := MendStaging(t.Context(), p.store, s, true, drop)
		if err != nil || len(found) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
		for _, d := range found {
			want := control.Damage{Kind: StagedUnknown, RunID: "run_of_another_store"}
			if d.RunID == failed {
				want = control.Damage{Kind: StagedOrphan, RunID: failed, Repaired: drop}
			}
			if d.Kind != want.Kind || d.RunID != want.RunID || d.Repaired != want.Repaired || d.Detail == "" {
				t.Errorf("drop %v: %+v", drop, d)
			}
		}
		if want := map[bool]int{false: 3, true: 2}[drop]; len(s.results) != want {
			t.Errorf("drop %v: %d results are left, want %d", drop, len(s.results), want)
		}
	}
	if len(s.seen(failed)) != 0 {
		t.Error("rows of a failed run are seen")
	}
}

// TestStagingAway: one that is down for a while is waited for; one that refuses fails the run, with its message; one that cannot show leaves it to the next look.
func TestStagingAway(t *testing.T) {
	t.Parallel()
	p, s, cfg := stagedPlace(t)
	downs := 0
	s.fail = func(call string) error {
		if downs++; downs <= 2 {
			return codes.New(codes.SinkUnavailable, "injected: down")
		}
		return nil
	}
	first := p.submit("a")
	p.once(cfg)
	p.succeeded(first)
	if len(s.seen(first)) != wantStaged || downs < 3 {
		t.Errorf("%d rows are seen after %d calls", len(s.seen(first)), downs)
	}
	s.fail = func(string) error { return codes.New(codes.SinkInvalid, "injected: the table is gone") }
	second := p.submit("b")
	if o := p.once(cfg); o.Kind != Failed || !strings.Contains(p.run(second).Error, "the table is gone") {
		t.Errorf("%+v", o)
	}
	s.fail = func(call string) error {
		if call == "show" {
			return codes.New(codes.SinkUnavailable, "injected: down")
		}
		return nil
	}
	third := p.submit("c")
	p.once(cfg)
	p.succeeded(third)
	if len(s.seen(third)) != 0 {
		t.Error("rows are seen that could not be shown")
	}
	s.fail = nil
	if _, found, err := Once(t.Context(), cfg); found || err != nil || len(s.seen(third)) != wantStaged {
		t.Errorf("%v, %v, %d rows after the next look", found, err, len(s.seen(third)))
	}
	name, err := checkpoint.ParseRef(p.run(third).ResultRefs[0])
	if err != nil || s.results[sinks.StagedName{RunID: third, Artifact: name}] == nil {
		t.Errorf("%v: not under the hash of the artefact: %v", err, fmt.Sprint(s.results))
	}
}
