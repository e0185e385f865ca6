package main

import (
	"context"
	"os"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/replay"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
	"github.com/weirstream/weir/sources/kinesis"
)

// publishStream sends an arrival log to a stream. topic is what was said of a topic, which does not go with it.
func (a *app) publishStream(ctx context.Context, log, speed string, o streamFlags, topic string, partitions int32) error {
	if topic != "" || partitions != 0 {
		return usagef("give --kinesis, or --brokers and --topic, not both")
	}
	if log == "" {
		return usagef("--log is missing: name the arrival log")
	}
	s, err := replay.ParseSpeed(speed)
	if err != nil {
		return usagef("--speed: %v", err)
	}
	if missing(log) {
		return codes.New(codes.FileMissing, "--log: %w", &os.PathError{Op: "open", Path: log, Err: os.ErrNotExist})
	}
	client, err := kinesis.Connect(ctx, kinesis.Connection{Region: o.region, Endpoint: o.endpoint, Logger: a.log})
	if err != nil {
		return err
	}
	// One record at a time: Kinesis keeps the order of calls, not that of a batch, and lateness is a matter of the order in a shard.
	producer, err := sinkkinesis.New(sinkkinesis.Config{Client: client, Stream: o.kinesis, Buffer: 1, StallTimeout: publishPatience, OnTrouble: func(cause error) {
		a.notice("weir: kinesis takes nothing for now; it is tried again for %v: %s\n", publishPatience, printable(cause.Error()))
	}})
	if err != nil {
		return err
	}
	err = a.published(ctx, replay.PublishConfig{Log: log, Speed: s, Producer: producer}, o.kinesis)
	if codes.Has(err, codes.SourceFailure) {
		err = codes.New(codes.SourceFailure, "the log was not published to its end: see that %s is reached, and publish it again; whoever reads knows by their event ids the records that have arrived already: %w", target(o), err)
	}
	return err
}

// publishPatience is how long Kinesis may take nothing while a log is published.
const publishPatience = 30 * time.Second

// target is what the flags name, for people.
func target(o streamFlags) string {
	if o.endpoint != "" {
		return o.endpoint
	}
	return "Kinesis in the region"
}
