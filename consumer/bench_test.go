package consumer

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// BenchmarkConsumer is one record through a handler that does nothing, 4 partitions, with and without order by key. Log and store are in memory, so
// it is the price of the consumer itself: tracking, handing over, settling, committing.
func BenchmarkConsumer(b *testing.B) {
	for _, c := range []struct {
		name        string
		order       Order
		concurrency int
	}{{"partition", InPartition, 1}, {"key", ByKey, 4}} {
		b.Run(c.name, func(b *testing.B) {
			log := sourcetest.New(sourcetest.Config{Partitions: 4, Bounded: true})
			for i := range b.N {
				log.Append(int32(i%4), record.Record{Key: fmt.Append(nil, i%1000), Value: []byte("{}")})
			}
			run, err := New(Config{Source: log, Store: controltest.NewMemory(), RunID: "b", Order: c.order, Concurrency: c.concurrency, Handler: func(context.Context, Delivery) Outcome { return Ack() }})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			r, err := run.Run(b.Context())
			if err != nil || r.Counts.Consumed != int64(b.N) {
				b.Fatal(r, err)
			}
		})
	}
}
