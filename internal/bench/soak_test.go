package bench

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
)

// envSoak is how long the soak takes, in seconds.
const envSoak = "WEIR_BENCH_SOAK_SECONDS"

// soakFlow keeps some state of every kind and gives few results, so that the journal's file stays small.
const soakFlow = `
flow: weir/1
name: soak
select: {field: instrument, in: ["7", "8", "9", "10"]}
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 2s
dedupe: {horizon: 60s}
operators:
  - {name: ema12, type: ema, input: close, period: 12}
outputs: [ema12]
`

// sample is what the process holds at one moment, after a collection.
type sample struct {
	heap       uint64
	goroutines int
}

// BenchmarkSoak streams at full speed under a lease, with commits and everything, for a while (WEIR_BENCH_SOAK_SECONDS, 10 by default), and fails
// when the process grows: the memory that is live in the last fifth of the time may be at most a quarter (and 8 MiB) above that of the second fifth, and
// goroutines may not become more.
func BenchmarkSoak(b *testing.B) {
	plan, err := flow.Parse("soak.yaml", []byte(strings.TrimSpace(soakFlow)), nil)
	if err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "soak.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	ctx, stop := context.WithTimeout(b.Context(), time.Duration(setting(b, envSoak, 10))*time.Second)
	defer stop()
	var mu sync.Mutex
	var samples []sample
	var records, rows int64
	_, err = actors.Run(ctx, actors.Config{
		Plan: plan, Source: synthetic{1 << 50}, Journal: store, RunID: "soak", EpochEvery: 250 * time.Millisecond,
		Fencing: &actors.Fencing{Leases: store},
		OnProgress: func(p actors.Progress) {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, sample{m.HeapAlloc, runtime.NumGoroutine()})
			records, rows = p.Counts.Records, p.Counts.Outputs
		},
	})
	if !errors.Is(err, actors.ErrInterrupted) {
		b.Fatal(err)
	}
	if len(samples) < 10 || rows == 0 {
		b.Fatalf("%d commits with %d results are too few to tell", len(samples), rows)
	}
	fifth := len(samples) / 5
	early, late := typical(samples[fifth:2*fifth]), typical(samples[len(samples)-fifth:])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(early.heap)/(1<<20), "MiB-early")
	b.ReportMetric(float64(late.heap)/(1<<20), "MiB-late")
	b.ReportMetric(float64(late.goroutines), "goroutines")
	b.ReportMetric(float64(records), "records")
	if late.heap > early.heap+early.heap/4+8<<20 {
		b.Errorf("the heap has grown from %d to %d bytes over %d records", early.heap, late.heap, records)
	}
	if late.goroutines > early.goroutines+2 {
		b.Errorf("goroutines have grown from %d to %d", early.goroutines, late.goroutines)
	}
}

// typical is the median of samples, each figure by itself.
func typical(samples []sample) (m sample) {
	heaps, goroutines := make([]uint64, len(samples)), make([]int, len(samples))
	for i, s := range samples {
		heaps[i], goroutines[i] = s.heap, s.goroutines
	}
	slices.Sort(heaps)
	slices.Sort(goroutines)
	return sample{heaps[len(heaps)/2], goroutines[len(goroutines)/2]}
}
