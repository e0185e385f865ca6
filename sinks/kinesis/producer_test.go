package kinesis_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/kinesis"
)

// stream is a scripted one: it takes what refuse does not name.
type stream struct {
	taken  map[string][]string
	calls  int
	refuse func(call, n int, key string) bool
	fail   func(call int) string
}

func (s *stream) answer(op string, in map[string]any) kinesistest.Answer {
	if op != "PutRecords" {
		return kinesistest.Answer{Type: "UnknownOperationException"}
	}
	s.calls++
	if s.fail != nil {
		if kind := s.fail(s.calls); kind != "" {
			return kinesistest.Answer{Type: kind}
		}
	}
	var out []map[string]any
	failed := 0
	for n, e := range in["Records"].([]any) {
		entry := e.(map[string]any)
		key := entry["PartitionKey"].(string)
		if s.refuse != nil && s.refuse(s.calls, n, key) {
			out = append(out, map[string]any{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "later"})
			failed++
			continue
		}
		s.taken[key] = append(s.taken[key], entry["Data"].(string))
		out = append(out, map[string]any{"SequenceNumber": "1", "ShardId": "shardId-000000000000"})
	}
	return kinesistest.Answer{Out: map[string]any{"FailedRecordCount": failed, "Records": out}}
}

func producer(t *testing.T, s *stream, change func(*kinesis.Config)) *kinesis.Producer {
	t.Helper()
	s.taken = map[string][]string{}
	cfg := kinesis.Config{Stream: "s", StallTimeout: time.Minute, Client: awskinesis.New(awskinesis.Options{
		BaseEndpoint: aws.String("http://127.0.0.1:1"), Region: kinesistest.Region, Retryer: aws.NopRetryer{}, HTTPClient: &kinesistest.Scripted{Answer: s.answer},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
		}),
	})}
	if change != nil {
		change(&cfg)
	}
	p, err := kinesis.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Refused records are sent again before what came after them: the records of a key arrive in order, each once.
func TestPartialFailuresKeepTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	s := &stream{refuse: func(call, n int, key string) bool { return (call*7+n*3+len(key))%3 == 0 }}
	p := producer(t, s, func(c *kinesis.Config) { c.Buffer = 40 })
	want := map[string][]string{}
	for i := range 1000 {
		key, value := fmt.Sprintf("k%d", i*i%11), fmt.Sprint(i)
		if err := p.Produce(t.Context(), record.Record{Key: []byte(key), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		want[key] = append(want[key], value)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, values := range want {
		if len(s.taken[key]) != len(values) {
			t.Errorf("%s: %d values, want %d", key, len(s.taken[key]), len(values))
			continue
		}
		for i := range values {
			if got := decode(t, s.taken[key][i]); got != values[i] {
				t.Fatalf("%s: value %d is %s, want %s", key, i, got, values[i])
			}
		}
	}
}

func decode(t testing.TB, s string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What cannot be sent is said at once; what may pass is waited for, and then said.
func TestFailures(t *testing.T) {
	t.Parallel()
	one := record.Record{Key: []byte("k"), Value: []byte("v")}
	for name, test := range map[string]struct {
		fail string
		code *codes.Code
	}{
		"missing":  {"ResourceNotFoundException", codes.TopicMissing},
		"denied":   {"AccessDeniedException", codes.AccessDenied},
		"for ever": {"ProvisionedThroughputExceededException", codes.SourceFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := producer(t, &stream{fail: func(int) string { return test.fail }}, func(c *kinesis.Config) { c.StallTimeout = 200 * time.Millisecond })
			if err := p.Produce(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			if err := p.Flush(t.Context()); !codes.Has(err, test.code) || !strings.Contains(err.Error(), `"s"`) {
				t.Errorf("got %v, want %s", err, test.code.Name)
			}
			if n := p.Discard(); n != 1 {
				t.Errorf("%d records were kept", n)
			}
		})
	}
	s := &stream{fail: func(call int) string {
		if call <= 2 {
			return "InternalFailure"
		}
		return ""
	}}
	p := producer(t, s, nil)
	if err := p.Produce(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil || len(s.taken["k"]) != 1 {
		t.Errorf("after two failures: %v, %v", s.taken, err)
	}
}

// Limits are refused before anything is sent, and a batch stays below them.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := &stream{}
	p := producer(t, s, nil)
	for name, r := range map[string]record.Record{
		"no key":    {Value: []byte("v")},
		"long key":  {Key: bytes.Repeat([]byte("k"), 257), Value: []byte("v")},
		"too large": {Key: []byte("k"), Value: make([]byte, 1<<20)},
	} {
		if err := p.Produce(t.Context(), r); !codes.Has(err, codes.RecordTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 12 {
		if err := p.Produce(t.Context(), record.Record{Key: fmt.Append(nil, i), Value: make([]byte, 1<<20-10)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil || len(s.taken) != 12 || s.calls != 3 {
		t.Errorf("%d keys in %d calls, %v; want 12 in 3", len(s.taken), s.calls, err)
	}
	if err := p.Produce(t.Context(), record.Record{Key: []byte("gone")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil || !slices.Equal(s.taken["gone"], []string{""}) {
		t.Errorf("a tombstone became %q, %v", s.taken["gone"], err)
	}
}
