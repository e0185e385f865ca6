package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/record"
)

func TestMain(m *testing.M) {
	child.Main()
	memoryChild()
	scaleChild()
	code := pgtest.Run(m, pgtest.Config{})
	kafkatest.Close()
	os.Exit(code)
}

// What the environment may change. The defaults are what docs/performance.md was measured with.
const (
	// envRecords is the number of ticks in the topic: enough that every pipeline lives to see some of its seconds.
	envRecords     = "WEIR_BENCH_RECORDS"
	defaultRecords = 3_000_000
	// envPairs is how often each contestant runs.
	envPairs     = "WEIR_BENCH_PAIRS"
	defaultPairs = 9
	// envCodec is the compression of the topic: none, snappy, lz4 or zstd.
	envCodec     = "WEIR_BENCH_CODEC"
	defaultCodec = "none"
	// envStream is the number of records of the stream of BenchmarkMemory.
	envStream     = "WEIR_BENCH_STREAM"
	defaultStream = 10_000_000
)

func setting(tb testing.TB, name string, or int) int {
	tb.Helper()
	s, ok := os.LookupEnv(name)
	if !ok {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		tb.Fatalf("%s is %q, must be a number of at least 1", name, s)
	}
	return n
}

const (
	topicName       = "ticks"
	topicPartitions = 4
)

// topic is a log of ticks in a broker of a process of its own.
type topic struct {
	addr    string
	records int
}

// loadTopic starts a broker and publishes n ticks, and those of them that are delivered twice.
func loadTopic(tb testing.TB, n int) topic {
	tb.Helper()
	broker := child.Start(tb, devbroker.Config{Partitions: topicPartitions, Topics: []string{topicName}})
	log := ticks(n, 1)
	publish(tb, broker.Addr(), log)
	return topic{addr: broker.Addr(), records: len(log)}
}

func publish(tb testing.TB, addr string, log []message) {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topicName), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec(tb)), kgo.DisableClientMetrics())
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	var failed kgo.FirstErrPromise
	for i := range log {
		m := &log[i]
		cl.Produce(ctx, &kgo.Record{Key: m.key, Value: m.value, Timestamp: time.Unix(0, m.timestamp), Partition: record.PartitionOf(m.key, topicPartitions)},
			failed.Promise())
	}
	if err := failed.Err(); err != nil {
		tb.Fatal(fmt.Errorf("publish: %w", err))
	}
}

func codec(tb testing.TB) kgo.CompressionCodec {
	tb.Helper()
	name, ok := os.LookupEnv(envCodec)
	if !ok {
		name = defaultCodec
	}
	all := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c, ok := all[name]
	if !ok {
		tb.Fatalf("%s is %q, must be none, snappy, lz4 or zstd", envCodec, name)
	}
	return c
}
