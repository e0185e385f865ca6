package kinesis

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// A shard that cannot be read on is told once what stands before is delivered, whatever the others have; once it is paused they go on.
func TestAFaultDoesNotWaitForOtherShards(t *testing.T) {
	t.Parallel()
	r := &reader{woken: make(chan struct{}, 1)}
	for n := range int32(2) {
		sh := &shard{r: r, number: n, free: make(chan struct{}, 1), ready: make([]record.Record, 2)}
		r.shards = append(r.shards, sh)
	}
	r.shards[0].ready = r.shards[0].ready[:1]
	r.shards[0].fault = &sources.Fault{Partition: 0, Err: errors.New("broken")}
	if out, err := r.take(1); err != nil || len(out) != 1 || out[0].Partition != 0 {
		t.Fatalf("what stands before: %v, %v", out, err)
	}
	var f *sources.Fault
	if out, err := r.take(1); !errors.As(err, &f) {
		t.Fatalf("with records of the other one left: %v, %v", out, err)
	}
	r.Pause(0)
	if out, err := r.take(1); err != nil || len(out) != 1 || out[0].Partition != 1 {
		t.Fatalf("%v, %v", out, err)
	}
}
