package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/balance"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

// streamFlags name a Kinesis stream. Credentials come from the chain that every tool of AWS uses, never from the command line.
type streamFlags struct{ kinesis, region, endpoint string }

func (o *streamFlags) addStream(cmd *cobra.Command, stream string) {
	f := cmd.Flags()
	f.StringVar(&o.kinesis, "kinesis", "", stream)
	f.StringVar(&o.region, "region", "", "with --kinesis: the AWS region (default: AWS_REGION, or that of the profile)")
	f.StringVar(&o.endpoint, "endpoint", "", "with --kinesis: another address than AWS's own; plain http on this machine only")
}

// open makes the stream's client and the stream.
func (o *streamFlags) open(ctx context.Context, log *slog.Logger, change func(*kinesis.Config)) (*kinesis.Stream, error) {
	client, err := kinesis.Connect(ctx, kinesis.Connection{Region: o.region, Endpoint: o.endpoint, Logger: log})
	if err != nil {
		return nil, err
	}
	cfg := kinesis.Config{Client: client, Stream: o.kinesis}
	if change != nil {
		change(&cfg)
	}
	return kinesis.New(cfg)
}

// kinesisFlags are those of `weir run` for a stream.
type kinesisFlags struct {
	streamFlags
	start, reason, fanOut string
	acceptGap             bool
}

func (o *kinesisFlags) addKinesis(cmd *cobra.Command) {
	f := cmd.Flags()
	o.addStream(cmd, "read this Kinesis stream instead of a topic: each shard is a run RUN-ID/N, shared out over all processes of the run by leases in the store")
	f.StringVar(&o.start, "start", "", "with --kinesis: where the run begins, trim-horizon, latest or a time such as 2026-11-30T12:00:00Z; it is resolved once and kept (default: as it was begun, or trim-horizon)")
	f.StringVar(&o.fanOut, "fan-out", "", "with --kinesis: read by enhanced fan-out as this registered consumer, which costs extra (default: poll)")
	f.BoolVar(&o.acceptGap, "accept-gap", false, "with --kinesis: go on at the oldest record held where those that come next are gone, and pass over shards that are gone; needs --reason")
	f.StringVar(&o.reason, "reason", "", "with --accept-gap: why, for the record")
}

// checkKinesis checks the flags of a run that reads a stream, and that there are none of them in another.
func (o *runOptions) checkKinesis() error {
	counted := o.onceN > 0 || o.untilN > 0
	switch {
	case o.kinesis == "" && (o.region != "" || o.endpoint != "" || o.start != "" || o.acceptGap || o.reason != "" || o.fanOut != ""):
		return usagef("--region, --endpoint, --start, --fan-out, --accept-gap and --reason go with --kinesis")
	case o.kinesis == "":
		return nil
	case o.log != "" || o.topic != "" || o.group != "":
		return usagef("give one thing to read: --kinesis, --log, or --brokers and --topic; a stream has no --group")
	case o.acceptGap != (o.reason != ""):
		return usagef("--accept-gap gives records up: say why with --reason, and give --reason with nothing else")
	case o.emit != "" && !counted:
		return usagef("--emit is written at the end of a run, which a stream does not have without --once-n or --until-n; `weir journal emit %s` makes the document of what is committed", o.runID)
	}
	_, err := parseStart(o.start)
	return err
}

// streamed runs a flow over a stream: the shards that this process gets, or with a number of records all of them in one engine.
func (a *app) streamed(ctx context.Context, plan *flow.Plan, o runOptions, store *runStore, faults *failpoints) error {
	bare, err := o.open(ctx, a.log, nil)
	if err != nil {
		return err
	}
	info, err := bare.Info(ctx)
	if err != nil {
		return err
	}
	begin, err := a.pinStart(ctx, store, bare, info, o)
	if err != nil {
		return err
	}
	stream, err := o.open(ctx, a.log, func(c *kinesis.Config) {
		c.StartAt, c.AcceptGap, c.FanOut, c.Logger = begin.at(), o.acceptGap, o.fanOut, a.log
		c.OnThrottle = func(shard int32, pause time.Duration) {
			a.log.Info("kinesis throttles; that is normal", "shard", shard, "pause", pause)
		}
	})
	if err != nil {
		return err
	}
	if o.acceptGap {
		if err := a.acceptGaps(ctx, plan, store, stream, o); err != nil {
			return err
		}
	}
	if o.onceN == 0 && o.untilN == 0 {
		return a.shared(ctx, plan, stream, begin, o, store, faults)
	}
	if len(begin.Shards) > 0 {
		return codes.New(codes.RunMismatch, "run %q was made by a rewind, which places every shard by itself; --once-n and --until-n count over all of them, so leave them out", o.runID)
	}
	shards, err := stream.Shards(ctx)
	if err != nil {
		return err
	}
	for _, sh := range shards {
		if sh.Closed {
			return codes.New(codes.ConfigInvalid, "stream %q was resharded (%s is closed), and --once-n and --until-n read all shards as one run, which follows no key from shard to shard. Leave them out", o.kinesis, sh.ID)
		}
	}
	return a.whole(ctx, plan, stream, nil, o, store, faults)
}

// shared works on the shards that this process gets, until it is told to stop.
func (a *app) shared(ctx context.Context, plan *flow.Plan, stream *kinesis.Stream, begin *startDoc, o runOptions, store *runStore, faults *failpoints) error {
	a.watch.apart()
	defer a.watch.observing(ctx, stream)()
	if err := a.printBound(ctx, plan, stream); err != nil {
		return err
	}
	keep, closing, err := a.openCheckpoints(ctx, o, store)
	if err != nil {
		return err
	}
	defer closing()
	family, err := a.family(plan, stream, begin, o, store)
	if err != nil {
		return err
	}
	dealer, err := balance.New(balance.Config{Run: o.runID, Leases: store, Units: family.Units, TTL: o.ttl, Logger: a.log})
	if err != nil {
		return err
	}
	stands, shown := &standing{last: map[int32]actors.Progress{}}, &boards{}
	member, err := group.New(group.Config{
		Run: o.runID, Assigner: dealer, Kill: a.kill, Logger: a.log, OnChange: a.watch.partitions(a.tellPartition(), shown),
		Engine: func(ctx context.Context, p int32) (actors.Config, error) {
			shard, err := family.Engine(ctx, p)
			if err != nil {
				return shard, err
			}
			cfg := a.engineOf(p, o, stands)
			cfg.Plan, cfg.Source, cfg.Journal, cfg.HandOn, cfg.Begin, cfg.Hooks = plan, shard.Source, store, shard.HandOn, shard.Begin, faults.hooks(group.RunID(o.runID, p))
			cfg.Fencing = &actors.Fencing{Leases: store, TTL: o.ttl, OnLease: a.tellLease}
			o.recovery(&cfg, store)
			o.publish(&cfg)
			keep(&cfg)
			shown.put(p, a.watch.attach(&cfg, group.RunID(o.runID, p)))
			return cfg, nil
		},
	})
	if err != nil {
		return err
	}
	a.cleanUp, a.working = member.Abandon, true
	defer a.alarms(ctx, o, store, stream, member)()
	return a.endApart(ctx, o, store, stands, member.Run(ctx))
}

// family follows the shards of the stream.
func (a *app) family(plan *flow.Plan, stream *kinesis.Stream, begin *startDoc, o runOptions, store *runStore) (*reshard.Family, error) {
	return reshard.New(reshard.Config{
		Run: o.runID, Plan: plan, Journal: store, Log: stream, Logger: a.log, OnGone: a.tellGone(o),
		Source: func(p int32, fresh bool) sources.Source {
			at := begin.source(stream, p, fresh)
			if wrapSource != nil {
				at = wrapSource(at)
			}
			return at
		},
	})
}

// tellGone says which shards are gone before they were read to their end.
func (a *app) tellGone(o runOptions) func([]int32) {
	return func(shards []int32) {
		if len(shards) == 0 {
			a.notice("weir: no shard of stream %s is missed any more\n", printable(o.kinesis))
			return
		}
		for _, n := range shards {
			a.notice("weir: RECOVERY_BLOCKED: OFFSET_LOST: stream %s no longer holds %s, and run %s was not done with it: what it held is lost, and the shards that go on from it wait. "+
				"Records are kept as long as the stream's retention says. To pass over it, start again with --accept-gap --reason, or begin a new run\n", printable(o.kinesis), kinesis.ShardID(n), printable(o.runID))
		}
	}
}
