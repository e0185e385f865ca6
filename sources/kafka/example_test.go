package kafka_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
	sink "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources/kafka"
)

// Two records are written to a topic and read back, from the first position on. Next is what a run keeps to resume.
func Example() {
	ctx := context.Background()
	broker, err := devbroker.Start(devbroker.Config{Partitions: 1, Topics: []string{"ticks"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()

	producer, err := sink.New(sink.Config{Brokers: []string{broker.Addr()}, Topic: "ticks"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()
	for _, value := range []string{`{"close":101.5}`, `{"close":101.7}`} {
		if err := producer.Produce(ctx, record.Record{Key: []byte("ACME"), Value: []byte(value), Arrival: record.NoTime}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := producer.Flush(ctx); err != nil {
		fmt.Println(err)
		return
	}

	source, err := kafka.New(kafka.Config{Brokers: []string{broker.Addr()}, Topic: "ticks"})
	if err != nil {
		fmt.Println(err)
		return
	}
	reader, err := source.Open(ctx, map[int32]record.Position{0: record.Offset(0)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	for {
		batches, err := reader.Poll(ctx, 1024)
		if err != nil {
			fmt.Println(err)
			return
		}
		if len(batches) == 0 {
			return // everything was asked, and there is nothing
		}
		for i := range batches {
			for _, r := range batches[i].Records {
				fmt.Printf("%s=%s\n", r.Key, r.Value)
			}
			fmt.Println("next:", batches[i].Next)
			batches[i].Done()
		}
	}
	// Output:
	// ACME={"close":101.5}
	// ACME={"close":101.7}
	// next: 2
}
