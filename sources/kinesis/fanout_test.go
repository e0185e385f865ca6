package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kinesis"
)

// pushed is one subscription of a script: what it says, and how it ends then.
type pushed struct {
	events chan types.SubscribeToShardEventStream
	err    error
	closed atomic.Bool
}

func (p *pushed) Events() <-chan types.SubscribeToShardEventStream { return p.events }
func (p *pushed) Err() error                                       { return p.err }
func (p *pushed) Close() error                                     { p.closed.Store(true); return nil }

// event has the records from to to-1; last says that the shard is read.
func event(from, to int, last bool) types.SubscribeToShardEventStream {
	e := types.SubscribeToShardEvent{MillisBehindLatest: aws.Int64(0), ContinuationSequenceNumber: aws.String(fmt.Sprint(1000 + to - 1))}
	for i := from; i < to; i++ {
		e.Records = append(e.Records, types.Record{SequenceNumber: aws.String(fmt.Sprint(1000 + i)), PartitionKey: aws.String("k"), Data: fmt.Append(nil, i)})
	}
	if last {
		e.ContinuationSequenceNumber = nil
	}
	return &types.SubscribeToShardEventStreamMemberSubscribeToShardEvent{Value: e}
}

// script says events and then closes; silent, it does not.
func script(silent bool, events ...types.SubscribeToShardEventStream) *pushed {
	p := &pushed{events: make(chan types.SubscribeToShardEventStream, len(events))}
	for _, e := range events {
		p.events <- e
	}
	if !silent {
		close(p.events)
	}
	return p
}

// fanned is a stream of one shard whose subscriptions a script gives, one after the other; an error in the place of one refuses it.
type fanned struct {
	answers []any
	asked   []string
	calls   *kinesistest.Scripted
}

func (f *fanned) stream(t *testing.T, change func(*kinesis.Config)) *kinesis.Stream {
	t.Helper()
	registered := false
	f.calls = &kinesistest.Scripted{Answer: func(op string, _ map[string]any) kinesistest.Answer {
		switch op {
		case "ListShards":
			return listing(1)
		case "DescribeStreamSummary":
			return kinesistest.Answer{Out: map[string]any{"StreamDescriptionSummary": map[string]any{"StreamARN": "arn:aws:kinesis:us-east-1:000000000000:stream/s", "StreamStatus": "ACTIVE"}}}
		case "DescribeStreamConsumer":
			if !registered {
				return kinesistest.Answer{Type: "ResourceNotFoundException"}
			}
			return kinesistest.Answer{Out: map[string]any{"ConsumerDescription": map[string]any{"ConsumerARN": "arn:c", "ConsumerName": "weir", "ConsumerStatus": "ACTIVE", "StreamARN": "arn", "ConsumerCreationTimestamp": 1.7e9}}}
		case "RegisterStreamConsumer":
			registered = true
		}
		return kinesistest.Answer{}
	}}
	return scripted(t, f.calls, func(c *kinesis.Config) {
		c.FanOut = "weir"
		c.Subscribe = func(_ context.Context, in *awskinesis.SubscribeToShardInput) (kinesis.Subscription, error) {
			at := in.StartingPosition
			f.asked = append(f.asked, strings.TrimSpace(fmt.Sprintf("%s %s", at.Type, aws.ToString(at.SequenceNumber))))
			next := f.answers[0]
			f.answers = f.answers[1:]
			if err, refuses := next.(error); refuses {
				return nil, err
			}
			return next.(*pushed), nil
		}
		if change != nil {
			change(c)
		}
	})
}

func (f *fanned) wantAsked(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(f.asked, ", "); got != strings.Join(want, ", ") {
		t.Errorf("subscribed at %s; want %s", got, strings.Join(want, ", "))
	}
}

// Lesson 15: enhanced fan-out behind the same reader. A subscription that has ended is renewed behind the last page, one that is silent for 35 s is given
// up, another one that is still there is waited for, and every record comes once.
func TestLessonFanOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := script(true, event(4, 6, false))
		broken := script(false, event(6, 8, false))
		broken.err = errors.New("the connection was reset")
		long := &pushed{events: make(chan types.SubscribeToShardEventStream)}
		f := &fanned{answers: []any{
			script(false, event(0, 3, false), event(3, 4, false)), // its five minutes are over
			&types.ResourceInUseException{},                       // Kinesis has not noticed yet
			silent, broken, long, script(false, event(8, 9, true)),
		}}
		var told atomic.Int64
		s := f.stream(t, func(c *kinesis.Config) { c.OnThrottle = func(int32, time.Duration) { told.Add(1) } })
		began := time.Now()
		var speaking sync.WaitGroup
		defer speaking.Wait()
		speaking.Go(func() {
			// Kinesis speaks every few seconds, and has nothing to say.
			for !long.closed.Load() {
				select {
				case long.events <- event(8, 8, false):
				case <-time.After(5 * time.Second):
				}
				time.Sleep(5 * time.Second)
			}
		})
		var g reading
		err := g.until(t.Context(), open(t, s, startOf(0)), 0, func() bool { return false })
		if !errors.Is(err, io.EOF) {
			t.Fatalf("read %v, %v; want the end", g.values, err)
		}
		g.want(t, 0, 9)
		f.wantAsked(t, "TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER 1003", "AFTER_SEQUENCE_NUMBER 1003", "AFTER_SEQUENCE_NUMBER 1005", "AFTER_SEQUENCE_NUMBER 1007", "AFTER_SEQUENCE_NUMBER 1007")
		if took := time.Since(began); took < 5*time.Minute+35*time.Second || took > 6*time.Minute+10*time.Second {
			t.Errorf("it took %s; want the silence of 35 s and a renewal after 5 minutes", took)
		}
		if told.Load() != 1 || !silent.closed.Load() || !long.closed.Load() {
			t.Errorf("told %d times; the subscriptions were closed: %v, %v", told.Load(), silent.closed.Load(), long.closed.Load())
		}
		registered := 0
		for _, call := range f.calls.Calls() {
			if call == "RegisterStreamConsumer" {
				registered++
			}
		}
		if registered != 1 {
			t.Errorf("the consumer was registered %d times", registered)
		}
	})
}

// A reader that goes on by fan-out asks for the proof that nothing is gone, too.
func TestFanOutGoesOn(t *testing.T) {
	t.Parallel()
	at := func(n uint64) map[int32]record.Position { return map[int32]record.Position{0: record.Offset(int64(n))} }
	for name, c := range map[string]struct {
		first types.SubscribeToShardEventStream
		lost  bool
		from  int
	}{"whole": {event(4, 7, true), false, 5}, "a gap": {event(6, 7, true), true, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fanned{answers: []any{script(false, c.first)}}
			var g reading
			err := g.until(t.Context(), open(t, f.stream(t, nil), at(1005)), 0, func() bool { return false })
			f.wantAsked(t, "AT_SEQUENCE_NUMBER 1004")
			if c.lost {
				if !codes.Has(err, codes.OffsetLost) || len(g.values) > 0 {
					t.Errorf("read %v, %v", g.values, err)
				}
				return
			}
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			g.want(t, c.from, 7)
		})
	}
}

// While a shard is paused nothing more than a page is taken of its subscription.
func TestFanOutHoldsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pushed{events: make(chan types.SubscribeToShardEventStream)}
		f := &fanned{answers: []any{p}}
		r := open(t, f.stream(t, nil), startOf(0))
		r.Pause(0)
		p.events <- event(0, 2, false)
		taken := make(chan bool, 1)
		go func() {
			p.events <- event(2, 4, true)
			taken <- true
		}()
		synctest.Wait()
		if len(taken) != 0 {
			t.Error("a second page was taken while the first one waits")
		}
		r.Resume(0)
		var g reading
		if err := g.until(t.Context(), r, 0, func() bool { return false }); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		g.want(t, 0, 4)
	})
}

// What Kinesis refuses is told with the name of the call.
func TestFanOutRefused(t *testing.T) {
	t.Parallel()
	denied := &types.AccessDeniedException{Message: aws.String("no")}
	f := &fanned{answers: []any{denied}}
	_, err := open(t, f.stream(t, nil), startOf(0)).Poll(t.Context(), 0)
	if !codes.Has(err, codes.AccessDenied) || !strings.Contains(err.Error(), "kinesis:SubscribeToShard") {
		t.Errorf("got %v", err)
	}
}
