package kinesis_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/kinesis"
	"github.com/weirstream/weir/sinks/sinktest"
)

// results is a stream that keeps what it takes in order, and refuses every seventh record.
type results struct {
	mu    sync.Mutex
	asked int
	data  []string
	keys  []string
	fail  string
}

func (s *results) answer(op string, in map[string]any) kinesistest.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != "" {
		return kinesistest.Answer{Type: s.fail}
	}
	if op == "DescribeStreamSummary" {
		return kinesistest.Answer{Out: map[string]any{"StreamDescriptionSummary": map[string]any{"StreamName": in["StreamName"], "StreamStatus": "ACTIVE"}}}
	}
	var out []map[string]any
	for _, e := range in["Records"].([]any) {
		entry := e.(map[string]any)
		if s.asked++; s.asked%7 == 0 {
			out = append(out, map[string]any{"ErrorCode": "ProvisionedThroughputExceededException"})
			continue
		}
		s.data, s.keys = append(s.data, entry["Data"].(string)), append(s.keys, entry["PartitionKey"].(string))
		out = append(out, map[string]any{"SequenceNumber": "1", "ShardId": "shardId-000000000000"})
	}
	return kinesistest.Answer{Out: map[string]any{"Records": out}}
}

// take takes everything and keeps nothing, for benchmarks.
func (s *results) take(op string, in map[string]any) kinesistest.Answer {
	if op == "DescribeStreamSummary" {
		return s.answer(op, in)
	}
	out := make([]map[string]any, len(in["Records"].([]any)))
	for i := range out {
		out[i] = map[string]any{"SequenceNumber": "1", "ShardId": "shardId-000000000000"}
	}
	return kinesistest.Answer{Out: map[string]any{"Records": out}}
}

var credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
})

func (s *results) sink(t testing.TB, hook func(string) error) *kinesis.Sink {
	t.Helper()
	return s.over(t, awskinesis.New(awskinesis.Options{BaseEndpoint: aws.String("http://127.0.0.1:1"), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
		HTTPClient: &kinesistest.Scripted{Answer: s.answer}, Credentials: credentials}), hook)
}

func (s *results) over(t testing.TB, client *awskinesis.Client, hook func(string) error) *kinesis.Sink {
	t.Helper()
	k, err := kinesis.NewSink(kinesis.SinkConfig{Hook: hook, Config: kinesis.Config{Stream: "s", StallTimeout: time.Minute, Client: client}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSuite(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place {
		s := &results{}
		return sinktest.Place{
			Sink: func(hook func(string) error) sinks.Sink { return s.sink(t, hook) },
			Seen: s.seen,
		}
	})
}

// TestEntries: late events go the same way as rows.
func TestEntries(t *testing.T) {
	sinktest.RunEntries(t, func(t testing.TB) sinktest.Place {
		s := &results{}
		return sinktest.Place{Sink: func(hook func(string) error) sinks.Sink { return s.sink(t, hook) }, Seen: s.seen}
	})
}

func (s *results) seen(t testing.TB, run string) (out []sinktest.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, data := range s.data {
		text := decode(t, data)
		var head struct {
			Run        string
			Partition  int32
			Row, Entry int64
		}
		if err := json.Unmarshal([]byte(text), &head); err != nil {
			t.Fatal(err)
		}
		if head.Run == run {
			out = append(out, sinktest.Seen{Partition: head.Partition, Number: max(head.Row, head.Entry), Text: text})
		}
	}
	return out
}

// TestSinkKeys: copies of a row have the same key, whatever the row's own key is.
func TestSinkKeys(t *testing.T) {
	t.Parallel()
	s := &results{}
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}}
	w, err := s.sink(t, nil).Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	r := sinks.Rows{}
	for _, key := range []string{"plain", "", strings.Repeat("k", 300), "\xff"} {
		r.Append(1, []byte("e"), []byte(key), []operators.Value{operators.Gap})
	}
	if err := w.Publish(t.Context(), []sinks.Rows{r}); err != nil {
		t.Fatal(err)
	}
	if k := s.keys; len(k) != 4 || k[0] != "plain" || k[1] != "-" || len(k[2]) != 64 || k[3] != "a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89" {
		t.Errorf("keys %q", k)
	}
	r = sinks.Rows{From: 4}
	r.Append(1, make([]byte, 1<<20), nil, []operators.Value{operators.Gap})
	if err := w.Publish(t.Context(), []sinks.Rows{r}); !codes.Has(err, codes.RecordTooLarge) || !strings.Contains(err.Error(), "row 4 of partition 0") {
		t.Errorf("too large: %v", err)
	}
}

func TestSinkBadTargets(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}}
	for kind, code := range map[string]*codes.Code{
		"ResourceNotFoundException": codes.TopicMissing, "AccessDeniedException": codes.AccessDenied, "InternalFailure": codes.SinkUnavailable,
	} {
		if _, err := (&results{fail: kind}).sink(t, nil).Open(t.Context(), to); !codes.Has(err, code) || !strings.Contains(err.Error(), `"s"`) {
			t.Errorf("%s: %v, want %s", kind, err, code.Name)
		}
	}
	if _, err := kinesis.NewSink(kinesis.SinkConfig{}); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("%v", err)
	}
}
