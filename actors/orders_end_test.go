package actors

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sources/sourcetest"
)

// endingRig is a run over a bounded log that stands at its end, open, with a choice to replay an entry and one to drop another pending.
func endingRig(t *testing.T, end func(*Config, int64)) (r *rig, replay, drop control.Intervention) {
	t.Helper()
	in := poisonedInput()
	r = newRig(t, parse(t, holdingFlow), in, func(_ *Config, s *sourcetest.Config) { s.Bounded = true })
	r.fence("a")
	r.cfg.Interventions, r.cfg.UntilRecords = r.journal, int64(in.total())
	if _, err := r.run(); err != nil {
		t.Fatal(err)
	}
	r.cfg.UntilRecords = 0
	end(&r.cfg, int64(in.total()))
	return r, r.ask(aside(control.ReplayAside, 1)), r.ask(aside(control.DropAside, 0))
}

var inputEnds = map[string]func(*Config, int64){
	"the log":        func(*Config, int64) {},
	"records":        func(c *Config, n int64) { c.MaxRecords = n },
	"until":          func(c *Config, n int64) { c.UntilRecords = n },
	"too few":        func(c *Config, n int64) { c.MaxRecords = n + 1 },
	"handed on":      func(c *Config, _ int64) { c.HandOn = true },
	"without a sink": func(c *Config, _ int64) { c.Publisher = nil },
}

// What is pending when a run begins is taken before the run ends, however soon its input does, and wherever the process is killed meanwhile.
func TestChoicesAreTakenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range inputEnds {
		points := []Failpoint{BeforeOpen, AfterRestore, AfterPoll, OnMessage, AfterCut, BeforeCommit, AfterCommit, AfterOffsets}
		if name != "the log" {
			points = []Failpoint{AfterCommit}
		}
		for _, point := range points {
			t.Run(name+"/"+string(point), func(t *testing.T) {
				t.Parallel()
				for n, hit := 1, true; hit && n < 80; n++ {
					synctest.Test(t, func(t *testing.T) { hit = takenBeforeTheEnd(t, end, point, n) })
				}
			})
		}
	}
}

func takenBeforeTheEnd(t *testing.T, end func(*Config, int64), point Failpoint, n int) (hit bool) {
	s := newShelf()
	r, replay, drop := endingRig(t, func(c *Config, n int64) { c.Publisher = publisher(s); end(c, n) })
	die, kill := context.WithCancel(context.Background())
	defer kill()
	hooks, seen := every(point, n, func(context.Context) error { kill(); return nil })
	r.cfg.Kill, r.cfg.Hooks = die, hooks
	_, _ = r.run()
	hit = *seen >= n
	r.cfg.Kill, r.cfg.Hooks = nil, Hooks{}
	<-time.After(time.Minute)
	result, err := r.run()
	if err != nil && !codes.Has(err, codes.RunFinished) && !codes.Has(err, codes.SourceEnded) {
		t.Fatal(err)
	}
	for _, i := range []control.Intervention{replay, drop} {
		if got := r.outcome(i.ID); got.Outcome != control.Applied {
			t.Errorf("killed at passing %d: %+v", n, got)
		}
	}
	if a, b := r.decided(partitions.DecisionReplayed), r.decided(partitions.DecisionDropped); len(a) != 1 || len(b) != 1 {
		t.Errorf("killed at passing %d: decided %q and %q", n, a, b)
	}
	if rows, keys := r.published(); keys["a"] < 25 || r.cfg.Publisher != nil && !bytes.Equal(s.rows[0], rows) {
		t.Errorf("killed at passing %d: the sink has %d bytes, the journal %d; rows %v", n, len(s.rows[0]), len(rows), keys)
	}
	if open := r.cfg.UntilRecords > 0 || codes.Has(err, codes.SourceEnded); open != (result.Status == control.RunOpen) {
		t.Errorf("killed at passing %d: %s", n, result.Status)
	}
	return hit
}

// A choice that comes while a run finishes is taken, or dismissed since it came too late: it is never left pending, whatever is killed then, and never
// both.
func TestAChoiceThatComesWithTheEnd(t *testing.T) {
	t.Parallel()
	outcomes := map[control.InterventionOutcome]int{}
	for _, point := range []Failpoint{AfterRestore, AfterPoll, OnMessage, AfterCut, BeforeCommit, AfterCommit} {
		for _, killed := range []bool{false, true} {
			for n, hit := 1, true; hit && n < 60; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, parse(t, holdingFlow), poisonedInput(), func(c *Config, s *sourcetest.Config) { s.Bounded, c.FetchSize = true, 40 })
					r.fence("a")
					r.cfg.Interventions = r.journal
					var mu sync.Mutex
					var asked control.Intervention
					hooks, seen := every(point, n, func(context.Context) error {
						i, err := r.journal.Intervene(context.Background(), control.Intervention{RunID: "run", Kind: control.ReplayAside, Entries: []int64{1}, Who: "ana", Why: "late"})
						if err != nil && !codes.Has(err, codes.RunFinished) && !codes.Has(err, codes.RequestInvalid) && !codes.Has(err, codes.RunUnknown) {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						asked = i
						return nil
					})
					die, kill := context.WithCancel(context.Background())
					defer kill()
					r.cfg.Hooks = Hooks{At: func(ctx context.Context, p Point) error {
						err := hooks.At(ctx, p)
						mu.Lock()
						defer mu.Unlock()
						if p.Name == AfterCommit && asked.ID > 0 && killed {
							kill()
						}
						return err
					}}
					r.cfg.Kill = die
					_, _ = r.run()
					r.cfg.Hooks, r.cfg.Kill = Hooks{}, nil
					<-time.After(time.Minute)
					if result, err := r.run(); result.Status != control.RunFinished || err != nil && !codes.Has(err, codes.RunFinished) {
						t.Errorf("%s, %v", result.Status, err)
					}
					if hit = *seen >= n; asked.ID == 0 {
						return
					}
					got := r.outcome(asked.ID)
					outcomes[got.Outcome]++
					tried := len(r.decided(partitions.DecisionReplayed)) + len(r.decided(partitions.DecisionRefused))
					missed := got.Outcome == control.Dismissed && (strings.Contains(got.Note, "has finished, with epoch") || strings.Contains(got.Note, "not in the quarantine"))
					if !(got.Outcome == control.Applied && tried == 1 || missed && tried == 0) {
						t.Errorf("asked at passing %d of %s: %+v, %d decisions", n, point, got, tried)
					}
				})
			}
		}
	}
	if outcomes[control.Applied] == 0 || outcomes[control.Dismissed] == 0 {
		t.Errorf("%v", outcomes)
	}
}

// What cannot be taken is dismissed with the end of the run; a run that stays open leaves it to the next process, and says so.
func TestWhatNoEndTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := endingRig(t, inputEnds["until"])
		gap := r.ask(control.Intervention{Kind: control.AcceptGap, From: r.log.End(0), To: r.log.End(0).Next()})
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		if got := r.outcome(gap.ID); got.Outcome != control.Pending || !strings.Contains(r.logged.String(), "stay pending for the next one that runs it") {
			t.Errorf("%+v", got)
		}
		r.cfg.UntilRecords = 0
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		if got := r.outcome(gap.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "nothing was missing at") {
			t.Errorf("%+v", got)
		}
	})
}

// The store that does not answer just before the end is asked again; the choice is taken.
func TestTheQuestionBeforeTheEndFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, replay, _ := endingRig(t, inputEnds["the log"])
		for _, call := range []int{1, 3} {
			r.journal.Inject(controltest.Fault{Op: controltest.OpListInterventions, Call: call, Err: codes.New(codes.StoreUnavailable, "injected")})
		}
		result, err := r.run()
		if err != nil || result.Incarnations != 3 || r.outcome(replay.ID).Outcome != control.Applied {
			t.Errorf("%v, %d incarnations, %+v", err, result.Incarnations, r.outcome(replay.ID))
		}
	})
}

// Choices are judged one after the other: each meets what those before it left, and the reason is true.
func TestChoicesAboutTheSameEntry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kinds []control.InterventionKind
		entry int64
		notes []string
	}{
		"a replay that is refused, then a drop": {[]control.InterventionKind{control.ReplayAside, control.DropAside}, 0, []string{"UNREADABLE 1", "DROPPED 1"}},
		"a replay, then a drop":                 {[]control.InterventionKind{control.ReplayAside, control.DropAside}, 1, []string{"CONSUMED 1", "of these entries of partition 0, 1 REPLAYED before"}},
		"a drop, then replays": {[]control.InterventionKind{control.DropAside, control.ReplayAside, control.ReplayAside}, 0,
			[]string{"DROPPED 1", "of these entries of partition 0, 1 DROPPED before", "of these entries of partition 0, 1 DROPPED before"}},
		"refused twice": {[]control.InterventionKind{control.ReplayAside, control.ReplayAside}, 0, []string{"UNREADABLE 1", "UNREADABLE 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := holdingRig(t)
				stop := r.start()
				<-time.After(time.Minute)
				_, _ = stop()
				var asked []int64
				for _, kind := range c.kinds {
					asked = append(asked, r.ask(aside(kind, c.entry)).ID)
				}
				stop = r.start()
				<-time.After(time.Minute)
				_, _ = stop()
				var notes []string
				for _, id := range asked {
					notes = append(notes, r.outcome(id).Note)
				}
				if !slices.Equal(notes, c.notes) {
					t.Errorf("%q, want %q", notes, c.notes)
				}
			})
		})
	}
}
