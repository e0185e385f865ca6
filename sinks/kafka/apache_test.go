//go:build unix

package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/kafka"
)

// Apache Kafka is killed twice while records are written to it, and stands still for a while: each record is there once, in order.
func TestApacheFailsWhileItIsWrittenTo(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Config{})
	p := producer(t, broker.Addr(), func(c *kafka.Config) { c.BufferRecords, c.StallTimeout = 100, 10*time.Minute })
	if err := p.EnsureTopic(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	const n = 3000
	written := make(chan int, n)
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = p.Produce(t.Context(), value(strconv.Itoa(i)))
			written <- i
		}
		ended <- errors.Join(err, p.Flush(t.Context()))
	}()
	until := func(i int) {
		t.Helper()
		for {
			select {
			case w := <-written:
				if w >= i {
					return
				}
			case err := <-ended:
				t.Fatalf("it ended before record %d: %v", i, err)
			}
		}
	}
	until(500)
	broker.Kill()
	broker.Restart(t)
	until(1000)
	if err := broker.Freeze(); err != nil {
		t.Fatal(err)
	}
	// The buffer is full once nothing is written any more; what the broker had taken by then is not known to anybody.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	<-ctx.Done()
	cancel()
	if err := broker.Thaw(); err != nil {
		t.Fatal(err)
	}
	until(2000)
	broker.Kill()
	broker.Restart(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	got := values(readAll(t, broker.Addr())[0])
	if len(got) != n {
		t.Fatalf("%d records, want %d", len(got), n)
	}
	for i, v := range got {
		if v != strconv.Itoa(i) {
			t.Fatalf("record %d is %s", i, v)
		}
	}
}

// What the topic takes, and what it does not, as Apache Kafka sees it; nulls and headers as they were.
func TestWhatApacheTakes(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Config{})
	missing := producer(t, broker.Addr(), nil)
	wantCode(t, missing.Produce(t.Context(), value("x")), codes.TopicMissing, topic)

	p := producer(t, broker.Addr(), nil)
	if err := p.EnsureTopic(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("0123456789"), 1<<20)
	sent := []record.Record{
		{Value: large, Arrival: record.NoTime},
		{Key: []byte("k"), Headers: []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}, {Key: "h", Value: []byte{}}}, Arrival: 1_000_000_000},
		{Key: []byte{}, Value: []byte{}, Arrival: record.NoTime},
	}
	send(t, p, sent...)
	got := readAll(t, broker.Addr())[0]
	if len(got) != 3 || !bytes.Equal(got[0].Value, large) || got[0].Key != nil {
		t.Fatalf("%d records", len(got))
	}
	if r := got[1]; r.Value != nil || string(r.Key) != "k" || !r.Timestamp.Equal(time.Unix(1, 0)) || fmt.Sprint(headers(r)) != "[h=1 h=nil h=]" {
		t.Errorf("got %+v, headers %v", r, headers(r))
	}
	if r := got[2]; r.Key == nil || r.Value == nil || len(r.Key)+len(r.Value) != 0 {
		t.Errorf("got %+v, want empty and not null", r)
	}
	wantCode(t, p.Produce(t.Context(), record.Record{Value: bytes.Repeat([]byte("x"), 17<<20), Arrival: record.NoTime}), codes.RecordTooLarge, "max.message.bytes")
}

func headers(r *kgo.Record) (out []string) {
	for _, h := range r.Headers {
		if h.Value == nil {
			out = append(out, h.Key+"=nil")
			continue
		}
		out = append(out, h.Key+"="+string(h.Value))
	}
	return out
}
