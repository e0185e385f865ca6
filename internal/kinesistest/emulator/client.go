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
