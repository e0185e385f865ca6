package kafka

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/sinks"
)

// SinkConfig of a sink of results.
type SinkConfig struct {
	// Brokers, Topic, Security, ClientID, Logger and StartTimeout are those of Config. The topic must exist.
	Brokers      []string
	Topic        string
	Security     Security
	ClientID     string
	Logger       *slog.Logger
	StartTimeout time.Duration

	// Idempotent leaves transactions out: rows that are published again stand again, under the same row number, and nobody is fenced. It needs no right
	// on transactional ids and groups, and readers need not read committed records only.
	Idempotent bool
	// TransactionTimeout is when the broker ends the transaction of an owner that is gone and has no heir. At most the broker's
	// transaction.max.timeout.ms. Defaults to 1 minute.
	TransactionTimeout time.Duration
	// StallTimeout is how long a record or a request may wait for the brokers. Defaults to 30 s.
	StallTimeout time.Duration
	// Hook, unless nil, is called between any two steps; what it returns ends the write there. It is for drills and tests.
	Hook func(step string) error
}

// Sink is a topic to which the rows of runs are published. The value of a record is the row as sinks.JSON writes it, its key the row's; rows of
// partition p of the run go to partition p modulo the topic's number of partitions, so that they stay in order. Two headers make copies known without
// reading the value: HeaderRow and HeaderToken.
//
// Unless it is idempotent only, each partition of a run has a transactional id and a consumer group, both "weir-sink/TOPIC/RUN/PARTITION". The
// number of the rows that stand is committed as that group's offset in the same transaction as the rows; so Open reads back what stands with one request, however long
// the topic is. Beside the offset stands which sequence was published (sinks.Target.Sequence); another one is refused. The group TOPIC/RUN/PARTITION/owner holds the highest fence token. Opening a transactional id ends what a former owner left open and
// fences him at the broker. Should the broker forget the group (offsets.retention.minutes without a publication), or never have heard of it, opening notes
// where the run's journal stands as what is published (sinks.Target.Committed).
type Sink struct {
	cfg        SinkConfig
	connection kafkaclient.Config
}

// The headers of a record: "PARTITION/ROW" of the run, and the fence token of the owner who published it. Of rows that are revisions (sinks.Target.Revised)
// also the number of the revision: of the records with one key and event time, the one with the highest counts. Such a topic must not be compacted by
// key alone, unless a reader needs no more than the newest row of each key.
const (
	HeaderRow      = "weir-row"
	HeaderToken    = "weir-token"
	HeaderRevision = "weir-revision"
)

var _ sinks.Sink = (*Sink)(nil)

// NewSink makes a sink; nothing is connected before Open. Errors: no broker or no topic was named.
func NewSink(cfg SinkConfig) (*Sink, error) {
	cfg.TransactionTimeout = cmp.Or(cfg.TransactionTimeout, time.Minute)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, defaultStallTimeout)
	if cfg.Hook == nil {
		cfg.Hook = func(string) error { return nil }
	}
	rights := "Describe and Write on it, and Write on transactional ids and Read on groups that begin with weir-sink/"
	if cfg.Idempotent {
		rights = "Describe and Write"
	}
	connection, err := kafkaclient.Config{
		Brokers: cfg.Brokers, Topic: cfg.Topic, ClientID: cfg.ClientID, Security: cfg.Security, Logger: cfg.Logger, StartTimeout: cfg.StartTimeout, Rights: rights,
	}.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Sink{cfg, connection}, nil
}

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features {
	tx := !s.cfg.Idempotent
	return sinks.Features{Once: tx, ReadBack: tx, FencedByTarget: tx, IdempotentByKey: true, AppendOnly: true}
}

// Open implements sinks.Sink. Errors: SINK_INVALID when another sequence stands there, TOPIC_MISSING, ACCESS_DENIED, BROKER_UNREACHABLE, BROKER_REFUSED, STALE_FENCE, SINK_UNAVAILABLE.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	w := &sinkWriter{s: s, to: target, json: sinks.NewJSON(target), lanes: map[int32]*lane{}}
	at, err := w.open(ctx)
	if err != nil {
		_ = w.Close() // the reason to give up says more
		return nil, err
	}
	w.progress = sinks.NewProgress(len(target.Outputs), at)
	return w, nil
}

// name is that of the transactional id of a partition, and of its group.
func (s *Sink) name(run, partition string) string {
	return "weir-sink/" + s.cfg.Topic + "/" + run + "/" + partition
}

func (s *Sink) client(opts ...kgo.Opt) (*kafkaclient.Session, error) {
	return s.connection.Open(append(opts,
		kgo.DefaultProduceTopic(s.cfg.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.MaxBufferedRecords(defaultBufferRecords), kgo.MaxBufferedBytes(defaultBufferBytes),
		kgo.RecordDeliveryTimeout(s.cfg.StallTimeout), kgo.ProducerLinger(0))...)
}

// sinkWriter has a lane for each partition of the run.
type sinkWriter struct {
	s        *Sink
	to       sinks.Target
	json     *sinks.JSON
	progress *sinks.Progress
	// plain asks the questions, and produces where there are no transactions.
	plain *kafkaclient.Session
	lanes map[int32]*lane
	topic kafkaclient.Topic
}

// Published implements sinks.Writer.
func (w *sinkWriter) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer. A transaction that is open is ended by the next owner, or by the broker.
func (w *sinkWriter) Close() error {
	for _, l := range w.lanes {
		if l.session != w.plain {
			l.session.Close()
		}
	}
	if w.plain != nil {
		w.plain.Close()
	}
	return nil
}

func (w *sinkWriter) step(ctx context.Context, name string) error {
	if err := w.s.cfg.Hook(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (w *sinkWriter) open(ctx context.Context) (map[int32]int64, error) {
	var err error
	if w.plain, err = w.s.client(); err != nil {
		return nil, err
	}
	w.topic, err = w.plain.Find(ctx)
	if err != nil {
		return nil, err
	}
	if len(w.topic.Partitions) == 0 {
		return nil, codes.New(codes.BrokerRefused, "topic %q has no partitions", w.s.cfg.Topic)
	}
	for _, p := range w.to.Partitions {
		l := &lane{w: w, partition: p, to: w.topic.Partitions[int(p)%len(w.topic.Partitions)], session: w.plain}
		l.name = w.s.name(w.to.RunID, strconv.Itoa(int(p)))
		w.lanes[p] = l
	}
	if err := w.step(ctx, "found"); err != nil || w.s.cfg.Idempotent {
		return nil, err
	}
	for _, phase := range []struct {
		name string
		do   func(*lane, context.Context) error
	}{{"checked", (*lane).glance}, {"marked", (*lane).mark}, {"initialised", (*lane).initialise}, {"read back", (*lane).readBack}} {
		if err := w.each(ctx, w.to.Partitions, phase.do); err != nil {
			return nil, err
		}
		if err := w.step(ctx, phase.name); err != nil {
			return nil, err
		}
	}
	at := map[int32]int64{}
	for p, l := range w.lanes {
		if l.at >= 0 {
			at[p] = l.at
		}
	}
	return at, nil
}

// each does something in all lanes at once, within the stall time-out, and returns the first error by partition.
func (w *sinkWriter) each(ctx context.Context, parts []int32, do func(*lane, context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, w.s.cfg.StallTimeout)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { errs[i] = do(w.lanes[p], within) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return w.explain(ctx, err)
		}
	}
	return nil
}

// Publish implements sinks.Writer: one transaction for each partition. Errors: STALE_FENCE, RECORD_TOO_LARGE, TOPIC_MISSING, ACCESS_DENIED,
// BROKER_REFUSED, SINK_UNAVAILABLE.
func (w *sinkWriter) Publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.progress.Rest(batches)
	if err == nil && len(rest) > 0 {
		if err = w.publish(ctx, rest); err == nil {
			w.progress.Done(rest)
		}
	}
	return w.progress.Fail(err)
}

func (w *sinkWriter) publish(ctx context.Context, rest []sinks.Rows) error {
	var parts []int32
	for _, l := range w.lanes {
		l.reset()
	}
	for _, r := range rest {
		l := w.lanes[r.Partition]
		if l == nil {
			return codes.New(codes.Internal, "partition %d is published and was not opened", r.Partition)
		}
		if l.end < 0 {
			parts = append(parts, r.Partition)
		}
		if err := l.encode(r); err != nil {
			return err
		}
	}
	phases := []struct {
		name string
		do   func(*lane, context.Context) error
	}{{"written", (*lane).produce}, {"counted", (*lane).count}, {"committed", (*lane).commit}}
	if w.s.cfg.Idempotent {
		phases = phases[:1]
	}
	if err := w.step(ctx, "encoded"); err != nil {
		return err
	}
	for _, phase := range phases {
		if err := w.each(ctx, parts, phase.do); err != nil {
			return err
		}
		if err := w.step(ctx, phase.name); err != nil {
			return err
		}
	}
	return nil
}

// explain gives an error of the client its code.
func (w *sinkWriter) explain(ctx context.Context, err error) error {
	var ke *kerr.Error
	topic := w.s.cfg.Topic
	switch {
	case err == nil || codes.Of(err) != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case w.plain.Denied(err) != nil:
		return w.plain.Denied(err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return codes.New(codes.AccessDenied, "sink topic %q: weir may not use its transactional ids: grant Write on those that begin with weir-sink/, or publish without transactions: %w", topic, err)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return codes.New(codes.ConfigInvalid, "sink topic %q: the transaction time-out of %v is more than the broker's transaction.max.timeout.ms: %w", topic, w.s.cfg.TransactionTimeout, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return w.plain.Missing()
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return codes.New(codes.RecordTooLarge, "sink topic %q: a row is larger than the topic takes: raise its max.message.bytes: %w", topic, err)
	case fenced(err):
		return codes.New(codes.SinkUnavailable, "sink topic %q: another writer has opened it for run %q, under one of the transactional ids %q; what stands is read again. "+
			"Should it come again and again, another sink or process publishes this run to the same topic: %w", topic, w.to.RunID, w.s.name(w.to.RunID, "*"), err)
	case errors.As(err, &ke) && !ke.Retriable:
		return codes.New(codes.SinkRefused, "sink topic %q: the broker answered: %w", topic, err)
	}
	return codes.New(codes.SinkUnavailable, "sink topic %q: the brokers at %s take nothing; what stands is read again: %w", topic, w.s.connection.Addresses(), err)
}

// fenced says whether the broker has refused us for one who came after us.
func fenced(err error) bool {
	for _, e := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState, kerr.OperationNotAttempted, kerr.TransactionAbortable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
