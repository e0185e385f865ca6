package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/kafka"
)

func TestMain(m *testing.M) {
	child.Main()
	os.Exit(kafkatest.Run(m))
}

const topic = "out"

func start(t testing.TB, cfg devbroker.Config) *devbroker.Broker {
	t.Helper()
	b, err := devbroker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// broker starts a broker with the topic.
func broker(t testing.TB, partitions int32) *devbroker.Broker {
	return start(t, devbroker.Config{Partitions: partitions, Topics: []string{topic}})
}

func producer(t testing.TB, addr string, change func(*kafka.Config)) *kafka.Producer {
	t.Helper()
	cfg := kafka.Config{Brokers: []string{addr}, Topic: topic, StartTimeout: time.Minute, StallTimeout: 5 * time.Minute} // no busy machine meets those
	if change != nil {
		change(&cfg)
	}
	p, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// readAll reads the topic up to its present end, by partition.
func readAll(t testing.TB, addr string) map[int32][]*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl := client(t, addr, kgo.ConsumeTopics(topic))
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	got := map[int32][]*kgo.Record{}
	for n := int64(0); n < total; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			n++
		})
	}
	return got
}

func send(t testing.TB, p *kafka.Producer, recs ...record.Record) {
	t.Helper()
	for _, r := range recs {
		if err := p.Produce(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func value(s string) record.Record {
	return record.Record{Key: []byte("k"), Value: []byte(s), Arrival: record.NoTime}
}

func values(recs []*kgo.Record) (vs []string) {
	for _, r := range recs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func wantCode(t testing.TB, err error, code *codes.Code, parts ...string) {
	t.Helper()
	if !codes.Has(err, code) {
		t.Fatalf("got %v, want %s", err, code.Name)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// The partition of a key is Kafka's own, for every key and number of partitions, and what record.PartitionOf says.
func TestPartitionsAreThoseOfKafkasClients(t *testing.T) {
	t.Parallel()
	const seed, partitions = 11, 7
	rng := rand.New(rand.NewPCG(seed, 0))
	kafkas := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	var recs []record.Record
	for i := range 500 {
		key := make([]byte, rng.IntN(40))
		for j := range key {
			key[j] = byte(rng.Uint32())
		}
		for n := 1; n <= 33; n++ {
			// The client calls an empty key no key and would choose freely; weir has a rule for it.
			if got, want := record.PartitionOf(key, int32(n)), kafkas.Partition(&kgo.Record{Key: key}, n); len(key) > 0 && int(got) != want {
				t.Fatalf("seed %d: key %x of %d partitions: %d, Kafka says %d", seed, key, n, got, want)
			}
		}
		recs = append(recs, record.Record{Key: key, Value: fmt.Append(nil, i), Arrival: record.NoTime})
	}
	recs = append(recs, record.Record{Key: nil, Value: []byte("no key"), Arrival: record.NoTime})
	b := broker(t, partitions)
	send(t, producer(t, b.Addr(), nil), recs...)
	n := 0
	for p, got := range readAll(t, b.Addr()) {
		for _, r := range got {
			n++
			if want := record.PartitionOf(r.Key, partitions); want != p {
				t.Errorf("key %x is in partition %d, want %d", r.Key, p, want)
			}
		}
	}
	if n != len(recs) {
		t.Errorf("%d of %d records", n, len(recs))
	}
}

func TestContentComesBackAsItWasGiven(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	at := record.EventTime(1_767_622_800_123_456_789)
	give := []record.Record{
		{Key: []byte("k"), Value: []byte("v"), Arrival: at, Headers: []record.Header{{Key: "b", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "b", Value: []byte{}}}},
		{Key: []byte("k"), Value: nil, Arrival: 0},
		{Key: []byte("k"), Value: []byte{}, Arrival: -1},
		{Key: []byte{}, Value: []byte("\x00\xff"), Arrival: -5_000_000},
		{Key: nil, Value: []byte("null"), Arrival: 999_999},
	}
	p := producer(t, b.Addr(), nil)
	for _, r := range give {
		mine := record.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Arrival: r.Arrival, Headers: slices.Clone(r.Headers)}
		for i := range mine.Headers {
			mine.Headers[i].Value = bytes.Clone(mine.Headers[i].Value)
		}
		if err := p.Produce(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		// The memory is the caller's again.
		for _, m := range [][]byte{mine.Key, mine.Value} {
			copy(m, bytes.Repeat([]byte("!"), len(m)))
		}
		for i := range mine.Headers {
			copy(mine.Headers[i].Value, "!!!!")
			mine.Headers[i] = record.Header{}
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, b.Addr())[0]
	if len(got) != len(give) {
		t.Fatalf("%d of %d records", len(got), len(give))
	}
	for i, millis := range []int64{1_767_622_800_123, 0, -1, -5, 0} {
		g, w := got[i], give[i]
		if !same(g.Key, w.Key) || !same(g.Value, w.Value) || g.Timestamp.UnixMilli() != millis || len(g.Headers) != len(w.Headers) {
			t.Errorf("record %d: got %q=%q at %d with %d headers, want %q=%q at %d", i, g.Key, g.Value, g.Timestamp.UnixMilli(), len(g.Headers), w.Key, w.Value, millis)
		}
		for j, h := range g.Headers {
			if h.Key != w.Headers[j].Key || !same(h.Value, w.Headers[j].Value) {
				t.Errorf("record %d header %d: got %q, want %q", i, j, h, w.Headers[j])
			}
		}
	}
}

// same tells nil from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestARecordWithoutArrivalIsStampedByTheClock(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	before := time.Now().Truncate(time.Millisecond)
	send(t, producer(t, b.Addr(), nil), value("now"))
	if got := readAll(t, b.Addr())[0][0].Timestamp; got.Before(before) || got.After(time.Now()) {
		t.Errorf("stamped %v", got)
	}
}

// The broker writes and then answers that it ran out of time: there is one copy, in order.
func TestAWriteWhoseAnswerIsLostIsThereOnce(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	p := producer(t, b.Addr(), nil)
	send(t, p, value("0"))
	faults := b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.RequestTimedOut, Count: 3})
	var want []string
	for i := range 20 {
		send(t, p, value(fmt.Sprint(i+1)))
	}
	for i := range 21 {
		want = append(want, fmt.Sprint(i))
	}
	if got := values(readAll(t, b.Addr())[0]); !slices.Equal(got, want) || faults.Hits() != 3 {
		t.Errorf("got %v after %d faults, want %v", got, faults.Hits(), want)
	}
}

// The first error stays, and nothing handed over after the record that failed is written to its partition.
func TestTheFirstErrorStaysAndLeavesNoGap(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	p := producer(t, b.Addr(), nil)
	send(t, p, value("0"), value("1"))
	b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord})
	var first error
	for i := 2; first == nil; i++ {
		if first = p.Produce(t.Context(), value(fmt.Sprint(i))); first == nil {
			first = p.Flush(t.Context())
		}
	}
	wantCode(t, first, codes.BrokerRefused, topic, "INVALID_RECORD")
	if err := p.Produce(t.Context(), value("after")); err != first {
		t.Errorf("got %v, want the first error", err)
	}
	if err := p.Flush(t.Context()); err != first {
		t.Errorf("got %v, want the first error", err)
	}
	if got := values(readAll(t, b.Addr())[0]); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("got %v behind the failure", got)
	}
}

func TestTheBufferIsBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kafka.Config){
		"records": func(c *kafka.Config) { c.BufferRecords = 10 },
		"bytes":   func(c *kafka.Config) { c.BufferBytes = 10*1001 + 500 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := child.Start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
			p := producer(t, b.Addr(), change)
			big := value(strings.Repeat("x", 1000))
			send(t, p, big)
			if err := b.Freeze(); err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				if err := p.Produce(t.Context(), big); err != nil {
					t.Fatalf("record %d: %v", i, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			blocked := make(chan error, 1)
			go func() { blocked <- p.Produce(ctx, big) }()
			cancel()
			if err := <-blocked; !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v over the bound", err)
			}
			if err := b.Thaw(); err != nil {
				t.Fatal(err)
			}
			send(t, p, big)
			if got := readAll(t, b.Addr())[0]; len(got) != 12 {
				t.Errorf("%d records, want 12", len(got))
			}
		})
	}
}

// Brokers that go away while records wait are an error after the stall timeout, whatever the timestamps of the records say.
func TestBrokersThatWriteNothingAreUnreachable(t *testing.T) {
	t.Parallel()
	b := child.Start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
	old := record.Record{Value: []byte("x"), Arrival: 1}
	// A stall that brokers on this machine keep within while they run.
	var p *kafka.Producer
	for stall, err := 300*time.Millisecond, error(nil); p == nil || err != nil; stall *= 2 {
		p = producer(t, b.Addr(), func(c *kafka.Config) { c.StallTimeout = stall })
		if err = errors.Join(p.Produce(t.Context(), old), p.Flush(t.Context())); err != nil && stall > time.Minute {
			t.Fatal(err)
		}
	}
	b.Kill()
	if err := p.Produce(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	err := p.Flush(t.Context())
	wantCode(t, err, codes.BrokerUnreachable, b.Addr(), "is the broker running")
	if again := p.Produce(t.Context(), old); again != err {
		t.Errorf("got %v, want the first error", again)
	}
}

func TestTheTopicMustExist(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	p := producer(t, b.Addr(), nil)
	wantCode(t, p.Produce(t.Context(), value("x")), codes.TopicMissing, topic, b.Addr())
	for range 2 {
		if err := p.EnsureTopic(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
	}
	send(t, p, value("x"))
	other := producer(t, b.Addr(), nil)
	if err := other.EnsureTopic(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	topics, err := kadm.NewClient(client(t, b.Addr())).ListTopics(t.Context(), topic)
	if err != nil || len(topics[topic].Partitions) != 3 {
		t.Errorf("%d partitions, %v; want the 3 of the first", len(topics[topic].Partitions), err)
	}
	b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation})
	bad := producer(t, b.Addr(), func(c *kafka.Config) { c.Topic = "refused" })
	wantCode(t, bad.EnsureTopic(t.Context(), 1), codes.BrokerRefused, "refused", "POLICY_VIOLATION")
}

func TestATopicThatIsDeletedIsMissing(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	p := producer(t, b.Addr(), nil)
	send(t, p, value("x"))
	if _, err := kadm.NewClient(client(t, b.Addr())).DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if err := p.Produce(t.Context(), value("y")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.Flush(t.Context()), codes.TopicMissing, topic)
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	p := producer(t, "127.0.0.1:1", func(c *kafka.Config) { c.StartTimeout = time.Second })
	wantCode(t, p.Produce(t.Context(), value("x")), codes.BrokerUnreachable, "127.0.0.1:1", "nothing listens there")
	wantCode(t, p.EnsureTopic(t.Context(), 1), codes.BrokerUnreachable, "127.0.0.1:1")
	_, err := kafka.New(kafka.Config{Topic: topic})
	wantCode(t, err, codes.BrokerUnreachable, "--brokers")
	_, err = kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:nine"}, Topic: topic})
	wantCode(t, err, codes.ConfigInvalid, "127.0.0.1:nine")
}

func TestDeniedAccessIsNamed(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	p := producer(t, b.Addr(), nil)
	if err := p.Produce(t.Context(), value("x")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.Flush(t.Context()), codes.AccessDenied, topic)
}

// A record that is larger than a batch is written alone, between those before and those after it, up to what the topic takes.
func TestLargeRecordsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	p := producer(t, b.Addr(), nil)
	large := strings.Repeat("0123456789", 1<<20)
	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprintf("before %d", i), large, fmt.Sprintf("after %d", i))
	}
	for _, v := range want {
		if err := p.Produce(t.Context(), value(v)); err != nil {
			t.Fatal(err)
		}
	}
	err := p.Produce(t.Context(), value(strings.Repeat(large, 2)))
	wantCode(t, err, codes.RecordTooLarge, "record 10 ", fmt.Sprint(2*len(large)+1), "max.message.bytes")
	if again := p.Flush(t.Context()); again != err {
		t.Errorf("got %v, want the first error", again)
	}
	if got := values(readAll(t, b.Addr())[0]); !slices.Equal(got, want) {
		t.Errorf("%d records, want %d, in the order in which they were handed over", len(got), len(want))
	}
}

func TestATopicMayTakeLessThanTheDefault(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	small := "5000"
	if _, err := kadm.NewClient(client(t, b.Addr())).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &small}, topic); err != nil {
		t.Fatal(err)
	}
	p := producer(t, b.Addr(), nil)
	noise := make([]byte, 20_000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	if err := p.Produce(t.Context(), record.Record{Value: noise, Arrival: record.NoTime}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.Flush(t.Context()), codes.RecordTooLarge, topic)
}

// Records of a key stay in order over thousands of batches in flight.
func TestOrderOfAKey(t *testing.T) {
	t.Parallel()
	b := broker(t, 4)
	p := producer(t, b.Addr(), func(c *kafka.Config) { c.BufferRecords = 500 })
	const n = 20_000
	for i := range n {
		if err := p.Produce(t.Context(), record.Record{Key: fmt.Append(nil, i%13), Value: fmt.Append(nil, i), Arrival: record.NoTime}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, total := map[string]int{}, 0
	for _, recs := range readAll(t, b.Addr()) {
		for _, r := range recs {
			var i int
			if _, err := fmt.Sscan(string(r.Value), &i); err != nil {
				t.Fatal(err)
			}
			if prev, ok := last[string(r.Key)]; ok && i != prev+13 {
				t.Fatalf("key %s: %d after %d", r.Key, i, prev)
			}
			last[string(r.Key)] = i
			total++
		}
	}
	if total != n {
		t.Errorf("%d of %d records", total, n)
	}
}

func TestCloseWithoutFlush(t *testing.T) {
	t.Parallel()
	b := broker(t, 1)
	p := producer(t, b.Addr(), nil)
	if err := p.Produce(t.Context(), value("x")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := p.Flush(t.Context()); err != nil {
		wantCode(t, err, codes.BrokerUnreachable, "closed before everything was written")
	}
}
