package kinesis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// A stream says how far its shards are behind, by the word of the last page, as long as they are read.
func TestObserve(t *testing.T) {
	t.Parallel()
	pages := []map[string]any{
		{"Records": []map[string]any{{"SequenceNumber": "1000", "PartitionKey": "k", "Data": []byte("a")}}, "MillisBehindLatest": 61_000, "NextShardIterator": "b"},
		{"Records": []map[string]any{{"SequenceNumber": "1007", "PartitionKey": "k", "Data": []byte("b")}}, "MillisBehindLatest": 0, "NextShardIterator": "c"},
	}
	at := 0
	s := &kinesistest.Scripted{Answer: func(op string, _ map[string]any) kinesistest.Answer {
		switch op {
		case "ListShards":
			return listing(2)
		case "GetShardIterator":
			return kinesistest.Answer{Out: map[string]any{"ShardIterator": "start"}}
		}
		at++
		return kinesistest.Answer{Out: pages[min(at, len(pages))-1]}
	}}
	stream := scripted(t, s, nil)
	var by sources.Observer = stream
	look := func() sources.Observation {
		t.Helper()
		o, err := by.Observe(t.Context())
		if err != nil || len(o.Extents) != 0 || o.Name != "kinesis:s" {
			t.Fatalf("%+v, %v", o, err)
		}
		return o
	}
	if o := look(); len(o.Lags) != 0 || len(o.Partitions) != 0 {
		t.Errorf("nothing is read yet: %+v", o)
	}
	began := time.Now()
	r := open(t, stream.Shard(1), startOf(1))
	poll := func() record.Batch {
		t.Helper()
		batches, err := r.Poll(context.Background(), 0)
		if err != nil || len(batches) != 1 {
			t.Fatalf("%v, %v", batches, err)
		}
		return batches[0]
	}
	// A page is fetched once the one before was delivered.
	o := look()
	for len(o.Lags) == 0 {
		o = look()
	}
	if l := o.Lags[1]; l.Behind != 61*time.Second || l.Read.String() != "1001" || l.At.Before(began) || l.At.After(time.Now()) {
		t.Errorf("after the first page: %+v", l)
	}
	if b := poll(); b.Next.String() != "1001" {
		t.Errorf("next is %s", b.Next)
	}
	for o.Lags[1].Behind > 0 {
		o = look()
	}
	if l := o.Lags[1]; l.Read.String() != "1008" || fmt.Sprint(o.Partitions) != "[1]" {
		t.Errorf("after the second page: %+v of %v", l, o.Partitions)
	}
	if one, err := sources.Only(stream, 0).(sources.Observer).Observe(t.Context()); err != nil || len(one.Lags) != 0 {
		t.Errorf("of another shard: %+v, %v", one, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if o := look(); len(o.Lags) != 0 {
		t.Errorf("nothing is read any more: %+v", o)
	}
}
