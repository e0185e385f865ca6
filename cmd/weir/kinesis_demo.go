package main

import (
	"context"
	"errors"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kinesistest/emulator"
	"github.com/weirstream/weir/internal/parity"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
)

// demoShards are those of the demo's stream.
const demoShards = 2

// overKinesis is the stream mode over an emulator of Kinesis: half of the log, a worker, SIGKILL, the other half, the same worker again.
func (d *demo) overKinesis(ctx context.Context, job parity.Job) (out parity.Outcome, err error) {
	d.next("Batch has run over the events. For the other modes they arrive as they do in life: %d arrivals, with faults", job.Arrivals)
	d.say("   injected (a duplicate, a delay, a missing event, a late revision, a pause, a burst, an outage of the source).")
	e, err := emulator.Start()
	var none emulator.Missing
	if errors.As(err, &none) {
		return out, codes.New(codes.SourceFailure, "the demo of Kinesis needs an emulator, and there is %s. `weir demo` needs nothing", none.Reason)
	}
	if err != nil {
		return out, codes.New(codes.SourceFailure, "the emulator of Kinesis does not start: %w", err)
	}
	defer e.Stop()
	ctx, cancel := d.within(ctx)
	defer cancel()
	d.env = []string{"AWS_ACCESS_KEY_ID=" + emulator.AccessKey, "AWS_SECRET_ACCESS_KEY=" + emulator.SecretKey, "AWS_SESSION_TOKEN="}
	d.log = []string{"--kinesis", demoTopic, "--region", emulator.Region, "--endpoint", e.Endpoint()}
	if err := e.Create(ctx, demoTopic, demoShards); err != nil {
		return out, codes.New(codes.SourceFailure, "the emulator makes no stream: %w", err)
	}
	producer, err := sinkkinesis.New(sinkkinesis.Config{Client: e.Client(), Stream: demoTopic, Buffer: 1})
	if err != nil {
		return out, err
	}
	d.next("An emulator of Kinesis (kinesalite) listens on %s; the first %d arrivals go to its stream %q of %d shards.", e.Endpoint(), demoHeld, demoTopic, demoShards)
	return d.killed(ctx, job, producer)
}
