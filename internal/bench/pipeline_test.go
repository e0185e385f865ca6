package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/partitions"
)

// outcome is what a pipeline made of the topic: it must be the same for all that compute.
type outcome struct {
	counts partitions.Counts
	// hash is that of all rows, partition by partition; "" for loops that make none.
	hash string
}

// stopwatch measures a pass from the moment the first records are in hand to the moment the last result stands.
type stopwatch struct {
	from      time.Time
	fromCPU   time.Duration
	before    runtime.MemStats
	wall, cpu time.Duration
	allocs    uint64
}

func (w *stopwatch) begin() {
	runtime.ReadMemStats(&w.before)
	w.from, w.fromCPU = time.Now(), cpuTime()
}

func (w *stopwatch) end() {
	w.wall, w.cpu = time.Since(w.from), cpuTime()-w.fromCPU
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	w.allocs = after.Mallocs - w.before.Mallocs
}

// loop is one contestant.
type loop struct {
	name string
	run  func(tb testing.TB, t topic, w *stopwatch) outcome
}

// The contestants. weir is compared with byHand and obvious, passThrough with bare.
const (
	bare = iota
	passThrough
	byHand
	weir
	obvious
)

var loops = [...]loop{
	bare:        {"bare-poll", runBare},
	passThrough: {"pass-through", runPassThrough},
	byHand:      {"by-hand", runHandPipeline},
	weir:        {"weir", runWeir},
	obvious:     {"obvious", runObvious},
}

// once runs a contestant in folders of its own, which are gone afterwards.
func once(b testing.TB, l loop, t topic) (stopwatch, outcome) {
	scope := &scope{TB: b}
	defer scope.close()
	runtime.GC()
	var w stopwatch
	out := l.run(scope, t, &w)
	if w.wall <= 0 || out.counts.Records != int64(t.records) {
		b.Fatalf("%s took %d of %d records in %s", l.name, out.counts.Records, t.records, w.wall)
	}
	return w, out
}

// BenchmarkPipeline runs the whole pipeline (decode, time, select, dedupe, order, EMA, a journal every second) from a broker in
// another process, as weir and as loops written by hand, in turns.
//
//	weir/hand, weir/obvious, pass/bare   throughput of the one over that of the other, by wall time
//	…-cpu                                the same by CPU time of this process
//	NAME-ns                              CPU nanoseconds a record
//
// Each is the median over the rounds.
func BenchmarkPipeline(b *testing.B) {
	t := loadTopic(b, setting(b, envRecords, defaultRecords))
	debug.FreeOSMemory() // the log is in the broker now
	report(b, t, inTurns(b, t, setting(b, envPairs, defaultPairs), bare, passThrough, byHand, weir, obvious))
}

// inTurns runs contestants in rounds, every other round backwards. All that compute have to compute the same.
func inTurns(b *testing.B, t topic, rounds int, order ...int) (passes [len(loops)][]stopwatch) {
	b.Helper()
	var want outcome
	for range rounds {
		for _, i := range order {
			w, got := once(b, loops[i], t)
			passes[i] = append(passes[i], w)
			if got.hash == "" {
				continue
			}
			if want.hash == "" {
				want = got
			}
			if got != want {
				b.Fatalf("%s computes something else: %+v, another %+v", loops[i].name, got, want)
			}
		}
		slices.Reverse(order)
	}
	return passes
}

func report(b *testing.B, t topic, passes [len(loops)][]stopwatch) {
	wall := func(w stopwatch) float64 { return float64(w.wall) }
	cpu := func(w stopwatch) float64 { return float64(w.cpu) }
	b.ReportMetric(0, "ns/op")
	for _, c := range []struct {
		name     string
		one, two int
	}{{"weir/hand", weir, byHand}, {"weir/obvious", weir, obvious}, {"pass/bare", passThrough, bare}} {
		if len(passes[c.one]) == 0 || len(passes[c.two]) == 0 {
			continue // not in this race
		}
		b.ReportMetric(speed(passes[c.one], passes[c.two], wall), c.name)
		b.ReportMetric(speed(passes[c.one], passes[c.two], cpu), c.name+"-cpu")
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%d records, %d rounds\n%-14s %12s %12s %12s %12s %12s", t.records, len(passes[0]), "", "records/s", "wall ns", "cpu ns", "cpu min", "allocs")
	for i, l := range loops {
		if len(passes[i]) == 0 {
			continue
		}
		per := func(f func(stopwatch) float64) []float64 {
			v := make([]float64, len(passes[i]))
			for k, w := range passes[i] {
				v[k] = f(w) / float64(t.records)
			}
			slices.Sort(v)
			return v
		}
		walls, cpus, allocs := per(wall), per(cpu), per(func(w stopwatch) float64 { return float64(w.allocs) })
		mid := len(walls) / 2
		fmt.Fprintf(&s, "\n%-14s %12.0f %12.0f %12.0f %12.0f %12.4f", l.name, 1e9/walls[mid], walls[mid], cpus[mid], cpus[0], allocs[mid])
		b.ReportMetric(cpus[mid], l.name+"-ns")
	}
	b.Log(s.String())
}

// speed is the median over the rounds of one's throughput over two's.
func speed(one, two []stopwatch, cost func(stopwatch) float64) float64 {
	v := make([]float64, len(one))
	for i := range one {
		v[i] = cost(two[i]) / cost(one[i])
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkPipelineAlone runs one contestant only, for profiles: -bench PipelineAlone/weir -cpuprofile cpu.prof.
func BenchmarkPipelineAlone(b *testing.B) {
	t := loadTopic(b, setting(b, envRecords, defaultRecords))
	debug.FreeOSMemory()
	for _, l := range loops {
		b.Run(l.name, func(b *testing.B) {
			var cpu time.Duration
			n := 0
			for b.Loop() {
				w, _ := once(b, l, t)
				cpu += w.cpu
				n += t.records
			}
			b.ReportMetric(float64(cpu)/float64(n), "cpu-ns/record")
		})
	}
}

// TestPipelinesAgree: all that compute make the same rows, or comparing their costs would mean nothing.
func TestPipelinesAgree(t *testing.T) {
	t.Parallel()
	topic := loadTopic(t, 20_000)
	var want outcome
	for _, l := range loops {
		_, got := once(t, l, topic)
		switch {
		case got.hash == "":
		case want.hash == "":
			want = got
		case got != want:
			t.Errorf("%s computes something else: %+v, another %+v", l.name, got, want)
		}
	}
	if c := want.counts; c.Outputs == 0 || c.Outputs != c.Consumed || c.Filtered == 0 || c.Duplicates == 0 || c.Late+c.Future+c.Omitted != 0 {
		t.Errorf("the topic is not what it was meant to be: %+v", c)
	}
}
