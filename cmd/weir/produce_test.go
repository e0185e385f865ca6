package main

import (
	"context"
	"testing"

	"github.com/weirstream/weir/record"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

// produce writes values of instrument 1 to a new topic of one partition, and a tombstone after them.
func produce(t *testing.T, addr, topic string, values []string) {
	t.Helper()
	ctx := context.Background()
	p, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.EnsureTopic(ctx, 1); err != nil {
		t.Fatal(err)
	}
	at, err := record.ParseTime([]byte("2026-01-05T15:00:00Z"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := p.Produce(ctx, record.Record{Key: []byte("1"), Value: []byte(v), Arrival: at}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Produce(ctx, record.Record{Key: []byte("1"), Arrival: at}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
