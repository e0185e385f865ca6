package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkSink compares with the bare client that produces the same records, in a transaction or idempotent as the sink does, to a broker in another
// process.
func BenchmarkSink(b *testing.B) {
	for name, idempotent := range map[string]bool{"Transactional": false, "Idempotent": true} {
		b.Run(name, func(b *testing.B) {
			const n = 50_000
			broker := child.Start(b, devbroker.Config{Partitions: 1, Topics: []string{topic, "bare"}})
			s, err := kafka.NewSink(kafka.SinkConfig{Brokers: []string{broker.Addr()}, Topic: topic, Idempotent: idempotent})
			if err != nil {
				b.Fatal(err)
			}
			to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1}
			w, err := s.Open(b.Context(), to)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			opts := []kgo.Opt{kgo.DefaultProduceTopic("bare"), kgo.MaxBufferedRecords(n), kgo.ProducerLinger(0)}
			if !idempotent {
				opts = append(opts, kgo.TransactionalID("bare"))
			}
			cl := client(b, broker.Addr(), opts...)
			enc := sinks.NewJSON(to)
			rows := sinktest.Rounds(9, n)
			sinktest.Compare(b, 9, n, func(round int) {
				if err := w.Publish(b.Context(), rows[round:round+1]); err != nil {
					b.Fatal(err)
				}
			}, func(round int) {
				var records []*kgo.Record
				err := rows[round].Each(2, nil, func(number int64, row *partitions.Row) error {
					records = append(records, &kgo.Record{Key: append([]byte{}, row.Key...), Value: enc.Append(nil, 0, number, row)})
					return nil
				})
				if err == nil && !idempotent {
					err = cl.BeginTransaction()
				}
				if err == nil {
					err = cl.ProduceSync(b.Context(), records...).FirstErr()
				}
				if err == nil && !idempotent {
					err = cl.EndTransaction(b.Context(), kgo.TryCommit)
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
