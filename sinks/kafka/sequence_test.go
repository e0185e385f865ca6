package kafka_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/sinktest"
)

func TestSequence(t *testing.T) {
	t.Parallel()
	sinktest.RunSequence(t, func(t testing.TB) sinktest.Place {
		return placeAt(start(t, devbroker.Config{Partitions: 2, Topics: []string{topic}}).Addr(), topic, false)
	})
}

// TestSequenceApacheKafka: the same over the original.
func TestSequenceApacheKafka(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	n := atomic.Int64{}
	sinktest.RunSequence(t, func(t testing.TB) sinktest.Place {
		topic := fmt.Sprintf("sequence-%d", n.Add(1))
		if _, err := kadm.NewClient(client(t, b.Addr())).CreateTopic(t.Context(), 2, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
		return placeAt(b.Addr(), topic, false)
	})
}

// TestAnotherSequenceIsRefused: what stands of a run was counted in one sequence, and another is refused before it has fenced anybody; a group of an older
// release, which has kept none, takes the first that comes.
func TestAnotherSequenceIsRefused(t *testing.T) {
	t.Parallel()
	apache, kfake := kafkatest.Shared(t).Addr(), start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}}).Addr()
	if _, err := kadm.NewClient(client(t, apache)).CreateTopic(t.Context(), 1, 1, nil, "sequences"); err != nil {
		t.Fatal(err)
	}
	long := "rows " + strings.Repeat("f", 5000)
	for name, p := range map[string]struct{ addr, topic string }{"kfake": {kfake, topic}, "apache": {apache, "sequences"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := placeAt(p.addr, p.topic, false).Sink(nil)
			token := uint64(0)
			open := func(run, sequence string) (sinks.Writer, error) {
				token++
				to := results
				to.RunID, to.Sequence, to.Token = run, sequence, token
				w, err := s.Open(t.Context(), to)
				if err == nil {
					t.Cleanup(func() { _ = w.Close() })
				}
				return w, err
			}
			publish := func(w sinks.Writer, from, to int64) {
				t.Helper()
				if err := w.Publish(t.Context(), []sinks.Rows{rowsOf(0, from, to, nil)}); err != nil {
					t.Fatal(err)
				}
			}
			refuses := func(run, sequence string) {
				t.Helper()
				_, err := open(run, sequence)
				if !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), p.topic) || !strings.Contains(err.Error(), run) || !strings.Contains(err.Error(), "--run-id") {
					t.Errorf("%.20q over %q: %v", sequence, run, err)
				}
			}
			must := func(run, sequence string, stands int64) sinks.Writer {
				t.Helper()
				w, err := open(run, sequence)
				if err != nil {
					t.Fatal(err)
				}
				if at := w.Published()[0]; at != stands {
					t.Errorf("%q stands at %d, want %d", run, at, stands)
				}
				return w
			}
			w := must("r", "rows a", 0)
			publish(w, 0, 3)
			refuses("r", "rows b")
			refuses("r", "late a")
			publish(w, 3, 5) // the owner was not fenced by those who were refused
			publish(must("r", "", 5), 5, 6)
			refuses("r", "rows b") // who says nothing leaves it standing
			must("r", "rows a", 6)

			publish(must("old", "", 0), 0, 2)
			must("old", "rows b", 2) // noted by opening already
			refuses("old", "rows a")
			must("old", "rows b", 2)

			publish(must("long", long, 0), 0, 1)
			must("long", long, 1)
			refuses("long", long+"f")
		})
	}
}

// TestAnotherSequenceBehindACommit: a commit that was answered is not seen everywhere at once. Who opens meanwhile waits for it, before he looks and before he fences anybody.
func TestAnotherSequenceBehindACommit(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{Partitions: 1, Topics: []string{topic}})
	s := placeAt(b.Addr(), topic, false).Sink(nil)
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}, Token: 1, Sequence: "rows one"}
	w, err := s.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Publish(t.Context(), []sinks.Rows{rowsOf(0, 0, 1, nil)}); err != nil {
		t.Fatal(err)
	}
	var asked, early, fences atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.DescribeTransactions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		if asked.Add(1) > 2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		one := kmsg.NewDescribeTransactionsResponseTransactionState()
		one.TransactionalID, one.State = req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs[0], "PrepareCommit"
		resp.TransactionStates = append(resp.TransactionStates, one)
		return resp, nil, true
	})
	for key, n := range map[kmsg.Key]*atomic.Int64{kmsg.OffsetFetch: &early, kmsg.InitProducerID: &fences} {
		b.Cluster().ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.Cluster().KeepControl()
			if key == kmsg.InitProducerID || asked.Load() < 3 {
				n.Add(1)
			}
			return nil, nil, false
		})
	}
	to.Sequence = "rows two"
	if _, err := s.Open(t.Context(), to); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("another sequence: %v", err)
	}
	if asked.Load() != 3 || early.Load() != 0 || fences.Load() != 0 {
		t.Errorf("asked %d times for the commit, %d times before for what stands; fenced %d times", asked.Load(), early.Load(), fences.Load())
	}
	if err := w.Publish(t.Context(), []sinks.Rows{rowsOf(0, 1, 2, nil)}); err != nil {
		t.Errorf("the owner: %v", err)
	}
}
