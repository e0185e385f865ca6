package bench

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

const (
	// envRate is the number of records a second of BenchmarkLatency: about half of what two cores take.
	envRate     = "WEIR_BENCH_LATENCY_RATE"
	defaultRate = 250_000
	// envLatency is for how many seconds.
	envLatency = "WEIR_BENCH_LATENCY_SECONDS"
	pulse      = 5 * time.Millisecond
)

// paced is a source that gives so many records with every pulse, and notes when.
type paced struct {
	synthetic
	each int
	mu   *sync.Mutex
	// given are the moments at which batches were handed over, with the number of records up to and with each.
	given *[]delivery
}

type delivery struct {
	at    time.Time
	total int64
}

// Open implements sources.Source.
func (s paced) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.synthetic.Open(ctx, from)
	return &pacedReader{Reader: r, paced: s, next: time.Now()}, err
}

type pacedReader struct {
	sources.Reader
	paced
	next  time.Time
	left  int
	total int64
}

// Poll implements sources.Reader.
func (r *pacedReader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	for r.left <= 0 {
		timer := time.NewTimer(time.Until(r.next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		r.next, r.left = r.next.Add(pulse), r.left+r.each
	}
	batches, err := r.Reader.Poll(ctx, min(limit, r.left))
	n := 0
	for i := range batches {
		n += len(batches[i].Records)
	}
	r.left -= n
	r.total += int64(n)
	r.mu.Lock()
	*r.given = append(*r.given, delivery{time.Now(), r.total})
	r.mu.Unlock()
	return batches, err
}

// BenchmarkLatency gives a stream on SQLite about half of what it could take, with epochs of 100 ms, and reports how long it takes from the moment at
// which a record is there to that at which its results are committed.
//
//	p50-ms, p99-ms, max-ms   over all records; the commit interval is part of it
//	over-ms                  what p99 is above the commit interval; wanted at most 50 on a quiet machine
func BenchmarkLatency(b *testing.B) {
	const epoch = 100 * time.Millisecond
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "latency.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	ctx, stop := context.WithTimeout(b.Context(), time.Duration(setting(b, envLatency, 10))*time.Second)
	defer stop()
	var mu sync.Mutex
	var given []delivery
	var latencies []time.Duration
	rate := setting(b, envRate, defaultRate)
	_, err = actors.Run(ctx, actors.Config{
		Plan: tickPlan(b), Journal: store, RunID: "latency", EpochEvery: epoch, Fencing: &actors.Fencing{Leases: store},
		Source: paced{synthetic{1 << 50}, rate * int(pulse/time.Millisecond) / 1000, &mu, &given},
		OnProgress: func(p actors.Progress) {
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			for len(given) > 0 && given[0].total <= p.Counts.Records {
				latencies = append(latencies, now.Sub(given[0].at))
				given = given[1:]
			}
		},
	})
	if !errors.Is(err, actors.ErrInterrupted) || len(latencies) < 100 {
		b.Fatalf("%d batches, %v", len(latencies), err)
	}
	slices.Sort(latencies)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	p99 := latencies[len(latencies)*99/100]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(latencies[len(latencies)/2]), "p50-ms")
	b.ReportMetric(ms(p99), "p99-ms")
	b.ReportMetric(ms(latencies[len(latencies)-1]), "max-ms")
	b.ReportMetric(ms(p99-epoch), "over-ms")
}
