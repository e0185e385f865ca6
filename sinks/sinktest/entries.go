package sinktest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// RunEntries checks a sink whose target takes late events (sinks.Target.Entries): each is there once where the sink promises Once, as it was, whoever was killed
// in between. Seen gives what stands, with the number of the entry as Number.
func RunEntries(t *testing.T, open func(t testing.TB) Place) {
	t.Parallel()
	p := open(t)
	count := &steps{at: -1}
	entries(t, p, 0, 1, count.hook)
	for k := 1; k <= count.calls; k++ {
		base, token := int64(6*k), uint64(10*k)
		s := &steps{at: k, do: func(string) error { return errKilled }}
		w, err := p.Sink(s.hook).Open(t.Context(), entriesTarget(token))
		if err == nil {
			err = w.Publish(t.Context(), []sinks.Rows{lateBatch(base, base+6)})
			mustClose(t, w)
		}
		if err == nil && s.done {
			t.Errorf("killed at step %d: no error", k)
		}
		drive(t, p.Sink(nil), entriesTarget(token+1), []sinks.Rows{lateBatch(base-2, base+6)})
		expectEntries(t, p, fmt.Sprintf("killed at step %d", k), base+6)
	}
}

func entries(t testing.TB, p Place, from int64, token uint64, hook func(string) error) {
	t.Helper()
	w := mustOpen(t, p.Sink(hook), entriesTarget(token))
	mustPublish(t, w, lateBatch(from, from+6))
	mustClose(t, w)
	expectEntries(t, p, "published", from+6)
}

func entriesTarget(token uint64) sinks.Target {
	return sinks.Target{RunID: runID, Partitions: []int32{0}, Token: token, Entries: true}
}

// lateEvent is entry number of partition 0.
func lateEvent(number int64) partitions.Quarantined {
	q := partitions.Quarantined{
		Position: record.Offset(100 + number), Reason: partitions.ReasonLate, EventID: fmt.Sprintf("e\"%d", number), EventTime: record.EventTime(number * int64(time.Second)), Arrival: record.NoTime,
		Key: []byte("k"), Value: []byte(`{"x":"Ærø"}`), Headers: []record.Header{{Key: "h", Value: []byte{byte(number), 0xff}}, {Key: "none"}},
		Detail: "event time is 2s older than the watermark 2026-01-02T03:04:05Z, which the record at 17 holds, with the event time 2026-01-02T03:04:07.5Z",
	}
	if number%3 == 0 {
		q.Value, q.Headers, q.Key = []byte{0xff, byte(number)}, nil, nil
	}
	return q
}

func lateBatch(from, to int64) sinks.Rows {
	e := sinks.NewEntries(runID, 0, from)
	for n := from; n < to; n++ {
		q := lateEvent(n)
		e.Add(&q)
	}
	return e.Rows
}

// expectEntries compares what is seen with the first entries.
func expectEntries(t testing.TB, p Place, when string, n int64) {
	t.Helper()
	f := p.Sink(nil).Features()
	var texts, want []string
	for _, s := range p.Seen(t, runID) {
		texts = append(texts, s.Text)
	}
	batch := lateBatch(0, n)
	err := batch.Each(0, nil, func(_ int64, row *partitions.Row) error {
		want = append(want, string(row.ID))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(texts)
	slices.Sort(want)
	if !f.Once {
		texts = slices.Compact(texts)
	}
	if !slices.Equal(texts, want) {
		t.Fatalf("%s: %d entries are seen, want %d, or they are others: %.400q", when, len(texts), len(want), texts)
	}
}
