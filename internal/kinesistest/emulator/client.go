package emulator

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Client is one to write and to administer with.
func (e *Emulator) Client() *kinesis.Client {
	return kinesis.New(kinesis.Options{
		BaseEndpoint: aws.String(e.Endpoint()), Region: Region, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, nil
		}),
	})
}

// Create makes a stream and waits until it can be used.
func (e *Emulator) Create(ctx context.Context, name string, shards int32) error {
	api := e.Client()
	_, err := api.CreateStream(ctx, &kinesis.CreateStreamInput{StreamName: &name, ShardCount: &shards})
	for err == nil {
		var d *kinesis.DescribeStreamSummaryOutput
		d, err = api.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: &name})
		if err == nil && d.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return nil
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
	return err
}

// Read gives the data of every record that a stream holds, shard by shard and in order.
func (e *Emulator) Read(ctx context.Context, name string, fn func(data []byte) error) error {
	api := e.Client()
	shards, err := api.ListShards(ctx, &kinesis.ListShardsInput{StreamName: &name})
	if err != nil {
		return err
	}
	for _, shard := range shards.Shards {
		at, err := api.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{StreamName: &name, ShardId: shard.ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
		if err != nil {
			return err
		}
		for next := at.ShardIterator; next != nil; {
			page, err := api.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: next})
			if err != nil {
				return err
			}
			if len(page.Records) == 0 {
				break // the emulator pages without holes
			}
			for _, r := range page.Records {
				if err := fn(r.Data); err != nil {
					return err
				}
			}
			next = page.NextShardIterator
		}
	}
	return nil
}
