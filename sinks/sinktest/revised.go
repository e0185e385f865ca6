package sinktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// RevisedOutputs are the columns of the rows of RunRevised.
var RevisedOutputs = []string{"close", "revision"}

// RunRevised checks a sink whose target takes revisions (sinks.Target.Revised): of the rows with one key and time, a reader who takes the one with the highest
// revision gets the right one, whatever was killed in between and given again. replaces says that such a reader finds no other. Seen gives what stands, in any
// order.
func RunRevised(t *testing.T, replaces bool, open func(t testing.TB) Place) {
	for _, c := range []struct {
		name string
		run  func(t testing.TB, p Place, replaces bool)
	}{{"Revisions", revisions}, {"RevisionsKilled", revisionsKilled}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t), replaces)
		})
	}
}

// revisedRow is row number of partition 0: five keys, times that come again, and revisions that go up, stay, and go down.
func revisedRow(number int64) partitions.Row {
	return partitions.Row{
		Time: record.EventTime(1_767_225_600_000_000_000 + number/5%4*1_000_000_000), ID: fmt.Appendf(nil, "e%d", number),
		Key:    []byte{"abcde"[number%5]},
		Values: []operators.Value{operators.Number(float64(number) / 8), operators.Number(float64((number*7 + number/20) % 6))},
	}
}

func revisedBatch(from, to int64) sinks.Rows {
	b := sinks.Rows{From: from}
	for n := from; n < to; n++ {
		row := revisedRow(n)
		b.Append(row.Time, row.ID, row.Key, row.Values)
	}
	return b
}

func revisedTarget(token uint64) sinks.Target {
	return sinks.Target{RunID: runID, Outputs: RevisedOutputs, Partitions: []int32{0}, Token: token, Revised: true}
}

// identity is what a revision revises.
type identity struct {
	key  string
	time string
}

// best is the highest revision of each among the first rows, and of equal ones the first.
func best(rows int64) map[identity]string {
	enc := sinks.NewJSON(revisedTarget(0))
	out, highest := map[identity]string{}, map[identity]float64{}
	for n := range rows {
		row := revisedRow(n)
		id := identity{string(row.Key), string(record.AppendTime(nil, row.Time))}
		if at, known := highest[id]; !known || row.Values[1].F > at {
			highest[id], out[id] = row.Values[1].F, string(enc.Append(nil, 0, n, &row))
		}
	}
	return out
}

// expectRevised compares what a reader takes for the truth with the rows so far.
func expectRevised(t testing.TB, p Place, replaces bool, when string, rows int64) {
	t.Helper()
	got, highest, first := map[identity]string{}, map[identity]float64{}, map[identity]int64{}
	for _, s := range p.Seen(t, runID) {
		var row struct {
			Key, Time string
			Values    struct{ Revision float64 }
		}
		if err := json.Unmarshal([]byte(s.Text), &row); err != nil {
			t.Fatalf("%s: %v: %s", when, err, s.Text)
		}
		id := identity{row.Key, row.Time}
		at, known := highest[id]
		if known && replaces {
			t.Fatalf("%s: two rows of key %s and time %s stand", when, id.key, id.time)
		}
		if !known || row.Values.Revision > at || row.Values.Revision == at && s.Number < first[id] {
			got[id], highest[id], first[id] = s.Text, row.Values.Revision, s.Number
		}
	}
	want := best(rows)
	for id, text := range want {
		if got[id] != text {
			t.Fatalf("%s: of key %s and time %s, what counts is\n%s\nwant\n%s", when, id.key, id.time, got[id], text)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d keys and times are seen, want %d", when, len(got), len(want))
	}
}

// revisions: a higher one replaces, an equal one changes nothing, and a lower one is left out, within one call and over several.
func revisions(t testing.TB, p Place, replaces bool) {
	for round, cut := range []int64{3, 40, 41, 100} {
		w := mustOpen(t, p.Sink(nil), revisedTarget(uint64(round+1)))
		from := w.Published()[0]
		mustPublish(t, w, revisedBatch(from, cut))
		mustClose(t, w)
		expectRevised(t, p, replaces, fmt.Sprintf("up to row %d", cut), cut)
	}
}

// revisionsKilled: whoever dies between two steps, what counts is right once the heir has given everything again.
func revisionsKilled(t testing.TB, p Place, replaces bool) {
	count := &steps{}
	w := mustOpen(t, p.Sink(count.hook), revisedTarget(1))
	mustPublish(t, w, revisedBatch(0, 12))
	mustClose(t, w)
	for k := 1; k <= count.calls; k++ {
		base, token := int64(12*k), uint64(10*k)
		var where string
		s := &steps{at: k, do: func(step string) error { where = step; return errKilled }}
		w, err := p.Sink(s.hook).Open(t.Context(), revisedTarget(token))
		if err == nil {
			err = errors.Join(w.Publish(t.Context(), []sinks.Rows{revisedBatch(base, base+12)}), w.Close())
		}
		if err == nil && s.done {
			t.Errorf("killed at step %d (%s): no error", k, where)
		}
		drive(t, p.Sink(nil), revisedTarget(token+1), []sinks.Rows{revisedBatch(base-5, base+12)})
		expectRevised(t, p, replaces, fmt.Sprintf("killed at step %d (%s)", k, where), base+12)
	}
}
