package kinesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Stream is a Kinesis stream. Each shard is a partition, by the number in its name. It may be used by several goroutines.
type Stream struct {
	cfg      Config
	consumer *consumer
	lags     *lags
}

// New makes a stream. It does not connect. Errors: CONFIG_INVALID without a client or a name.
func New(cfg Config) (*Stream, error) {
	if cfg.Client == nil || cfg.Stream == "" {
		return nil, codes.New(codes.ConfigInvalid, "a Kinesis source needs a client and the name of a stream")
	}
	return &Stream{cfg.withDefaults(), &consumer{}, &lags{}}, nil
}

// Shard is what the listing says of a shard.
type Shard struct {
	// Number is the partition; ID is Kinesis' name for it, shardId- and twelve digits.
	Number int32
	ID     string
	// Parents are the shards that it was split from or merged of, whether they are still listed or not.
	Parents []int32
	// First and Last are the range of hash keys, Start the first sequence number that it may have.
	First, Last *big.Int
	Start       record.Position
	// Closed: no record is written to it any more.
	Closed bool
}

// ShardID is Kinesis' name for a partition.
func ShardID(number int32) string { return fmt.Sprintf("shardId-%012d", number) }

// shardNumber is the partition of a shard.
func shardNumber(id string) (int32, error) {
	digits, ok := strings.CutPrefix(id, "shardId-")
	n, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || n < 0 {
		return 0, codes.New(codes.BrokerRefused, "a shard is named %.60q, which is not shardId- and a number", id)
	}
	return int32(n), nil
}

// Shards lists every shard that the stream holds, by number, closed ones included. Errors: TOPIC_MISSING, ACCESS_DENIED, SOURCE_FAILURE.
func (s *Stream) Shards(ctx context.Context) ([]Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	var all []types.Shard
	in := &kinesis.ListShardsInput{StreamName: &s.cfg.Stream}
	for {
		var out *kinesis.ListShardsOutput
		err := s.ask(ctx, "ListShards", func(ctx context.Context) (err error) {
			out, err = s.cfg.Client.ListShards(ctx, in)
			return err
		})
		var old *types.ExpiredNextTokenException
		if errors.As(err, &old) {
			all, in = nil, &kinesis.ListShardsInput{StreamName: &s.cfg.Stream}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, out.Shards...)
		if out.NextToken == nil {
			return shardsOf(all)
		}
		in = &kinesis.ListShardsInput{NextToken: out.NextToken} // alone: with a name or a filter it is refused
	}
}

func shardsOf(all []types.Shard) ([]Shard, error) {
	shards := make([]Shard, 0, len(all))
	for i := range all {
		sh, err := shardOf(&all[i])
		if err != nil {
			return nil, err
		}
		shards = append(shards, sh)
	}
	slices.SortFunc(shards, func(a, b Shard) int { return cmp.Compare(a.Number, b.Number) })
	return shards, nil
}

func shardOf(in *types.Shard) (sh Shard, err error) {
	sh.ID = aws.ToString(in.ShardId)
	if sh.Number, err = shardNumber(sh.ID); err != nil {
		return sh, err
	}
	for _, parent := range []*string{in.ParentShardId, in.AdjacentParentShardId} {
		if aws.ToString(parent) == "" {
			continue
		}
		n, err := shardNumber(*parent)
		if err != nil {
			return sh, err
		}
		sh.Parents = append(sh.Parents, n)
	}
	if r := in.HashKeyRange; r != nil {
		var ok1, ok2 bool
		sh.First, ok1 = new(big.Int).SetString(aws.ToString(r.StartingHashKey), 10)
		sh.Last, ok2 = new(big.Int).SetString(aws.ToString(r.EndingHashKey), 10)
		if !ok1 || !ok2 {
			return sh, codes.New(codes.BrokerRefused, "shard %s has no range of hash keys that can be read", sh.ID)
		}
	}
	if r := in.SequenceNumberRange; r != nil {
		sh.Closed = aws.ToString(r.EndingSequenceNumber) != ""
		if sh.Start, err = record.ParsePosition(aws.ToString(r.StartingSequenceNumber)); err != nil {
			return sh, codes.New(codes.BrokerRefused, "shard %s: %w", sh.ID, err)
		}
	}
	return sh, nil
}

// Holes are the ranges of hash keys that no open shard of a listing covers, as text. A listing that has any is not complete: a record may go to a
// shard that it does not show.
func Holes(shards []Shard) []string {
	var open []Shard
	for _, sh := range shards {
		if !sh.Closed && sh.First != nil {
			open = append(open, sh)
		}
	}
	slices.SortFunc(open, func(a, b Shard) int { return a.First.Cmp(b.First) })
	end := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
	next, one := big.NewInt(0), big.NewInt(1)
	var holes []string
	for _, sh := range open {
		if sh.First.Cmp(next) > 0 {
			holes = append(holes, fmt.Sprintf("%s to %s", next, new(big.Int).Sub(sh.First, one)))
		}
		if after := new(big.Int).Add(sh.Last, one); after.Cmp(next) > 0 {
			next = after
		}
	}
	if next.Cmp(end) <= 0 {
		holes = append(holes, fmt.Sprintf("%s to %s", next, end))
	}
	return holes
}

// Info implements sources.Source, for the whole stream: every shard that is listed is a partition. The id is the moment of the stream's creation,
// which another stream of the same name does not share. Errors: TOPIC_MISSING, ACCESS_DENIED, SOURCE_FAILURE.
func (s *Stream) Info(ctx context.Context) (sources.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	id, err := s.identity(ctx)
	if err != nil {
		return sources.Info{}, err
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return sources.Info{}, err
	}
	info := sources.Info{Name: "kinesis:" + s.cfg.Stream, ID: id}
	for _, sh := range shards {
		info.Partitions = append(info.Partitions, sh.Number)
	}
	return info, nil
}

// Summary is what Kinesis says of the stream itself.
func (s *Stream) Summary(ctx context.Context) (*types.StreamDescriptionSummary, error) {
	var out *kinesis.DescribeStreamSummaryOutput
	err := s.ask(ctx, "DescribeStreamSummary", func(ctx context.Context) (err error) {
		out, err = s.cfg.Client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &s.cfg.Stream})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out.StreamDescriptionSummary, nil
}

func (s *Stream) identity(ctx context.Context) (string, error) {
	sum, err := s.Summary(ctx)
	if err != nil {
		return "", err
	}
	if sum.StreamStatus == types.StreamStatusDeleting {
		return "", codes.New(codes.TopicMissing, "stream %q is being deleted", s.cfg.Stream)
	}
	return aws.ToTime(sum.StreamCreationTimestamp).UTC().Format("2006-01-02T15:04:05.000Z"), nil
}

// ask makes a call until it is answered, within ctx: throttling and failures of the service are waited for.
func (s *Stream) ask(ctx context.Context, call string, fn func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		within, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		err := fn(within)
		cancel()
		switch {
		case err == nil:
			return nil
		case kindOf(err) == failed:
			var old *types.ExpiredNextTokenException
			var unknown *types.ResourceNotFoundException
			if errors.As(err, &old) || call == "DescribeStreamConsumer" && errors.As(err, &unknown) {
				return err
			}
			return s.explain(call, err)
		}
		if !wait(ctx, pause(failures)) {
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return s.explain(call, err)
		}
	}
}

// Shard is the stream as a source of one partition, which ends when the shard is closed and read.
func (s *Stream) Shard(number int32) sources.Source { return shardSource{s, number} }

type shardSource struct {
	*Stream
	number int32
}

// Info implements sources.Source.
func (s shardSource) Info(ctx context.Context) (sources.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	id, err := s.identity(ctx)
	return sources.Info{Name: "kinesis:" + s.cfg.Stream, ID: id, Partitions: []int32{s.number}, Bounded: true}, err
}
