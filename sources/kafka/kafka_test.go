package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/sourcetest"
)

func TestMain(m *testing.M) {
	child.Main()
	os.Exit(kafkatest.Run(m))
}

// bench is a broker in this process, with clients to write and to administer it.
type bench struct {
	*devbroker.Broker
	addr  string
	write *kgo.Client
	adm   *kadm.Client
}

func start(t testing.TB, cfg devbroker.Config) *bench {
	t.Helper()
	b, err := devbroker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	out := newBench(t, b.Addr())
	out.Broker = b
	return out
}

func newBench(t testing.TB, addr string) *bench {
	t.Helper()
	return &bench{addr: addr, write: client(t, addr), adm: kadm.NewClient(client(t, addr))}
}

// client writes to the partition that a record names.
func client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableClientMetrics(),
		kgo.ProducerLinger(0),
		kgo.MetadataMinAge(20 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// topicNames gives every log of a test run a name of its own.
var topicNames atomic.Int64

func (b *bench) topic(t testing.TB, partitions int32, configs map[string]*string) string {
	t.Helper()
	name := fmt.Sprintf("topic-%d", topicNames.Add(1))
	b.create(t, name, partitions, configs)
	return name
}

func (b *bench) create(t testing.TB, name string, partitions int32, configs map[string]*string) {
	t.Helper()
	made, err := b.adm.CreateTopic(context.Background(), partitions, 1, configs, name)
	if err = errors.Join(err, made.Err); err != nil {
		t.Fatal(err)
	}
	b.known(t, name, int(partitions))
}

// known waits until the brokers know so many partitions: that may be a while after they were made.
func (b *bench) known(t testing.TB, topic string, partitions int) {
	t.Helper()
	for known := -1; known < partitions; runtime.Gosched() {
		topics, err := b.adm.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		known = 0
		for _, p := range topics[topic].Partitions {
			if p.Err == nil && p.Leader >= 0 {
				known++
			}
		}
	}
}

func kgoRecord(topic string, p int32, r record.Record) *kgo.Record {
	k := &kgo.Record{Topic: topic, Partition: p, Key: r.Key, Value: r.Value, Timestamp: time.Unix(0, int64(r.Arrival))}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return k
}

func produce(t testing.TB, cl *kgo.Client, topic string, p int32, recs ...record.Record) {
	t.Helper()
	out := make([]*kgo.Record, len(recs))
	for i, r := range recs {
		out[i] = kgoRecord(topic, p, r)
	}
	if err := cl.ProduceSync(context.Background(), out...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// transaction writes records in a transaction of its own and commits or aborts it. Both leave a marker.
func (b *bench) transaction(t testing.TB, topic string, p int32, commit bool, recs ...record.Record) {
	t.Helper()
	cl := client(t, b.addr, kgo.TransactionalID(fmt.Sprintf("txn-%d", topicNames.Add(1))))
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, topic, p, recs...)
	waitForPartition(t, cl, topic, p)
	if err := cl.EndTransaction(context.Background(), kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
	b.settled(t, topic, p)
}

// settled waits until no transaction is open in a partition: the answer to its end may come before its marker is written.
func (b *bench) settled(t testing.TB, topic string, p int32) {
	t.Helper()
	for ; ; runtime.Gosched() {
		stable, err := b.adm.ListCommittedOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		ends, err := b.adm.ListEndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := stable.Lookup(topic, p); ok && s.Err == nil && s.Offset == ends[topic][p].Offset {
			return
		}
	}
}

// waitForPartition waits until the client knows the partition that it has produced to. kgo 1.22.3 sends the first records of a topic before
// it stores the topic's partitions, and takes a transaction that ends in between for an empty one: it aborts it and reports no error.
func waitForPartition(t testing.TB, cl *kgo.Client, topic string, p int32) {
	t.Helper()
	for leader := int32(-1); leader < 0; runtime.Gosched() {
		var err error
		if leader, _, err = cl.PartitionLeader(topic, p); err != nil || t.Context().Err() != nil {
			t.Fatal(err, t.Context().Err())
		}
	}
}

func (b *bench) config(topic string) kafka.Config {
	return kafka.Config{Brokers: []string{b.addr}, Topic: topic, MaxWait: 20 * time.Millisecond}
}

func newSource(t testing.TB, cfg kafka.Config) *kafka.Source {
	t.Helper()
	s, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failNextFetch makes the broker answer the next fetch with an error that is no reason to try again by itself.
func (b *bench) failNextFetch() {
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.FetchRequest)
		if len(req.Topics) == 0 {
			b.Cluster().KeepControl()
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = rp.Partition, kerr.InvalidRequest.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

func (b *bench) target(t testing.TB, parts [][]record.Record, change func(*kafka.Config)) sourcetest.Target {
	n := int32(len(parts))
	topic := b.topic(t, n, nil)
	for p, recs := range parts {
		if len(recs) > 0 {
			produce(t, b.write, topic, int32(p), recs...)
		}
	}
	cfg := b.config(topic)
	if change != nil {
		change(&cfg)
	}
	s := newSource(t, cfg)
	return sourcetest.Target{
		Source: s,
		Append: func(t testing.TB, p int32, recs ...record.Record) { produce(t, b.write, topic, p, recs...) },
		Skip: func(t testing.TB, p int32) {
			b.transaction(t, topic, p, false, record.Record{Key: []byte("aborted"), Value: []byte(`{}`)})
		},
		End: func(t testing.TB, p int32) record.Position { return highWaters(t, s)[p] },
		Truncate: func(t testing.TB, p int32, before record.Position) {
			at, _ := before.Int64()
			b.deleteRecords(t, topic, p, at)
		},
		Recreate: func(t testing.TB) {
			b.recreate(t, topic, n)
		},
		Fail: func(testing.TB) { b.failNextFetch() },
	}
}

func highWaters(t testing.TB, s *kafka.Source) map[int32]record.Position {
	t.Helper()
	waters, err := s.HighWaters(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return waters
}

func (b *bench) deleteRecords(t testing.TB, topic string, p int32, before int64) {
	t.Helper()
	var at kadm.Offsets
	at.AddOffset(topic, p, before, -1)
	done, err := b.adm.DeleteRecords(context.Background(), at)
	if err = errors.Join(err, done.Error()); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) recreate(t testing.TB, topic string, partitions int32) {
	t.Helper()
	id := func() kadm.TopicID {
		topics, err := b.adm.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		return topics[topic].ID
	}
	was := id()
	gone, err := b.adm.DeleteTopics(context.Background(), topic)
	if err = errors.Join(err, gone.Error()); err != nil {
		t.Fatal(err)
	}
	b.create(t, topic, partitions, nil)
	for is := was; is == was || is == (kadm.TopicID{}); is = id() { // a broker may know only a while later
		runtime.Gosched()
	}
	b.known(t, topic, int(partitions))
	b.write.PurgeTopicsFromClient(topic)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	configs := map[string]func(*kafka.Config){
		"defaults": nil,
		// A few records a fetch, so that every test crosses fetches.
		"small fetches": func(c *kafka.Config) { c.FetchBytes, c.PartitionBytes, c.Fetches = 2000, 500, 1 },
	}
	for name, change := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sourcetest.Run(t, sourcetest.Harness{
				// A broker for each log: one that fails on purpose fails whoever asks it.
				New: func(t testing.TB, parts [][]record.Record) sourcetest.Target {
					return start(t, devbroker.Config{}).target(t, parts, change)
				},
				Tombstones:   true,
				EmptyValues:  true,
				NilKeys:      true,
				Headers:      true,
				ArrivalUnit:  time.Millisecond,
				EmptyAnswers: true,
			})
		})
	}
}

func open(t testing.TB, s sources.Source, from map[int32]record.Position) sources.Reader {
	t.Helper()
	r, err := s.Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// at maps partition 0, 1, … to offsets.
func at(offsets ...int64) map[int32]record.Position {
	m := map[int32]record.Position{}
	for p, o := range offsets {
		m[int32(p)] = record.Offset(o)
	}
	return m
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

func values(n int) []record.Record {
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Key: []byte("k"), Value: fmt.Append(nil, i), Arrival: record.EventTime(i) * 1e6}
	}
	return recs
}
