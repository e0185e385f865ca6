package bench

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// pairs is how often each contestant runs; the medians are of that many pairs.
const pairs = 11

// contestant is one way to do the work. run does it once and returns the number of records that the measured part of it took;
// start is called where that part begins, so that a pass can warm up first.
type contestant struct {
	name string
	run  func(start func()) (records int)
}

// cost is what a record cost in one pass.
type cost struct {
	cpu    time.Duration
	allocs float64
	perRec float64
}

// compare runs the contestants in turns and returns the costs of each, pass by pass. The order alternates, so that neither is always
// the one that follows the other's garbage.
func compare(b *testing.B, all ...contestant) [][]cost {
	b.Helper()
	costs := make([][]cost, len(all))
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	for range pairs {
		for _, i := range order {
			costs[i] = append(costs[i], measure(all[i]))
		}
		slices.Reverse(order)
	}
	return costs
}

func measure(c contestant) cost {
	runtime.GC()
	var before, after runtime.MemStats
	var from time.Duration
	n := c.run(func() {
		runtime.ReadMemStats(&before)
		from = cpuTime()
	})
	spent := cpuTime() - from
	runtime.ReadMemStats(&after)
	return cost{
		cpu:    spent,
		allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		perRec: float64(spent.Nanoseconds()) / float64(n),
	}
}

// median of a figure of each pass.
func median(costs []cost, figure func(cost) float64) float64 {
	v := make([]float64, len(costs))
	for i, c := range costs {
		v[i] = figure(c)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func nsPerRecord(c cost) float64     { return c.perRec }
func allocsPerRecord(c cost) float64 { return c.allocs }

// ratio is the median over the pairs of a's CPU time over b's.
func ratio(a, b []cost) float64 {
	v := make([]float64, len(a))
	for i := range a {
		v[i] = a[i].perRec / b[i].perRec
	}
	slices.Sort(v)
	return v[len(v)/2]
}
