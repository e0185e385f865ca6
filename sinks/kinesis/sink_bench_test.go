package kinesis_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkSink compares with the bare client that puts the same records in calls of 500, to a stream that takes everything and keeps nothing.
func BenchmarkSink(b *testing.B) {
	const n = 10_000
	s := &results{}
	client := awskinesis.New(awskinesis.Options{BaseEndpoint: aws.String("http://127.0.0.1:1"), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
		HTTPClient: &kinesistest.Scripted{Answer: s.take}, Credentials: credentials})
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
	w, err := s.over(b, client, nil).Open(b.Context(), to)
	if err != nil {
		b.Fatal(err)
	}
	enc := sinks.NewJSON(to)
	rows := sinktest.Rounds(9, n)
	sinktest.Compare(b, 9, n, func(round int) {
		if err := w.Publish(b.Context(), rows[round:round+1]); err != nil {
			b.Fatal(err)
		}
	}, func(round int) {
		var entries []types.PutRecordsRequestEntry
		err := rows[round].Each(2, nil, func(number int64, row *partitions.Row) error {
			entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: aws.String(string(row.Key)), Data: enc.Append(nil, 0, number, row)})
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		for ; len(entries) > 0; entries = entries[500:] {
			if _, err := client.PutRecords(b.Context(), &awskinesis.PutRecordsInput{StreamName: aws.String("s"), Records: entries[:500]}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
