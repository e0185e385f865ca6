package partitions

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// revisedLog makes events with several revisions each. Those are sent in any order: the first of an event within the lateness, the others within
// lateness and horizon behind it.
func revisedLog(rng *rand.Rand, events int, lateness, horizon int64) (sent, sorted []made) {
	type delivery struct {
		made
		due int64
	}
	var all []delivery
	now := int64(1_000_000)
	for i := range events {
		now += rng.Int64N(4)
		first := made{id: fmt.Sprintf("e%04d", i*37%9973), key: fmt.Sprintf("k%d", rng.IntN(3)), at: millis(now)}
		first.Arrival = record.NoTime
		numbers := rng.Perm(1 + rng.IntN(4)*rng.IntN(2))
		for n, revision := range numbers {
			m := first
			m.revision, m.x, m.gap = int64(revision), float64(rng.IntN(1000))/8, rng.IntN(9) == 0
			m.write(rng, false)
			due := now + rng.Int64N(lateness+1)
			if n > 0 {
				due = max(all[len(all)-n].due, now+rng.Int64N(lateness+horizon+1))
			}
			all = append(all, delivery{m, due})
		}
	}
	for _, d := range all {
		sorted = append(sorted, d.made)
	}
	slices.SortStableFunc(sorted, func(a, b made) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.id, b.id)
	})
	slices.SortStableFunc(all, func(a, b delivery) int { return int(a.due - b.due) })
	for _, d := range all {
		sent = append(sent, d.made)
	}
	for i := range sent {
		sent[i].Position, sorted[i].Position = record.Offset(int64(i)), record.Offset(int64(i))
	}
	return sent, sorted
}

// folded is what stands of rows for a reader who takes of each key and time the one with the highest number: values by time and key. The
// numbers of a key and time count up from 0.
func folded(t *testing.T, rows []string) map[string]string {
	t.Helper()
	out, next := map[string]string{}, map[string]int{}
	for _, row := range rows {
		f := strings.Fields(row)
		name := f[0] + " " + f[2]
		if number := f[len(f)-1]; number != fmt.Sprint(next[name]) {
			t.Fatalf("%s: want number %d", row, next[name])
		}
		next[name]++
		out[name] = strings.Join(f[3:len(f)-1], " ")
	}
	return out
}

var publishing = []string{
	"lateness: 20ms\ndedupe: {horizon: 1s}\nrevision: rev\nrevisions: {horizon: 60ms}\n" +
		"operators: [{name: e, type: ema, input: x, period: 3}, {name: s, type: sma, input: {operator: e}, period: 2, gap: hold}]\noutputs: [e, s]\n",
	"lateness: 0s\ndedupe: {horizon: 1s}\nrevision: rev\nrevisions: {horizon: 40ms}\noperators: [{name: l, type: last, input: x}]\noutputs: [l]\n",
	"lateness: 5ms\ndedupe: {horizon: 1s}\nclock: {every: 7ms}\nrevision: rev\nrevisions: {horizon: 50ms}\n" +
		"operators: [{name: e, type: ema, input: x, period: 2, gap: hold}, {name: l, type: last, input: {operator: e}}]\noutputs: [e, l]\n",
	"lateness: 10ms\ndedupe: {horizon: 1s}\nclock: {every: 30ms}\nrevision: rev\nrevisions: {horizon: 75ms}\noperators: [{name: s, type: sma, input: x, period: 2}]\noutputs: [s]\n",
}

// checkRevisions: whatever the order in which revisions come inside the horizon, the cuts and the crashes, what stands of the rows is what batch makes of the
// highest revisions, bit by bit. It returns how many rows were published again.
func checkRevisions(t *testing.T, text string, seed uint64, events int) (again int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 31))
	plan := planOf(t, text)
	sent, sorted := revisedLog(rng, events, int64(plan.Lateness)/1_000_000, int64(plan.RevisionHorizon)/1_000_000)
	h, whole, batch := newHarness(plan, 0), newHarness(plan, 0), newHarness(plan, 0)
	h.stopEvery(1 + rng.IntN(9))
	for from := 0; from < len(sent); {
		to := min(len(sent), from+1+rng.IntN(30))
		h.deliver(t, recordsOf(sent[from:to]))
		if from = to; rng.IntN(3) == 0 {
			h.cutAndCrash(t)
		}
	}
	whole.deliver(t, recordsOf(sent))
	batch.deliver(t, recordsOf(sorted))
	for _, k := range whole.m.past.keys {
		if events > 1000 && len(k.stops) < 2 {
			t.Fatalf("seed %d: %d stops of a key", seed, len(k.stops))
		}
	}
	for _, k := range h.m.past.keys {
		if kept := h.m.kept(); len(k.again) > 0 && (k.again[0].at < kept || plan.ClockEvery > 0 && k.again[0].at == kept) {
			t.Fatalf("seed %d: the number of a result at %s is kept, at %s", seed, k.again[0].at, kept)
		}
	}
	for _, x := range []*harness{h, whole, batch} {
		x.finish(t, record.NoTime)
	}
	sameRun(t, fmt.Sprintf("seed %d: restored", seed), h, whole)
	for _, line := range h.quarantine {
		if f := strings.Fields(line); f[1] != ReasonRevised {
			t.Fatalf("seed %d: %s", seed, line)
		}
	}
	got, want := folded(t, h.rows), folded(t, batch.rows)
	if len(got) != len(want) {
		t.Fatalf("seed %d: %d results, batch has %d", seed, len(got), len(want))
	}
	for name, values := range want {
		if got[name] != values {
			t.Fatalf("seed %d: %s stands as %s, batch has %s", seed, name, got[name], values)
		}
	}
	if n := len(batch.m.FullState()); n == 0 || int64(len(sent)) != h.m.Counts().Consumed+h.m.Counts().Duplicates || h.m.Counts().Consumed != int64(events) {
		t.Fatalf("seed %d: counts %+v of %d deliveries of %d events", seed, h.m.Counts(), len(sent), events)
	}
	return len(h.rows) - len(batch.rows)
}

func TestWhatStandsIsBatchOverTheHighestRevisions(t *testing.T) {
	t.Parallel()
	for i, text := range publishing {
		again := 0
		for seed := range uint64(15) {
			again += checkRevisions(t, text, seed, 150)
		}
		if again < 30 {
			t.Errorf("flow %d: %d rows were published again", i, again)
		}
	}
}

// TestStops: keys with so many kept records that revisions begin and end in the middle of them.
func TestStops(t *testing.T) {
	t.Parallel()
	const head = "lateness: 5ms\ndedupe: {horizon: 2s}\nrevision: rev\nrevisions: {horizon: 900ms}\n"
	for i, text := range []string{
		head + "operators: [{name: e, type: ema, input: x, period: 3}]\noutputs: [e]\n",
		head + "operators: [{name: s, type: sma, input: x, period: 5, gap: hold}, {name: l, type: last, input: s}]\noutputs: [s, l]\n",
		head + "clock: {every: 3ms}\noperators: [{name: s, type: sma, input: x, period: 5, gap: hold}]\noutputs: [s]\n",
		head + "clock: {every: 2ms}\noperators: [{name: e, type: ema, input: x, period: 2}, {name: l, type: last, input: x}]\noutputs: [e, l]\n",
	} {
		for seed := range uint64(2) {
			if again := checkRevisions(t, text, seed, 1100); again < 500 {
				t.Errorf("flow %d: %d rows were published again", i, again)
			}
		}
	}
}

func FuzzRevisions(f *testing.F) {
	for i := range publishing {
		f.Add(uint64(i), byte(i), byte(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, flow, events byte) {
		checkRevisions(t, publishing[int(flow)%len(publishing)], seed, 1+int(events))
	})
}

// TestAdoptedRowsAreTheFirstOnes: a flow that does not publish revisions again has the rows that one that does publishes first.
func TestAdoptedRowsAreTheFirstOnes(t *testing.T) {
	t.Parallel()
	for i, text := range publishing {
		for seed := range uint64(5) {
			silent := planOf(t, strings.Replace(text, "ms}\noperators", "ms, publish: false}\noperators", 1))
			if silent.Revised || silent.RevisionHorizon == 0 {
				t.Fatalf("flow %d publishes", i)
			}
			sent, _ := revisedLog(rand.New(rand.NewPCG(seed, 32)), 150, int64(silent.Lateness)/1_000_000, int64(silent.RevisionHorizon)/1_000_000)
			a, b := newHarness(silent, 0), newHarness(silent.Publishing(), 0)
			a.deliver(t, recordsOf(sent))
			b.deliver(t, recordsOf(sent))
			a.finish(t, record.NoTime)
			b.finish(t, record.NoTime)
			var first []string
			seen := map[string]bool{}
			for _, row := range b.rows {
				f := strings.Fields(row)
				if name := f[0] + f[1]; !seen[name] {
					seen[name] = true
					first = append(first, strings.Join(f[:len(f)-1], " "))
				}
			}
			same(t, fmt.Sprintf("flow %d, seed %d", i, seed), a.rows, first)
			if len(b.rows) == len(a.rows) {
				t.Errorf("flow %d, seed %d: nothing was published again", i, seed)
			}
		}
	}
}

// TestInheritedHistory: revisions reach behind a change of partitions, whatever becomes of the keys.
func TestInheritedHistory(t *testing.T) {
	t.Parallel()
	for i, text := range publishing {
		plan := planOf(t, text)
		sent, _ := revisedLog(rand.New(rand.NewPCG(uint64(i), 33)), 200, int64(plan.Lateness)/1_000_000, int64(plan.RevisionHorizon)/1_000_000)
		whole := newHarness(plan, 0)
		whole.deliver(t, recordsOf(sent))
		whole.finish(t, record.NoTime)

		parent := newHarness(plan, 0)
		half := len(sent) / 2
		parent.deliver(t, recordsOf(sent[:half]))
		parent.cutAndCrash(t)
		child := newHarness(plan, 1)
		var err error
		if child.m, err = Inherit(plan, 1, []*Machine{parent.m}, func(string) bool { return true }, &child.eff); err != nil {
			t.Fatal(err)
		}
		child.cutAndCrash(t)
		child.deliver(t, recordsOf(sent[half:]))
		child.finish(t, record.NoTime)
		same(t, fmt.Sprintf("flow %d", i), append(parent.rows, child.rows...), whole.rows)
	}
}

// TestMergedHistories: two partitions become one, and what each had kept is in one order.
func TestMergedHistories(t *testing.T) {
	t.Parallel()
	for i, text := range publishing {
		plan := planOf(t, text)
		sent, _ := revisedLog(rand.New(rand.NewPCG(uint64(i), 34)), 300, int64(plan.Lateness)/1_000_000, int64(plan.RevisionHorizon)/1_000_000)
		half := len(sent) / 2
		merged := func() *harness {
			a, b, child := newHarness(plan, 0), newHarness(plan, 1), newHarness(plan, 2)
			for _, m := range sent[:half] {
				h := a
				if m.key == "k1" {
					h = b
				}
				h.deliver(t, []record.Record{m.Record})
			}
			var err error
			if child.m, err = Inherit(plan, 2, []*Machine{a.m, b.m}, func(string) bool { return true }, &child.eff); err != nil {
				t.Fatal(err)
			}
			if child.m.waiting.kept() < 5 || len(child.m.keys.names) != 3 {
				t.Fatalf("flow %d: %d records of %d keys are kept", i, child.m.waiting.kept(), len(child.m.keys.names))
			}
			child.eff.Reset() // the rows up to here are the same in both
			return child
		}
		want, got := merged(), merged()
		got.cutAndCrash(t)
		for at := half; at < len(sent); at += 7 {
			records := recordsOf(sent[at:min(at+7, len(sent))])
			want.deliver(t, records)
			got.deliver(t, records)
			sameState(t, fmt.Sprintf("flow %d, record %d", i, at), got.m.FullState(), want.m.FullState())
		}
		want.finish(t, record.NoTime)
		got.finish(t, record.NoTime)
		same(t, fmt.Sprintf("flow %d", i), got.rows, want.rows)
	}
}

// TestACutOfAnOpenIntervalOfAnOlderVersionIsRefused: its records were taken up, and cannot be revised.
func TestACutOfAnOpenIntervalOfAnOlderVersionIsRefused(t *testing.T) {
	t.Parallel()
	const grid = "lateness: 1s\nclock: {every: 1s}\noperators: [{name: l, type: last, input: x}]\noutputs: [l]\n"
	older, newer := planOf(t, grid), planOf(t, grid+"revision: rev\n")
	older.Fingerprint = newer.Fingerprint
	h := newHarness(older, 0)
	h.deliver(t, logOf(`{"id":"a","key":"k","at":1000,"x":1}`))
	h.cut(t)
	_, err := Restore(newer, 0, h.load)
	if !codes.Has(err, codes.RunMismatch) || !strings.Contains(err.Error(), "new run id") {
		t.Errorf("%v", err)
	}
}

// What is kept for revisions stays within the bound that is printed before a run, with the index, every record revised and every result published
// again, and with the delta of the cut.
func TestMemoryOfHistory(t *testing.T) {
	const keys, each = 4_000, 10
	plan := planOf(t, "dedupe: {horizon: 1h}\nrevision: rev\nrevisions: {horizon: 1h}\n"+emaFlow)
	bound := boundOf(t, plan, "kept for revisions")*keys*each + boundOf(t, plan, "keys")*keys + boundOf(t, plan, "event ids")*keys*each
	heap := func() int {
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return int(mem.HeapAlloc)
	}
	before := heap()
	m := New(plan, 0)
	var eff Effects
	next := int64(0)
	var batch record.Batch
	deliver := func(revision, count int) {
		batch.Records = batch.Records[:0]
		for i := range count {
			value := fmt.Appendf(nil, `{"id":"%064d","key":"%064d","at":%d,"x":%d,"rev":%d}`, i, i%keys, 1000+i, i*revision, revision)
			batch.Records = append(batch.Records, record.Record{Position: record.Offset(next), Arrival: record.NoTime, Value: value})
			next++
		}
		batch.Next = record.Offset(next)
		if err := m.Step(Deliver{Batch: &batch}, &eff); err != nil {
			t.Fatal(err)
		}
		eff = Effects{}
	}
	deliver(0, keys*each+1)
	deliver(1, keys*each)
	batch = record.Batch{}
	cut := m.Cut()
	if got := heap() - before; m.waiting.kept() != keys*each || len(m.waiting.numbers) != keys*each || got > bound {
		t.Errorf("%d bytes for %d records that are kept, the bound says %d", got, m.waiting.kept(), bound)
	} else {
		t.Logf("%d bytes a record, the bound says %d", got/keys/each, bound/keys/each)
	}
	runtime.KeepAlive(cut)
	runtime.KeepAlive(m)
}

// BenchmarkRevisions is BenchmarkMachine of a flow without revisions, of one that takes them in while an event waits, and of one that keeps ten seconds
// for them. None comes.
func BenchmarkRevisions(b *testing.B) {
	for _, c := range []struct{ name, text string }{{"none", ""}, {"waiting", "revision: rev\n"}, {"kept", "revision: rev\nrevisions: {horizon: 10s}\n"}} {
		b.Run(c.name, func(b *testing.B) {
			plan := parsePlan(b, fmt.Sprintf(benchFlow, "1m")+c.text)
			plan.Limits.IDs = 0
			benchMachine(b, New(plan, 0), benchTicks(300, 100))
		})
	}
}

// BenchmarkRevisionOfAHotKey is a revision of one of the last thousand of 100,000 kept records of one key.
func BenchmarkRevisionOfAHotKey(b *testing.B) {
	plan := planOf(b, "dedupe: {horizon: 1h}\nrevision: rev\nrevisions: {horizon: 1h}\n"+emaFlow)
	m := New(plan, 0)
	var eff Effects
	next := int64(0)
	send := func(at, revision int) {
		value := fmt.Appendf(nil, `{"id":"e%d","key":"k","at":%d,"x":%d,"rev":%d}`, at, at, at*revision%97, revision)
		batch := record.Batch{Next: record.Offset(next + 1), Records: []record.Record{{Position: record.Offset(next), Arrival: record.NoTime, Value: value}}}
		next++
		if err := m.Step(Deliver{Batch: &batch}, &eff); err != nil {
			b.Fatal(err)
		}
	}
	const kept = 100_000
	for i := range kept {
		send(1000+i, 0)
	}
	eff.Reset()
	rows := 0
	b.ResetTimer()
	for n := range b.N {
		send(1000+kept-2-n*7919%1000, 1+n)
		rows += eff.Rows.Count
		eff.Reset()
	}
	b.ReportMetric(float64(rows)/float64(b.N), "rows")
}
