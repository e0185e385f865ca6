package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Source is a Kafka topic. It may be used by several goroutines and holds no connection of its own.
type Source struct {
	cfg        Config
	connection kafkaclient.Config
}

var _ sources.Source = (*Source)(nil)

// New makes a source. It does not connect. Errors: no broker or no topic was named.
func New(cfg Config) (*Source, error) {
	connection, err := cfg.connection().WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg.withDefaults(), connection: connection}, nil
}

// session is a client for questions.
type session struct{ *kafkaclient.Session }

func (s *Source) session(opts ...kgo.Opt) (session, error) {
	q, err := s.connection.Open(append(opts, kgo.MaxDecompressBatchBytes(s.cfg.BatchBytes))...)
	return session{q}, err
}

// Info implements sources.Source. The id is the topic's UUID as Kafka's tools write it. Errors: BROKER_UNREACHABLE, TOPIC_MISSING,
// ACCESS_DENIED, each within Config.StartTimeout.
func (s *Source) Info(ctx context.Context) (sources.Info, error) {
	q, err := s.session()
	if err != nil {
		return sources.Info{}, err
	}
	defer q.Close()
	t, err := q.Find(ctx)
	if err != nil {
		return sources.Info{}, err
	}
	return sources.Info{Name: s.cfg.Topic, ID: t.ID.String(), Partitions: t.Partitions}, nil
}

// Kinds of an offset that the brokers can be asked for.
const (
	startOffset = -2
	endOffset   = -1

	anyRecord       = 0 // isolation: up to the high watermark
	committedRecord = 1 // isolation: up to the last stable offset
)

// offsets asks for the start or the end of partitions; every one has to be answered.
func (q session) offsets(ctx context.Context, partitions []int32, which int64, isolation int8) (map[int32]int64, error) {
	found, failed := q.offsetsOfEach(ctx, partitions, which, isolation)
	for _, p := range partitions {
		if err := failed[p]; err != nil {
			return nil, err
		}
	}
	return found, nil
}

// offsetsOfEach asks for the start or the end of partitions, and says of each that is not answered why.
func (q session) offsetsOfEach(ctx context.Context, partitions []int32, which int64, isolation int8) (found map[int32]int64, failed map[int32]error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = q.Topic
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, which
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	found, failed = make(map[int32]int64, len(partitions)), map[int32]error{}
	for _, shard := range q.Client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			if asked, ok := shard.Req.(*kmsg.ListOffsetsRequest); ok {
				fail(failed, asked, shard.Err)
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failed[p.Partition] = err
				} else {
					found[p.Partition] = p.Offset
				}
			}
		}
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok && failed[p] == nil {
			failed[p] = kerr.UnknownTopicOrPartition
		}
	}
	return found, failed
}

// fail notes why the partitions of a request were not answered.
func fail(failed map[int32]error, asked *kmsg.ListOffsetsRequest, err error) {
	for _, t := range asked.Topics {
		for _, p := range t.Partitions {
			failed[p.Partition] = err
		}
	}
}

// HighWaters asks for the end of every partition: the position after its last record or transaction marker, committed or not.
// Errors as Info.
func (s *Source) HighWaters(ctx context.Context) (map[int32]record.Position, error) {
	q, err := s.session()
	if err != nil {
		return nil, err
	}
	defer q.Close()
	t, err := q.Find(ctx)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, q.StartTimeout)
	defer cancel()
	ends, err := q.offsets(within, t.Partitions, endOffset, anyRecord)
	if err != nil {
		return nil, q.Unreachable(ctx, err)
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
	q, err := s.session()
	if err != nil {
		return err
	}
	defer q.Close()
	within, cancel := context.WithTimeout(ctx, q.StartTimeout)
	defer cancel()
	if err := kadm.NewClient(q.Client).CommitAllOffsets(within, group, offsets); err != nil {
		if denied := q.DeniedGroup(group, err); denied != nil {
			return denied
		}
		var ke *kerr.Error
		if errors.As(err, &ke) && q.Denied(err) == nil {
			return codes.New(codes.BrokerRefused, "group %q: the broker answered: %w", group, err)
		}
		return q.Unreachable(ctx, err)
	}
	return nil
}
