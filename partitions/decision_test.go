package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// deciding is a harness that keeps what was decided.
type deciding struct {
	*harness
	all []Decision
}

func (d *deciding) event(t testing.TB, ev Event) {
	t.Helper()
	var eff Effects
	if err := d.m.Step(ev, &eff); err != nil {
		t.Fatal(err)
	}
	d.all = append(d.all, eff.Decisions...)
	d.rows = append(d.rows, showRows(t, eff.Rows, len(d.plan.Outputs))...)
}

func (d *deciding) records(t testing.TB, rs ...record.Record) {
	t.Helper()
	b := &record.Batch{Partition: d.partition, Records: rs, Next: rs[len(rs)-1].Position.Next()}
	d.event(t, Deliver{Batch: b})
}

// A run with decisions of operators and control records in its log, stopped and restored now and then, and a replay of what the log still has that
// is told its decisions, end in the same state with the same rows.
func TestAReplayHonoursDecisions(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for name, text := range flows {
		for seed := uint64(1); seed <= 4; seed++ {
			rng := rand.New(rand.NewPCG(seed, 99))
			plan := planOf(t, text)
			log := recordsOf(generate(rng, logShape{records: 500, keys: 6, step: 3, lag: 190, duplicates: 9, bad: 50, gaps: 9, sequence: true, lost: 20}))
			for range 5 {
				log[rng.IntN(len(log))].Headers = []record.Header{{Key: HeaderControl, Value: []byte("idle")}}
			}
			live := &deciding{harness: newHarness(plan, 0)}
			var kept []record.Record
			for at := 0; at < len(log); {
				switch rng.IntN(8) {
				case 0:
					live.event(t, IdleConfirmed{Reason: fmt.Sprintf("by ana: quiet: \"so\" (intervention %d)", at)})
				case 1:
					if g, ok := live.m.OldestGap(); ok {
						live.event(t, CloseGap{Key: g.Key, Sequence: g.First, Reason: "by bo: it, will: not come"})
					}
				case 2:
					if n := 1 + rng.IntN(5); at+n < len(log) {
						at += n
						live.event(t, AcceptGap{Next: log[at].Position, Reason: "by bo: lost"})
					}
				case 3:
					live.cutAndCrash(t)
				}
				to := min(len(log), at+1+rng.IntN(20))
				kept = append(kept, log[at:to]...)
				live.records(t, log[at:to]...)
				at = to
			}
			again := &deciding{harness: newHarness(plan, 0)}
			left := slices.Clone(live.all)
			for _, r := range kept {
				for len(left) > 0 && left[0].Position.Cmp(r.Position) <= 0 {
					ev, replayed := left[0].Event()
					if replayed {
						again.event(t, ev)
					} else if left[0].Position == r.Position {
						break // the record makes it
					}
					kinds[left[0].Kind]++
					left = left[1:]
				}
				again.records(t, r)
				for len(left) > 0 && left[0].Position == r.Position {
					if _, replayed := left[0].Event(); replayed {
						break
					}
					left = left[1:]
				}
			}
			for _, d := range left {
				if ev, ok := d.Event(); ok {
					again.event(t, ev)
				}
			}
			if !slices.Equal(again.all, live.all) {
				t.Fatalf("%s, seed %d: the replay decided\n%v\nthe run\n%v", name, seed, again.all, live.all)
			}
			if !slices.Equal(again.rows, live.rows) {
				t.Fatalf("%s, seed %d: %d rows, the run had %d", name, seed, len(again.rows), len(live.rows))
			}
			sameState(t, name, again.m.FullState(), live.m.FullState())
		}
	}
	for _, kind := range []string{DecisionIdle, DecisionGapClosed, DecisionLossAccepted} {
		if kinds[kind] == 0 {
			t.Errorf("no decision %s was replayed", kind)
		}
	}
}

func TestAGapIsAcceptedForwardsOnly(t *testing.T) {
	t.Parallel()
	plan := planOf(t, emaFlow)
	h := newHarness(plan, 0)
	h.deliver(t, logOf(`{"id":"a","key":"k","at":1,"x":1}`, `{"id":"b","key":"k","at":2,"x":1}`))
	before, w := h.m.Counts(), h.m.Watermark()
	h.step(t, AcceptGap{Next: record.Offset(9), Reason: "lost"})
	if h.m.Next() != record.Offset(9) || h.m.Counts() != before || h.m.Watermark() != w {
		t.Errorf("at %s, %+v, %s", h.m.Next(), h.m.Counts(), h.m.Watermark())
	}
	if last := h.decisions[len(h.decisions)-1]; last != "9 LOSS_ACCEPTED: from 2 the log is read on at 9: lost" {
		t.Errorf("decided %q", last)
	}
	h.cutAndCrash(t)
	for _, to := range []int64{9, 3} {
		m, err := Restore(plan, 0, h.load)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Step(AcceptGap{Next: record.Offset(to)}, &h.eff); !codes.Has(err, codes.Internal) {
			t.Errorf("to %d: %v", to, err)
		}
	}
	for _, bad := range []Decision{{Kind: DecisionGapClosed, Detail: "key k, sequence 1: x"}, {Kind: DecisionGapClosed, Detail: `key "k", sequence x: y`},
		{Kind: DecisionGapClosed}, {Kind: DecisionLossAccepted, Detail: "x"}, {Kind: DecisionEndOfSource}, {Kind: "OTHER"}, {Kind: DecisionIdle, Detail: controlSays}} {
		if ev, ok := bad.Event(); ok {
			t.Errorf("%+v makes the event %+v", bad, ev)
		}
	}
}

// Control records say something about their partition and are no data.
func TestControlRecords(t *testing.T) {
	t.Parallel()
	say := func(at int64, what string) record.Record {
		return record.Record{Position: record.Offset(at), Arrival: record.NoTime, Key: []byte("any"), Headers: []record.Header{{Key: "other"}, {Key: HeaderControl, Value: []byte(what)}}}
	}
	value := func(at int64, id string, ms int64) record.Record {
		return record.Record{Position: record.Offset(at), Arrival: record.NoTime, Key: []byte("k"), Value: fmt.Appendf(nil, `{"id":%q,"key":"k","at":%d,"x":1}`, id, ms)}
	}
	h := newHarness(planOf(t, "lateness: 1s\n"+emaFlow), 0)
	h.deliver(t, []record.Record{value(0, "a", 1000), say(1, "idle"), say(2, "idle")})
	if h.m.Status() != watermark.Idle || h.m.Counts() != (Counts{Records: 3, Consumed: 1, Filtered: 2}) || len(h.quarantine) != 0 {
		t.Errorf("%s, %+v, %v", h.m.Status(), h.m.Counts(), h.quarantine)
	}
	h.cutAndCrash(t)
	h.deliver(t, []record.Record{value(3, "b", 2000), say(4, "over"), value(5, "c", 3000)})
	if h.m.Status() != watermark.Active || len(h.quarantine) != 1 || !strings.Contains(h.quarantine[0], "UNREADABLE") || !strings.Contains(h.quarantine[0], `"over"`) {
		t.Errorf("%s, %v", h.m.Status(), h.quarantine)
	}
	if h.m.Waiting() == 0 {
		t.Fatal("nothing waits for the end: the test shows nothing")
	}
	h.deliver(t, []record.Record{value(6, "d", 4000), say(7, "end"), value(8, "e", 5000), say(9, "idle")})
	want := []string{"1 IDLE_CONFIRMED: a control record says so", "7 END_OF_BOUNDED_SOURCE: a control record says so; event time ends at 1970-01-01T00:00:04Z"}
	if !slices.Equal(h.decisions, want) {
		t.Errorf("decided %q, want %q", h.decisions, want)
	}
	if h.m.Status() != watermark.Finished || !h.m.Finished() || h.m.Waiting() != 0 || len(h.rows) != 4 || h.m.Next() != record.Offset(10) {
		t.Errorf("%s, %d wait, %d rows, next %s", h.m.Status(), h.m.Waiting(), len(h.rows), h.m.Next())
	}
	if len(h.quarantine) != 3 || !strings.Contains(h.quarantine[1], "8 AFTER_END") || !strings.Contains(h.quarantine[2], "9 AFTER_END") {
		t.Errorf("set aside %q", h.quarantine)
	}
	h.cutAndCrash(t)
	h.deliver(t, []record.Record{value(10, "f", 6000)})
	for _, ev := range []Event{EmptyPoll{}, IdleConfirmed{}, CloseGap{}, EndOfSource{Through: millis(9000)}} {
		h.step(t, ev)
	}
	if len(h.quarantine) != 4 || len(h.rows) != 4 || len(h.decisions) != 2 || h.m.Counts().Omitted != 4 {
		t.Errorf("after the end: %q, %d rows, %q", h.quarantine, len(h.rows), h.decisions)
	}
	if err := h.try(t, AcceptGap{Next: record.Offset(99)}); !codes.Has(err, codes.Internal) {
		t.Errorf("a gap after the end: %v", err)
	}
}
