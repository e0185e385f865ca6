package kinesis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

const (
	defaultRenew   = 5 * time.Minute  // how long Kinesis keeps a subscription
	defaultSilence = 35 * time.Second // Kinesis sends something every few seconds, records or not
)

// Subscription is what Kinesis sends of one shard, as the SDK has it. Events is closed when it has ended, and Err says why; nil is its time.
type Subscription interface {
	Events() <-chan types.SubscribeToShardEventStream
	Err() error
	Close() error
}

// consumer is the registered consumer of a stream with enhanced fan-out, which is asked for once.
type consumer struct {
	mu  sync.Mutex
	arn string
}

func (c *consumer) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arn = ""
}

// consumerARN is that of Config.FanOut, which is registered if it is not.
func (s *Stream) consumerARN(ctx context.Context) (string, error) {
	s.consumer.mu.Lock()
	defer s.consumer.mu.Unlock()
	if s.consumer.arn != "" {
		return s.consumer.arn, nil
	}
	sum, err := s.Summary(ctx)
	if err != nil {
		return "", err
	}
	for tries := 1; ; tries++ {
		var arn string
		var status types.ConsumerStatus
		err := s.ask(ctx, "DescribeStreamConsumer", func(ctx context.Context) error {
			out, err := s.cfg.Client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{StreamARN: sum.StreamARN, ConsumerName: &s.cfg.FanOut})
			if err == nil {
				arn, status = aws.ToString(out.ConsumerDescription.ConsumerARN), out.ConsumerDescription.ConsumerStatus
			}
			return err
		})
		var unknown *types.ResourceNotFoundException
		switch {
		case errors.As(err, &unknown):
			err = s.ask(ctx, "RegisterStreamConsumer", func(ctx context.Context) error {
				_, err := s.cfg.Client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: sum.StreamARN, ConsumerName: &s.cfg.FanOut})
				var other *types.ResourceInUseException
				if errors.As(err, &other) {
					return nil // another process was faster
				}
				return err
			})
		case err == nil && status == types.ConsumerStatusActive:
			s.consumer.arn = arn
			return arn, nil
		}
		if err != nil {
			return "", err
		}
		if !wait(ctx, pause(tries)) {
			return "", codes.New(codes.SourceFailure, "the consumer %q of stream %q is not ready (%s)", s.cfg.FanOut, s.cfg.Stream, status)
		}
	}
}

// follow reads the shard by subscriptions, one after the other: Kinesis ends each after five minutes, and one that says nothing is given up.
//
//	┌───────────┐ subscribed ┌───────────┐ no continuation: the shard is closed and read
//	│ subscribe │ ─────────▶ │  events   │ ─────▶ ended
//	└───────────┘ ◀───────── └───────────┘
//	    its time is over, silence, a failure
func (sh *shard) follow(ctx context.Context) error {
	failures, after := 0, ""
	for {
		sub, err := sh.subscribe(ctx, after)
		ended, said := false, false
		if err == nil {
			before := after
			ended, err = sh.events(ctx, sub, &after)
			_ = sub.Close() // what it still had comes with the next one
			if said = after != before; said {
				failures = 0
			}
			var ofCall *callError
			if err != nil && !errors.As(err, &ofCall) {
				return err // of what was sent, not of the sending
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ended:
			return nil
		case err == nil && (said || wait(ctx, minPause)): // not at once again when nothing came
			continue
		}
		failures++
		if err := sh.again(err, failures, new(string)); err != nil {
			return err
		}
		if !wait(ctx, sh.pauseAfter(err, failures)) {
			return ctx.Err()
		}
	}
}

// subscribe begins where the reading stands: behind the last page in this process, or else with the proof that a new reader asks for.
func (sh *shard) subscribe(ctx context.Context, after string) (Subscription, error) {
	s := sh.r.s
	within, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	arn, err := s.consumerARN(within)
	if err != nil {
		return nil, err
	}
	in := sh.start()
	at := &types.StartingPosition{Type: in.ShardIteratorType, SequenceNumber: in.StartingSequenceNumber, Timestamp: in.Timestamp}
	if after != "" && (sh.seen || sh.next == record.Position{}) {
		at = &types.StartingPosition{Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: &after}
	}
	ask := &kinesis.SubscribeToShardInput{ConsumerARN: &arn, ShardId: in.ShardId, StartingPosition: at}
	sub, err := s.cfg.Subscribe(ctx, ask)
	var invalid *types.InvalidArgumentException
	if errors.As(err, &invalid) && at.Type == types.ShardIteratorTypeAtSequenceNumber {
		on := sh.next.String()
		ask.StartingPosition = &types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &on}
		if exact, refused := s.cfg.Subscribe(ctx, ask); refused == nil {
			return exact, nil
		}
	}
	var unknown *types.ResourceNotFoundException
	if errors.As(err, &unknown) {
		s.consumer.forget() // it may have been registered anew
	}
	if err != nil {
		return nil, &callError{"SubscribeToShard", err}
	}
	return sub, nil
}

// events takes what is sent, one page at a time: while a page waits to be delivered nothing is taken, so that Kinesis holds back.
func (sh *shard) events(ctx context.Context, sub Subscription, after *string) (ended bool, err error) {
	cfg := &sh.r.s.cfg
	renew := time.NewTimer(cfg.Renew)
	defer renew.Stop()
	silence := time.NewTimer(cfg.Silence)
	defer silence.Stop()
	for {
		select {
		case <-sh.free:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		silence.Reset(cfg.Silence)
		page, err := sh.event(ctx, sub, renew.C, silence.C)
		if err != nil || page == nil {
			sh.free <- struct{}{}
			return false, err
		}
		if ended, err := sh.keep(page); err != nil || ended {
			return ended, err
		}
		*after = aws.ToString(page.NextShardIterator)
	}
}

// event is the next page, or nil when the subscription is over.
func (sh *shard) event(ctx context.Context, sub Subscription, renew, silence <-chan time.Time) (*kinesis.GetRecordsOutput, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-renew:
			return nil, nil
		case <-silence:
			sh.r.s.cfg.Logger.Debug("kinesis: a subscription has been silent for too long; another one is made", "shard", sh.number)
			return nil, nil
		case e, open := <-sub.Events():
			if !open {
				if err := sub.Err(); err != nil {
					return nil, &callError{"SubscribeToShard", err}
				}
				return nil, nil
			}
			if e, is := e.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent); is {
				// The page of a subscription has the form of one that was asked for: a continuation stands for the iterator.
				return &kinesis.GetRecordsOutput{Records: e.Value.Records, MillisBehindLatest: e.Value.MillisBehindLatest, NextShardIterator: e.Value.ContinuationSequenceNumber}, nil
			}
		}
	}
}

// subscribeBy subscribes with the SDK.
func subscribeBy(client *kinesis.Client) func(context.Context, *kinesis.SubscribeToShardInput) (Subscription, error) {
	return func(ctx context.Context, in *kinesis.SubscribeToShardInput) (Subscription, error) {
		out, err := client.SubscribeToShard(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.GetStream(), nil
	}
}
