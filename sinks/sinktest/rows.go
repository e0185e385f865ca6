package sinktest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// RunID is the run whose rows most checks publish.
const RunID = "run/1 of a test"

const runID = RunID

// Row is row number of a partition as every check gives it. Odd is for texts that not every format takes as they are.
func Row(partition int32, number int64, odd bool) partitions.Row {
	rng := rand.New(rand.NewPCG(uint64(partition), uint64(number)))
	row := partitions.Row{
		Time: record.EventTime(1_767_225_600_000_000_000 + number*1_000_000_007), ID: fmt.Appendf(nil, "e-%d-%d", partition, number),
		Key: fmt.Appendf(nil, "key %d", rng.IntN(5)),
	}
	plain := []string{`quote " and \`, "comma, semicolon; tab\t", "Ærø \u202e 𝄞", "line\nand\r\nline", "", "=1+1", `\N`, `\.`}
	if rng.IntN(4) == 0 {
		row.Key = []byte(plain[rng.IntN(len(plain))])
	}
	if odd && rng.IntN(4) == 0 {
		row.Key = [][]byte{{0}, {0xff, 0xfe}, []byte("a\x00b"), []byte("\x1b[31m")}[rng.IntN(4)]
	}
	floats := []float64{0, math.Copysign(0, -1), 1.5, math.MaxFloat64, math.SmallestNonzeroFloat64, -1e-300, 1 << 53, 0.1}
	row.Values = []operators.Value{operators.Number(floats[rng.IntN(len(floats))]), operators.Number(rng.NormFloat64())}
	if rng.IntN(3) == 0 {
		row.Values[0] = operators.Gap
	}
	return row
}

// Batch is the rows of a partition from one number to another.
func (p Place) batch(partition int32, from, to int64) sinks.Rows {
	b := sinks.Rows{Partition: partition, From: from}
	for n := from; n < to; n++ {
		row := Row(partition, n, !p.PlainText)
		b.Append(row.Time, row.ID, row.Key, row.Values)
	}
	return b
}

// split deals rows into pieces of other sizes.
func (p Place) split(partition int32, from, to int64, rng *rand.Rand) []sinks.Rows {
	var out []sinks.Rows
	for from < to {
		end := min(to, from+1+rng.Int64N(9))
		out = append(out, p.batch(partition, from, end))
		from = end
	}
	return out
}

func target(token uint64, parts ...int32) sinks.Target {
	return sinks.Target{RunID: runID, Outputs: Outputs, Partitions: parts, Token: token}
}

func mustOpen(t testing.TB, s sinks.Sink, target sinks.Target) sinks.Writer {
	t.Helper()
	w, err := s.Open(t.Context(), target)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return w
}

func mustPublish(t testing.TB, w sinks.Writer, batches ...sinks.Rows) {
	t.Helper()
	if err := w.Publish(t.Context(), batches); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

func mustClose(t testing.TB, w sinks.Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// drive publishes as a driver does: after an error to be retried it opens anew and gives everything again.
func drive(t testing.TB, s sinks.Sink, to sinks.Target, batches []sinks.Rows) {
	t.Helper()
	var err error
	for range 5 {
		w, openErr := s.Open(t.Context(), to)
		if err = openErr; err == nil {
			err = w.Publish(t.Context(), batches)
			mustClose(t, w)
		}
		if c := codes.Of(err); err == nil || c == nil || c.Verdict != codes.Retry {
			break
		}
	}
	if err != nil {
		t.Fatalf("token %d cannot publish: %v", to.Token, err)
	}
}

// expect compares what is seen with the rows 0 to ends[partition]. Where a sink does not promise Once, copies may stand, as the promises say.
func expect(t testing.TB, p Place, when string, ends map[int32]int64) {
	t.Helper()
	got := inspect(t, p, when, true)
	for partition, end := range ends {
		if n := got[partition]; n != end {
			t.Errorf("%s: partition %d shows %d rows, want %d", when, partition, n, end)
		}
	}
	for partition, n := range got {
		if _, wanted := ends[partition]; !wanted && n > 0 {
			t.Errorf("%s: partition %d shows %d rows, want none", when, partition, n)
		}
	}
}

// look checks that what is seen is the first rows of each partition, each as it was given, and says how many. Of a sink that promises no order, and that
// no row is there twice, some may be missing until they are given again.
func look(t testing.TB, p Place, when string) map[int32]int64 {
	t.Helper()
	f := p.Sink(nil).Features()
	return inspect(t, p, when, f.Once || f.AppendOnly)
}

func inspect(t testing.TB, p Place, when string, whole bool) map[int32]int64 {
	t.Helper()
	f := p.Sink(nil).Features()
	json := sinks.NewJSON(target(0))
	ends, seen := map[int32]int64{}, map[[2]int64]bool{}
	for _, s := range p.Seen(t, runID) {
		row := Row(s.Partition, s.Number, !p.PlainText)
		if want := string(json.Append(nil, s.Partition, s.Number, &row)); s.Text != want {
			t.Fatalf("%s: row %d of partition %d is\n%s\nwant\n%s", when, s.Number, s.Partition, s.Text, want)
		}
		key := [2]int64{int64(s.Partition), s.Number}
		switch {
		case seen[key] && f.Once:
			t.Fatalf("%s: row %d of partition %d is visible twice", when, s.Number, s.Partition)
		case seen[key]:
			continue
		case f.AppendOnly && s.Number != ends[s.Partition]:
			t.Fatalf("%s: row %d of partition %d comes where %d should", when, s.Number, s.Partition, ends[s.Partition])
		}
		seen[key] = true
		ends[s.Partition]++
	}
	for partition, end := range ends {
		for n := range end {
			if whole && !seen[[2]int64{int64(partition), n}] {
				t.Fatalf("%s: row %d of partition %d is missing below row %d", when, n, partition, end)
			}
		}
	}
	return ends
}
