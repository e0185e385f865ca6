//go:build unix

package kafka_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/sourcetest"
)

// apache is a bench on the Apache Kafka broker of this test binary. Topics have names of their own, so that tests share it.
func apache(t testing.TB) *bench {
	t.Helper()
	return newBench(t, kafkatest.Shared(t).Addr())
}

// The suite that the embedded broker passes, against Apache Kafka. A fetch that fails once is left to the embedded broker, which can be told to.
func TestConformanceApache(t *testing.T) {
	t.Parallel()
	configs := map[string]func(*kafka.Config){
		"defaults":      nil,
		"small fetches": func(c *kafka.Config) { c.FetchBytes, c.PartitionBytes, c.Fetches = 2000, 500, 1 },
	}
	for name, change := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sourcetest.Run(t, sourcetest.Harness{
				New: func(t testing.TB, parts [][]record.Record) sourcetest.Target {
					target := apache(t).target(t, parts, change)
					target.Fail = nil
					return target
				},
				Tombstones: true, EmptyValues: true, NilKeys: true, Headers: true, ArrivalUnit: time.Millisecond, EmptyAnswers: true,
			})
		})
	}
}

// both runs a test on the embedded broker, in this process, and on Apache Kafka.
func both(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, start(t, devbroker.Config{}))
	})
	t.Run("apache", func(t *testing.T) {
		t.Parallel()
		test(t, apache(t))
	})
}

// requests counts what a client asks of the brokers, by the name of the request: it tells its log of each.
type requests struct {
	slog.Handler
	mu     sync.Mutex
	byName map[string]int
}

// count has the clients of a configuration counted.
func count(cfg *kafka.Config) *requests {
	r := &requests{Handler: slog.DiscardHandler, byName: map[string]int{}}
	cfg.Logger = slog.New(r)
	return r
}

func (r *requests) Enabled(context.Context, slog.Level) bool { return true }

func (r *requests) Handle(_ context.Context, line slog.Record) error {
	if what, ok := strings.CutPrefix(line.Message, "kafka: wrote "); ok {
		name, _, _ := strings.Cut(what, " ")
		r.mu.Lock()
		r.byName[name]++
		r.mu.Unlock()
	}
	return nil
}

func (r *requests) all() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.byName {
		n += of
	}
	return n
}
