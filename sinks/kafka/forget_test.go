//go:build unix

package kafka_test

import (
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
)

// lossy stands before a broker, and its connections can be lost.
type lossy struct {
	ln net.Listener
	to string

	mu    sync.Mutex
	conns []net.Conn
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &lossy{ln: ln}
}

// serve carries between those who connect and the broker, until the test ends.
func (l *lossy) serve(t *testing.T, broker string) {
	l.to = broker
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = near.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, near)
			l.mu.Unlock()
			all.Go(func() { carry(near, far) })
			all.Go(func() { carry(far, near) })
		}
	})
	t.Cleanup(func() {
		_ = l.ln.Close()
		l.lose()
		all.Wait()
	})
}

func carry(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either side may end it
	_ = to.Close()
}

// lose ends the connections of those who connected.
func (l *lossy) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// Kafka drops what it knows of a producer whose last record is older than producer.id.expiration.ms, as those of a replay are, and lets the first write
// that comes then have any number. When a connection is lost at that moment, each record is still there once, in order.
func TestApacheForgetsAProducerWhoseConnectionIsLost(t *testing.T) {
	t.Parallel()
	between := newLossy(t)
	addr := between.ln.Addr().String()
	broker := kafkatest.Start(t, kafkatest.Config{Settings: map[string]string{
		"producer.id.expiration.check.interval.ms": "20", "advertised.listeners": "PLAINTEXT://" + addr,
	}})
	between.serve(t, broker.Addr())
	p := producer(t, addr, nil)
	if err := p.EnsureTopic(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(client(t, addr))
	large := strings.Repeat("x", 200_000) // a few to a batch, so that several batches of one partition are written one behind the other
	const rounds, each = 8, 25
	for round := range rounds {
		between.lose()
		for known := 1; known > 0; runtime.Gosched() {
			producers, err := adm.DescribeProducers(t.Context(), kadm.TopicsSet{topic: {0: {}}})
			if err != nil {
				t.Fatal(err)
			}
			known = len(producers.SortedProducers())
		}
		recs := make([]record.Record, each)
		for i := range recs {
			recs[i] = record.Record{Value: []byte(strconv.Itoa(round*each+i) + " " + large), Arrival: 1}
		}
		send(t, p, recs...)
	}
	got := values(readAll(t, addr)[0])
	for i, v := range got {
		if n, _, _ := strings.Cut(v, " "); n != strconv.Itoa(i) {
			t.Fatalf("record %d is %s, of %d records where %d were written", i, n, len(got), rounds*each)
		}
	}
	if len(got) != rounds*each {
		t.Errorf("%d records, want %d", len(got), rounds*each)
	}
}
