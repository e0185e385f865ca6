package kafka

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
)

const (
	defaultClientID       = "weir"
	defaultStartTimeout   = 10 * time.Second
	defaultMaxWait        = 500 * time.Millisecond
	defaultFetchBytes     = 4 << 20
	defaultPartitionBytes = 1 << 20
	defaultBatchBytes     = 64 << 20
	defaultInflateBytes   = 32 << 20
	defaultFetches        = 2

	// dialTimeout leaves room for a second address within the start timeout.
	dialTimeout = 4 * time.Second
	// maxBackoff is how long the client waits at most before it tries a broker again.
	maxBackoff = time.Second
	// typicalRecord is the size of a record, in bytes, that MemoryBound reckons with.
	typicalRecord = 100
)

// Config of a source. Sizes are in bytes.
type Config struct {
	// Brokers are the addresses (host:port) to start from.
	Brokers []string
	// Topic to read.
	Topic string
	// ClientID names this client to the brokers. Defaults to "weir".
	ClientID string
	// Logger takes the client's messages. Nil drops them.
	Logger *slog.Logger
	// OnOutage is called with the cause when the brokers stop answering a reader, and with nil when they answer again.
	// It is called from Poll.
	OnOutage func(cause error)

	// StartTimeout bounds Info, Open and HighWaters. Defaults to 10 s.
	StartTimeout time.Duration
	// MaxWait is how long a broker holds a fetch that has nothing, how long a resumed partition may take to be fetched again, and
	// how long Poll waits before it makes sure that there is nothing. Defaults to 500 ms.
	MaxWait time.Duration

	// FetchBytes bounds the answer to one fetch, as it comes over the network. A broker still sends a single batch that is larger.
	// Defaults to 4 MiB.
	FetchBytes int32
	// PartitionBytes bounds the share of one partition in it. Defaults to 1 MiB.
	PartitionBytes int32
	// Fetches bounds the fetches in flight or buffered, whatever the number of brokers. Defaults to 2.
	Fetches int
	// BatchBytes bounds what one batch decompresses to; a larger one is POISON_BATCH. Defaults to 64 MiB.
	BatchBytes int
	// InflateBytes is what all batches between two polls may decompress to before the rest of the answer is left for the next
	// fetch. The batch that crosses it is still decompressed. Defaults to 32 MiB.
	InflateBytes int
}

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, defaultClientID)
	c.StartTimeout = cmp.Or(c.StartTimeout, defaultStartTimeout)
	c.MaxWait = cmp.Or(c.MaxWait, defaultMaxWait)
	c.FetchBytes = cmp.Or(c.FetchBytes, defaultFetchBytes)
	c.PartitionBytes = cmp.Or(c.PartitionBytes, defaultPartitionBytes)
	c.Fetches = cmp.Or(c.Fetches, defaultFetches)
	c.BatchBytes = cmp.Or(c.BatchBytes, defaultBatchBytes)
	c.InflateBytes = cmp.Or(c.InflateBytes, defaultInflateBytes)
	return c
}

// MemoryBound is what one reader holds at most, in bytes, beside the batches that its caller holds: twice (what the client has
// fetched ahead, and what the reader has taken from it and not delivered) the answers of Fetches fetches as they came, what they
// decompress to, and the records decoded from both, reckoned at 100 bytes each. A broker that sends single batches larger than
// FetchBytes exceeds it by them.
func (c Config) MemoryBound() int64 {
	c = c.withDefaults()
	raw := int64(c.Fetches) * int64(c.FetchBytes)
	inflated := int64(c.InflateBytes) + int64(c.BatchBytes)
	decoded := (raw + inflated) / typicalRecord * decodedRecordBytes
	return 2 * (raw + inflated + decoded)
}

func (c Config) check() error {
	switch {
	case len(c.Brokers) == 0:
		return codes.New(codes.BrokerUnreachable, "no broker address was given; name one with --brokers HOST:PORT")
	case c.Topic == "":
		return codes.New(codes.TopicMissing, "no topic was given; name one with --topic")
	}
	return nil
}

// options are those that every client of the source has.
func (c Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("weir", "0"),
		kgo.DialTimeout(min(dialTimeout, c.StartTimeout/2)),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(250 * time.Millisecond),
		// Without this the client pushes metrics, and a Close waits for a broker that is gone.
		kgo.DisableClientMetrics(),
		kgo.MaxDecompressBatchBytes(c.BatchBytes),
	}
	if c.Logger != nil {
		opts = append(opts, kgo.WithLogger(logger{c.Logger}))
	}
	return opts
}

// backoff doubles from 50 ms to a second: a broker that restarts is back within seconds, and one that is down costs next to nothing.
func backoff(failures int) time.Duration {
	return min(25*time.Millisecond<<min(failures, 10), maxBackoff)
}

func addresses(brokers []string) string { return strings.Join(brokers, ", ") }

// logger hands the client's messages to slog. What kgo calls info is detail here. kgo logs names, numbers and errors, no record data.
type logger struct{ log *slog.Logger }

func (l logger) Level() kgo.LogLevel {
	switch {
	case l.log.Enabled(context.Background(), slog.LevelDebug-4):
		return kgo.LogLevelDebug
	case l.log.Enabled(context.Background(), slog.LevelDebug):
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug - 4
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelError
	case kgo.LogLevelWarn:
		to = slog.LevelWarn
	case kgo.LogLevelInfo:
		to = slog.LevelDebug
	}
	l.log.Log(context.Background(), to, "kafka: "+msg, keyvals...)
}
