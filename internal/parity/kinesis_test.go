package parity

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/replay"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
	"github.com/weirstream/weir/sources/kinesis"
)

// viaKinesis streams a log through a Kinesis stream of so many shards. A tombstone is an empty value there.
func viaKinesis(t *testing.T, shards int32) func(ctx context.Context, job Job) (Outcome, error) {
	return func(ctx context.Context, job Job) (Outcome, error) {
		e := kinesistest.Start(t)
		api := awskinesis.New(awskinesis.Options{
			BaseEndpoint: aws.String(e.Endpoint()), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
			}),
		})
		name := aws.String("parity")
		if _, err := api.CreateStream(ctx, &awskinesis.CreateStreamInput{StreamName: name, ShardCount: &shards}); err != nil {
			return Outcome{}, err
		}
		for status := types.StreamStatusCreating; status != types.StreamStatusActive; {
			d, err := api.DescribeStreamSummary(ctx, &awskinesis.DescribeStreamSummaryInput{StreamName: name})
			if err != nil {
				return Outcome{}, err
			}
			status = d.StreamDescriptionSummary.StreamStatus
		}
		producer, err := sinkkinesis.New(sinkkinesis.Config{Client: api, Stream: *name, Buffer: 4})
		if err != nil {
			return Outcome{}, err
		}
		if _, err := replay.Publish(ctx, replay.PublishConfig{Log: job.LogPath, Producer: producer}); err != nil {
			return Outcome{}, err
		}
		source, err := kinesis.New(kinesis.Config{Client: api, Stream: *name, CallsPerSecond: 200, PageRecords: 3, MaxWait: 50 * time.Millisecond})
		if err != nil {
			return Outcome{}, err
		}
		return job.stream(ctx, source)
	}
}

// The golden fixture through Kinesis: the same values and counts as through Kafka, whatever the number of shards, crashed and not. Which record was
// set aside differs by nature: Kinesis has no tombstones and other positions.
func TestGoldenThroughKinesis(t *testing.T) {
	t.Parallel()
	for _, shards := range []int32{1, 4} {
		for _, crash := range []int64{0, 5} {
			cfg := fixtureConfig(t)
			cfg.Stream, cfg.CrashEvery, cfg.OtherLog = viaKinesis(t, shards), crash, true
			report, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			d, c := report.Stream, report.Stream.Counts
			if report.Verdict != EqualToBatch || d.ValuesHash != fixture.ValuesHash || c.Consumed != 6 || c.Filtered != 15 || c.Omitted != 1 || c.Duplicates != 1 || c.Late != 0 {
				t.Errorf("%d shards, crash every %d: %s, %+v", shards, crash, d.ValuesHash, c)
			}
			if crash > 0 && report.Crashes == 0 {
				t.Error("the stream was never crashed")
			}
		}
	}
}
