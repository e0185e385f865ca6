// Package kafka writes records to a Kafka topic.
package kafka

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

const (
	// startTimeout bounds how long a broker is looked for.
	startTimeout = 10 * time.Second
	// bufferedBytes and bufferedRecords bound what is handed over and not yet written.
	bufferedBytes   = 32 << 20
	bufferedRecords = 50_000
)

// Config of a producer.
type Config struct {
	// Brokers are the addresses (host:port) to start from.
	Brokers []string
	Topic   string
	// Logger takes the client's messages. Nil drops them.
	Logger *slog.Logger
}

// Producer is a sinks.Producer over a topic: idempotent, acknowledged by all replicas, partitioned by key as Kafka's own clients do
// (record.PartitionOf). A write whose answer is lost is repeated by the client under the same sequence number, so there is one copy.
type Producer struct {
	cfg    Config
	client *kgo.Client
	known  bool // the topic was seen

	mu    sync.Mutex
	first error
}

// New makes a producer. Nothing is connected before the first use.
func New(cfg Config) (*Producer, error) {
	if len(cfg.Brokers) == 0 {
		return nil, codes.New(codes.BrokerUnreachable, "no broker address was given; name one with --brokers HOST:PORT")
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cfg.Brokers...), kgo.ClientID("weir"), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedBytes(bufferedBytes), kgo.MaxBufferedRecords(bufferedRecords),
		kgo.ProducerBatchMaxBytes(16<<20), kgo.BrokerMaxWriteBytes(64<<20),
		kgo.ProducerLinger(5*time.Millisecond), kgo.DisableClientMetrics(), kgo.DialTimeout(4*time.Second),
	)
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "the broker addresses %s: %w", strings.Join(cfg.Brokers, ", "), err)
	}
	return &Producer{cfg: cfg, client: client}, nil
}

// EnsureTopic creates the topic if it does not exist. One that exists keeps its partitions.
func (p *Producer) EnsureTopic(ctx context.Context, partitions int32) error {
	within, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err := kadm.NewClient(p.client).CreateTopic(within, partitions, -1, nil, p.cfg.Topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return p.failed(ctx, err)
	}
	return nil
}

// check finds out that the topic exists before anything is handed over.
func (p *Producer) check(ctx context.Context) error {
	if p.known {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	topics, err := kadm.NewClient(p.client).ListTopics(within, p.cfg.Topic)
	if err == nil {
		err = topics[p.cfg.Topic].Err
	}
	if err != nil {
		return p.failed(ctx, err)
	}
	p.known = true
	return nil
}

// Produce implements sinks.Producer.
func (p *Producer) Produce(ctx context.Context, r record.Record) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	if err := p.failure(); err != nil {
		return err
	}
	out := &kgo.Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: slices.Clone(h.Value)})
	}
	if r.Arrival != record.NoTime {
		out.Timestamp = time.Unix(0, int64(r.Arrival))
	}
	p.client.Produce(ctx, out, func(_ *kgo.Record, err error) {
		if err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.first == nil {
				p.first = err
			}
		}
	})
	return nil
}

// Flush implements sinks.Producer.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return p.failed(ctx, err)
	}
	return p.failure()
}

func (p *Producer) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		return nil
	}
	return p.failed(context.Background(), p.first)
}

func (p *Producer) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return codes.New(codes.TopicMissing, "topic %q does not exist on %s; check the spelling, or create it", p.cfg.Topic, strings.Join(p.cfg.Brokers, ", "))
	}
	return codes.New(codes.BrokerUnreachable, "topic %q on %s: %w", p.cfg.Topic, strings.Join(p.cfg.Brokers, ", "), err)
}

// Close gives the connections up. What was not flushed may be lost.
func (p *Producer) Close() { p.client.Close() }
