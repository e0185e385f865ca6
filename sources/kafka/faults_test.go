package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// read gathers the values and positions of each partition, and releases every batch at once.
type read struct {
	t      testing.TB
	ctx    context.Context // ends a test that waits for what does not come
	values map[int32][]string
	next   map[int32]record.Position
}

func newRead(t testing.TB) *read {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return &read{t: t, ctx: ctx, values: map[int32][]string{}, next: map[int32]record.Position{}}
}

func (g *read) poll(r sources.Reader, limit int) (records int, err error) {
	batches, err := r.Poll(g.ctx, limit)
	for i := range batches {
		b := &batches[i]
		for _, rec := range b.Records {
			g.values[b.Partition] = append(g.values[b.Partition], string(rec.Value))
			records++
		}
		g.next[b.Partition] = b.Next
		b.Done()
	}
	return records, err
}

// until polls until done, which is asked after every answer.
func (g *read) until(r sources.Reader, limit int, done func() bool) {
	g.t.Helper()
	for !done() {
		if _, err := g.poll(r, limit); err != nil {
			g.t.Fatalf("after %d records of partition 0: %v", len(g.values[0]), err)
		}
	}
}

// failure polls until an error.
func (g *read) failure(r sources.Reader) error {
	for {
		if _, err := g.poll(r, 0); err != nil {
			return err
		}
	}
}

func (g *read) has(p int32, n int) func() bool { return func() bool { return len(g.values[p]) >= n } }

func (g *read) want(p int32, from, to int) {
	g.t.Helper()
	var want []string
	for i := from; i < to; i++ {
		want = append(want, strconv.Itoa(i))
	}
	if !slices.Equal(g.values[p], want) {
		g.t.Errorf("partition %d: got %v, want %d to %d", p, g.values[p], from, to-1)
	}
}

// Ten records, the run needs the fourth, retention took seven: nothing is delivered of that partition, the others go on once it is paused, and
// the brokers are not asked for it again.
func TestRetentionBelowThePositionIsALossAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		produce(t, b.write, topic, 0, values(10)...)
		produce(t, b.write, topic, 1, values(10)...)
		b.deleteRecords(t, topic, 0, 7)
		cfg := b.config(topic)
		requests := count(&cfg)
		r := open(t, newSource(t, cfg), at(3, 0))
		g := newRead(t)
		err := g.failure(r)
		wantCode(t, err, codes.OffsetLost, topic, "partition 0", "need offset 3", "have 7 to 10")
		var f *sources.Fault
		if !errors.As(err, &f) || f.Partition != 0 || f.Need != record.Offset(3) || f.After != record.Offset(7) || !f.Known {
			t.Errorf("the fault is %+v", f)
		}
		if len(g.values[0]) > 0 {
			t.Errorf("got %v behind the loss", g.values[0])
		}
		g.want(1, 0, len(g.values[1]))

		before := requests.all()
		for range 1000 {
			_, err := g.poll(r, 0)
			wantCode(t, err, codes.OffsetLost)
		}
		// One fetch of the other partition may have been under way, and one may follow it.
		if n := requests.all() - before; n > 4 {
			t.Errorf("%d requests in 1000 polls after the loss", n)
		}

		r.Pause(0)
		g.until(r, 0, g.has(1, 10))
		g.want(1, 0, 10)
		produce(t, b.write, topic, 1, values(20)[10:]...)
		g.until(r, 0, g.has(1, 20))
		g.want(1, 0, 20)
		g.want(0, 0, 0)
		r.Resume(0) // does not mend it
		wantCode(t, g.failure(r), codes.OffsetLost, "need offset 3")
	})
}

// A partition that is paused may still be fetched ahead, here by one batch at most of the four that retention takes. The loss is told
// when it is resumed.
func TestRetentionWhilePausedIsALoss(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		cfg := b.config(topic)
		cfg.PartitionBytes = 1 // a batch
		produce(t, b.write, topic, 0, values(3)...)
		r := open(t, newSource(t, cfg), at(0, 0))
		g := newRead(t)
		g.until(r, 0, g.has(0, 3))
		r.Pause(0)
		for _, v := range values(10)[3:] {
			produce(t, b.write, topic, 0, v)
		}
		b.deleteRecords(t, topic, 0, 7)
		produce(t, b.write, topic, 1, values(5)...)
		g.until(r, 0, g.has(1, 5))
		g.want(0, 0, 3)
		r.Resume(0)
		wantCode(t, g.failure(r), codes.OffsetLost, "have 7 to 10", "removed")
		g.want(0, 0, min(len(g.values[0]), 4))
	})
}

func TestAPositionBehindTheEndIsALoss(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 1, nil)
		produce(t, b.write, topic, 0, values(10)...)
		r := open(t, newSource(t, b.config(topic)), at(11))
		wantCode(t, newRead(t).failure(r), codes.OffsetLost, "need offset 11", "have 0 to 10", "ends before it")
	})
}

func TestADeletedTopicIsMissing(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 1, nil)
		produce(t, b.write, topic, 0, values(3)...)
		r := open(t, newSource(t, b.config(topic)), at(0))
		g := newRead(t)
		g.until(r, 0, g.has(0, 3))
		if _, err := b.adm.DeleteTopics(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		wantCode(t, g.failure(r), codes.TopicMissing, topic, "deleted")
		g.want(0, 0, 3)
	})
}

// A reader at the end of a topic that is recreated with more records than it has read must not skip the first of them.
func TestARecreatedTopicIsNoticedByALiveReader(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		produce(t, b.write, topic, 0, values(10)...)
		s := newSource(t, b.config(topic))
		before, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, s, at(0, 0))
		g := newRead(t)
		g.until(r, 0, g.has(0, 10))
		b.recreate(t, topic, 2)
		produce(t, b.write, topic, 0, values(20)...)
		after, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, g.failure(r), codes.TopicRecreated, topic, before.ID, after.ID)
		g.want(0, 0, 10)
	})
}

// Brokers before Kafka 3.1 are asked by name and answer for whatever topic has it now. The reader asks for the id itself when nothing comes.
func TestARecreatedTopicIsNoticedWithoutTheFetch(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(10)...)
	r := open(t, newSource(t, b.config(topic)), at(0))
	g := newRead(t)
	g.until(r, 0, g.has(0, 10))
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		return kreq.ResponseKind(), nil, true // nothing of anything
	})
	b.recreate(t, topic, 1)
	wantCode(t, g.failure(r), codes.TopicRecreated, topic)
	g.want(0, 0, 10)
}

func TestDeniedAccessIsNamed(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	s := newSource(t, b.config(topic))
	r := open(t, s, at(0))
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			ft := kmsg.NewFetchResponseTopic()
			ft.Topic, ft.TopicID = rt.Topic, rt.TopicID
			fp := kmsg.NewFetchResponseTopicPartition()
			fp.ErrorCode = kerr.TopicAuthorizationFailed.Code
			ft.Partitions = append(ft.Partitions, fp)
			resp.Topics = append(resp.Topics, ft)
		}
		return resp, nil, true
	})
	produce(t, b.write, topic, 0, values(1)...)
	wantCode(t, newRead(t).failure(r), codes.AccessDenied, topic)
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, rt := range req.Topics {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic, mt.ErrorCode = rt.Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, mt)
		}
		return resp, nil, true
	})
	_, err := s.Info(t.Context())
	wantCode(t, err, codes.AccessDenied, topic)
}

// outages gathers what OnOutage is told.
type outages chan error

func (o outages) note(err error) { o <- err }

// A broker that is killed and comes back with its data is read on from where the reader stands, and an outage is never answered empty.
func TestABrokerThatIsKilledIsReadOn(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	cfg := devbroker.Config{DataDir: t.TempDir(), Port: port, Partitions: 2, Topics: []string{"ticks"}}
	p := child.Start(t, cfg)
	out := make(outages, 10)
	s := newSource(t, kafka.Config{Brokers: []string{p.Addr()}, Topic: "ticks", MaxWait: 20 * time.Millisecond, OnOutage: out.note})
	produce(t, client(t, p.Addr()), "ticks", 0, values(50)...)
	r := open(t, s, at(0, 0))
	g := newRead(t)
	g.until(r, 7, g.has(0, 50))
	for round := 1; round <= 2; round++ {
		p.Kill()
		wait, cancel := context.WithCancel(t.Context())
		polled := make(chan error, 1)
		go func() {
			batches, err := r.Poll(wait, 0)
			if err == nil && len(batches) == 0 {
				err = errors.New("an outage was answered empty")
			}
			polled <- err
		}()
		wantCode(t, <-out, codes.BrokerUnreachable, p.Addr())
		cancel()
		if err := <-polled; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		p = child.Start(t, cfg)
		more := values(50 * (round + 1))[50*round:]
		// A new producer: the broker forgets the sequence numbers of the old one when it is killed, and would let it write out of order.
		produce(t, client(t, p.Addr()), "ticks", 0, more...)
		g.until(r, 7, g.has(0, 50*(round+1)))
		if err := <-out; err != nil {
			t.Fatalf("got %v, want the end of the outage", err)
		}
	}
	g.want(0, 0, 150)
}

// freePort finds a port that nobody uses, below those that systems give to outgoing connections: one of them, even one to this very port, must not take
// it while a broker is down.
func freePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 100 {
		port := 12_000 + rand.IntN(6_000)
		var ln net.Listener
		if ln, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal(err)
	return 0
}

// A broker that hangs keeps its connections open and answers nothing: not idle either.
func TestABrokerThatHangsIsNotIdle(t *testing.T) {
	t.Parallel()
	p := child.Start(t, devbroker.Config{Partitions: 1, Topics: []string{"ticks"}})
	out := make(outages, 10)
	s := newSource(t, kafka.Config{Brokers: []string{p.Addr()}, Topic: "ticks", MaxWait: 20 * time.Millisecond, OnOutage: out.note})
	w := client(t, p.Addr())
	produce(t, w, "ticks", 0, values(5)...)
	r := open(t, s, at(0))
	g := newRead(t)
	g.until(r, 0, g.has(0, 5))
	if n, err := g.poll(r, 0); n != 0 || err != nil {
		t.Fatalf("got %d records, %v, want an empty answer", n, err)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithCancel(t.Context())
	polled := make(chan error, 1)
	go func() {
		batches, err := r.Poll(wait, 0)
		if err == nil && len(batches) == 0 {
			err = errors.New("a broker that hangs was answered empty")
		}
		polled <- err
	}()
	wantCode(t, <-out, codes.BrokerUnreachable, p.Addr())
	cancel()
	if err := <-polled; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	produce(t, w, "ticks", 0, values(10)[5:]...)
	g.until(r, 0, g.has(0, 10))
	g.want(0, 0, 10)
}

// Leaders that move between nodes under load lose and double nothing.
func TestLeadersThatMove(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{Nodes: 3})
	topic := b.topic(t, 3, nil)
	r := open(t, newSource(t, b.config(topic)), at(0, 0, 0))
	g := newRead(t)
	for round := range 12 {
		for p := range int32(3) {
			produce(t, b.write, topic, p, values(20 * (round + 1))[20*round:]...)
			if err := b.Cluster().MoveTopicPartition(topic, p, int32(round+int(p))%3); err != nil {
				t.Fatal(err)
			}
		}
		g.until(r, 11, g.has(int32(round%3), 20*(round+1)))
	}
	for p := range int32(3) {
		g.until(r, 0, g.has(p, 240))
		g.want(p, 0, 240)
	}
}

func TestGroupOffsetsAreWrittenAsACourtesy(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 2, nil)
	s := newSource(t, b.config(topic))
	if err := s.CommitGroup(t.Context(), "lag", at(3, 4)); err != nil {
		t.Fatal(err)
	}
	got, err := b.adm.FetchOffsets(t.Context(), "lag")
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range []int64{3, 4} {
		if o, ok := got.Lookup(topic, int32(p)); !ok || o.At != want {
			t.Errorf("partition %d: got %+v, want %d", p, o, want)
		}
	}
	err = s.CommitGroup(t.Context(), "lag", map[int32]record.Position{0: bigPosition(t)})
	wantCode(t, err, codes.Internal, "no Kafka offset")
	b.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.Topics {
			ot := kmsg.NewOffsetCommitResponseTopic()
			ot.Topic, ot.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				op := kmsg.NewOffsetCommitResponseTopicPartition()
				op.Partition, op.ErrorCode = rp.Partition, kerr.UnknownMemberID.Code
				ot.Partitions = append(ot.Partitions, op)
			}
			resp.Topics = append(resp.Topics, ot)
		}
		return resp, nil, true
	})
	wantCode(t, s.CommitGroup(t.Context(), "lag", at(5)), codes.BrokerRefused, "lag", "UNKNOWN_MEMBER_ID")
}

func bigPosition(t testing.TB) record.Position {
	t.Helper()
	p, err := record.ParsePosition(strings.Repeat("9", 40))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPositionThatIsNoOffsetIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	s := newSource(t, b.config(b.topic(t, 1, nil)))
	_, err := s.Open(t.Context(), map[int32]record.Position{0: bigPosition(t)})
	wantCode(t, err, codes.RunMismatch, strings.Repeat("9", 40))
}
