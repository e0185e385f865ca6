package kinesis_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kinesis"
)

const benchRecords = 10_000

// BenchmarkReader reads a shard of 10,000 records of 200 bytes from the emulator, in turns with the reader and with the loop that one would write by hand
// against the SDK, and reports how many records a second each reads and their ratio. It fails below 0.8.
func BenchmarkReader(b *testing.B) {
	e := start(b)
	name := e.stream(b, 1)
	records := make([]record.Record, benchRecords)
	for i := range records {
		records[i] = record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%0200d", i)}
	}
	e.put(b, name, 0, 1, records...)
	cfg := e.config(name)
	cfg.CallsPerSecond = 1e9 // the bare loop keeps no budget either
	s := newStream(b, cfg)
	var bare, reader time.Duration
	for b.Loop() {
		began := time.Now()
		e.bareLoop(b, name, cfg.PageRecords)
		half := time.Now()
		readAll(b, s)
		bare, reader = bare+half.Sub(began), reader+time.Since(half)
	}
	n := float64(b.N) * benchRecords
	ratio := bare.Seconds() / reader.Seconds()
	b.ReportMetric(n/bare.Seconds(), "bare-records/s")
	b.ReportMetric(n/reader.Seconds(), "reader-records/s")
	b.ReportMetric(ratio, "ratio")
	if ratio < 0.8 {
		b.Errorf("the reader has %.2f of a bare loop, want 0.8", ratio)
	}
}

// bareLoop reads a shard by hand.
func (e *bench) bareLoop(b *testing.B, name string, page int32) {
	it, err := e.api.GetShardIterator(b.Context(), &awskinesis.GetShardIteratorInput{StreamName: &name, ShardId: aws.String(kinesis.ShardID(0)), ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if err != nil {
		b.Fatal(err)
	}
	if page == 0 {
		page = 10_000
	}
	for n, next := 0, it.ShardIterator; n < benchRecords; {
		out, err := e.api.GetRecords(b.Context(), &awskinesis.GetRecordsInput{ShardIterator: next, Limit: &page})
		if err != nil {
			b.Fatal(err)
		}
		n, next = n+len(out.Records), out.NextShardIterator
	}
}

func readAll(b *testing.B, s *kinesis.Stream) {
	r, err := s.Open(b.Context(), startOf(0))
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < benchRecords; {
		batches, err := r.Poll(b.Context(), 1024)
		if err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		for i := range batches {
			n += len(batches[i].Records)
			batches[i].Done()
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}
