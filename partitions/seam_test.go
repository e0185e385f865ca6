package partitions

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// historyOf is what a snapshot of a stretch of a log holds: each event once, as it came first, in (event time, event id) order, numbered on
// its own. What cannot be read is in no snapshot.
func historyOf(log []made) []record.Record {
	seen := map[string]bool{}
	var events []made
	for _, m := range log {
		if m.bad == "" && !seen[m.id] {
			seen[m.id] = true
			events = append(events, m)
		}
	}
	slices.SortFunc(events, func(a, b made) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	records := recordsOf(events)
	for i := range records {
		records[i].Position, records[i].Arrival = record.Offset(int64(i)), record.NoTime
	}
	return records
}

// backfill hands a history over in a batch whose memory is overwritten afterwards.
func (h *harness) backfill(t testing.TB, records []record.Record) {
	t.Helper()
	b := &record.Batch{Partition: h.partition, Records: make([]record.Record, len(records))}
	for i, r := range records {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		b.Records[i], b.Next = r, r.Position.Next()
	}
	h.step(t, Backfill{Batch: b})
	for _, r := range b.Records {
		clear(r.Key)
		clear(r.Value)
	}
}

// crashInHistory restores from the last cut, as who takes the history in does.
func (h *harness) crashInHistory(t testing.TB) {
	t.Helper()
	m, err := RestoreHistory(h.plan, h.partition, h.load)
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, "restored within a history", m.FullState(), h.m.FullState())
	h.m = m
	h.eff.Reset()
}

// handOver takes a history in, in random batches with cuts and crashes, and puts the machine at the seam.
func handOver(t *testing.T, h *harness, history []record.Record, next record.Position, rng *rand.Rand) {
	t.Helper()
	h.step(t, BeginHistory{ID: "sha256:history", Next: next})
	for from := 0; from < len(history); {
		to := min(len(history), from+1+rng.IntN(150))
		h.backfill(t, history[from:to])
		from = to
		if h.m.Next() != next {
			t.Fatalf("a history moved the position to %s", h.m.Next())
		}
		if rng.IntN(3) > 0 {
			continue
		}
		h.cut(t)
		h.crashInHistory(t)
		if _, err := Restore(h.plan, h.partition, h.load); !codes.Has(err, codes.HandoverUnfinished) {
			t.Fatalf("a history of which a part was taken in can be continued by the log: %v", err)
		}
	}
	before, w := h.m.Counts(), h.m.Watermark()
	h.step(t, Seam{Next: next})
	if h.m.Next() != next || h.m.Counts() != before || h.m.Watermark() != w {
		t.Fatalf("the seam at %s left %s, %s, %+v; before it were %s, %+v", next, h.m.Next(), h.m.Watermark(), h.m.Counts(), w, before)
	}
	h.cutAndCrash(t)
	if _, left := h.stand[HistoryBlob]; left {
		t.Fatal("the history still stands after its seam")
	}
}

// calm are logs in which nothing is late, lost, revised or ahead: lag stays within the lateness.
func calm(plan string, records int) logShape {
	s := logShape{records: records, keys: 6, step: 2, lag: 40, duplicates: 9, bad: 40, gaps: 20, sequence: true}
	if strings.Contains(plan, "sequence") {
		s.bad = 0 // a number that cannot be read is a number lost
	}
	return s
}

// The property of a hand-over: for every split of a log, the history of what came before it, or a bit beyond it, continued by the stream
// from the split, gives what the whole stream gives, and what a batch over everything gives. What both have is skipped by its identity.
func TestHistoryAndStreamAreTheWholeStream(t *testing.T) {
	t.Parallel()
	for name, text := range flows {
		text = strings.Replace(text, "horizon: 0s", "horizon: 2s", 1)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 3; seed++ {
				rng := rand.New(rand.NewPCG(seed, 54))
				plan := planOf(t, text)
				log := generate(rng, calm(text, 700))
				whole := runWhole(t, plan, log, true)
				if c := whole.m.Counts(); c.Late+c.Future > 0 || c.Outputs == 0 {
					t.Fatalf("seed %d: the log is to be in order: %+v", seed, c)
				}
				batch := newHarness(plan, 0)
				handOver(t, batch, historyOf(log), log[len(log)-1].Position.Next(), rng)
				batch.finish(t, record.NoTime)
				same(t, fmt.Sprintf("seed %d: batch alone", seed), batch.rows, whole.rows)

				splits := []int{0, 1, len(log) - 1, len(log)}
				for range 20 {
					splits = append(splits, rng.IntN(len(log)+1))
				}
				for _, split := range splits {
					splitRun(t, whole, log, split, min(len(log), split+rng.IntN(120)), rng)
				}
			}
		})
	}
}

// splitRun takes log[:known] in as a history and streams log[split:].
func splitRun(t *testing.T, whole *harness, log []made, split, known int, rng *rand.Rand) {
	t.Helper()
	where := fmt.Sprintf("split at %d, history up to %d", split, known)
	next := record.Position{}
	if split > 0 {
		next = log[split-1].Position.Next()
	}
	history := historyOf(log[:known])
	h := newHarness(whole.plan, 0)
	handOver(t, h, history, next, rng)
	for from := split; from < len(log); {
		to := min(len(log), from+1+rng.IntN(90))
		h.deliver(t, recordsOf(log[from:to]))
		from = to
		if rng.IntN(4) == 0 {
			h.cutAndCrash(t)
		}
	}
	h.finish(t, record.NoTime)
	same(t, where, h.rows, whole.rows)
	got, want := h.m.Counts(), whole.m.Counts()
	if got.Consumed != want.Consumed || got.Outputs != want.Outputs || got.Late+got.Future > 0 || got.Records != int64(len(history)+len(log)-split) {
		t.Fatalf("%s: %+v, the whole stream has %+v", where, got, want)
	}
	if want := repeated(whole.plan.SelectField, whole.plan.SelectValues, log, split, known); got.Duplicates != want {
		t.Fatalf("%s: %d duplicates were skipped, want %d", where, got.Duplicates, want)
	}
}

// repeated counts the selected events of log[split:] whose id came before, there or in the history log[:known].
func repeated(field string, values []string, log []made, split, known int) (n int64) {
	seen := map[string]bool{}
	each := func(part []made, again func()) {
		for _, m := range part {
			if m.bad != "" || field != "" && !slices.Contains(values, m.key) {
				continue
			}
			if seen[m.id] {
				again()
			}
			seen[m.id] = true
		}
	}
	each(log[:known], func() {})
	each(log[split:], func() { n++ })
	return n
}

// A history of more records than the log has positions, as of a topic that is younger than the data, and a log that begins at 0.
func TestAHistoryLongerThanItsLog(t *testing.T) {
	t.Parallel()
	plan := planOf(t, emaFlow)
	h := newHarness(plan, 0)
	var values []string
	for i := range 50 {
		values = append(values, fmt.Sprintf(`{"id":"e%02d","key":"k","at":%d,"x":%d}`, i, 1000+i, i))
	}
	history, log := logOf(values[:48]...), logOf(values[40:]...)
	handOver(t, h, history, record.Offset(0), rand.New(rand.NewPCG(1, 1)))
	h.deliver(t, log)
	h.finish(t, record.NoTime)
	if c := h.m.Counts(); c.Consumed != 50 || c.Duplicates != 8 || len(h.rows) != 50 || h.m.Next() != record.Offset(10) {
		t.Errorf("%+v, %d rows, next %s", c, len(h.rows), h.m.Next())
	}
}

// Lateness after the seam is judged by the watermark of the history, with a restart at the seam and without.
func TestLateAfterTheSeam(t *testing.T) {
	t.Parallel()
	plan := planOf(t, "lateness: 30ms\n"+emaFlow)
	for _, restart := range []bool{false, true} {
		h := newHarness(plan, 0)
		h.step(t, BeginHistory{ID: "h", Next: record.Offset(7)})
		h.backfill(t, logOf(`{"id":"a","key":"k","at":40,"x":1}`, `{"id":"b","key":"k","at":100,"x":1}`))
		h.step(t, Seam{Next: record.Offset(7)})
		if restart {
			h.cutAndCrash(t)
		}
		log := logOf(`{"id":"c","key":"k","at":69,"x":1}`, `{"id":"d","key":"k","at":70,"x":1}`)
		for i := range log {
			log[i].Position = record.Offset(int64(7 + i))
		}
		h.deliver(t, log)
		if c := h.m.Counts(); c.Late != 1 || c.Consumed != 3 {
			t.Errorf("restart %v: %+v", restart, c)
		}
	}
}

// A position may be moved on by a seam at any time while the partition is open, and by nothing else.
func TestTheProtocolOfASeam(t *testing.T) {
	t.Parallel()
	plan := planOf(t, emaFlow)
	one := logOf(`{"id":"a","key":"k","at":40,"x":1}`)
	batch := &record.Batch{Records: one, Next: record.Offset(1)}
	begin := BeginHistory{ID: "h", Next: record.Offset(5)}
	for name, c := range map[string]struct {
		events []Event
		want   string // of the last event; "" when it is fine
	}{
		"a jump ahead":                   {[]Event{Deliver{batch}, Seam{record.Offset(9)}}, ""},
		"back":                           {[]Event{Seam{record.Offset(9)}, Seam{record.Offset(8)}}, "stands at 9"},
		"back from a history":            {[]Event{begin, Seam{record.Offset(4)}}, "stands at 5"},
		"ahead of what a history said":   {[]Event{begin, Seam{record.Offset(6)}}, ""},
		"after the end":                  {[]Event{EndOfSource{}, Seam{record.Offset(9)}}, "after the end"},
		"a history after the log":        {[]Event{Deliver{batch}, begin}, "before everything else"},
		"a history after a seam":         {[]Event{Seam{record.Offset(1)}, begin}, "before everything else"},
		"a history twice":                {[]Event{begin, begin}, "while a history"},
		"a history without a name":       {[]Event{BeginHistory{}}, "no id"},
		"a history after the end":        {[]Event{EndOfSource{}, begin}, "after the end"},
		"records without a history":      {[]Event{Backfill{batch}}, "has not begun"},
		"the log within a history":       {[]Event{begin, Deliver{batch}}, "while a history"},
		"the end within a history":       {[]Event{begin, EndOfSource{}}, "while a history"},
		"a poll within a history":        {[]Event{begin, EmptyPoll{}}, "while a history"},
		"records after the history":      {[]Event{begin, Seam{record.Offset(5)}, Backfill{batch}}, "has not begun"},
		"the log before the seam's next": {[]Event{begin, Seam{record.Offset(5)}, Deliver{batch}}, "was delivered after 5"},
	} {
		m := New(plan, 0)
		var err error
		for i, ev := range c.events {
			if err = m.Step(ev, &Effects{}); err != nil && i < len(c.events)-1 {
				t.Fatalf("%s: event %d: %v", name, i, err)
			}
		}
		if c.want == "" && err != nil || c.want != "" && (!codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A decision tells of the history that it ended, whatever its id, and a jump tells of none.
func TestHistoryOf(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"sha256:ab", "a b", " the log is read on at 5", " records of the history ", "%d"} {
		m, eff := New(planOf(t, emaFlow), 0), &Effects{}
		batch := &record.Batch{Records: logOf(`{"id":"a","key":"k","at":40,"x":1}`), Next: record.Offset(1)}
		for _, ev := range []Event{BeginHistory{ID: id, Next: record.Offset(5)}, Backfill{batch}, Seam{record.Offset(5)}, Seam{record.Offset(9)}} {
			if err := m.Step(ev, eff); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []bool{false, true, false} {
			if got, records, ok := HistoryOf(eff.Decisions[i]); ok != want || ok && (got != id || records != 1) {
				t.Errorf("%+v is of the history %q with %d records, %v", eff.Decisions[i], got, records, ok)
			}
		}
	}
}

// The blob of an open history is checked as every other: damaged, twice, or missing is damage and never a fresh start.
func TestADamagedHistory(t *testing.T) {
	t.Parallel()
	plan := planOf(t, emaFlow)
	h := newHarness(plan, 0)
	h.step(t, BeginHistory{ID: "h", Next: record.Offset(5)})
	h.cut(t)
	restore := func(blobs ...StateBlob) error {
		_, err := RestoreHistory(plan, 0, func(yield func(StateBlob) error) error {
			for _, b := range blobs {
				if err := yield(b); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	core, history := StateBlob{coreName, h.stand[coreName]}, StateBlob{HistoryBlob, h.stand[HistoryBlob]}
	if err := restore(core, history); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(history.Data)
	flipped[2] ^= 1
	for name, blobs := range map[string][]StateBlob{
		"missing": {core},
		"twice":   {core, history, history},
		"flipped": {core, {HistoryBlob, flipped}},
		"short":   {core, {HistoryBlob, history.Data[:3]}},
	} {
		if err := restore(blobs...); !codes.Has(err, codes.JournalCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.try(t, Seam{Next: record.Offset(5)}); err != nil || h.m.History() != "" {
		t.Errorf("%v, history %q", err, h.m.History())
	}
	if _, err := Restore(plan, 0, func(func(StateBlob) error) error { return errors.New("unreadable") }); err == nil || err.Error() != "unreadable" {
		t.Errorf("the error of the journal became %v", err)
	}
}
