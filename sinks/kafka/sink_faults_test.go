package kafka_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/kafka"
)

func rowsOf(partition int32, from, to int64, key []byte) sinks.Rows {
	r := sinks.Rows{Partition: partition, From: from}
	for n := from; n < to; n++ {
		r.Append(record.EventTime(n), []byte("e"), key, []operators.Value{operators.Number(float64(n))})
	}
	return r
}

func sinkTo(t testing.TB, addr string, start time.Duration) *kafka.Sink {
	t.Helper()
	s, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{addr}, Topic: topic, StallTimeout: time.Minute, StartTimeout: start})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var results = sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0, 1}, Token: 3}

// TestSinkLostAnswers: each request of a publication does its work and answers that it has run out of time. The rows are there once.
func TestSinkLostAnswers(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.Produce, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.OffsetFetch} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			b := start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
			s := sinkTo(t, b.Addr(), time.Minute)
			end := int64(0)
			for range 4 {
				faults := b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.RequestTimedOut, Count: 1})
				end += 5
				for try := 0; ; try++ {
					w, err := s.Open(t.Context(), results)
					if err == nil {
						err = w.Publish(t.Context(), []sinks.Rows{rowsOf(0, 0, end, []byte("k")), rowsOf(1, end-5, end, nil)})
						_ = w.Close()
					}
					if err == nil {
						break
					}
					if c := codes.Of(err); c == nil || c.Verdict != codes.Retry || try > 3 {
						t.Fatalf("attempt %d: %v", try, err)
					}
				}
				faults.Remove()
			}
			got := map[int32]int64{}
			for _, row := range seenIn(t, b.Addr(), topic, "r") {
				if row.Number != got[row.Partition] {
					t.Fatalf("row %d of partition %d comes where %d should", row.Number, row.Partition, got[row.Partition])
				}
				got[row.Partition]++
			}
			if got[0] != end || got[1] != end {
				t.Errorf("%v rows, want %d of each", got, end)
			}
		})
	}
}

// TestSinkBadTargets: what is wrong is named, with its code.
func TestSinkBadTargets(t *testing.T) {
	t.Parallel()
	if _, err := kafka.NewSink(kafka.SinkConfig{Topic: topic}); !codes.Has(err, codes.BrokerUnreachable) {
		t.Errorf("no broker: %v", err)
	}
	if _, err := sinkTo(t, "127.0.0.1:1", time.Second).Open(t.Context(), results); !codes.Has(err, codes.BrokerUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
	empty := start(t, devbroker.Config{})
	if _, err := sinkTo(t, empty.Addr(), time.Minute).Open(t.Context(), results); !codes.Has(err, codes.TopicMissing) {
		t.Errorf("no topic: %v", err)
	}
	b := start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
	s := sinkTo(t, b.Addr(), time.Minute)
	w, err := s.Open(t.Context(), results)
	if err != nil {
		t.Fatal(err)
	}
	large := []sinks.Rows{rowsOf(0, 0, 2, bytes.Repeat([]byte("k"), 2<<20))}
	if err := w.Publish(t.Context(), large); !codes.Has(err, codes.RecordTooLarge) || !strings.Contains(err.Error(), topic) {
		t.Errorf("too large: %v", err)
	}
	_ = w.Close()
	if got := seenIn(t, b.Addr(), topic, "r"); len(got) != 0 {
		t.Errorf("%d rows of a refused publication are visible", len(got))
	}
	b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	if _, err := s.Open(t.Context(), results); !codes.Has(err, codes.AccessDenied) || !strings.Contains(err.Error(), "weir-sink/") {
		t.Errorf("denied: %v", err)
	}
}
