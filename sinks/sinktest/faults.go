package sinktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

var errKilled = errors.New("sinktest: killed here")

// steps counts the calls of a hook and does something at one of them; then, and afterwards, it returns what that returned.
type steps struct {
	calls, at int
	do        func(step string) error
	result    error
	done      bool
}

func (s *steps) hook(step string) error {
	s.calls++
	if s.calls == s.at {
		s.result, s.done = s.do(step), true
	}
	return s.result
}

// each runs a scenario once for each step of opening and publishing. Each takes rows on that the ones before it left. A scenario says whether its step
// came: a target that refuses a part now and then needs more steps one time than another.
func each(t testing.TB, p Place, scenario func(k int, base int64, token uint64) bool) {
	t.Helper()
	count := &steps{}
	w := mustOpen(t, p.Sink(count.hook), target(1, 0, 1))
	mustPublish(t, w, p.batch(0, 0, 10), p.batch(1, 0, 10))
	mustClose(t, w)
	if count.calls < 2 {
		t.Fatalf("the sink calls its hook %d times; it is to be called between any two steps", count.calls)
	}
	came := 0
	for k := 1; k <= count.calls && !t.Failed(); k++ {
		if scenario(k, int64(10*k), uint64(10*k)) {
			came++
		}
	}
	if came < 2 && !t.Failed() {
		t.Errorf("%d of %d steps came; the check is about those", came, count.calls)
	}
}

// attempt opens and publishes ten more rows of both partitions, and says whether a fault came in between.
func attempt(ctx context.Context, p Place, s *steps, base int64, token uint64) error {
	w, err := p.Sink(s.hook).Open(ctx, target(token, 0, 1))
	if err != nil {
		return err
	}
	err = w.Publish(ctx, []sinks.Rows{p.batch(0, base, base+10), p.batch(1, base, base+10)})
	return errors.Join(err, w.Close())
}

// heir checks that what stands is whole, that the next owner knows it, and that he goes on, with other boundaries, without a row twice or missing.
func heir(t testing.TB, p Place, when string, base int64, token uint64) {
	t.Helper()
	seen := look(t, p, when)
	w, err := p.Sink(nil).Open(t.Context(), target(token, 0, 1))
	if err != nil {
		t.Fatalf("%s: the heir cannot open: %v", when, err)
	}
	if f := p.Sink(nil).Features(); f.ReadBack {
		readBack(t, f, when, w, map[int32]int64{0: seen[0], 1: seen[1]})
	}
	for _, batch := range []sinks.Rows{p.batch(1, base-3, base+4), p.batch(0, base, base+10), p.batch(1, base+4, base+10)} {
		if err := w.Publish(t.Context(), []sinks.Rows{batch}); err != nil {
			t.Fatalf("%s: the heir cannot publish: %v", when, err)
		}
	}
	mustClose(t, w)
	expect(t, p, when, map[int32]int64{0: base + 10, 1: base + 10})
}

// kills: whoever dies between two steps leaves whole rows, and his heir goes on. The same holds for an answer that is lost after the fact.
func kills(t testing.TB, p Place) {
	each(t, p, func(k int, base int64, token uint64) bool {
		var where string
		s := &steps{at: k, do: func(step string) error { where = step; return errKilled }}
		if err := attempt(t.Context(), p, s, base, token); err == nil && s.done {
			t.Errorf("killed at step %d (%s): no error", k, where)
		}
		// An heir under the same token is the same process after a lost answer.
		heir(t, p, fmt.Sprintf("killed at step %d (%s)", k, where), base, token+uint64(k%2))
		return s.done
	})
}

// cancels: a context that ends between two steps leaves no more behind than a kill does.
func cancels(t testing.TB, p Place) {
	each(t, p, func(k int, base int64, token uint64) bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var where string
		s := &steps{at: k, do: func(step string) error { where = step; cancel(); return nil }}
		when := fmt.Sprintf("cancelled at step %d", k)
		if err := attempt(ctx, p, s, base, token); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s (%s): %v, want the context's error", when, where, err)
		}
		heir(t, p, when, base, token)
		return s.done
	})
}

// owners: while one owner stands between two steps, another comes and does his work, and then the first goes on. He changes nothing that is
// visible, and where the target fences he is told.
func owners(t testing.TB, p Place) {
	f := p.Sink(nil).Features()
	each(t, p, func(k int, base int64, token uint64) bool {
		var where string
		came := false
		s := &steps{at: k, do: func(step string) error {
			where, came = step, true
			p.stopped(t)
			drive(t, p.Sink(nil), target(token+1, 0, 1), []sinks.Rows{p.batch(1, base, base+7), p.batch(0, base, base+4)})
			return nil
		}}
		w, err := p.Sink(s.hook).Open(t.Context(), target(token, 0, 1))
		if err == nil {
			err = w.Publish(t.Context(), []sinks.Rows{p.batch(0, base, base+10), p.batch(1, base, base+10)})
			if err == nil {
				err = w.Publish(t.Context(), []sinks.Rows{p.batch(0, base+10, base+12)})
			}
			mustClose(t, w)
		}
		when := fmt.Sprintf("another owner came at step %d (%s)", k, where)
		if !came {
			drive(t, p.Sink(nil), target(token+2, 0, 1), []sinks.Rows{p.batch(0, base, base+10), p.batch(1, base, base+10)})
			return false
		}
		if f.FencedByTarget && !codes.Has(err, codes.StaleFence) && err == nil {
			t.Errorf("%s: the stale owner went on without an error", when)
		}
		seen := look(t, p, when)
		if f.FencedByTarget && seen[0] > base+10 {
			t.Errorf("%s: the stale owner's second call is visible", when)
		}
		if seen[0] < base+4 || seen[1] < base+7 {
			t.Errorf("%s: rows of the new owner are gone: %v", when, seen)
		}
		drive(t, p.Sink(nil), target(token+2, 0, 1), []sinks.Rows{p.batch(0, base, base+10), p.batch(1, base, base+10)})
		if seen = look(t, p, when); seen[1] != base+10 || !f.FencedByTarget && seen[0] > base+12 {
			t.Errorf("%s: %v rows stand in the end", when, seen)
		}
		return true
	})
}

// staleOpen: an owner with a lower token cannot take the target back, where it fences; elsewhere he does no harm.
func staleOpen(t testing.TB, p Place) {
	f := p.Sink(nil).Features()
	present := mustOpen(t, p.Sink(nil), target(5, 0, 1))
	mustPublish(t, present, p.batch(0, 0, 3))
	stale, err := p.Sink(nil).Open(t.Context(), target(4, 0, 1))
	switch {
	case f.FencedByTarget && !codes.Has(err, codes.StaleFence):
		t.Errorf("a stale owner opens the target: %v, want STALE_FENCE", err)
	case f.FencedByTarget && !strings.Contains(err.Error(), "another store"):
		t.Errorf("a stale owner is not told that another store counts its tokens by itself: %v", err)
	case !f.FencedByTarget && err != nil:
		t.Errorf("a stale owner is refused, which is not declared: %v", err)
	}
	if err == nil {
		_ = stale.Publish(t.Context(), []sinks.Rows{p.batch(0, 0, 6)}) // whatever he is told, only what is seen counts
		mustClose(t, stale)
	}
	if f.FencedByTarget {
		mustPublish(t, present, p.batch(0, 3, 4))
	}
	mustClose(t, present)
	drive(t, p.Sink(nil), target(5, 0, 1), []sinks.Rows{p.batch(0, 0, 9), p.batch(1, 0, 9)})
	expect(t, p, "a stale owner opened", map[int32]int64{0: 9, 1: 9})
}

// heirs: two writers of one owner, as after a reopening whose former writer still lives: no row twice.
func heirs(t testing.TB, p Place) {
	first := mustOpen(t, p.Sink(nil), target(5, 0))
	mustPublish(t, first, p.batch(0, 0, 3))
	second := mustOpen(t, p.Sink(nil), target(5, 0))
	firstErr := first.Publish(t.Context(), []sinks.Rows{p.batch(0, 3, 6)})
	err := second.Publish(t.Context(), []sinks.Rows{p.batch(0, 0, 8)})
	if firstErr != nil && err != nil {
		t.Errorf("neither can publish: %v; %v", firstErr, err)
	}
	mustClose(t, first)
	mustClose(t, second)
	drive(t, p.Sink(nil), target(5, 0), []sinks.Rows{p.batch(0, 0, 9)})
	expect(t, p, "two writers of one owner", map[int32]int64{0: 9})
}
