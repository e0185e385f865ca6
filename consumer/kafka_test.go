package consumer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	sourcekafka "github.com/weirstream/weir/sources/kafka"
)

// kafkaWorld is an embedded broker and a store in a file.
type kafkaWorld struct {
	t      *testing.T
	broker *devbroker.Broker
	store  *sqlite.Store
	source *sourcekafka.Source

	mu      sync.Mutex
	handled map[string]int
	held    []Held
	// told gets a token when something was handled, held or committed.
	told chan struct{}
}

func newKafkaWorld(t *testing.T, topics ...string) *kafkaWorld {
	t.Helper()
	b, err := devbroker.Start(devbroker.Config{Partitions: 4, Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	source, err := sourcekafka.New(sourcekafka.Config{Brokers: []string{b.Addr()}, Topic: topics[0]})
	if err != nil {
		t.Fatal(err)
	}
	return &kafkaWorld{t: t, broker: b, store: store, source: source, handled: map[string]int{}, told: make(chan struct{}, 1)}
}

func (k *kafkaWorld) copier(topic string) *Producing {
	p := NewProducing(func() (sinks.Producer, error) {
		return sinkkafka.New(sinkkafka.Config{Brokers: []string{k.broker.Addr()}, Topic: topic, StartTimeout: 2 * time.Second})
	})
	k.t.Cleanup(p.Close)
	return p
}

// put writes records to a topic, n for each of the partitions, by keys that lead there.
func (k *kafkaWorld) put(topic string, n int) { k.t.Helper(); k.putFrom(topic, 0, n) }

// putFrom is put with another number than 0 to begin with.
func (k *kafkaWorld) putFrom(topic string, from, to int) {
	k.t.Helper()
	c := k.copier(topic)
	var all sync.WaitGroup
	for p := range int32(4) {
		key := keyOf(p)
		all.Go(func() {
			for i := from; i < to; i++ {
				if err := c.Copy(k.t.Context(), record.Record{Key: key, Value: fmt.Appendf(nil, "%d:%d", p, i)}); err != nil {
					k.t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func keyOf(partition int32) []byte {
	for i := 0; ; i++ {
		if key := fmt.Append(nil, "key", i); record.PartitionOf(key, 4) == partition {
			return key
		}
	}
}

// all reads a topic to where it ends.
func (k *kafkaWorld) all(topic string) (out []record.Record) {
	k.t.Helper()
	s, err := sourcekafka.New(sourcekafka.Config{Brokers: []string{k.broker.Addr()}, Topic: topic})
	if err != nil {
		k.t.Fatal(err)
	}
	_, bounds, err := s.Bounds(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	from, left := map[int32]record.Position{}, map[int32]record.Position{}
	for p, b := range bounds {
		if from[p] = b.Start; b.End.Cmp(b.Start) > 0 {
			left[p] = b.End
		}
	}
	r, err := s.Open(k.t.Context(), from)
	if err != nil {
		k.t.Fatal(err)
	}
	defer r.Close()
	for len(left) > 0 {
		batches, err := r.Poll(k.t.Context(), 0)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, b := range batches {
			for _, rec := range b.Records {
				out = append(out, clone(rec))
			}
			if b.Next.Cmp(left[b.Partition]) >= 0 {
				delete(left, b.Partition)
			}
			b.Done()
		}
	}
	return out
}

func (k *kafkaWorld) tell() {
	select {
	case k.told <- struct{}{}:
	default:
	}
}

func (k *kafkaWorld) config(h Handler) Config {
	return Config{Source: k.source, Store: k.store, RunID: "r", CommitEvery: -1, TTL: 2 * time.Second, Standby: true, Handler: func(ctx context.Context, d Delivery) Outcome {
		o := h(ctx, d)
		k.mu.Lock()
		k.handled[fmt.Sprintf("%s#%d", d.Value, d.Attempt)]++
		k.mu.Unlock()
		k.tell()
		return o
	}, OnHeld: func(h Held) {
		k.mu.Lock()
		k.held = append(k.held, h)
		k.mu.Unlock()
		k.tell()
	}, CommitOffsets: func(context.Context, map[int32]record.Position) error {
		k.tell()
		return nil
	}}
}

// run consumes until a condition holds, asked after everything that happens, or until it ends by itself.
func (k *kafkaWorld) run(cfg Config, until func() bool) error {
	k.t.Helper()
	c, err := New(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			return err
		case <-k.told:
			if until() {
				cancel()
				return <-done
			}
		}
	}
}

func (k *kafkaWorld) committed() string {
	var out []string
	err := k.store.Snapshot(k.t.Context(), "r", func(v control.JournalView) error {
		for p := range int32(4) {
			out = append(out, v.State().Cuts[p].Next.String())
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return strings.Join(out, " ")
}

// ends are where the partitions of the log end, as committed writes positions.
func (k *kafkaWorld) ends() string {
	k.t.Helper()
	_, bounds, err := k.source.Bounds(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	var out []string
	for p := range int32(4) {
		out = append(out, bounds[p].End.String())
	}
	return strings.Join(out, " ")
}

func headersOf(r record.Record) map[string]string {
	out := map[string]string{}
	for _, h := range r.Headers {
		out[h.Key] = string(h.Value)
	}
	return out
}

// B18 over Kafka: one record that always fails, in one of four partitions, and crashes at each point of its way. The others complete, it is tried as
// often as declared, and is a dead letter with where it stood: one without a crash, and at least one with, since a crash makes two copies of one.
func TestKafkaPoisonThroughCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"nowhere", "handled", "published", "commit", "committed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			k := newKafkaWorld(t, "in", "dead")
			k.put("in", 50)
			handler := func(_ context.Context, d Delivery) Outcome {
				if string(d.Value) == "1:20" {
					return Retry("cannot be decoded")
				}
				return Ack()
			}
			var crashes atomic.Int32
			// What is done when the crash comes needs no other life.
			for crashes.Load() == 0 || k.committed() != k.ends() {
				kill, dead := context.WithCancel(t.Context())
				var once sync.Once
				cfg := k.config(handler)
				cfg.Kill, cfg.MaxAttempts, cfg.Retry, cfg.DeadLetter = kill, 3, k.copier("in"), k.copier("dead")
				cfg.hook = func(at string) {
					if at == point && crashes.Load() < 4 {
						once.Do(func() { crashes.Add(1); dead() })
					}
				}
				err := k.run(cfg, func() bool { return (point == "nowhere" || crashes.Load() > 0) && k.committed() == k.ends() })
				dead()
				if err == nil {
					break
				}
				if kill.Err() == nil {
					t.Fatal(err)
				}
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			for p := range 4 {
				for i := range 50 {
					if k.handled[fmt.Sprintf("%d:%d#1", p, i)] == 0 {
						t.Errorf("%d:%d was never handled", p, i)
					}
				}
			}
			if k.handled["1:20#2"] == 0 || k.handled["1:20#3"] == 0 || k.handled["1:20#4"] != 0 {
				t.Errorf("attempts: %v", k.handled)
			}
			letters := k.all("dead")
			if len(letters) == 0 || point == "nowhere" && len(letters) != 1 {
				t.Errorf("%d dead letters", len(letters))
			}
			for _, r := range letters {
				h := headersOf(r)
				if string(r.Value) != "1:20" || h[HeaderDeadPartition] != "1" || h[HeaderDeadSource] != "in" || h[HeaderDeadReason] != "cannot be decoded" || h[HeaderDeadAttempts] != "3" ||
					h[partitions.HeaderRetryCount] != "2" || h[HeaderDeadToken] == "0" {
					t.Errorf("%s %v", r.Value, h)
				}
			}
		})
	}
}

// The topic for dead letters is missing: the record stays undone, which is said in so many words, and the other partitions go on. Once the
// topic is there it goes on by itself.
func TestKafkaDeadLetterTopicMissing(t *testing.T) {
	t.Parallel()
	k := newKafkaWorld(t, "in")
	k.put("in", 10)
	cfg := k.config(func(_ context.Context, d Delivery) Outcome {
		if string(d.Value) == "1:4" {
			return Retry("broken")
		}
		return Ack()
	})
	cfg.MaxAttempts, cfg.DeadLetter = 1, k.copier("dead")
	if err := k.run(cfg, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.held) > 0 && k.committed() == "10 4 10 10"
	}); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	if !codes.Has(k.held[0].Cause, codes.TopicMissing) || !strings.Contains(k.held[0].Cause.Error(), `"dead"`) || k.held[0].Position != record.Offset(4) {
		t.Errorf("held: %+v", k.held)
	}
	k.mu.Unlock()
	p, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{k.broker.Addr()}, Topic: "dead"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.EnsureTopic(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := k.run(cfg, func() bool { return k.committed() == "10 10 10 10" }); err != nil {
		t.Fatal(err)
	}
	if n := len(k.all("dead")); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// B19: a process dies with ten records in hand. The next one gets the lease when it has run out, and all of them; none runs twice at once.
func TestKafkaWorkIsReclaimed(t *testing.T) {
	t.Parallel()
	k := newKafkaWorld(t, "in")
	k.put("in", 5)
	var mu sync.Mutex
	now, first := map[string]int{}, []string{}
	kill, dead := context.WithCancel(t.Context())
	work := func(die bool) Handler {
		return func(ctx context.Context, d Delivery) Outcome {
			id := string(d.Value)
			mu.Lock()
			if now[id]++; now[id] > 1 {
				t.Errorf("%s is handled twice at once", id)
			}
			if die {
				if first = append(first, id); len(first) == 4 {
					dead()
				}
			}
			mu.Unlock()
			if die {
				<-ctx.Done()
			}
			mu.Lock()
			now[id]--
			mu.Unlock()
			return Ack()
		}
	}
	cfg := k.config(work(true))
	cfg.Kill = kill
	if err := k.run(cfg, func() bool { return false }); err == nil || kill.Err() == nil {
		t.Fatalf("not killed: %v", err)
	}
	if err := k.run(k.config(work(false)), func() bool { return k.committed() == "5 5 5 5" }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(first)
	if strings.Join(first, " ") != "0:0 1:0 2:0 3:0" {
		t.Errorf("in hand: %v", first)
	}
	for _, id := range first {
		if k.handled[id+"#1"] != 2 {
			t.Errorf("%s was handled %d times", id, k.handled[id+"#1"])
		}
	}
}
