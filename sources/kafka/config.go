package kafka

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/weirstream/weir/internal/kafkaclient"
)

const (
	defaultMaxWait        = 500 * time.Millisecond
	defaultFetchBytes     = 4 << 20
	defaultPartitionBytes = 1 << 20
	defaultBatchBytes     = 64 << 20
	defaultInflateBytes   = 16 << 20

	// typicalRecord is the size of a record, in bytes, that MemoryBound reckons with.
	typicalRecord = 100
)

// Security says how a client connects to the brokers, see its fields.
type Security = kafkaclient.Security

// Config of a source. Sizes are in bytes.
type Config struct {
	// Brokers are the addresses (host:port) to start from.
	Brokers []string
	// Topic to read.
	Topic string
	// Security is how to connect. Defaults to neither encryption nor login.
	Security Security
	// ClientID names this client to the brokers. Defaults to "weir".
	ClientID string
	// Logger takes the client's messages. Nil drops them.
	Logger *slog.Logger
	// OnOutage is called with the cause when the brokers stop answering a reader, and with nil when they answer again.
	// It is called from Poll.
	OnOutage func(cause error)

	// StartTimeout bounds Info, Open and HighWaters. Defaults to 10 s.
	StartTimeout time.Duration
	// MaxWait is how long Poll waits before it makes sure that there is nothing. A broker holds a fetch that has nothing, and
	// with it a partition that is resumed after a long pause, for at most 100 ms of it. Defaults to 500 ms.
	MaxWait time.Duration

	// Follow is how often a reader looks whether partitions were added to the topic since it was opened; once there are, it delivers what it
	// has taken and fails with PARTITIONS_ADDED, so that a run of the whole topic opens it anew. At least 250 ms; defaults to 0, never.
	Follow time.Duration

	// FetchBytes bounds the answer to one fetch, as it comes over the network. A broker still sends a single batch that is larger.
	// Defaults to 4 MiB.
	FetchBytes int32
	// PartitionBytes bounds the share of one partition in it. Defaults to 1 MiB.
	PartitionBytes int32
	// Fetches bounds the fetches in flight or buffered. Fewer than there are brokers save memory and cost latency: a broker that
	// has nothing holds its fetch for a while, see MaxWait. Defaults to one for each broker.
	Fetches int
	// BatchBytes bounds what one batch decompresses to; a larger one is POISON_BATCH. Defaults to 64 MiB.
	BatchBytes int
	// InflateBytes is what the batches of an answer may decompress to before its rest is left for the next fetch. The batch that
	// crosses it is still decompressed, and an answer that comes while another one is taken may use it twice. Defaults to 16 MiB.
	InflateBytes int
}

func (c Config) withDefaults() Config {
	c.MaxWait = cmp.Or(c.MaxWait, defaultMaxWait)
	c.FetchBytes = cmp.Or(c.FetchBytes, defaultFetchBytes)
	c.PartitionBytes = cmp.Or(c.PartitionBytes, defaultPartitionBytes)
	c.BatchBytes = cmp.Or(c.BatchBytes, defaultBatchBytes)
	c.InflateBytes = cmp.Or(c.InflateBytes, defaultInflateBytes)
	return c
}

// metadataAge is how old the client's knowledge of the topic may be.
func (c Config) metadataAge() time.Duration {
	const usual, least = 5 * time.Minute, 250 * time.Millisecond
	if c.Follow <= 0 {
		return usual
	}
	return min(usual, max(least, c.Follow))
}

// MemoryBound is what one reader of a cluster of so many brokers holds at most, in bytes, beside the batches that its caller holds:
// twice (what the client has fetched ahead, and what the reader has taken from it and not delivered) the answers of Fetches fetches as
// they came, what they decompress to (twice InflateBytes, and the batch that crosses it), and the records decoded from both, reckoned
// at 100 bytes each; and FetchBytes of records that are paused. It is the worst case, of batches that decompress to BatchBytes. A
// broker that sends single batches larger than FetchBytes exceeds it by them.
func (c Config) MemoryBound(brokers int) int64 {
	c = c.withDefaults()
	raw := int64(cmp.Or(c.Fetches, brokers)) * int64(c.FetchBytes)
	inflated := 2*int64(c.InflateBytes) + int64(c.BatchBytes)
	decoded := (raw + inflated) / typicalRecord * decodedRecordBytes
	paused := int64(c.FetchBytes) + int64(c.FetchBytes)/typicalRecord*decodedRecordBytes
	return 2*(raw+inflated+decoded) + paused
}

// connection is what the clients of the source are made of.
func (c Config) connection() kafkaclient.Config {
	return kafkaclient.Config{Brokers: c.Brokers, Topic: c.Topic, ClientID: c.ClientID, Security: c.Security, Logger: c.Logger, StartTimeout: c.StartTimeout,
		Rights: "Describe and Read"}
}
