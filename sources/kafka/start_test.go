package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/sources/kafka"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 3, nil)
		info, err := newSource(t, b.config(topic)).Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != topic || len(info.ID) != 22 || info.Bounded || !slices.Equal(info.Partitions, []int32{0, 1, 2}) {
			t.Errorf("got %+v", info)
		}
		for range 4 {
			produce(t, b.write, topic, 1, values(1)...)
		}
		waters := highWaters(t, newSource(t, b.config(topic)))
		if want := at(0, 4, 0); len(waters) != 3 || waters[0] != want[0] || waters[1] != want[1] || waters[2] != want[2] {
			t.Errorf("high waters %v, want %v", waters, want)
		}
	})
}

// Partitions that are added while a reader is open are in the next Info, and are read from their start; the reader goes on with its own.
func TestPartitionsThatAreAdded(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		s := newSource(t, b.config(topic))
		r := open(t, s, at(0, 0))
		produce(t, b.write, topic, 0, values(5)...)
		g := newRead(t)
		g.until(r, 0, g.has(0, 5))
		if _, err := b.adm.CreatePartitions(t.Context(), 2, topic); err != nil {
			t.Fatal(err)
		}
		w := client(t, b.addr)
		for p := range int32(4) {
			produce(t, w, topic, p, values(10)...)
		}
		g.until(r, 0, func() bool { return len(g.values[0]) == 15 && len(g.values[1]) == 10 })
		info, err := s.Info(t.Context())
		if err != nil || !slices.Equal(info.Partitions, []int32{0, 1, 2, 3}) {
			t.Fatalf("got %+v, %v", info, err)
		}
		g = newRead(t)
		all := open(t, s, at(15, 10, 0, 0))
		g.until(all, 0, func() bool { return len(g.values[2]) == 10 && len(g.values[3]) == 10 })
		g.want(2, 0, 10)
		g.want(3, 0, 10)
	})
}

// A reader that follows the topic ends once partitions are added, when all that it has taken is delivered.
func TestPartitionsThatAreFollowed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		cfg := b.config(topic)
		cfg.Follow = time.Millisecond // as often as may be
		s := newSource(t, cfg)
		r := open(t, s, at(0, 0))
		produce(t, b.write, topic, 0, values(5)...)
		g := newRead(t)
		g.until(r, 1, g.has(0, 5))
		if _, err := b.adm.CreatePartitions(t.Context(), 2, topic); err != nil {
			t.Fatal(err)
		}
		err := g.failure(r)
		wantCode(t, err, codes.PartitionsAdded, topic, "2 partitions")
		if codes.Of(err).Verdict != codes.Retry {
			t.Errorf("verdict %v", codes.Of(err).Verdict)
		}
		g.want(0, 0, 5)
		b.known(t, topic, 4)
		w := client(t, b.addr)
		produce(t, w, topic, 3, values(5)...)
		again := open(t, s, at(5, 0, 0, 0))
		g = newRead(t)
		g.until(again, 0, g.has(3, 5))
		g.want(3, 0, 5)
	})
}

func TestNothingToConnectTo(t *testing.T) {
	t.Parallel()
	_, err := kafka.New(kafka.Config{Topic: "ticks"})
	wantCode(t, err, codes.BrokerUnreachable, "--brokers")
	_, err = kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	wantCode(t, err, codes.TopicMissing, "--topic")
}

// A missing topic is an error, and asking for it does not create it.
func TestAMissingTopic(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	var asked, mayCreate atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		for range req.Topics {
			asked.Add(1)
			if req.AllowAutoTopicCreation {
				mayCreate.Add(1)
			}
		}
		return nil, nil, false
	})
	s := newSource(t, b.config("tipo"))
	_, err := s.Info(t.Context())
	wantCode(t, err, codes.TopicMissing, "tipo", b.addr, "create it")
	_, err = s.Open(t.Context(), at(0))
	wantCode(t, err, codes.TopicMissing, "tipo")
	_, err = s.HighWaters(t.Context())
	wantCode(t, err, codes.TopicMissing, "tipo")
	if asked.Load() == 0 || mayCreate.Load() > 0 {
		t.Errorf("asked %d times, %d of them with leave to create the topic", asked.Load(), mayCreate.Load())
	}
}

// A topic that was made a moment ago may not be known to every broker yet.
func TestATopicThatIsJustBeingMade(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	b.denyMetadata(kerr.UnknownTopicOrPartition, 0, 2)
	if _, err := newSource(t, b.config(topic)).Info(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// denyMetadata answers the questions for a topic numbered from (counted from 0) to to-1 with an error.
func (b *bench) denyMetadata(e *kerr.Error, from, to int64) {
	var asked atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		if len(req.Topics) == 0 {
			return nil, nil, false
		}
		if n := asked.Add(1) - 1; n < from || n >= to {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		host, port, _ := net.SplitHostPort(b.addr)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host = host
		_, _ = fmt.Sscan(port, &broker.Port)
		resp.Brokers = append(resp.Brokers, broker)
		for _, rt := range req.Topics {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic, mt.ErrorCode = rt.Topic, e.Code
			resp.Topics = append(resp.Topics, mt)
		}
		return resp, nil, true
	})
}

// The client starts a partition that its first metadata does not know at the nearest offset that exists, in silence. Here that would
// skip the records 3 to 6.
func TestALossThatTheClientHidesIsFound(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(10)...)
	b.deleteRecords(t, topic, 0, 7)
	b.denyMetadata(kerr.LeaderNotAvailable, 1, 2) // the first question is Open's own
	r := open(t, newSource(t, b.config(topic)), at(3))
	g := newRead(t)
	wantCode(t, g.failure(r), codes.OffsetLost, "need offset 3", "have 7 to 10")
	if len(g.values[0]) > 0 {
		t.Errorf("got %v behind the loss", g.values[0])
	}
}

// A topic that is recreated between the question for its id and the first fetch: the client knows the new one only, and reads it at the
// old position.
func TestATopicThatIsRecreatedWhileItIsOpened(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(10)...)
	// The first question is Open's own; the client's has to be asked again, when the topic is another one.
	b.denyMetadata(kerr.LeaderNotAvailable, 1, 2)
	cfg := b.config(topic)
	cfg.MaxWait = time.Minute // the reader does not look after the topic by itself meanwhile
	r := open(t, newSource(t, cfg), at(10))
	b.recreate(t, topic, 1)
	produce(t, client(t, b.addr), topic, 0, values(20)...)
	g := newRead(t)
	wantCode(t, g.failure(r), codes.TopicRecreated, topic)
	if len(g.values[0]) > 0 {
		t.Fatalf("got %v of another topic", g.values[0])
	}
}

// listen accepts connections and hands each to serve, and closes it then.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return ln.Addr().String()
}

// Each way in which a broker can fail to answer has a message of its own, comes by itself once the start timeout is over, and names the address.
func TestUnreachableBrokers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ addr, says string }{
		"nothing listens": {fmt.Sprintf("127.0.0.1:%d", freePort(t)), "nothing listens there"},
		"no such host":    {"no-such-host.invalid:9092", "host name cannot be resolved"},
		"it hangs":        {listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "no answer in time"},
		"it hangs up":     {listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<10)) }), "may want TLS"},
		"it speaks TLS":   {listen(t, func(c net.Conn) { _ = tls.Server(c, certificate(t)).Handshake() }), "TLS"},
		"it is no broker": {listen(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }), "not a Kafka broker"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, kafka.Config{Brokers: []string{c.addr}, Topic: "ticks", StartTimeout: 2 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // without a start timeout its end would be the answer
			defer cancel()
			_, err := s.Info(ctx)
			wantCode(t, err, codes.BrokerUnreachable, c.addr, c.says)
			_, err = s.Open(ctx, at(0))
			wantCode(t, err, codes.BrokerUnreachable, c.addr, c.says)
		})
	}
}

func TestTheCallersContextEndsAStart(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	addr := listen(t, func(c net.Conn) {
		asked <- struct{}{}
		_, _ = c.Read(make([]byte, 1<<10))
		_, _ = c.Read(make([]byte, 1<<10))
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan error)
	go func() {
		_, err := newSource(t, kafka.Config{Brokers: []string{addr}, Topic: "ticks"}).Info(ctx)
		got <- err
	}()
	<-asked
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// One address of two that answers is enough.
func TestAnAddressThatAnswersIsEnough(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(3)...)
	cfg := b.config(topic)
	cfg.Brokers = []string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), b.addr}
	r := open(t, newSource(t, cfg), at(0))
	g := newRead(t)
	g.until(r, 0, g.has(0, 3))
	g.want(0, 0, 3)
}

func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Error(err)
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Error(err)
		return nil
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
