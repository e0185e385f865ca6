package actors

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// lateOf is what a target of late events holds in the end, encoded as a shelf keeps it.
func lateOf(r *rig, want *published) map[int32][]byte {
	out := map[int32][]byte{}
	for p, counts := range want.counts {
		aside := slices.DeleteFunc(slices.Clone(want.quarantine), func(q partitions.Quarantined) bool { return q.Partition != p })
		out[p] = sinks.LateEntries(r.cfg.RunID, p, counts.Late, aside).Data
	}
	return out
}

func (s *shelf) holdsLate(t *testing.T, r *rig, want *published) {
	t.Helper()
	n := 0
	for p, data := range lateOf(r, want) {
		n += len(data)
		if !bytes.Equal(s.rows[p], data) {
			t.Errorf("partition %d: the late sink holds %d bytes, want %d, or others", p, len(s.rows[p]), len(data))
		}
	}
	if n == 0 {
		t.Fatal("nothing was late; the test is about that")
	}
}

// Whatever fails, each late event is in the late sink once, in the order of its partition.
func TestLateEventsArePublishedOnceWhateverFails(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 31), 3, 120)
	want := plainLoop(t, plan, in, 7)
	for _, where := range []string{"write", "written", string(AfterCommit), "answer lost"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			hits := 0
			for n := 1; n == hits+1; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, in, small)
					late, rows := newShelf(), newShelf()
					r.cfg.Late, r.cfg.Publisher = publisher(late), publisher(rows)
					seen := new(int)
					late.at = func(step string) error {
						if step != where {
							return nil
						}
						if *seen++; *seen == n {
							return errBoom
						}
						return nil
					}
					switch where {
					case string(AfterCommit):
						r.cfg.Hooks, seen = every(AfterCommit, n, func(context.Context) error { return errBoom })
					case "answer lost":
						r.journal.Inject(controltest.LoseAnswer(n))
					}
					r.finish(want)
					late.holdsLate(t, r, want)
					rows.holds(t, want)
					if *seen >= n || len(r.journal.Pending()) == 0 && r.journal.Fired() > 0 {
						hits++
					}
				})
			}
			if hits == 0 {
				t.Error("nothing failed")
			}
		})
	}
}

// A late sink that was added to a run gets what the journal holds, and one that does not tell gets each late event at least once.
func TestALateSinkIsFilledFromTheJournal(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 32), 2, 120)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		r.cfg.UntilRecords = 90
		if result, err := r.run(); err != nil || result.Status != control.RunOpen {
			t.Fatalf("%v, %s", err, result.Status)
		}
		r.cfg.UntilRecords = 0
		late := newShelf()
		r.cfg.Late = publisher(late)
		r.finish(want)
		late.holdsLate(t, r, want)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		late := newShelf()
		late.silent = true
		r.cfg.Late = publisher(late)
		r.cfg.Hooks, _ = every(BeforeCommit, 2, func(context.Context) error { return errBoom })
		r.finish(want)
		for p, data := range lateOf(r, want) {
			if !bytes.HasPrefix(late.rows[p], data) && len(late.rows[p]) < len(data) {
				t.Errorf("partition %d lacks late events", p)
			}
		}
	})
}

// A late sink that refuses ends the run with its code, and the journal has what it lacks.
func TestALateSinkThatRefuses(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 31), 3, 120)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		late := newShelf()
		late.at = func(step string) error {
			if step == "write" {
				return codes.New(codes.RecordTooLarge, "too large")
			}
			return nil
		}
		r.cfg.Late, r.cfg.UntilRecords = publisher(late), 300
		if _, err := r.run(); !codes.Has(err, codes.RecordTooLarge) {
			t.Fatalf("%v", err)
		}
		n := 0
		if err := r.journal.Quarantine(t.Context(), r.cfg.RunID, func(q partitions.Quarantined) error {
			if q.Reason == partitions.ReasonLate {
				n++
			}
			return nil
		}); err != nil || n == 0 {
			t.Errorf("%d late events stand in the journal, %v", n, err)
		}
	})
}
