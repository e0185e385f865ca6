package kinesis

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Now is the time by the clock of Kinesis, to the second; that of this machine where the answer does not tell. Errors are those of Summary.
func (s *Stream) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.ask(ctx, "DescribeStreamSummary", func(ctx context.Context) error {
		out, err := s.cfg.Client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &s.cfg.Stream})
		if err != nil {
			return err
		}
		var told bool
		if now, told = awsmiddleware.GetServerTime(out.ResultMetadata); !told {
			now = time.Now()
		}
		return nil
	})
	return now, err
}

// BeginAt is the stream as a source of one shard, that begins at a record where it was not read yet.
func (s *Stream) BeginAt(number int32, at record.Position) sources.Source {
	return placedSource{shardSource{s, number}, at}
}

type placedSource struct {
	shardSource
	at record.Position
}

// Open implements sources.Source.
func (s placedSource) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	placed := make(map[int32]record.Position, len(from))
	for number, pos := range from {
		if pos == (record.Position{}) {
			pos = s.at
		}
		placed[number] = pos
	}
	return s.shardSource.Open(ctx, placed)
}

// Place is a record that a shard holds.
type Place struct {
	// Found says that there is one; otherwise nothing is held from the place on that was asked for.
	Found    bool
	Position record.Position
	Arrival  time.Time
	// Behind is how far the place is behind the end of the shard, by its own word.
	Behind time.Duration
}

// peekRecords are those of a page of Peek, of which the first counts. A page may be empty because what it would have held is past its retention.
const peekRecords = 100

// peekCalls bounds the pages of Peek: a stretch of a shard without records is paged through, and a person waits.
const peekCalls = 20

// Peek looks for the first record of a shard at a position or behind it, or, for the zero position, that arrived at a time or later; the zero time
// is the oldest that is held. Nothing is read into anything. RUN_MISMATCH says that the position is not one of this shard.
func (s *Stream) Peek(ctx context.Context, number int32, at record.Position, since time.Time) (Place, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	return s.first(ctx, number, s.place(number, at, since))
}

// first is the first record behind an iterator.
func (s *Stream) first(ctx context.Context, number int32, in *kinesis.GetShardIteratorInput) (p Place, err error) {
	var iterator *string
	err = s.ask(ctx, "GetShardIterator", func(ctx context.Context) error {
		out, err := s.cfg.Client.GetShardIterator(ctx, in)
		if err == nil {
			iterator = out.ShardIterator
		}
		return err
	})
	for calls := 0; err == nil && iterator != nil && calls < peekCalls; calls++ {
		var page *kinesis.GetRecordsOutput
		err = s.ask(ctx, "GetRecords", func(ctx context.Context) (err error) {
			page, err = s.cfg.Client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator, Limit: aws.Int32(peekRecords)})
			return err
		})
		if err != nil {
			break
		}
		p.Behind = time.Duration(aws.ToInt64(page.MillisBehindLatest)) * time.Millisecond
		if len(page.Records) > 0 {
			p.Found, p.Arrival = true, aws.ToTime(page.Records[0].ApproximateArrivalTimestamp)
			if p.Position, err = record.ParsePosition(aws.ToString(page.Records[0].SequenceNumber)); err != nil {
				err = codes.New(codes.BrokerRefused, "shard %s: %w", ShardID(number), err)
			}
			return p, err
		}
		if p.Behind == 0 {
			return p, nil
		}
		iterator = page.NextShardIterator
	}
	return p, err
}

// place asks for an iterator at a place.
func (s *Stream) place(number int32, at record.Position, since time.Time) *kinesis.GetShardIteratorInput {
	in := &kinesis.GetShardIteratorInput{StreamName: &s.cfg.Stream, ShardId: aws.String(ShardID(number)), ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	switch {
	case at != record.Position{}:
		in.ShardIteratorType, in.StartingSequenceNumber = types.ShardIteratorTypeAtSequenceNumber, aws.String(at.String())
	case !since.IsZero():
		in.ShardIteratorType, in.Timestamp = types.ShardIteratorTypeAtTimestamp, &since
	}
	return in
}

// After looks for the first record behind a position that was read up to, as a reader that goes on there does: the record before is asked for too, and
// OFFSET_LOST says that it is gone, and with it maybe some that came after.
func (s *Stream) After(ctx context.Context, number int32, next record.Position) (Place, error) {
	if before, err := s.Peek(ctx, number, next.Prev(), time.Time{}); err != nil || !before.Found || before.Position != next.Prev() {
		if exact, refused := s.Peek(ctx, number, next, time.Time{}); refused == nil && exact.Found && exact.Position == next {
			return exact, nil
		}
		if err != nil {
			return before, err
		}
		return before, codes.New(codes.OffsetLost, "stream %q, shard %s: the record %s, which the run read last, is gone, and with it maybe some that came after", s.cfg.Stream, ShardID(number), next.Prev())
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	in := s.place(number, next.Prev(), time.Time{})
	in.ShardIteratorType = types.ShardIteratorTypeAfterSequenceNumber
	return s.first(ctx, number, in)
}

// Retention is how long the stream keeps records. Errors are those of Summary.
func (s *Stream) Retention(ctx context.Context) (time.Duration, error) {
	sum, err := s.Summary(ctx)
	if err != nil {
		return 0, err
	}
	return time.Duration(aws.ToInt32(sum.RetentionPeriodHours)) * time.Hour, nil
}
