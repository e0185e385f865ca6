package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// watched is a source that tells when the first records are there.
type watched struct {
	sources.Source
	first func()
}

// Open implements sources.Source.
func (s watched) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return &watchedReader{Reader: r, first: s.first}, nil
}

type watchedReader struct {
	sources.Reader
	first func()
	seen  bool
}

// Poll implements sources.Reader.
func (r *watchedReader) Poll(ctx context.Context, max int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, max)
	if !r.seen && len(batches) > 0 {
		r.seen = true
		r.first()
	}
	return batches, err
}

func topicSource(tb testing.TB, t topic) sources.Source {
	tb.Helper()
	s, err := kafka.New(kafka.Config{Brokers: []string{t.addr}, Topic: topicName})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// runWeir is weir as `weir run --once-n` wires it.
func runWeir(tb testing.TB, t topic, w *stopwatch) outcome {
	journal, err := sqlite.Open(tb.Context(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "journal.db")})
	if err != nil {
		tb.Fatal(err)
	}
	result, err := actors.Run(tb.Context(), actors.Config{
		Plan: tickPlan(tb), Source: watched{topicSource(tb, t), w.begin}, Journal: journal, RunID: "ticks",
		MaxRecords: int64(t.records), EpochEvery: commitEvery,
		OnProgress: func(p actors.Progress) {
			if p.Status == control.RunFinished {
				w.end() // the last commit stands, as where the other loops end
			}
		},
	})
	if err != nil || len(result.Failures) > 0 {
		tb.Fatal(err, result.Failures)
	}
	h := sha256.New()
	for p := range int32(topicPartitions) {
		err := journal.Outputs(tb.Context(), "ticks", p, func(rows partitions.Rows) error {
			h.Write(rows.Data)
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := journal.Close(); err != nil {
		tb.Fatal(err)
	}
	return outcome{counts: result.Counts, hash: hex.EncodeToString(h.Sum(nil))}
}

// runPassThrough polls weir's reader and gives every batch back.
func runPassThrough(tb testing.TB, t topic, w *stopwatch) outcome {
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	from := map[int32]record.Position{}
	for p := range int32(topicPartitions) {
		from[p] = record.Offset(0)
	}
	reader, err := watched{topicSource(tb, t), w.begin}.Open(ctx, from)
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for n < t.records {
		batches, err := reader.Poll(ctx, 0)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range batches {
			n += len(batches[i].Records)
			batches[i].Done()
		}
	}
	w.end()
	if err := reader.Close(); err != nil {
		tb.Fatal(err)
	}
	return outcome{counts: partitions.Counts{Records: int64(n)}}
}
