package kinesis_test

import (
	"context"
	"fmt"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
	"github.com/weirstream/weir/sources/sourcetest"
)

// bench is an emulator with a client to write and to administer.
type bench struct {
	*kinesistest.Emulator
	api *awskinesis.Client
}

func start(t testing.TB) *bench {
	t.Helper()
	e := kinesistest.Start(t)
	return &bench{e, client(e.Endpoint())}
}

func client(endpoint string) *awskinesis.Client {
	return awskinesis.New(awskinesis.Options{
		BaseEndpoint: aws.String(endpoint), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
		}),
	})
}

// names gives every stream of a test run a name of its own.
var names atomic.Int64

// stream makes a stream and waits until it can be used.
func (b *bench) stream(t testing.TB, shards int) string {
	t.Helper()
	name := fmt.Sprintf("stream-%d", names.Add(1))
	b.create(t, name, shards)
	return name
}

func (b *bench) create(t testing.TB, name string, shards int) {
	t.Helper()
	if _, err := b.api.CreateStream(context.Background(), &awskinesis.CreateStreamInput{StreamName: &name, ShardCount: aws.Int32(int32(shards))}); err != nil {
		t.Fatal(err)
	}
	b.active(t, name)
}

func (b *bench) active(t testing.TB, name string) {
	t.Helper()
	for t.Context().Err() == nil {
		d, err := b.api.DescribeStreamSummary(context.Background(), &awskinesis.DescribeStreamSummaryInput{StreamName: &name})
		if err != nil {
			t.Fatal(err)
		}
		if d.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return
		}
	}
}

// config is one without budgets: the emulator has none.
func (b *bench) config(stream string) kinesis.Config {
	return kinesis.Config{Client: b.api, Stream: stream, CallsPerSecond: 500, BytesPerSecond: 1 << 40, MaxWait: 20 * time.Millisecond}
}

func newStream(t testing.TB, cfg kinesis.Config) *kinesis.Stream {
	t.Helper()
	s, err := kinesis.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes records to a shard of a stream that was created with so many, in order.
func (b *bench) put(t testing.TB, stream string, shard, shards int, records ...record.Record) {
	t.Helper()
	width := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(int64(shards)))
	hash := new(big.Int).Add(new(big.Int).Mul(width, big.NewInt(int64(shard))), big.NewInt(1)).String()
	for from := 0; from < len(records); from += 500 {
		in := &awskinesis.PutRecordsInput{StreamName: &stream}
		for _, r := range records[from:min(from+500, len(records))] {
			in.Records = append(in.Records, types.PutRecordsRequestEntry{Data: r.Value, PartitionKey: aws.String(string(r.Key)), ExplicitHashKey: &hash})
		}
		out, err := b.api.PutRecords(context.Background(), in)
		if err != nil || aws.ToInt32(out.FailedRecordCount) > 0 {
			t.Fatalf("%v: %+v", err, out)
		}
	}
}

func (b *bench) target(t testing.TB, parts [][]record.Record, change func(*kinesis.Config)) sourcetest.Target {
	name, n := b.stream(t, len(parts)), len(parts)
	for p, records := range parts {
		b.put(t, name, p, n, records...)
	}
	cfg := b.config(name)
	if change != nil {
		change(&cfg)
	}
	return sourcetest.Target{
		Source: newStream(t, cfg),
		Append: func(t testing.TB, p int32, records ...record.Record) { b.put(t, name, int(p), n, records...) },
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	configs := map[string]func(*kinesis.Config){
		"defaults":    nil,
		"small pages": func(c *kinesis.Config) { c.PageRecords = 3 },
	}
	for name, change := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			sourcetest.Run(t, sourcetest.Harness{
				New:         func(t testing.TB, parts [][]record.Record) sourcetest.Target { return b.target(t, parts, change) },
				EmptyValues: true, EmptyAnswers: true,
			})
		})
	}
}

func open(t testing.TB, s sources.Source, from map[int32]record.Position) sources.Reader {
	t.Helper()
	r, err := s.Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}
