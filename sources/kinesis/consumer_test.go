package kinesis_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/consumer"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
)

// desk is a consumer of a stream of one shard.
type desk struct {
	*bench
	t     *testing.T
	name  string
	store *sqlite.Store

	mu   sync.Mutex
	seen []string
	held []consumer.Held
	// told gets a token when something has happened.
	told chan struct{}
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	b := start(t)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &desk{bench: b, t: t, name: b.stream(t, 1), store: store, told: make(chan struct{}, 1)}
}

// to writes copies to a stream, in envelopes, since a record of Kinesis has no headers.
func (d *desk) to(stream string) consumer.Copier {
	p := consumer.NewProducing(func() (sinks.Producer, error) {
		return sinkkinesis.New(sinkkinesis.Config{Client: d.api, Stream: stream, StallTimeout: time.Minute})
	})
	d.t.Cleanup(p.Close)
	return consumer.Enveloped(p, consumer.MaxKinesisRecord)
}

func (d *desk) config(h consumer.Handler) consumer.Config {
	return consumer.Config{
		Source: newStream(d.t, d.bench.config(d.name)), Store: d.store, RunID: "r", CommitEvery: -1, Retry: d.to(d.name), MaxAttempts: 3, Envelope: true,
		Handler: func(ctx context.Context, x consumer.Delivery) consumer.Outcome {
			d.note(func() { d.seen = append(d.seen, fmt.Sprintf("%s %d", x.Key, x.Attempt)) })
			return h(ctx, x)
		},
		OnHeld: func(h consumer.Held) { d.note(func() { d.held = append(d.held, h) }) },
	}
}

func (d *desk) note(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
	select {
	case d.told <- struct{}{}:
	default:
	}
}

// until runs a consumer until something holds, which is asked whenever something has happened.
func (d *desk) until(cfg consumer.Config, done func() bool) {
	d.t.Helper()
	c, err := consumer.New(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(d.t.Context(), 5*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx)
		ended <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond) // commits are seen in the store alone
	defer tick.Stop()
	for !done() {
		select {
		case <-d.told:
		case <-tick.C:
		case err := <-ended:
			d.t.Fatalf("the consumer ended: %v", err)
		case <-ctx.Done():
			d.t.Fatalf("it did not come to that; seen %v", d.seen)
		}
	}
	stop()
	<-ended
}

// committed is the number of records that the journal counts as done.
func (d *desk) committed() int64 {
	runs, err := d.store.Runs(context.Background())
	if err != nil || len(runs) == 0 {
		return 0
	}
	return runs[0].Counts.Records
}

// Lesson 13: a retried copy goes to the end of the stream in an envelope, with its attempt. One that would be too large with it is not sent: it goes to
// the dead letters, with the attempts that were made and its bytes.
func TestLessonRetriedCopies(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	large := bytes.Repeat([]byte("x"), consumer.MaxKinesisRecord-len("large"))
	d.put(t, d.name, 0, 1, record.Record{Key: []byte("small"), Value: []byte("1")}, record.Record{Key: []byte("large"), Value: large}, record.Record{Key: []byte("fine"), Value: []byte("3")})
	cfg := d.config(func(_ context.Context, x consumer.Delivery) consumer.Outcome {
		if string(x.Key) == "fine" || x.Attempt == 2 {
			return consumer.Ack()
		}
		return consumer.Retry("busy")
	})
	cfg.Quarantine = true
	d.until(cfg, func() bool { return d.committed() == 4 })
	if want := []string{"small 1", "large 1", "fine 1", "small 2"}; !slices.Equal(d.seen, want) {
		t.Errorf("handled %v, want %v", d.seen, want)
	}
	dead := 0
	if err := d.store.Quarantine(t.Context(), "r", func(q partitions.Quarantined) error {
		dead++
		inner, is := consumer.OpenEnvelope(record.Record{Key: q.Key, Value: q.Value})
		if !is || string(inner.Key) != "large" || !bytes.Equal(inner.Value, large) || !strings.Contains(q.Detail, "RECORD_TOO_LARGE") {
			t.Errorf("set aside: %s, %d bytes, %s", inner.Key, len(inner.Value), q.Detail)
		}
		return nil
	}); err != nil || dead != 1 {
		t.Errorf("%d records were set aside, %v", dead, err)
	}
}

// A stream for dead letters that is not there holds the record, with the reason; nothing is lost, and it goes on once there is one.
func TestDeadLetterStreamMissing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.put(t, d.name, 0, 1, record.Record{Key: []byte("bad"), Value: []byte("1")}, record.Record{Key: []byte("fine"), Value: []byte("2")})
	cfg := d.config(func(_ context.Context, x consumer.Delivery) consumer.Outcome {
		if string(x.Key) == "fine" {
			return consumer.Ack()
		}
		return consumer.Retry("broken")
	})
	cfg.MaxAttempts, cfg.DeadLetter = 1, d.to("dead-letters")
	isHeld := func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.held) > 0
	}
	made := false
	d.until(cfg, func() bool {
		if isHeld() && !made {
			made = true
			if d.committed() != 0 || !codes.Has(d.held[0].Cause, codes.TopicMissing) || !strings.Contains(d.held[0].Cause.Error(), "dead-letters") {
				t.Errorf("%d are committed, held by %v", d.committed(), d.held[0].Cause)
			}
			d.create(t, "dead-letters", 1)
		}
		return made && d.committed() == 2
	})
	var g reading
	if err := g.until(t.Context(), open(t, newStream(t, d.bench.config("dead-letters")), startOf(0)), 0, g.has(1)); err != nil || !strings.Contains(g.values[0], "weir.envelope/1") {
		t.Errorf("the dead letter is %v, %v", g.values, err)
	}
}
