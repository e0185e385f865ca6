package sinktest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// Ticks are n plain rows of partition 0 from a number on, of a thousand keys and two outputs, for benchmarks.
func Ticks(from, n int64) sinks.Rows {
	r := sinks.Rows{From: from}
	for i := from; i < from+n; i++ {
		values := []operators.Value{operators.Number(float64(i) / 7), operators.Number(100 + float64(i%977)/8)}
		r.Append(record.EventTime(1_767_225_600_000_000_000+i*1_000_000), fmt.Appendf(nil, "tick-%010d", i), fmt.Appendf(nil, "instrument-%03d", i%1000), values)
	}
	return r
}

// Rounds are rows for the rounds of Compare, those of each following those of the one before.
func Rounds(rounds, n int64) []sinks.Rows {
	all := make([]sinks.Rows, rounds)
	for i := range all {
		all[i] = Ticks(int64(i)*n, n)
	}
	return all
}

// Compare publishes rows with a sink and writes the same with the bare client, in turns, and reports the median of the ratios of their speeds, the
// sink's rows a second, and its allocations a row. Both are given the round, so that they can write to a place of their own.
func Compare(b *testing.B, rounds int, rows int64, sink, bare func(round int)) {
	b.Helper()
	timed := func(f func(int), round int) time.Duration {
		runtime.GC()
		began := time.Now()
		f(round)
		return time.Since(began)
	}
	var ratios, speeds, allocs []float64
	for round := range rounds {
		var before, after runtime.MemStats
		order := []func(int){bare, sink}
		var took [2]time.Duration
		for i := range 2 {
			who := (i + round) % 2
			runtime.ReadMemStats(&before)
			took[who] = timed(order[who], round)
			runtime.ReadMemStats(&after)
			if who == 1 && round > 0 {
				allocs = append(allocs, float64(after.Mallocs-before.Mallocs)/float64(rows))
			}
		}
		if round > 0 { // the first warms up
			ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
			speeds = append(speeds, float64(rows)/took[1].Seconds())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "of-bare")
	b.ReportMetric(median(speeds), "rows/s")
	b.ReportMetric(median(allocs), "allocs/row")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
