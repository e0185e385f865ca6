package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
)

// What the stream of BenchmarkMemory is held against, in MiB, and the longest a step may take.
const (
	memoryLimit = 256
	idsLimit    = 40
	stallLimit  = 50 * time.Millisecond
)

// memoryFlow keeps a million ids alive: 1,000 events a second of event time over all partitions, remembered for 1,000 seconds.
const memoryFlow = `
flow: weir/1
name: million-ids
select: {field: venue, equals: XNAS}
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 2s
dedupe: {horizon: 1000s}
operators:
  - {name: ema12, type: ema, input: close, period: 12}
outputs: [ema12]
limits: {ids: 300000, keys: 1000, reorder: 10000}
`

func memoryPlan() (*flow.Plan, error) {
	return flow.Parse("million-ids.yaml", []byte(strings.TrimSpace(memoryFlow)), nil)
}

// memoryReport is what the child process says of itself. Durations are nanoseconds.
type memoryReport struct {
	Error string
	// PeakBytes is the greatest resident size of the process (VmHWM); 0 where the system does not tell.
	PeakBytes int64
	// Stall is the longest step of a machine by wall time, Work by CPU time. Slow of all Steps took more than stallLimit by wall time.
	Stall, Work, Wall time.Duration
	Slow, Steps       int
	// Spin is the longest of as many pure computations in as many goroutines, each about as long as a step, by wall time.
	Spin                         time.Duration
	Records, Outputs, Duplicates int64
}

// envMemory makes this binary the child: the folder of its journal and the number of records.
const envMemory = "WEIR_BENCH_MEMORY_CHILD"

// memoryChild runs the stream and exits when this process was started for it; else it returns at once.
func memoryChild() {
	spec, ok := os.LookupEnv(envMemory)
	if !ok {
		return
	}
	n, dir, _ := strings.Cut(spec, ":")
	records, err := strconv.Atoi(n)
	var r memoryReport
	if err == nil {
		r, err = memoryStream(dir, records)
	}
	if err != nil {
		r.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func memoryStream(dir string, records int) (r memoryReport, err error) {
	plan, err := memoryPlan()
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	journal, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "journal.db")})
	if err != nil {
		return r, err
	}
	var steps stepTimes
	from := time.Now()
	result, err := actors.Run(ctx, actors.Config{
		Plan: plan, Source: synthetic{records: int64(records)}, Journal: journal, RunID: "memory", MaxRecords: int64(records),
		Hooks: actors.Hooks{At: steps.at},
	})
	if err != nil {
		return r, err
	}
	r.Wall = time.Since(from)
	for _, m := range steps {
		r.Stall, r.Work, r.Slow, r.Steps = max(r.Stall, m.wall), max(r.Work, m.cpu), r.Slow+m.slow, r.Steps+m.n
	}
	r.Records, r.Outputs, r.Duplicates = result.Counts.Records, result.Counts.Outputs, result.Counts.Duplicates
	if r.PeakBytes, err = peakResident(); err != nil {
		return r, err
	}
	r.Spin = longestSpin(r.Steps)
	return r, journal.Close()
}

// stepTimes times the steps of the machines, each of which is stepped by one goroutine at a time. A step stays on its thread meanwhile,
// so that the CPU time of the thread is its own.
type stepTimes [topicPartitions]struct {
	from      time.Time
	fromCPU   time.Duration
	wall, cpu time.Duration
	n, slow   int
}

func (s *stepTimes) at(_ context.Context, p actors.Point) error {
	switch m := &s[max(p.Partition, 0)]; p.Name {
	case actors.BeforeStep:
		runtime.LockOSThread()
		m.fromCPU = threadTime()
		m.from = time.Now()
	case actors.AfterStep:
		wall := time.Since(m.from)
		m.wall, m.cpu = max(m.wall, wall), max(m.cpu, threadTime()-m.fromCPU)
		m.n++
		if wall > stallLimit {
			m.slow++
		}
		runtime.UnlockOSThread()
	}
	return nil
}

// longestSpin does what no library can make slow, so that what a busy machine does to a step can be told from what weir does.
func longestSpin(n int) time.Duration {
	var all sync.WaitGroup
	var longest [topicPartitions]time.Duration
	var results [topicPartitions]uint64
	for g := range longest {
		all.Go(func() {
			for range n / topicPartitions {
				from := time.Now()
				for range 500_000 { // half a millisecond
					results[g] = results[g]*6364136223846793005 + 1
				}
				longest[g] = max(longest[g], time.Since(from))
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	return slices.Max(longest[:])
}

// peakResident reads VmHWM, which belongs to this program alone; the usage that the parent is told of includes what the process was
// before it became this program.
func peakResident() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(s.Text(), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("there is no VmHWM in /proc/self/status")
}

// BenchmarkMemory runs a long stream with a million living ids through the actors and the journal, in a process of its own.
//
//	peak-MiB     the greatest resident size of that process; at most 256 and at most bound-MiB
//	bound-MiB    what `weir plan` prints for the flow and its partitions
//	step-ms      the longest step of a machine by its own CPU time; at most 50
//	step-wall-ms the same by wall time: what other processes take from the machine meanwhile is in it
//	spin-wall-ms the longest of as many pure computations right afterwards: what is not weir's
func BenchmarkMemory(b *testing.B) {
	plan, err := memoryPlan()
	if err != nil {
		b.Fatal(err)
	}
	bound := plan.MemoryBound(topicPartitions).Total
	n := setting(b, envStream, defaultStream)
	r := runMemoryChild(b, n)
	if r.Records != int64(n) || r.Outputs+r.Duplicates != r.Records || r.Duplicates == 0 {
		b.Fatalf("the stream is not what it was meant to be: %+v", r)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(r.PeakBytes)/(1<<20), "peak-MiB")
	b.ReportMetric(float64(bound)/(1<<20), "bound-MiB")
	b.ReportMetric(float64(r.Work)/1e6, "step-ms")
	b.ReportMetric(float64(r.Stall)/1e6, "step-wall-ms")
	b.ReportMetric(float64(r.Spin)/1e6, "spin-wall-ms")
	b.ReportMetric(float64(r.Records)/r.Wall.Seconds(), "records/s")
	b.Logf("%d of %d steps took more than %s", r.Slow, r.Steps, stallLimit)
	if r.PeakBytes == 0 {
		b.Log("this system does not tell the peak of a process")
	}
	if n == defaultStream && r.PeakBytes > min(bound, memoryLimit<<20) {
		b.Errorf("the process took %d MiB, the limit is %d MiB and the bound of the plan %d MiB", r.PeakBytes>>20, memoryLimit, bound>>20)
	}
}

func runMemoryChild(b *testing.B, n int) (r memoryReport) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", envMemory, n, b.TempDir()))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil || r.Error != "" {
		b.Fatal(err, r.Error)
	}
	return r
}

// BenchmarkIDs measures what a million living ids take in a machine, while they come and go with event time.
//
//	MB/million-ids       memory that is live after a cut, the greatest of several; at most 40
func BenchmarkIDs(b *testing.B) {
	plan, err := memoryPlan()
	if err != nil {
		b.Fatal(err)
	}
	one := *plan // all in one partition
	one.Limits.IDs = 1_200_000
	few := one
	few.DedupeHorizon = time.Millisecond
	var worst float64
	most := 0
	with, without := heapOfMachine(b, &one), heapOfMachine(b, &few)
	for i := range with {
		if with[i].ids < 1_000_000 {
			continue
		}
		most = max(most, with[i].ids)
		worst = max(worst, float64(with[i].heap-without[i].heap)/float64(with[i].ids))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(worst, "MB/million-ids")
	b.ReportMetric(float64(most), "ids")
	if most == 0 {
		b.Fatal("there never were a million ids")
	}
	if worst > idsLimit {
		b.Errorf("a million ids take %.1f MB, the limit is %d", worst, idsLimit)
	}
}

type heapSample struct {
	ids  int
	heap int64
}

// heapOfMachine samples the live heap that a machine takes, after each of its cuts.
func heapOfMachine(b *testing.B, plan *flow.Plan) (samples []heapSample) {
	b.Helper()
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	gen := newGenerator(0, 1)
	var eff partitions.Effects
	before := live()
	m := partitions.New(plan, 0)
	const every, cuts = 100_000, 25
	for range cuts {
		for range every / machineBatch {
			batch := gen.batch(machineBatch)
			if err := m.Step(partitions.Deliver{Batch: &batch}, &eff); err != nil {
				b.Fatal(err)
			}
			batch.Done()
			eff.Reset()
		}
		m.Cut()
		eff = partitions.Effects{}
		samples = append(samples, heapSample{m.IDs(), live() - before})
	}
	runtime.KeepAlive(gen)
	return slices.Clip(samples)
}

// TestMemoryStream: the stream whose memory is measured is what the benchmark takes it for.
func TestMemoryStream(t *testing.T) {
	t.Parallel()
	const n = 40_000
	r, err := memoryStream(t.TempDir(), n)
	if err != nil {
		t.Fatal(err)
	}
	if r.Records != n || r.Duplicates < n/repeatEvery*9/10 || r.Outputs+r.Duplicates != n || r.Steps < n/1024 {
		t.Fatalf("%+v", r)
	}
}
