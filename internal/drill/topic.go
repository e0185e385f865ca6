package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources/snapshot"
)

// The golden topic: the log of the fixture, 23 arrivals, published 13 times to 4 partitions.
const (
	goldenTimes      = 13
	goldenArrivals   = 23
	goldenRecords    = goldenTimes * goldenArrivals
	goldenPartitions = 4
	// highWater0 and highWater3 are the ends of the two partitions that have records.
	highWater0, highWater3 = 78, 221
)

// startBroker runs the embedded broker as a process of its own.
func (d *drill) startBroker(ctx context.Context) (string, error) {
	p, err := d.fleet.start("broker", nil, "broker", "--port", "0", "--json")
	if err != nil {
		return "", err
	}
	var ready struct{ Listening string }
	err = poll(ctx, 10*time.Second, func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		text, _, whole := strings.Cut(p.stdout.String(), "\n")
		if !whole {
			return false, nil
		}
		return true, json.Unmarshal([]byte(text), &ready)
	}, "the broker listens")
	if err != nil || ready.Listening == "" {
		return "", codes.New(codes.BrokerUnreachable, "the embedded broker does not start: %w; it said %s", err, tail(p.said()))
	}
	return ready.Listening, nil
}

// answers makes sure that a broker is there before anything is judged.
func (d *drill) answers(ctx context.Context) error {
	client, err := d.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return codes.New(codes.BrokerUnreachable, "no broker answered at %s: %w", d.brokers, err)
	}
	return nil
}

// connect makes a client of the drill's own.
func (d *drill) connect() (*kgo.Client, error) {
	s, err := kafkaclient.Config{Brokers: strings.Split(d.brokers, ","), Topic: d.TopicPrefix, Security: d.Security, StartTimeout: 10 * time.Second}.Open()
	if err != nil {
		return nil, err
	}
	return s.Client, nil
}

// brokerArgs say to a daemon where the brokers are.
func (d *drill) brokerArgs() []string {
	return append([]string{"--brokers", d.brokers}, d.BrokerFlags...)
}

// topics makes the topics of the parts.
type topics struct {
	mu   sync.Mutex
	logs map[string]string
}

// goldenLog builds the arrival log of the fixture, once.
func (d *drill) goldenLog(ctx context.Context) (string, error) {
	d.topics.mu.Lock()
	defer d.topics.mu.Unlock()
	if path := d.topics.logs["golden"]; path != "" {
		return path, nil
	}
	events, path := filepath.Join(d.Dir, "snapshot.jsonl"), filepath.Join(d.Dir, "arrivals.log")
	if err := os.WriteFile(events, fixture.Snapshot, 0o600); err != nil {
		return "", codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
	}
	schedule, err := replay.ParseSchedule("fault_schedule.json", fixture.Schedule)
	if err != nil {
		return "", err
	}
	_, err = replay.Build(ctx, replay.BuildConfig{Snapshot: events, Fields: snapshot.FieldsOf(d.plan), Schedule: schedule, Out: path})
	if err != nil {
		return "", err
	}
	d.topics.logs = map[string]string{"golden": path}
	return path, nil
}

// readSchedule reads a fault schedule that the drill has made.
func readSchedule(path string) (*replay.Schedule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "%w", err)
	}
	return replay.ParseSchedule(path, text)
}

// topic is a topic that is filled piece by piece.
type topic struct {
	d        *drill
	name     string
	producer *sinkkafka.Producer
}

func (d *drill) newTopic(ctx context.Context, name string, partitions int32) (*topic, error) {
	t := &topic{d: d, name: fmt.Sprintf("%s-%s-%s", d.TopicPrefix, d.id, name)}
	var err error
	t.producer, err = sinkkafka.New(sinkkafka.Config{Brokers: strings.Split(d.brokers, ","), Topic: t.name, Security: d.Security, Logger: d.Logger})
	if err != nil {
		return nil, err
	}
	if err := t.producer.EnsureTopic(ctx, partitions); err != nil {
		t.producer.Close()
		return nil, err
	}
	return t, nil
}

func (t *topic) close() { t.producer.Close() }

// publish sends the golden log so many times.
func (t *topic) publish(ctx context.Context, times int) error {
	log, err := t.d.goldenLog(ctx)
	if err != nil {
		return err
	}
	for range times {
		if _, err := replay.Publish(ctx, replay.PublishConfig{Log: log, Producer: t.producer}); err != nil {
			return err
		}
	}
	return nil
}

// sliced sends a log in slices: each call of next sends so many of its records, in order.
type sliced struct {
	sinks.Producer
	ctx context.Context
	// told, unless nil, is told of every record before it is sent.
	told    func(record.Record)
	room    chan int64
	sent    chan error
	left    int64
	waiting bool
}

// slices starts to send a log, nothing at first.
func (t *topic) slices(ctx context.Context, log string, told func(record.Record)) *sliced {
	s := &sliced{Producer: t.producer, ctx: ctx, told: told, room: make(chan int64), sent: make(chan error, 1)}
	go func() {
		_, err := replay.Publish(ctx, replay.PublishConfig{Log: log, Producer: s})
		s.sent <- err
		close(s.sent)
	}()
	return s
}

// Produce is sinks.Producer's. It waits until there is room.
func (s *sliced) Produce(ctx context.Context, r record.Record) error {
	for s.left == 0 {
		if err := s.Flush(ctx); err != nil {
			return err
		}
		if s.waiting {
			s.waiting = false
			s.sent <- nil
		}
		select {
		case s.left = <-s.room:
			s.waiting = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.left--
	if s.told != nil {
		s.told(r)
	}
	return s.Producer.Produce(ctx, r)
}

// next sends n records more, or what is left, and returns when they are written.
func (s *sliced) next(n int64) error {
	select {
	case s.room <- n:
	case err := <-s.sent: // all is sent, or it failed
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	select {
	case err := <-s.sent:
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}
