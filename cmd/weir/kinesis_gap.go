package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

// acceptGaps records that what is gone is given up, and passes over the shards that are: their rows end where they stand, so that their children
// go on from there.
func (a *app) acceptGaps(ctx context.Context, plan *flow.Plan, store *runStore, stream *kinesis.Stream, o runOptions) error {
	who, now := operator(), time.Now().UTC().Format(time.RFC3339Nano)
	err := publishOnce(ctx, store, "accepted-gap/"+o.runID, control.Publication{Key: "accepted-gap/" + o.runID + "/" + now, RunID: o.runID},
		map[string]any{"format": "weir-accepted-gap/1", "run": o.runID, "stream": o.kinesis, "who": who, "why": o.reason, "when": now})
	if err != nil {
		return err
	}
	family, err := reshard.New(reshard.Config{
		Run: o.runID, Plan: plan, Journal: store, Log: stream,
		Source: func(p int32, _ bool) sources.Source { return stream.Shard(p) },
	})
	if err != nil {
		return err
	}
	// Once a shard is passed over, another one that is gone may stand between it and what is held.
	for {
		if _, err := family.Units(ctx); err != nil {
			return err
		}
		gone := family.Gone()
		if len(gone) == 0 {
			return nil
		}
		for _, p := range gone {
			at, err := family.PassOver(ctx, store, p, o.ttl, fmt.Sprintf("by %s: %s", who, o.reason))
			if err != nil {
				return err
			}
			a.notice("weir: %s is passed over: it was read up to %s, and what came after it is given up\n", kinesis.ShardID(p), placeText(at))
		}
	}
}

// placeText is a position for people.
func placeText(p record.Position) string {
	if p == (record.Position{}) {
		return "its beginning"
	}
	return p.Prev().String()
}
