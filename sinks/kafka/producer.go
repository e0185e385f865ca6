package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

const (
	defaultBufferBytes   = 32 << 20
	defaultBufferRecords = 50_000
	defaultStallTimeout  = 30 * time.Second

	// batchBytes is the default limit of Kafka's brokers and topics for a batch, less what surrounds it.
	batchBytes = 1_000_012
	// largestBatch is what a record may take at most, whatever the topic allows.
	largestBatch = 64 << 20
	// ensuredBatch is the limit of a topic that EnsureTopic creates.
	ensuredBatch = 16 << 20
	// batchOverhead is more than a batch takes beside the bytes of its one record.
	batchOverhead = 200
	linger        = 5 * time.Millisecond
)

// Security says how a client connects to the brokers, see its fields.
type Security = kafkaclient.Security

// Config of a producer.
type Config struct {
	// Brokers are the addresses (host:port) to start from.
	Brokers []string
	// Topic to write to. It must exist, or be made with EnsureTopic.
	Topic string
	// Security is how to connect. Defaults to neither encryption nor login.
	Security Security
	// ClientID names this client to the brokers. Defaults to "weir".
	ClientID string
	// Logger takes the client's messages. Nil drops them.
	Logger *slog.Logger

	// StartTimeout bounds how long the topic is looked for before the first record. Defaults to 10 s.
	StartTimeout time.Duration
	// StallTimeout is how long the brokers may write nothing while something waits for them. Defaults to 30 s.
	StallTimeout time.Duration
	// BufferBytes bounds the bytes that are handed over and not written yet. Defaults to 32 MiB. A single larger record is still
	// written, alone.
	BufferBytes int
	// BufferRecords bounds the records that are handed over and not written yet. Defaults to 50,000.
	BufferRecords int
}

// Producer appends to a topic. As the port says, it is used by one goroutine.
type Producer struct {
	cfg        Config
	connection kafkaclient.Config
	session    *kafkaclient.Session
	known      bool          // the topic was seen
	freed      chan struct{} // holds one token when something was written or failed since the last look
	handed     int64         // records handed over so far

	large      *kafkaclient.Session // nil until a record needs it
	largeLimit int                  // bytes of the largest record, batch included

	// writing is the context of every write: the context of the call that handed a record over may end before it is written.
	writing context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	first   error
	records int
	bytes   int
	written int64 // records that were written or failed
}

var _ sinks.Producer = (*Producer)(nil)

// New makes a producer. Nothing is connected before the first use. Errors: no broker or no topic was named, or an address is malformed.
func New(cfg Config) (*Producer, error) {
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, defaultStallTimeout)
	cfg.BufferBytes = cmp.Or(cfg.BufferBytes, defaultBufferBytes)
	cfg.BufferRecords = cmp.Or(cfg.BufferRecords, defaultBufferRecords)
	connection, err := kafkaclient.Config{
		Brokers: cfg.Brokers, Topic: cfg.Topic, ClientID: cfg.ClientID, Security: cfg.Security, Logger: cfg.Logger, StartTimeout: cfg.StartTimeout,
		Rights: "Describe and Write, and Create to make it",
	}.WithDefaults()
	if err != nil {
		return nil, err
	}
	p := &Producer{cfg: cfg, connection: connection, freed: make(chan struct{}, 1)}
	if p.session, err = p.open(batchBytes); err != nil {
		return nil, err
	}
	p.writing, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// open makes a client whose batches have a limit. The producer bounds what is buffered itself, so the client does not.
func (p *Producer) open(limit int) (*kafkaclient.Session, error) {
	return p.connection.Open(
		kgo.DefaultProduceTopic(p.cfg.Topic),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int { return partitionOf })),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(limit)),
		kgo.BrokerMaxWriteBytes(int32(max(100<<20, limit+1<<20))),
		kgo.MaxBufferedRecords(p.cfg.BufferRecords+1),
		kgo.ProducerLinger(linger),
		kgo.MaxVersions(oneAtATime()),
	)
}

// oneAtATime is how the client is kept to one write under way at each broker: it has several once it may speak a newer version of the request, and no
// option for it. A broker forgets a producer whose last record is older than producer.id.expiration.ms, which counts from the records' own timestamps,
// and lets the first write that comes then have any number. Of two writes that were under way at the end of a connection it takes the second, which
// the client writes to the next connection before it has heard of the first; and then both again.
func oneAtATime() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.Produce), 3)
	return v
}

func partitionOf(r *kgo.Record, partitions int) int {
	return int(record.PartitionOf(r.Key, int32(partitions)))
}

// EnsureTopic creates the topic if it does not exist, for development, and returns once the brokers tell of it. One that exists stays as it is. A new one keeps records
// whatever their age, since a replay writes timestamps of the past, and takes records of up to 16 MiB.
func (p *Producer) EnsureTopic(ctx context.Context, partitions int32) error {
	within, cancel := context.WithTimeout(ctx, p.session.StartTimeout)
	defer cancel()
	forever, limit := "-1", strconv.Itoa(ensuredBatch)
	configs := map[string]*string{"retention.ms": &forever, "max.message.bytes": &limit}
	_, err := kadm.NewClient(p.session.Client).CreateTopic(within, partitions, -1, configs, p.cfg.Topic)
	var ke *kerr.Error
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return p.appears(ctx, within)
	case errors.As(err, &ke) && p.session.Denied(err) == nil:
		return codes.New(codes.BrokerRefused, "topic %q with %d partitions cannot be created: %w", p.cfg.Topic, partitions, err)
	}
	return p.session.Unreachable(ctx, err)
}

// appears waits until the brokers tell of a topic that was just created: a cluster, or a busy broker, takes a moment, in which whoever looks for the
// topic would be told that there is none.
func (p *Producer) appears(ctx, within context.Context) error {
	for {
		_, err := p.session.Describe(within)
		if err == nil {
			return nil
		}
		var ke *kerr.Error
		if !errors.As(err, &ke) || !ke.Retriable {
			return p.session.Unreachable(ctx, err)
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-timer.C:
		case <-within.Done():
			timer.Stop()
			return p.session.Unreachable(ctx, err)
		}
	}
}

// Produce implements sinks.Producer. Errors, now or later: BROKER_UNREACHABLE, TOPIC_MISSING, ACCESS_DENIED, RECORD_TOO_LARGE,
// BROKER_REFUSED, or that of ctx.
func (p *Producer) Produce(ctx context.Context, r record.Record) error {
	if !p.known {
		if _, err := p.session.Find(ctx); err != nil {
			return err
		}
		p.known = true
	}
	out, size := copyOf(r)
	p.handed++
	if size+batchOverhead > batchBytes {
		return p.produceLarge(ctx, out, size)
	}
	err := p.wait(ctx, func() bool {
		return p.records == 0 || p.records < p.cfg.BufferRecords && p.bytes+size <= p.cfg.BufferBytes
	})
	if err != nil {
		return err
	}
	p.produce(p.session, out, size)
	return nil
}

func (p *Producer) produce(by *kafkaclient.Session, out *kgo.Record, size int) {
	p.mu.Lock()
	p.records++
	p.bytes += size
	p.mu.Unlock()
	by.Client.Produce(p.writing, out, func(_ *kgo.Record, err error) { p.done(size, err) })
}

// done notes that a record was written, or failed.
func (p *Producer) done(size int, err error) {
	p.mu.Lock()
	p.records--
	p.bytes -= size
	p.written++
	if err != nil && p.first == nil {
		p.first = p.judge(err)
	}
	p.mu.Unlock()
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// copyOf copies a record into memory of its own, and says how many bytes it has.
func copyOf(r record.Record) (*kgo.Record, int) {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Value)
	}
	arena := make([]byte, 0, size)
	carve := func(src []byte) []byte {
		if src == nil {
			return nil
		}
		at := len(arena)
		arena = append(arena, src...)
		return arena[at:len(arena):len(arena)]
	}
	out := &kgo.Record{Key: carve(r.Key), Value: carve(r.Value)}
	if len(r.Headers) > 0 {
		out.Headers = make([]kgo.RecordHeader, len(r.Headers))
		for i, h := range r.Headers {
			out.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: carve(h.Value)}
			size += len(h.Key)
		}
	}
	if r.Arrival != record.NoTime {
		out.Timestamp = time.UnixMilli(floorMilli(r.Arrival))
	}
	return out, size
}

// floorMilli cuts to whole milliseconds, downwards also before 1970.
func floorMilli(t record.EventTime) int64 {
	ms := int64(t) / 1e6
	if int64(t)%1e6 < 0 {
		ms--
	}
	return ms
}

// produceLarge writes a record that no ordinary batch holds, after all before it and before all after it.
func (p *Producer) produceLarge(ctx context.Context, out *kgo.Record, size int) error {
	if err := p.Flush(ctx); err != nil {
		return err
	}
	if p.large == nil {
		limit, err := p.topicLimit(ctx)
		if err != nil {
			return err
		}
		if p.large, err = p.open(limit); err != nil {
			return err
		}
		p.largeLimit = limit
	}
	if size+batchOverhead > p.largeLimit {
		return p.tooLarge(size)
	}
	p.produce(p.large, out, size)
	return p.Flush(ctx)
}

// tooLarge fails the producer: going on would leave a gap.
func (p *Producer) tooLarge(size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = codes.New(codes.RecordTooLarge, "record %d handed over has %d bytes; topic %q takes %d at most: raise its max.message.bytes, or make the record smaller",
		p.handed, size, p.cfg.Topic, p.largeLimit-batchOverhead)
	return p.first
}

// topicLimit asks for max.message.bytes of the topic. A broker that does not say has the default.
func (p *Producer) topicLimit(ctx context.Context) (int, error) {
	within, cancel := context.WithTimeout(ctx, p.session.StartTimeout)
	defer cancel()
	found, err := kadm.NewClient(p.session.Client).DescribeTopicConfigs(within, p.cfg.Topic)
	if err != nil && p.session.Denied(err) == nil {
		return 0, p.session.Unreachable(ctx, err)
	}
	for _, topic := range found {
		for _, c := range topic.Configs {
			if n, err := strconv.Atoi(c.MaybeValue()); err == nil && c.Key == "max.message.bytes" {
				return min(max(n, batchBytes), largestBatch), nil
			}
		}
	}
	return batchBytes, nil
}

// Flush implements sinks.Producer. Errors as Produce.
func (p *Producer) Flush(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.records == 0 })
}

// wait waits until enough is written, which is asked under the lock, or for the first error, the end of ctx, or a stall.
func (p *Producer) wait(ctx context.Context, enough func() bool) error {
	var stall *time.Timer
	for seen := int64(0); ; {
		p.mu.Lock()
		ready, first, written := enough(), p.first, p.written
		p.mu.Unlock()
		switch {
		case first != nil:
			return first
		case ready:
			return nil
		case stall == nil:
			stall = time.NewTimer(p.cfg.StallTimeout)
			defer stall.Stop()
		case written != seen:
			stall.Reset(p.cfg.StallTimeout)
		}
		seen = written
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.freed:
		case <-stall.C:
			return p.stalled()
		}
	}
}

// stalled fails the producer: the brokers did not write for too long.
func (p *Producer) stalled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		err := fmt.Errorf("nothing was written for %v: %w", p.cfg.StallTimeout, context.DeadlineExceeded)
		p.first = p.session.Unreachable(context.Background(), err)
	}
	p.stop()
	return p.first
}

// judge gives an error of the client its code.
func (p *Producer) judge(err error) error {
	var ke *kerr.Error
	switch {
	case p.session.Denied(err) != nil:
		return p.session.Denied(err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return p.session.Missing()
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return codes.New(codes.RecordTooLarge, "topic %q: the broker does not take batches of the default size: %w", p.cfg.Topic, err)
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return codes.New(codes.BrokerUnreachable, "topic %q: the producer was closed before everything was written", p.cfg.Topic)
	case errors.As(err, &ke):
		return codes.New(codes.BrokerRefused, "topic %q: the broker answered: %w", p.cfg.Topic, err)
	}
	return p.session.Unreachable(context.Background(), err)
}

// Close gives the connections up. What was not flushed may be lost.
func (p *Producer) Close() {
	p.stop()
	p.session.Close()
	if p.large != nil {
		p.large.Close()
	}
}
