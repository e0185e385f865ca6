package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// observers are the two ways to ask: from outside, and from within a reading.
func observers(t *testing.T, s sources.Source, r sources.Reader) map[string]sources.Observer {
	t.Helper()
	found := map[string]sources.Observer{}
	for name, v := range map[string]any{"source": s, "reader": r} {
		o, ok := v.(sources.Observer)
		if !ok {
			t.Fatalf("the %s is no observer", name)
		}
		found[name] = o
	}
	return found
}

func TestObserve(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 3, nil)
		s := newSource(t, b.config(topic))
		r := open(t, s, at(0, 0, 0))
		produce(t, b.write, topic, 0, values(5)...)
		produce(t, b.write, topic, 2, values(4)...)
		b.deleteRecords(t, topic, 0, 3)
		b.transaction(t, topic, 2, false, values(1)...)
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := map[int32]string{0: "3 5 5", 1: "0 0 0", 2: "0 6 6"}
		for name, by := range observers(t, s, r) {
			o, err := by.Observe(t.Context())
			if err != nil {
				t.Fatal(name, err)
			}
			if o.Name != topic || o.ID != info.ID || !slices.Equal(o.Partitions, info.Partitions) || len(o.Extents) != len(want) {
				t.Errorf("%s: %+v", name, o)
			}
			for p, e := range o.Extents {
				if got := fmt.Sprint(e.Start, e.Stable, e.End); got != want[p] || e.Hold != nil {
					t.Errorf("%s: partition %d is %s (%v), want %s", name, p, got, e.Hold, want[p])
				}
			}
		}
	})
}

// Partitions that are added, and a topic that is another one, are seen by whoever asks the reader, and stop nothing that it reads.
func TestObservedChanges(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		s := newSource(t, b.config(topic))
		r := open(t, s, at(0, 0))
		by := observers(t, s, r)["reader"]
		if _, err := b.adm.CreatePartitions(t.Context(), 2, topic); err != nil {
			t.Fatal(err)
		}
		produce(t, b.write, topic, 0, values(3)...)
		var seen sources.Observation
		for len(seen.Extents) != 4 { // a broker may know of them a while later
			var err error
			if seen, err = by.Observe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		g := newRead(t)
		g.until(r, 0, g.has(0, 3))
		g.want(0, 0, 3)

		b.recreate(t, topic, 2)
		again, err := by.Observe(t.Context())
		if err != nil || again.ID == seen.ID || len(again.ID) != 22 {
			t.Errorf("%+v, %v after %s", again, err, seen.ID)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := by.Observe(t.Context()); !errors.Is(err, sources.ErrClosed) {
			t.Errorf("%v from a closed reader", err)
		}
	})
}

func TestObserveFailures(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		_, err := newSource(t, b.config("nothing-here")).Observe(t.Context())
		wantCode(t, err, codes.TopicMissing, "nothing-here")
	})
	cfg := (&bench{addr: fmt.Sprintf("127.0.0.1:%d", freePort(t))}).config("ticks")
	cfg.StartTimeout = time.Second
	_, err := newSource(t, cfg).Observe(t.Context())
	wantCode(t, err, codes.BrokerUnreachable)
}

// nodes are the one at the bench's address, and another one.
func (b *bench) nodes(t *testing.T) (first, other int32) {
	t.Helper()
	known, err := b.adm.ListBrokers(t.Context())
	if err != nil || len(known) != 2 {
		t.Fatal(known, err)
	}
	first, other = known[0].NodeID, known[1].NodeID
	if strings.HasSuffix(b.addr, fmt.Sprintf(":%d", known[1].Port)) {
		first, other = other, first
	}
	return first, other
}

// leaderless makes a partition have no leader from now on, until it is called with false.
func (b *bench) leaderless(t *testing.T, topic string, partition int32) (set func(bool)) {
	t.Helper()
	first, other := b.nodes(t)
	meta, err := b.adm.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	known, err := b.adm.ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var off atomic.Bool
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if off.Load() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, k := range known {
			broker := kmsg.NewMetadataResponseBroker()
			broker.Host, broker.NodeID, broker.Port = k.Host, k.NodeID, k.Port
			resp.Brokers = append(resp.Brokers, broker)
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = kmsg.StringPtr(topic), meta[topic].ID
		for n := range meta[topic].Partitions {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.Replicas, mp.ISR = n, first, []int32{first}, []int32{first}
			if n == partition {
				mp.ErrorCode, mp.Leader, mp.Replicas, mp.ISR = kerr.LeaderNotAvailable.Code, -1, []int32{other}, nil
			}
			mt.Partitions = append(mt.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, mt)
		return resp, nil, true
	})
	return func(on bool) { off.Store(!on) }
}

// A partition without a leader is named, and the others are told as ever and read on; once it has one again it goes on where it was.
func TestAPartitionWithoutALeaderIsNamed(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{Nodes: 2})
	topic := b.topic(t, 3, nil)
	first, other := b.nodes(t)
	for p, node := range []int32{first, other, first} { // a client asks the address that it was given first for a partition without a leader
		if err := b.Cluster().MoveTopicPartition(topic, int32(p), node); err != nil {
			t.Fatal(err)
		}
		produce(t, b.write, topic, int32(p), values(5)...)
	}
	cfg := b.config(topic)
	told := make(outages, 100)
	cfg.OnOutage = told.note
	set := b.leaderless(t, topic, 1)
	s := newSource(t, cfg)
	r := open(t, s, at(0, 0, 0))
	g := newRead(t)
	g.until(r, 0, func() bool { return g.has(0, 5)() && g.has(2, 5)() })
	g.want(1, 0, 0)
	for name, by := range observers(t, s, r) {
		o, err := by.Observe(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		if len(o.Extents) != 2 || o.Extents[2].End != record.Offset(5) || len(o.Unanswered) != 1 || !slices.Equal(o.Partitions, []int32{0, 1, 2}) {
			t.Errorf("%s: %+v", name, o)
		}
		wantCode(t, o.Unanswered[1], codes.BrokerUnreachable, topic, "partition 1 has no leader")
		one, err := sources.Only(s, 1).(sources.Observer).Observe(t.Context())
		if err != nil || len(one.Extents) != 0 || len(one.Unanswered) != 1 {
			t.Errorf("%s: alone: %+v, %v", name, one, err)
		}
	}
	for len(told) == 0 { // nothing else comes, so Poll waits, and says for what
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if batches, err := r.Poll(ctx, 0); err == nil {
			t.Fatalf("answered %v, although a partition was not asked", batches)
		}
		cancel()
	}
	wantCode(t, <-told, codes.BrokerUnreachable, "partition 1 has no leader")
	set(false)
	g.until(r, 0, g.has(1, 5))
	g.want(1, 0, 5)
}

// A transaction that is never ended keeps everything behind it from being delivered. Whoever asks is told since when and by whom, and nobody
// asks the brokers in a loop meanwhile.
func TestATransactionThatIsNeverEndedIsNamed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 2, nil)
		const timeout = 10 * time.Minute // longer than any of this takes
		name := fmt.Sprintf("stuck-%d", topicNames.Add(1))
		cl := client(t, b.addr, kgo.TransactionalID(name), kgo.TransactionTimeout(timeout))
		produce(t, b.write, topic, 0, values(2)...)
		began := time.Now()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, topic, 0, values(3)[2:]...)
		produce(t, b.write, topic, 0, values(10)[3:]...)
		produce(t, b.write, topic, 1, values(10)...)
		waitForPartition(t, cl, topic, 0)

		cfg := b.config(topic)
		cfg.MaxWait = 100 * time.Millisecond
		asked := count(&cfg)
		s := newSource(t, cfg)
		r := open(t, s, at(0, 0))
		g := newRead(t)
		g.until(r, 0, func() bool { return len(g.values[0]) == 2 && len(g.values[1]) == 10 })
		for who, by := range observers(t, s, r) {
			o, err := by.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e := o.Extents[0]
			if got := fmt.Sprint(e.Start, e.Stable, e.End); got != "0 2 10" || o.Extents[1].Hold != nil || o.Extents[1].Stable != record.Offset(10) {
				t.Errorf("%s: %s, %+v", who, got, o.Extents[1])
			}
			h := e.Hold
			if h == nil || h.Reason != sources.LSOBlocked || h.By != name {
				t.Fatalf("%s: held by %+v, want %s", who, h, name)
			}
			// The broker's clock is this machine's; it counts in milliseconds.
			if h.Since.Before(began.Add(-time.Second)) || h.Since.After(time.Now()) || !h.Ends.Equal(h.Since.Add(timeout)) {
				t.Errorf("%s: since %v (began %v), ends %v", who, h.Since, began, h.Ends)
			}
		}

		const polls = 10
		before, from := asked.all(), time.Now()
		for range polls {
			if n, err := g.poll(r, 0); n != 0 || err != nil {
				t.Fatalf("%d records, %v behind the open transaction", n, err)
			}
		}
		// A poll is a wait of 100 ms: one or two fetches, and the three questions at its end. A poll that takes longer has ten fetches a second.
		if n, most := asked.all()-before, 8*polls+int(20*time.Since(from)/time.Second); n > most {
			t.Errorf("%d requests in %d polls, want at most %d", n, polls, most)
		}

		if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		b.settled(t, topic, 0)
		g.until(r, 0, func() bool { return g.next[0] == record.Offset(11) })
		if got, want := fmt.Sprint(g.values[0]), "[0 1 3 4 5 6 7 8 9]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if o, err := s.Observe(t.Context()); err != nil || o.Extents[0].Hold != nil || o.Extents[0].Stable != record.Offset(11) {
			t.Errorf("%+v, %v after the end", o.Extents[0], err)
		}
	})
}
