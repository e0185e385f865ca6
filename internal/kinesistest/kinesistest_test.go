package kinesistest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"

	"github.com/weirstream/weir/internal/kinesistest"
)

func client(e *kinesistest.Emulator) *kinesis.Client {
	return kinesis.New(kinesis.Options{
		BaseEndpoint: aws.String(e.Endpoint()), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
		}),
	})
}

// stream makes a stream of one shard and waits until it can be used.
func stream(t *testing.T, c *kinesis.Client, name string) {
	t.Helper()
	if _, err := c.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: &name, ShardCount: aws.Int32(1)}); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		d, err := c.DescribeStreamSummary(t.Context(), &kinesis.DescribeStreamSummaryInput{StreamName: &name})
		if err != nil {
			t.Fatal(err)
		}
		if d.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return
		}
	}
}

const shard = "shardId-000000000000"

func iterator(t *testing.T, c *kinesis.Client, in kinesis.GetShardIteratorInput) *string {
	t.Helper()
	in.StreamName, in.ShardId = aws.String("s"), aws.String(shard)
	it, err := c.GetShardIterator(t.Context(), &in)
	if err != nil {
		t.Fatal(err)
	}
	return it.ShardIterator
}

// What is put is got, an iterator expires once the clock has moved on, and a time at which nothing newer stands has an iterator too.
func TestEmulator(t *testing.T) {
	t.Parallel()
	e := kinesistest.Start(t)
	c := client(e)
	stream(t, c, "s")
	if _, err := c.PutRecord(t.Context(), &kinesis.PutRecordInput{StreamName: aws.String("s"), PartitionKey: aws.String("k"), Data: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	it := iterator(t, c, kinesis.GetShardIteratorInput{ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	got, err := c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it})
	if err != nil || len(got.Records) != 1 || string(got.Records[0].Data) != "v" {
		t.Fatalf("got %+v, %v", got, err)
	}

	e.Shift(t, 6*time.Minute)
	var expired *types.ExpiredIteratorException
	if _, err := c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it}); !errors.As(err, &expired) {
		t.Errorf("after six minutes: %v", err)
	}
	late := aws.Time(time.Now().Add(5 * time.Minute))
	it = iterator(t, c, kinesis.GetShardIteratorInput{ShardIteratorType: types.ShardIteratorTypeAtTimestamp, Timestamp: late})
	if got, err := c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it}); err != nil || len(got.Records) != 0 {
		t.Errorf("after the last record: %+v, %v", got, err)
	}

	e.Shift(t, 25*time.Hour)
	it = iterator(t, c, kinesis.GetShardIteratorInput{ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if got, err := c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it}); err != nil || len(got.Records) != 0 {
		t.Errorf("after the retention: %+v, %v", got, err)
	}
}

// Injected faults come as often as was asked, and calls are counted.
func TestFaults(t *testing.T) {
	t.Parallel()
	e := kinesistest.Start(t)
	c := client(e)
	stream(t, c, "s")
	e.Fail(t, kinesistest.Fault{Operation: "ListShards", Type: "LimitExceededException", Every: 3, Times: 2})
	var failed []int
	for i := range 12 {
		_, err := c.ListShards(t.Context(), &kinesis.ListShardsInput{StreamName: aws.String("s")})
		var api smithy.APIError
		if errors.As(err, &api) && api.ErrorCode() == "LimitExceededException" {
			failed = append(failed, i)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if len(failed) != 2 || failed[0] != 2 || failed[1] != 5 {
		t.Errorf("failed at %v, want the third and sixth call", failed)
	}
	if n := e.Calls(t)["ListShards"]; n != 12 {
		t.Errorf("%d calls, want 12", n)
	}
	e.Fail(t, kinesistest.Fault{Operation: "ListShards", Type: "HANG_UP"})
	if _, err := c.ListShards(t.Context(), &kinesis.ListShardsInput{StreamName: aws.String("s")}); err == nil {
		t.Error("a connection that was closed gave an answer")
	}
	e.Heal(t)
	if _, err := c.ListShards(t.Context(), &kinesis.ListShardsInput{StreamName: aws.String("s")}); err != nil {
		t.Errorf("healed: %v", err)
	}
}
