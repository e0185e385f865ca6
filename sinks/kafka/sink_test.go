package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sinks/sinktest"
)

// seenIn reads the committed records of a topic that belong to a run.
func seenIn(t testing.TB, addr, topic, run string) []sinktest.Seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl := client(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(20*time.Millisecond),
		// The last record below the end is a marker when a transaction ended there.
		kgo.KeepControlRecords())
	defer cl.Close()
	settled(ctx, t, cl)
	// An owner that was killed, or taken over, may have left a transaction open at the end; what is committed lies before it.
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	open := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			open[o.Partition] = o.Offset
		}
	})
	var out []sinktest.Seen
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("the topic is not read to its end: %v", open)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, reading := open[r.Partition]
			if reading && r.Offset >= end-1 {
				delete(open, r.Partition)
			}
			if !reading || r.Offset >= end || r.Attrs.IsControl() {
				return
			}
			var head struct {
				Run       string
				Partition int32
				Row       int64
			}
			if err := json.Unmarshal(r.Value, &head); err != nil {
				t.Fatal(err)
			}
			if head.Run == run {
				out = append(out, sinktest.Seen{Partition: head.Partition, Number: head.Row, Text: string(r.Value)})
			}
		})
	}
	return out
}

// settled waits until no transaction is between its decision, which is what a commit waits for, and its markers, which readers wait for.
func settled(ctx context.Context, t testing.TB, cl *kgo.Client) {
	t.Helper()
	for {
		under, err := kadm.NewClient(cl).ListTransactions(ctx, nil, []string{"PrepareCommit", "PrepareAbort"})
		if err != nil {
			t.Fatal(err)
		}
		if len(under) == 0 {
			return
		}
	}
}

func TestSuiteTransactional(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place {
		b := start(t, devbroker.Config{Partitions: 2, Topics: []string{topic}})
		return placeAt(b.Addr(), topic, false)
	})
}

func TestSuiteIdempotent(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place {
		b := start(t, devbroker.Config{Partitions: 2, Topics: []string{topic}})
		return placeAt(b.Addr(), topic, true)
	})
}

func placeAt(addr, topic string, idempotent bool) sinktest.Place {
	return sinktest.Place{
		Sink: func(hook func(string) error) sinks.Sink {
			s, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{addr}, Topic: topic, Idempotent: idempotent, Hook: hook, StallTimeout: 5 * time.Minute, StartTimeout: time.Minute})
			if err != nil {
				panic(err) // the configuration is fixed
			}
			return s
		},
		Seen: func(t testing.TB, run string) []sinktest.Seen { return seenIn(t, addr, topic, run) },
	}
}

// TestSuiteApacheKafka: the same over the original, whose transactions and groups are not kfake's.
func TestSuiteApacheKafka(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	for name, idempotent := range map[string]bool{"transactional": false, "idempotent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			var mu sync.Mutex
			sinktest.Run(t, func(t testing.TB) sinktest.Place {
				mu.Lock()
				n++
				topic := fmt.Sprintf("suite-%s-%d", name, n)
				mu.Unlock()
				admin := kadm.NewClient(client(t, b.Addr()))
				if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, topic); err != nil {
					t.Fatal(err)
				}
				return placeAt(b.Addr(), topic, idempotent)
			})
		})
	}
}

// TestRevised: a topic keeps every revision under the key of its row, with its number in a header; who takes the highest has the truth.
func TestRevised(t *testing.T) {
	t.Parallel()
	sinktest.RunRevised(t, false, func(t testing.TB) sinktest.Place {
		b := start(t, devbroker.Config{Partitions: 2, Topics: []string{topic}})
		p := placeAt(b.Addr(), topic, false)
		p.Outputs = sinktest.RevisedOutputs
		return p
	})
	b := start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
	w, err := placeAt(b.Addr(), topic, true).Sink(nil).Open(t.Context(), sinks.Target{RunID: "r", Outputs: sinktest.RevisedOutputs, Partitions: []int32{0}, Token: 3, Revised: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rows := sinks.Rows{}
	rows.Append(1, []byte("e"), []byte("k"), []operators.Value{operators.Number(1.5), operators.Number(12)})
	if err := w.Publish(t.Context(), []sinks.Rows{rows}); err != nil {
		t.Fatal(err)
	}
	cl := client(t, b.Addr(), kgo.ConsumeTopics(topic))
	defer cl.Close()
	r := cl.PollFetches(t.Context()).Records()[0]
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	if string(r.Key) != "k" || headers[kafka.HeaderRevision] != "12" || headers[kafka.HeaderRow] != "0/0" || headers[kafka.HeaderToken] != "3" {
		t.Errorf("key %q, headers %v", r.Key, headers)
	}
}

// TestEntries: late events go the same way as rows.
func TestEntries(t *testing.T) {
	sinktest.RunEntries(t, func(t testing.TB) sinktest.Place {
		p := placeAt(start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}}).Addr(), topic, false)
		return p
	})
}

// TestFirstHeardOf: of a partition that was never published the sink tells from its first opening on where the journal stood then, so that what a kill leaves out
// is known.
func TestFirstHeardOf(t *testing.T) {
	t.Parallel()
	apache := kafkatest.Shared(t).Addr()
	if _, err := kadm.NewClient(client(t, apache)).CreateTopic(t.Context(), 1, 1, nil, "first-heard-of"); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]sinktest.Place{
		"kfake": placeAt(start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}}).Addr(), topic, false), "apache": placeAt(apache, "first-heard-of", false),
	} {
		for n, committed := range []int64{5, 9} {
			to := sinks.Target{RunID: "r", Partitions: []int32{0}, Token: uint64(n + 1), Committed: map[int32]int64{0: committed}}
			w, err := p.Sink(nil).Open(t.Context(), to)
			if err != nil {
				t.Fatal(name, err)
			}
			if at, known := w.Published()[0]; !known || at != 5 {
				t.Errorf("%s, opened %d times: stands at %d (%v), want 5", name, n+1, at, known)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLocate: a topic is one place, by whatever address its brokers are asked; of the same name in another cluster it is another.
func TestLocate(t *testing.T) {
	t.Parallel()
	apache := kafkatest.Shared(t).Addr()
	admin := kadm.NewClient(client(t, apache))
	if _, err := admin.CreateTopics(t.Context(), 1, 1, nil, "located", "located-other"); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(apache)
	if err != nil {
		t.Fatal(err)
	}
	other := start(t, devbroker.Config{Partitions: 1, Topics: []string{"located"}}).Addr()
	locate := func(addr, topic string) string {
		t.Helper()
		s, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{addr}, Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		places, err := s.Locate(t.Context())
		if err != nil || len(places) != 1 {
			t.Fatalf("%v, %v", places, err)
		}
		return places[0]
	}
	first := locate(apache, "located")
	if again := locate(net.JoinHostPort("localhost", port), "located"); again != first {
		t.Errorf("%q by another name of the broker, %q before", again, first)
	}
	for what, place := range map[string]string{"another topic": locate(apache, "located-other"), "another cluster": locate(other, "located")} {
		if place == first {
			t.Errorf("%s is the same place: %q", what, place)
		}
	}
	if _, err := placeAt(apache, "nowhere", false).Sink(nil).(sinks.Located).Locate(t.Context()); !codes.Has(err, codes.TopicMissing) {
		t.Errorf("a topic that is not there: %v", err)
	}
}
