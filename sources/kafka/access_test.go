//go:build unix

package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/secret"
	sink "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// allow grants an operation to the user.
func (b *bench) allow(t *testing.T, op kadm.ACLOperation, on func(*kadm.ACLBuilder, ...string) *kadm.ACLBuilder, name string) {
	t.Helper()
	acl := on(kadm.NewACLs(), name).ResourcePatternType(kadm.ACLPatternLiteral).Operations(op).Allow("User:" + kafkatest.User).AllowHosts()
	results, err := b.adm.CreateACLs(t.Context(), acl)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// A broker with an authorizer: what is not granted is denied by name, with the user, the operations that are needed and no password; what is
// granted is enough.
func TestAccessByApache(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Config{Secure: true, Settings: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
	}})
	b := newBench(t, broker.Addr())
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(5)...)
	security := kafka.Security{TLS: true, CA: broker.CA, Mechanism: "SCRAM-SHA-512", User: kafkatest.User, Password: secret.New(kafkatest.ScramPassword)}
	cfg := b.config(topic)
	cfg.Brokers, cfg.Security = []string{broker.SASLAddr()}, security
	s := newSource(t, cfg)
	denied := func(what string, err error) {
		t.Helper()
		wantCode(t, err, codes.AccessDenied, kafkatest.User, what)
	}
	write := func() error {
		p, err := sink.New(sink.Config{Brokers: cfg.Brokers, Topic: topic, Security: security})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Produce(t.Context(), record.Record{Value: []byte("5"), Arrival: record.NoTime}); err != nil {
			return err
		}
		return p.Flush(t.Context())
	}

	_, err := s.Info(t.Context())
	denied("Describe and Read", err)
	_, err = s.Open(t.Context(), at(0))
	denied(topic, err)
	denied("Describe and Write", write())

	b.allow(t, kadm.OpDescribe, (*kadm.ACLBuilder).Topics, topic)
	if _, err := s.Info(t.Context()); err != nil {
		t.Errorf("Describe is granted: %v", err)
	}
	denied(topic, newRead(t).failure(open(t, s, at(0))))
	denied("Describe and Write", write())

	b.allow(t, kadm.OpRead, (*kadm.ACLBuilder).Topics, topic)
	g := newRead(t)
	g.until(open(t, s, at(0)), 0, g.has(0, 5))
	g.want(0, 0, 5)
	denied(`the consumer group "lag"`, s.CommitGroup(t.Context(), "lag", at(5)))
	b.allow(t, kadm.OpRead, (*kadm.ACLBuilder).Groups, "lag")
	if err := s.CommitGroup(t.Context(), "lag", at(5)); err != nil {
		t.Errorf("the group is granted: %v", err)
	}
	denied("Describe and Write", write())
	b.allow(t, kadm.OpWrite, (*kadm.ACLBuilder).Topics, topic)
	if err := write(); err != nil {
		t.Errorf("Write is granted: %v", err)
	}

	// Who holds a transaction open is told by its producer id alone to those who may not see transactional ids.
	cl := client(t, b.addr, kgo.TransactionalID("hidden"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, topic, 0, values(1)...)
	waitForPartition(t, cl, topic, 0)
	id, _, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Observe(t.Context())
	if h := o.Extents[0].Hold; err != nil || h == nil || h.Reason != sources.LSOBlocked || h.By != fmt.Sprintf("producer %d", id) || h.Since.IsZero() || !h.Ends.IsZero() {
		t.Errorf("held by %+v (%v), want producer %d and no end", o.Extents[0].Hold, err, id)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}

	// A right that is withdrawn from a run under way ends it by name.
	r := open(t, s, at(0))
	g = newRead(t)
	g.until(r, 0, g.has(0, 6))
	gone := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead).Allow("User:" + kafkatest.User).AllowHosts()
	if _, err := b.adm.DeleteACLs(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	denied(topic, g.failure(r))
}

// One address of two that answers is enough, whichever it is, and while a run is under way too.
func TestHalfTheBrokersDown(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(3)...)
	nobody := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for _, brokers := range [][]string{{nobody, b.addr}, {b.addr, nobody}} {
		cfg := b.config(topic)
		cfg.Brokers = brokers
		s := newSource(t, cfg)
		g := newRead(t)
		g.until(open(t, s, at(0)), 0, g.has(0, 3))
		g.want(0, 0, 3)
		if _, err := s.Observe(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A record of a format before Kafka 0.11 is refused by Apache Kafka 4 when it is written, so that none can be met when it is read.
func TestOldFormatsAreRefusedByTheBroker(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	old := kmsg.MessageV1{Magic: 1, Timestamp: 1000, Value: []byte("old")}
	old.MessageSize = int32(len(old.AppendTo(nil)) - 12)
	rt.Partitions = []kmsg.ProduceRequestTopicPartition{{Records: old.AppendTo(nil)}}
	meta, err := b.adm.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	rt.TopicID = meta[topic].ID
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	resp, err := req.RequestWith(ctx, b.write)
	if err == nil && resp.Topics[0].Partitions[0].ErrorCode == 0 {
		t.Error("the broker has taken a record of an old format")
	}
	if end := highWaters(t, newSource(t, b.config(topic)))[0]; end != record.Offset(0) {
		t.Errorf("the log ends at %v", end)
	}
}
