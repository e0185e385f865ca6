package batch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources/sourcetest"
)

const decidedFlow = `
flow: weir/1
name: decided
id: id
key: key
time: {field: t, unit: s}
lateness: 3s
sequence: {field: n, gap_hold: 1h}
operators:
  - {name: mean, type: sma, input: x, period: 2, gap: hold}
outputs: [mean]
`

// told is what a run has told.
type told struct {
	rows, aside []string
	decisions   []partitions.Decision
}

func (o *told) row(r *partitions.Row) error {
	o.rows = append(o.rows, fmt.Sprintf("%s %s %s %v", r.Key, r.Time, r.ID, r.Values))
	return nil
}

func (o *told) asides(q partitions.Quarantined) error {
	o.aside = append(o.aside, fmt.Sprintf("%d %s %s %s", q.Partition, q.Position, q.Reason, q.EventID))
	return nil
}

func (o *told) decision(d partitions.Decision) error {
	o.decisions = append(o.decisions, d)
	return nil
}

// sequenced are events with numbers of their keys, of which some are missing, late or not to be read.
func sequenced(rng *rand.Rand, p int32, n int) (all []record.Record) {
	numbers := map[string]int{}
	for i := range n {
		key := fmt.Sprintf("%d-%d", p, rng.IntN(3))
		numbers[key]++
		if rng.IntN(12) == 0 {
			numbers[key]++ // one is missing
		}
		at := i/2 - rng.IntN(6)
		value := fmt.Appendf(nil, `{"id":"%s-%d","key":%q,"t":%d,"n":%d,"x":%d}`, key, numbers[key], key, 1000+at, numbers[key], i)
		if rng.IntN(25) == 0 {
			value = []byte("not to be read")
		}
		all = append(all, record.Record{Position: record.Offset(int64(i)), Key: []byte(key), Value: value, Arrival: record.NoTime})
	}
	return all
}

// live drives a machine as an engine does, with an operator who decides now and then, and says how many records were given up.
func live(t *testing.T, rng *rand.Rand, plan *flow.Plan, p int32, log []record.Record, out *told) (kinds map[string]int, m *partitions.Machine) {
	t.Helper()
	m, kinds = partitions.New(plan, p), map[string]int{}
	var aside []partitions.Quarantined
	settled := map[int64]bool{}
	step := func(ev partitions.Event) {
		decided := len(out.decisions)
		for _, q := range take(t, m, ev, out) {
			q.Number = int64(len(aside))
			aside = append(aside, q)
			_ = out.asides(q)
		}
		for _, d := range out.decisions[decided:] {
			kinds[d.Kind]++
		}
	}
	for at := 0; at < len(log); {
		switch rng.IntN(7) {
		case 0:
			step(partitions.IdleConfirmed{Reason: fmt.Sprintf("by ana: quiet at %d", at)})
		case 1:
			if g, ok := m.OldestGap(); ok {
				step(partitions.CloseGap{Key: g.Key, Sequence: g.First, Reason: "by bo: it, will: not come"})
			}
		case 2:
			if n := 1 + rng.IntN(5); at+n < len(log) {
				at += n
				step(partitions.AcceptGap{Next: log[at].Position, Reason: "by bo: lost"})
			}
		case 3:
			if n := len(aside) - 1; n >= 0 && !settled[int64(n)] {
				settled[int64(n)] = true
				step(partitions.Discard{Entry: aside[n], Why: "by ana: of no use"})
			}
		}
		to := min(len(log), at+1+rng.IntN(12))
		step(partitions.Deliver{Batch: &record.Batch{Partition: p, Records: log[at:to], Next: log[to-1].Position.Next()}})
		at = to
	}
	step(partitions.IdleConfirmed{Reason: "by ana: at the end"})
	return kinds, m
}

// A replay that is told the decisions of a run makes the same rows, verdicts and decisions out of the same log, however it is cut, and with what the
// operator has given up still in it.
func TestAReplayMakesDecisionsAgain(t *testing.T) {
	t.Parallel()
	plan, err := flow.Parse("decided.yaml", []byte(decidedFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		log := sourcetest.New(sourcetest.Config{Partitions: 2, Bounded: true, Rand: rand.New(rand.NewPCG(seed, 8))})
		var want [2]told
		var ends [2]*partitions.Machine
		for p := range int32(2) {
			records := sequenced(rng, p, 150)
			log.Append(p, records...)
			var made map[string]int
			made, ends[p] = live(t, rng, plan, p, records, &want[p])
			for kind, n := range made {
				kinds[kind] += n
			}
		}
		through := max(ends[0].MaxEventTime(), ends[1].MaxEventTime())
		var all, got told
		for p, m := range ends {
			var eff partitions.Effects
			if err := m.Step(partitions.EndOfSource{Through: through}, &eff); err != nil {
				t.Fatal(err)
			}
			want[p].decisions = append(want[p].decisions, eff.Decisions...)
			var row partitions.Row
			for data := eff.Rows.Data; len(data) > 0; {
				if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
					t.Fatal(err)
				}
				_ = want[p].row(&row)
			}
			all.rows, all.aside, all.decisions = append(all.rows, want[p].rows...), append(all.aside, want[p].aside...), append(all.decisions, want[p].decisions...)
		}
		doc, err := batch.Run(context.Background(), batch.Config{
			Plan: plan, Source: log, Mode: emit.ModeReplay, Fetch: 1 + rng.IntN(40), Row: got.row, Quarantine: got.asides, Decision: got.decision, Decided: all.decisions,
		})
		if err != nil {
			t.Fatal(err)
		}
		counts := emit.Add(ends[0].Counts(), ends[1].Counts())
		if doc.Counts != counts {
			t.Errorf("seed %d: the replay counts %+v, the run %+v", seed, doc.Counts, counts)
		}
		slices.Sort(all.rows)
		slices.Sort(got.rows)
		if !slices.Equal(got.rows, all.rows) {
			t.Errorf("seed %d: the replay has %d rows, the run %d", seed, len(got.rows), len(all.rows))
		}
		if slices.Sort(got.aside); !slices.Equal(got.aside, sorted(all.aside)) {
			t.Errorf("seed %d: the replay has set aside\n%v\nthe run\n%v", seed, got.aside, all.aside)
		}
		for p := range int32(2) {
			of := func(ds []partitions.Decision) []partitions.Decision {
				return slices.DeleteFunc(slices.Clone(ds), func(d partitions.Decision) bool { return d.Partition != p })
			}
			if g, w := of(got.decisions), of(all.decisions); !slices.Equal(g, w) {
				t.Fatalf("seed %d: the replay decided\n%v\nthe run\n%v", seed, g, w)
			}
		}
	}
	for _, kind := range []string{partitions.DecisionIdle, partitions.DecisionGapClosed, partitions.DecisionLossAccepted, partitions.DecisionDropped} {
		if kinds[kind] == 0 {
			t.Errorf("no decision %s was made", kind)
		}
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func TestDecisionsThatCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	m := partitions.New(plan(t), 0)
	var eff partitions.Effects
	bad := record.Record{Value: []byte("not to be read"), Arrival: record.NoTime}
	if err := m.Step(partitions.Deliver{Batch: &record.Batch{Records: []record.Record{bad}, Next: record.Offset(1)}}, &eff); err != nil || len(eff.Quarantine) != 1 {
		t.Fatal(err, eff.Quarantine)
	}
	if err := m.Step(partitions.Discard{Entry: eff.Quarantine[0], Why: "by ana: of no use"}, &eff); err != nil || len(eff.Decisions) != 1 {
		t.Fatal(err, eff.Decisions)
	}
	for name, d := range map[string]partitions.Decision{
		"a loss without a beginning":        {Kind: partitions.DecisionLossAccepted, Position: record.Offset(3), Detail: "somewhere: x"},
		"an entry that was never set aside": eff.Decisions[0],
	} {
		log := sourcetest.New(sourcetest.Config{Partitions: 1, Bounded: true})
		log.Append(0, event("a", "k", 1, "1"), event("b", "k", 2, "2"))
		_, err := batch.Run(context.Background(), batch.Config{Plan: plan(t), Source: log, Mode: emit.ModeReplay, Decided: []partitions.Decision{d}})
		if !codes.Has(err, codes.JournalCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was decided behind the last record of a partition may move event time, and with it the end of a grid in all of them.
func TestTheEndOfAGridComesAfterTheLastDecisions(t *testing.T) {
	t.Parallel()
	plan, err := flow.Parse("grid.yaml", []byte(strings.Replace(flowText, "lateness: 3s", "lateness: 3s\nmax_future_skew: 10s\nclock: {every: 10s}", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	records := [2][]record.Record{{event("a", "a", 1000, "1"), event("early", "a", 1030, "2"), event("b", "a", 1025, "3")}, {event("c", "b", 1000, "4")}}
	log := sourcetest.New(sourcetest.Config{Partitions: 2, Bounded: true})
	var want, got told
	var ends [2]*partitions.Machine
	for p := range int32(2) {
		ends[p] = partitions.New(plan, p)
		for i := range records[p] {
			records[p][i].Position, records[p][i].Arrival = record.Offset(int64(i)), record.EventTime(1000+10*i)*1e9
		}
		log.Append(p, records[p]...)
		steps := []partitions.Event{partitions.Deliver{Batch: &record.Batch{Partition: p, Records: records[p], Next: record.Offset(int64(len(records[p])))}}}
		if p == 0 { // the log ends before where the entry is replayed
			steps = append(steps, partitions.AcceptGap{Next: record.Offset(5), Reason: "by bo: lost"}, partitions.Reinstate{Why: "by ana: it is time"})
		}
		var aside []partitions.Quarantined
		for _, ev := range steps {
			if ev, err = partitions.Again(ev, aside); err != nil {
				t.Fatal(err)
			}
			aside = append(aside, take(t, ends[p], ev, &want)...)
		}
	}
	if ends[0].MaxEventTime() != 1030e9 {
		t.Fatalf("event time has come to %s", ends[0].MaxEventTime())
	}
	for p := range ends {
		take(t, ends[p], partitions.EndOfSource{Through: ends[0].MaxEventTime()}, &want)
	}
	_, err = batch.Run(t.Context(), batch.Config{Plan: plan, Source: log, Mode: emit.ModeReplay, Row: got.row, Decision: got.decision, Decided: want.decisions})
	if err != nil || !slices.Equal(sorted(got.rows), sorted(want.rows)) || len(want.rows) != 2*4 {
		t.Errorf("%v: the replay has the rows\n%v\nthe run\n%v", err, sorted(got.rows), sorted(want.rows))
	}
	if at := got.decisions[1]; at.Kind != partitions.DecisionReplayed || at != want.decisions[1] {
		t.Errorf("the replay decided %v, the run %v", at, want.decisions[1])
	}
}

// take steps a machine and keeps what it tells; it returns what was set aside.
func take(t *testing.T, m *partitions.Machine, ev partitions.Event, out *told) []partitions.Quarantined {
	t.Helper()
	var eff partitions.Effects
	if err := m.Step(ev, &eff); err != nil {
		t.Fatal(err)
	}
	var row partitions.Row
	for data := eff.Rows.Data; len(data) > 0; {
		var err error
		if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
			t.Fatal(err)
		}
		_ = out.row(&row)
	}
	for _, d := range eff.Decisions {
		_ = out.decision(d)
	}
	return eff.Quarantine
}
