//go:build unix

package kafka_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
)

const (
	benchPartitions = 4
	benchRecords    = 400_000
	benchPairs      = 9
)

// BenchmarkPoll reads a topic of ticks of 132 bytes, from a broker in another process, by three loops: the bare client, the bare client with
// pooled memory, and the Reader, which also turns every record into weir's and gives it back. It reports the CPU time of this process
// per record and the ratio of the Reader to each bare loop: the medians of interleaved rounds in one run, since only ratios within a
// run mean something on a shared machine.
func BenchmarkPoll(b *testing.B) {
	for codec, compression := range map[string]kgo.CompressionCodec{"plain": kgo.NoCompression(), "lz4": kgo.Lz4Compression()} {
		b.Run(codec, func(b *testing.B) {
			broker := child.Start(b, devbroker.Config{Partitions: benchPartitions, Topics: []string{"ticks"}})
			publishTicks(b, broker.Addr(), compression)
			loops := []struct {
				name string
				run  func(testing.TB, string) int
			}{
				{"bare", func(tb testing.TB, addr string) int { return bareLoop(tb, addr) }},
				{"pooled", func(tb testing.TB, addr string) int { return bareLoop(tb, addr, kgo.WithPools(newBarePools())) }},
				{"reader", readerLoop},
			}
			for b.Loop() {
				ns := make([][]float64, len(loops))
				var allocs [3]float64
				for range benchPairs {
					for i, loop := range loops {
						cpu, mallocs := measure(func() {
							if n := loop.run(b, broker.Addr()); n != benchRecords {
								b.Fatalf("%s read %d of %d records", loop.name, n, benchRecords)
							}
						})
						ns[i] = append(ns[i], cpu/benchRecords)
						allocs[i] = mallocs / benchRecords
					}
				}
				for i, loop := range loops {
					b.ReportMetric(median(ns[i]), loop.name+"-ns/record")
					b.ReportMetric(slices.Min(ns[i]), loop.name+"-min-ns/record")
					b.ReportMetric(allocs[i], loop.name+"-allocs/record")
				}
				b.ReportMetric(median(ratios(ns[0], ns[2])), "x-of-bare")
				b.ReportMetric(median(ratios(ns[1], ns[2])), "x-of-pooled")
			}
		})
	}
}

// ratios are the speeds of the second loop in units of the first, round by round.
func ratios(first, second []float64) []float64 {
	r := make([]float64, len(first))
	for i := range first {
		r[i] = first[i] / second[i]
	}
	return r
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// measure returns the CPU time of this process in nanoseconds, and how often it allocated.
func measure(fn func()) (cpu, mallocs float64) {
	runtime.GC()
	var before, after runtime.MemStats
	var from, to syscall.Rusage
	runtime.ReadMemStats(&before)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &from)
	fn()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &to)
	runtime.ReadMemStats(&after)
	nanos := func(u syscall.Rusage) float64 { return float64(u.Utime.Nano() + u.Stime.Nano()) }
	return nanos(to) - nanos(from), float64(after.Mallocs - before.Mallocs)
}

func publishTicks(tb testing.TB, addr string, compression kgo.CompressionCodec) {
	tb.Helper()
	cl := client(tb, addr, kgo.ProducerBatchCompression(compression), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	var failed error
	var mu sync.Mutex
	for i := range benchRecords {
		value := fmt.Appendf(nil, `{"instrument":"%02d","event_id":"tick.%012d","event_time":"2026-01-05T14:30:00.%06dZ","close":%08.3f,"volume":%06d}`,
			i%64, i, i%1_000_000, float64(i%100_000)/7, i%1000)
		cl.Produce(context.Background(), &kgo.Record{Topic: "ticks", Partition: int32(i % benchPartitions), Key: value[15:17], Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	if err := cl.Flush(context.Background()); err != nil {
		tb.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil {
		tb.Fatal(failed)
	}
}

var consumed int

// bareLoop is what one would write by hand against the client, with the fetch sizes of the Reader.
func bareLoop(tb testing.TB, addr string, opts ...kgo.Opt) int {
	from := map[int32]kgo.Offset{}
	for p := range int32(benchPartitions) {
		from[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"ticks": from}),
		kgo.FetchMaxBytes(4<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.MaxConcurrentFetches(2))...)
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	n := 0
	for n < benchRecords {
		fetches := cl.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			tb.Fatal(err)
		}
		for _, f := range fetches {
			for _, t := range f.Topics {
				for _, p := range t.Partitions {
					for _, r := range p.Records {
						consumed += len(r.Key) + len(r.Value) + int(r.Offset)
						r.Recycle()
						n++
					}
				}
			}
		}
	}
	return n
}

func readerLoop(tb testing.TB, addr string) int {
	s, err := kafka.New(kafka.Config{Brokers: []string{addr}, Topic: "ticks"})
	if err != nil {
		tb.Fatal(err)
	}
	from := map[int32]record.Position{}
	for p := range int32(benchPartitions) {
		from[p] = record.Position{}
	}
	r, err := s.Open(context.Background(), from)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	n := 0
	for n < benchRecords {
		batches, err := r.Poll(context.Background(), 1024)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range batches {
			for j := range batches[i].Records {
				rec := &batches[i].Records[j]
				o, _ := rec.Position.Int64()
				consumed += len(rec.Key) + len(rec.Value) + int(o)
				n++
			}
			batches[i].Done()
		}
	}
	return n
}

// barePools is the simplest pool of fetch memory.
type barePools struct{ records, bytes sync.Pool }

func newBarePools() *barePools { return &barePools{} }

func (p *barePools) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return *s
	}
	return make([]kgo.Record, n)
}

func (p *barePools) PutRecords(s []kgo.Record) { p.records.Put(&s) }

func (p *barePools) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, 0, min(4*len(compressed), math.MaxInt32))
}

func (p *barePools) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }
