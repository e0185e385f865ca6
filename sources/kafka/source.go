package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

const (
	// graceForNewTopics is how long a topic that the broker does not know may still appear: a topic that was just created takes
	// a moment to reach every broker.
	graceForNewTopics = time.Second
	askAgainAfter     = 100 * time.Millisecond
)

// Source is a Kafka topic. It may be used by several goroutines and holds no connection of its own.
type Source struct{ cfg Config }

var _ sources.Source = (*Source)(nil)

// New makes a source. It does not connect. Errors: no broker or no topic was named.
func New(cfg Config) (*Source, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Source{cfg: cfg.withDefaults()}, nil
}

// topicID is Kafka's UUID of a topic. It is zero for brokers that have none.
type topicID [16]byte

// String writes the id as Kafka's own tools do, or "" for none.
func (id topicID) String() string {
	if id == (topicID{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// topic is what the brokers say of the topic.
type topic struct {
	id         topicID
	partitions []int32
}

// session is a client for questions, and what it remembers of failed connections.
type session struct {
	cfg     Config
	cl      *kgo.Client
	trouble *trouble
}

func (c Config) session(opts ...kgo.Opt) (*session, error) {
	t := &trouble{}
	cl, err := kgo.NewClient(append(append(c.options(), kgo.WithHooks(t)), opts...)...)
	if err != nil {
		return nil, codes.New(codes.BrokerUnreachable, "the broker addresses %s cannot be used: %w", addresses(c.Brokers), err)
	}
	return &session{cfg: c, cl: cl, trouble: t}, nil
}

// Info implements sources.Source. The id is the topic's UUID as Kafka's tools write it. Errors: BROKER_UNREACHABLE, TOPIC_MISSING,
// ACCESS_DENIED, each within Config.StartTimeout.
func (s *Source) Info(ctx context.Context) (sources.Info, error) {
	q, err := s.cfg.session()
	if err != nil {
		return sources.Info{}, err
	}
	defer q.cl.Close()
	t, err := q.start(ctx)
	if err != nil {
		return sources.Info{}, err
	}
	return sources.Info{Name: s.cfg.Topic, ID: t.id.String(), Partitions: t.partitions}, nil
}

// start asks for the topic until the brokers know it, within the start timeout.
func (q *session) start(ctx context.Context) (topic, error) {
	within, cancel := context.WithTimeout(ctx, q.cfg.StartTimeout)
	defer cancel()
	for began := time.Now(); ; {
		t, err := q.describe(within)
		var ke *kerr.Error
		switch {
		case err == nil:
			return t, nil
		case !errors.As(err, &ke):
			return topic{}, q.cfg.unreachable(ctx, q.trouble, err)
		case q.cfg.denied(err) != nil:
			return topic{}, q.cfg.denied(err)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && time.Since(began) > graceForNewTopics:
			return topic{}, q.cfg.missing()
		case !ke.Retriable:
			return topic{}, codes.New(codes.BrokerRefused, "topic %q: the broker answered: %w", q.cfg.Topic, err)
		}
		select {
		case <-within.Done():
			return topic{}, q.cfg.unreachable(ctx, q.trouble, err)
		case <-time.After(askAgainAfter):
		}
	}
}

// describe asks the brokers once, past every cache. An error of the topic itself is a *kerr.Error.
func (q *session) describe(ctx context.Context) (topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(q.cfg.Topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, q.cl)
	if err != nil {
		return topic{}, err
	}
	if len(resp.Topics) != 1 {
		return topic{}, kerr.UnknownTopicOrPartition
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return topic{}, err
	}
	t := topic{id: resp.Topics[0].TopicID}
	for _, p := range resp.Topics[0].Partitions {
		t.partitions = append(t.partitions, p.Partition)
	}
	slices.Sort(t.partitions)
	return t, nil
}

// Kinds of an offset that the brokers can be asked for.
const (
	startOffset = -2
	endOffset   = -1

	anyRecord       = 0 // isolation: up to the high watermark
	committedRecord = 1 // isolation: up to the last stable offset
)

// offsets asks for the start or the end of partitions.
func (q *session) offsets(ctx context.Context, partitions []int32, which int64, isolation int8) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = q.cfg.Topic
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, which
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, q.cl)
	if err != nil {
		return nil, err
	}
	found := make(map[int32]int64, len(partitions))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			found[p.Partition] = p.Offset
		}
	}
	if len(found) != len(partitions) {
		return nil, kerr.UnknownTopicOrPartition
	}
	return found, nil
}

// HighWaters asks for the end of every partition: the position after its last record or transaction marker, committed or not.
// Errors as Info.
func (s *Source) HighWaters(ctx context.Context) (map[int32]record.Position, error) {
	q, err := s.cfg.session()
	if err != nil {
		return nil, err
	}
	defer q.cl.Close()
	t, err := q.start(ctx)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	ends, err := q.offsets(within, t.partitions, endOffset, anyRecord)
	if err != nil {
		return nil, s.cfg.unreachable(ctx, q.trouble, err)
	}
	waters := make(map[int32]record.Position, len(ends))
	for p, end := range ends {
		waters[p] = record.Offset(end)
	}
	return waters, nil
}

// CommitGroup writes positions as the offsets of a consumer group, as a courtesy to tools that show lag. weir itself never reads
// them: a run resumes from its journal. The caller logs the error and goes on.
func (s *Source) CommitGroup(ctx context.Context, group string, positions map[int32]record.Position) error {
	var offsets kadm.Offsets
	for p, pos := range positions {
		at, ok := pos.Int64()
		if !ok {
			return codes.New(codes.Internal, "position %s of partition %d is no Kafka offset", pos, p)
		}
		offsets.AddOffset(s.cfg.Topic, p, at, -1)
	}
	q, err := s.cfg.session()
	if err != nil {
		return err
	}
	defer q.cl.Close()
	within, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	if err := kadm.NewClient(q.cl).CommitAllOffsets(within, group, offsets); err != nil {
		var ke *kerr.Error
		if errors.As(err, &ke) && s.cfg.denied(err) == nil {
			return codes.New(codes.BrokerRefused, "group %q: the broker answered: %w", group, err)
		}
		return s.cfg.unreachable(ctx, q.trouble, err)
	}
	return nil
}
