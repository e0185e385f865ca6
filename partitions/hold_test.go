package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

const holdFlow = "lateness: 1s\nhold_key: {records: 4}\noperators: [{name: v, type: last, input: x}]\noutputs: [v]\n"

// holding is a harness that keeps what was set aside as a journal numbers it.
type holding struct {
	*harness
	aside []Quarantined
	all   []Decision
}

func newHolding(plan *flow.Plan) *holding { return &holding{harness: newHarness(plan, 0)} }

func (h *holding) event(t testing.TB, ev Event) error {
	t.Helper()
	var eff Effects
	if err := h.m.Step(ev, &eff); err != nil {
		return err
	}
	for _, q := range eff.Quarantine {
		q.Number = int64(len(h.aside))
		h.aside = append(h.aside, q)
		h.quarantine = append(h.quarantine, showQuarantined(q))
	}
	h.all = append(h.all, eff.Decisions...)
	for _, d := range eff.Decisions {
		h.decisions = append(h.decisions, fmt.Sprintf("%s %s: %s", d.Position, d.Kind, d.Detail))
	}
	h.rows = append(h.rows, showRows(t, eff.Rows, len(h.plan.Outputs))...)
	return nil
}

func (h *holding) must(t testing.TB, ev Event) {
	t.Helper()
	if err := h.event(t, ev); err != nil {
		t.Fatal(err)
	}
}

// feed delivers values under the log's key k.
func (h *holding) feed(t testing.TB, values ...string) {
	t.Helper()
	b := &record.Batch{Partition: h.partition, Next: h.m.Next()}
	for _, v := range values {
		b.Records = append(b.Records, record.Record{Position: b.Next, Arrival: record.NoTime, Key: []byte("k"), Value: []byte(v)})
		b.Next = b.Next.Next()
	}
	h.must(t, Deliver{Batch: b})
}

func tick(id, key string, at int64) string {
	return fmt.Sprintf(`{"id":%q,"key":%q,"at":%d,"x":%d}`, id, key, at, at)
}

// What comes behind a record that cannot be read waits, and nothing else does. It goes on in its order, and is not late.
func TestAHeldKeyWaits(t *testing.T) {
	t.Parallel()
	h := newHolding(planOf(t, holdFlow))
	h.feed(t, tick("a", "k", 1000), "poison", tick("b", "k", 3000), tick("x", "other", 4000), tick("b", "k", 3000), `{"id":"c","key":"k","at":"no"}`, tick("d", "k", 5000), tick("y", "other", 9000))
	h.cutAndCrash(t)
	same(t, "rows", h.rows, []string{"1970-01-01T00:00:01Z a k 1000", "1970-01-01T00:00:04Z x other 4000"})
	same(t, "decisions", h.decisions, []string{`1 KEY_HELD: key "k"`})
	if got, want := fmt.Sprint(h.m.HeldKeys()), "[{k 1 1970-01-01T00:00:03Z 2 2}]"; got != want {
		t.Errorf("held %s, want %s", got, want)
	}
	if c := h.m.Counts(); c.Records != 8 || c.Consumed != 5 || c.Omitted != 2 || c.Duplicates != 1 {
		t.Errorf("%+v", c)
	}
	h.feed(t, tick("e", "k", 9500), tick("f", "other", 9600), "poison too") // the fourth and last place but one for the poison
	if q := h.quarantine[len(h.quarantine)-2:]; !strings.Contains(q[0], `HELD_OVERFLOW id="e"`) || !strings.Contains(q[1], "its key is not held: 4 records wait already") {
		t.Errorf("%q", q)
	}
	h.must(t, Reinstate{Entry: h.aside[0], Why: "by ana: is it good now?"})
	if d := h.decisions[len(h.decisions)-1]; !strings.HasPrefix(d, "11 QUARANTINE_REFUSED: entry 0, set aside at 1 as UNREADABLE, is UNREADABLE \"") || !strings.HasSuffix(d, ": by ana: is it good now?") {
		t.Errorf("%s", d)
	}
	h.must(t, Reinstate{Entry: h.aside[2], Why: "w"})
	if d := h.decisions[len(h.decisions)-1]; !strings.Contains(d, "as HELD_OVERFLOW, is HELD_OVERFLOW ") || len(h.m.HeldKeys()) != 1 || h.m.Held().Records != 2 {
		t.Errorf("%s, %v", d, h.m.HeldKeys())
	}
	h.cutAndCrash(t)
	rows := len(h.rows)
	h.must(t, Discard{Entry: h.aside[0], Why: "by ana: test data"})
	same(t, "rows", h.rows[rows:], []string{"1970-01-01T00:00:03Z b k 3000"})
	h.cutAndCrash(t)
	// The flow was mended, say: the second one is good, and the overflow takes a place in the order of event time.
	mended := h.aside[1]
	mended.Value = []byte(tick("c", "k", 4000))
	h.must(t, Reinstate{Entry: mended, Why: "w"})
	same(t, "rows", h.rows[rows+1:], []string{"1970-01-01T00:00:04Z c k 4000", "1970-01-01T00:00:05Z d k 5000"})
	h.must(t, Reinstate{Entry: h.aside[2], Why: "w"})
	h.feed(t, tick("z", "other", 20000))
	same(t, "decisions", h.decisions[3:], []string{
		"11 QUARANTINE_DROPPED: entry 0, set aside at 1 as UNREADABLE, is DROPPED: by ana: test data",
		"11 QUARANTINE_REPLAYED: entry 1, set aside at 5 as UNREADABLE, is CONSUMED: w",
		`11 KEY_RELEASED: key "k" goes on (records: 2): entry 1 was replayed`,
		"11 QUARANTINE_REPLAYED: entry 2, set aside at 8 as HELD_OVERFLOW, is CONSUMED: w",
	})
	if len(h.m.HeldKeys()) != 0 || h.m.Counts().Consumed != 7 || !slices.Contains(h.rows, "1970-01-01T00:00:09.5Z e k 9500") {
		t.Errorf("%v, %+v, %q", h.m.HeldKeys(), h.m.Counts(), h.rows)
	}
	for _, d := range h.all {
		if a, ok := d.Aside(); ok != strings.HasPrefix(d.Kind, "QUARANTINE_") || ok && (a.Why == "" || a.Outcome == "" || a.Position != h.aside[a.Number].Position || a.Reason != h.aside[a.Number].Reason) {
			t.Errorf("%v reads %+v, %v", d, a, ok)
		}
	}
	h.cutAndCrash(t)
}

// The key of a record that cannot be read is its field, or else the log's own; where there is neither, nothing is held. At the end everything goes on.
func TestWhoseKeyIsHeld(t *testing.T) {
	t.Parallel()
	h := newHolding(planOf(t, holdFlow))
	b := &record.Batch{Next: record.Offset(9), Records: []record.Record{
		{Position: record.Offset(0), Arrival: record.NoTime, Value: []byte("poison")},
		{Position: record.Offset(1), Arrival: record.NoTime, Value: []byte(`{"id":"a","key":"one","at":"no"}`), Key: []byte("log")},
		{Position: record.Offset(2), Arrival: record.NoTime, Value: []byte("poison"), Key: []byte("two")},
		{Position: record.Offset(3), Arrival: record.NoTime, Value: nil, Key: []byte("three")},
		{Position: record.Offset(4), Arrival: record.NoTime, Value: []byte("end"), Key: []byte("four"), Headers: []record.Header{{Key: HeaderControl, Value: []byte("what")}}},
	}}
	for i, key := range []string{"one", "two", "three", "four"} {
		b.Records = append(b.Records, record.Record{Position: record.Offset(int64(5 + i)), Arrival: record.NoTime, Value: []byte(tick(key, key, 1000))})
	}
	h.must(t, Deliver{Batch: b})
	if got := fmt.Sprint(h.m.HeldKeys()); got != "[{one 1 1970-01-01T00:00:01Z 1 1} {two 2 1970-01-01T00:00:01Z 1 1}]" {
		t.Errorf("held %s", got)
	}
	if !strings.Contains(h.quarantine[0], "its key is not known") {
		t.Errorf("%q", h.quarantine)
	}
	h.cutAndCrash(t)
	h.must(t, EndOfSource{Through: record.NoTime})
	if len(h.rows) != 4 || len(h.m.HeldKeys()) != 0 || !strings.HasSuffix(h.decisions[len(h.decisions)-1], `key "two" goes on (records: 1): the partition has ended`) {
		t.Errorf("%q, %v, %q", h.rows, h.m.HeldKeys(), h.decisions)
	}
	h.cutAndCrash(t)
}

// However a log with poison is cut into batches, however often it is restored, and whatever is decided: a replay of the log with the decisions gives the
// same rows, verdicts, decisions and state.
func TestHoldsAndReplaysAreMadeAgain(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, text := range []string{
		"lateness: 2s\nhold_key: {records: 9}\n" + emaFlow, "lateness: 2s\nmax_future_skew: 5s\nsequence: {field: seq, gap_hold: 3s}\nhold_key: true\n" + emaFlow,
		"lateness: 1s\nmax_future_skew: 1s\nrevision: rev\n" + emaFlow, "max_future_skew: 5s\nclock: {every: 500ms}\n" + emaFlow,
	} {
		plan := planOf(t, text)
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 31))
			log := poisoned(rng, 150)
			live := newHolding(plan)
			for at := 0; at < len(log); {
				if n := len(live.aside); n > 0 && rng.IntN(3) == 0 {
					q, why := live.aside[rng.IntN(n)], fmt.Sprintf("by ana: why: \"so\", is it %d (intervention 7)", n)
					if !Replayable(q.Reason) {
						continue
					}
					if rng.IntN(3) == 0 {
						live.must(t, Discard{Entry: q, Why: why})
					} else {
						live.must(t, Reinstate{Entry: q, Why: why})
					}
				}
				if rng.IntN(4) == 0 {
					live.cutAndCrash(t)
				}
				to := min(len(log), at+1+rng.IntN(20))
				live.batch(t, log[at:to])
				at = to
			}
			again := newHolding(plan)
			for i := range log {
				again.decideAgain(t, live.all, log[i].Position)
				again.batch(t, log[i:i+1])
			}
			again.decideAgain(t, live.all, again.m.Next())
			sameRun(t, fmt.Sprintf("%q, seed %d", text, seed), again.harness, live.harness)
			for _, d := range live.all {
				kinds[d.Kind]++
				if a, ok := d.Aside(); ok {
					kinds[a.Outcome]++
				}
			}
		}
	}
	for _, kind := range []string{DecisionKeyHeld, DecisionKeyReleased, OutcomeConsumed, OutcomeDropped, OutcomeDuplicate, ReasonUnreadable, ReasonTombstone, ReasonLate, ReasonFuture} {
		if kinds[kind] == 0 {
			t.Errorf("nothing was %s", kind)
		}
	}
}

func (h *holding) batch(t testing.TB, records []record.Record) {
	t.Helper()
	h.must(t, Deliver{Batch: &record.Batch{Records: records, Next: records[len(records)-1].Position.Next()}})
}

// decideAgain makes the next decisions of a run again, as far as a position, as a replay of its log does: what they bring with them is not made again.
func (h *holding) decideAgain(t testing.TB, all []Decision, at record.Position) {
	t.Helper()
	for len(h.all) < len(all) && all[len(h.all)].Position == at {
		ev, ok := all[len(h.all)].Event()
		if !ok {
			return // the record makes it
		}
		ev, err := Again(ev, h.aside)
		if err != nil {
			t.Fatal(err)
		}
		h.must(t, ev)
	}
}

// poisoned is a random log with records that cannot be read, late ones, and some of the future.
func poisoned(rng *rand.Rand, n int) []record.Record {
	var out []record.Record
	for i := range n {
		key, at := fmt.Sprintf("k%d", rng.IntN(4)), int64(1000*i/4+rng.IntN(2500))
		arrival := at + int64(rng.IntN(500))
		value := fmt.Sprintf(`{"id":"%d","key":%q,"at":%d,"x":%d,"seq":%d,"rev":%d}`, rng.IntN(i+1)*rng.IntN(2)+i, key, at, rng.IntN(100), i/4, rng.IntN(5)/4)
		r := record.Record{Position: record.Offset(int64(i)), Key: []byte(key), Headers: []record.Header{{Key: "h", Value: []byte{byte(i)}}}}
		switch rng.IntN(16) {
		case 0:
			value = value[:len(value)/2]
		case 1:
			value = strings.Replace(value, `"at":`, `"at":"x","was":`, 1)
		case 2:
			arrival -= int64(rng.IntN(9000))
		case 3:
			value = strings.Replace(value, fmt.Sprintf(`"at":%d`, at), fmt.Sprintf(`"at":%d`, at+60_000), 1)
		case 4:
			r.Key = nil
			value = "?"
		}
		if r.Arrival = millis(arrival); rng.IntN(30) > 0 {
			r.Value = []byte(value)
		}
		out = append(out, r)
	}
	return out
}

// A flow that is mended takes the state up, held keys and all: what it can read now comes in.
func TestAMendedFlowTakesTheStateUp(t *testing.T) {
	t.Parallel()
	was := planOf(t, "lateness: 1s\nhold_key: true\nselect: {field: kind, equals: t}\n"+emaFlow)
	is := planOf(t, "lateness: 1s\nhold_key: true\nmax_future_skew: off\n"+emaFlow)
	if err := is.Mends(was); err != nil {
		t.Fatal(err)
	}
	of := func(id string, at int64, kind string) string {
		return fmt.Sprintf(`{"id":%q,"key":"k","at":%d,"x":%d,"kind":%s}`, id, at, at%7, kind)
	}
	h := newHolding(was)
	h.feed(t, of("a", 1000, `"t"`), of("b", 2000, `{"name":"t"}`), of("c", 3000, `"t"`), of("d", 9000, `"t"`))
	h.cut(t)
	load := func(yield func(StateBlob) error) error {
		return h.load(func(b StateBlob) error {
			b, err := Mended(b, was.Fingerprint, is)
			if err != nil {
				return err
			}
			return yield(b)
		})
	}
	if _, err := Restore(is, 0, h.load); !codes.Has(err, codes.RunMismatch) {
		t.Fatalf("as it is: %v", err)
	}
	m, err := Restore(is, 0, load)
	if err != nil {
		t.Fatal(err)
	}
	h.m, h.plan = m, is
	h.must(t, Reinstate{Entry: h.aside[0], Why: "w"})
	h.feed(t, of("e", 20000, "7"), of("f", 30000, "null"))
	straight := newHolding(is)
	straight.feed(t, of("a", 1000, "1"), of("b", 2000, "1"), of("c", 3000, "1"), of("d", 9000, "1"), of("e", 20000, "1"), of("f", 30000, "1"))
	same(t, "rows", h.rows, straight.rows)
	h.cutAndCrash(t)

	for name, data := range map[string][]byte{"core": []byte("short"), "core of another flow": nil} {
		err := h.load(func(b StateBlob) error {
			if b.Name != coreName {
				return nil
			}
			if data != nil {
				b.Data = data
			}
			_, err := Mended(b, "sha256:other", is)
			return err
		})
		if !codes.Has(err, codes.JournalCorrupt) && !codes.Has(err, codes.RunMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNotReplayed(t *testing.T) {
	t.Parallel()
	h := newHolding(planOf(t, "revision: rev\n"+emaFlow))
	h.feed(t, `{"id":"a","key":"k","at":1,"x":1,"rev":1}`)
	if err := h.event(t, Reinstate{Entry: h.aside[0]}); !codes.Has(err, codes.Internal) {
		t.Errorf("a note: %v", err)
	}
	for _, ev := range []Event{Reinstate{Entry: Quarantined{Number: 1}}, Discard{Entry: Quarantined{Number: -1}}} {
		if ev, err := Again(ev, h.aside); err == nil {
			t.Errorf("%v", ev)
		}
	}
	for _, detail := range []string{"", "entry", "entry x, set aside at 1 as A, is B: c", "entry 1, set aside at y as A, is B: c", "entry 1, set aside at 1 as A, is", "entry 1, set aside at 1 as A, is B", `entry 1, set aside at 1 as A, is B "x: c`} {
		if a, ok := (Decision{Kind: DecisionReplayed, Detail: detail}).Aside(); ok {
			t.Errorf("%q reads %+v", detail, a)
		}
	}
}

// A split gives on what is held: nobody can decide about a partition that has ended.
func TestHeldKeysAreInherited(t *testing.T) {
	t.Parallel()
	plan := planOf(t, holdFlow)
	parent := newHolding(plan)
	parent.feed(t, "poison", tick("a", "k", 1000), tick("b", "other", 9000), tick("c", "k", 9500))
	parent.cutAndCrash(t)
	for _, keep := range []string{"k", "other"} {
		parent.crash(t)
		var eff Effects
		m, err := Inherit(plan, 7, []*Machine{parent.m}, func(key string) bool { return key == keep }, &eff)
		if err != nil {
			t.Fatal(err)
		}
		rows := showRows(t, eff.Rows, 1)
		if keep == "other" && (len(rows) != 0 || m.Waiting() != 1) || keep == "k" && (!slices.Equal(rows, []string{"1970-01-01T00:00:01Z a k 1000"}) || m.Waiting() != 1 || len(eff.Decisions) != 2) {
			t.Errorf("%s: %q, %d wait, %v", keep, rows, m.Waiting(), eff.Decisions)
		}
		child := &harness{plan: plan, partition: 7, m: m, stand: standing{}}
		child.cutAndCrash(t)
	}
}

func TestDamagedHolds(t *testing.T) {
	t.Parallel()
	plan := planOf(t, holdFlow)
	h := newHolding(plan)
	h.feed(t, "poison", tick("a", "k", 1000))
	h.cut(t)
	for name, body := range map[string][]byte{
		"of another version": {9}, "of other inputs": append(appendText([]byte{heldVersion, 2}, "q"), append(make([]byte, 25), 0)...), "cut short": appendText([]byte{heldVersion, 1}, "q"), "a record first": append(appendText([]byte{heldVersion, 1}, "q"), 1),
		"an unknown item": append(appendText([]byte{heldVersion, 1}, "q"), 7), "a place cut short": append(appendText([]byte{heldVersion, 1}, "q"), 0, 1),
	} {
		l := &ledger{}
		l.write(heldPrefix+"77", body)
		if err := newHolds(1, 4).load(l.put[0], &ledger{}); !codes.Has(err, codes.JournalCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name := range h.stand {
		if b := (StateBlob{Name: name, Data: h.stand[name]}); strings.HasPrefix(name, HeldPrefix) {
			if k, err := ReadHeld(b); err != nil || k.Key != "k" || k.Waiting != 1 || k.Blockers != 1 {
				t.Errorf("%+v, %v", k, err)
			}
			b.Data = b.Data[:len(b.Data)-1]
			if k, err := ReadHeld(b); !codes.Has(err, codes.JournalCorrupt) {
				t.Errorf("cut short: %+v, %v", k, err)
			}
		}
	}
	if _, err := Restore(planOf(t, "lateness: 1s\noperators: [{name: v, type: last, input: x}]\noutputs: [v]\n"), 0, h.load); !codes.Has(err, codes.RunMismatch) {
		t.Errorf("a flow that holds no keys: %v", err)
	}
}
