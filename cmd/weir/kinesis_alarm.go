package main

import (
	"context"
	"sync"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kinesis"
)

// alarmEvery is how often the shards of this process are looked at. Retention is a day at least.
const alarmEvery = 5 * time.Minute

// alarmAt are the shares of the retention, in tenths, at which a shard that does not get on is told of: early enough to do something.
var alarmAt = []time.Duration{5, 9}

// alarm tells of shards whose oldest record that is not done comes near the end of the retention, once for each share, and when that has passed. A
// shard may stand still for many reasons; after the retention what it holds is lost.
type alarm struct {
	app    *app
	run    string
	store  control.ControlStore
	stream *kinesis.Stream
	told   map[int32]int
}

// alarms looks at the shards of this process every so often, until the returned function is called.
func (a *app) alarms(ctx context.Context, o runOptions, store control.ControlStore, stream *kinesis.Stream, member *group.Member) (stop func()) {
	w := &alarm{app: a, run: o.runID, store: store, stream: stream, told: map[int32]int{}}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		w.watch(ctx, func() (mine []int32) {
			for _, p := range member.Partitions() {
				mine = append(mine, p.Partition)
			}
			return mine
		})
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// watch looks until ctx ends.
func (w *alarm) watch(ctx context.Context, shards func() []int32) {
	tick := time.NewTicker(alarmEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.look(ctx, shards()); err != nil && ctx.Err() == nil {
			w.app.log.Warn("how far shards are behind cannot be told", "run", w.run, "cause", err.Error())
		}
	}
}

func (w *alarm) look(ctx context.Context, shards []int32) error {
	keeps, err := w.stream.Retention(ctx)
	if err != nil {
		return err
	}
	now, err := w.stream.Now(ctx)
	if err != nil {
		return err
	}
	for _, p := range shards {
		next := record.Position{}
		if err := w.store.Snapshot(ctx, group.RunID(w.run, p), func(v control.JournalView) error {
			next = v.State().Cuts[p].Next
			return nil
		}); err != nil || next == (record.Position{}) {
			continue // nothing is committed yet
		}
		place, err := w.stream.After(ctx, p, next)
		if err != nil {
			continue // what is wrong with the shard is its engine's to tell
		}
		behind := time.Duration(0)
		if place.Found {
			behind = now.Sub(place.Arrival)
		}
		w.tell(p, behind, keeps)
	}
	return nil
}

// tell says what has changed.
func (w *alarm) tell(shard int32, behind, keeps time.Duration) {
	level := 0
	for i, tenths := range alarmAt {
		if behind >= keeps*tenths/10 {
			level = i + 1
		}
	}
	w.app.watch.atRisk(group.RunID(w.run, shard), shard, level > 0, behind, keeps)
	before := w.told[shard]
	w.told[shard] = level
	switch {
	case level > before:
		w.app.notice("weir: %s: the oldest record that is not done arrived %s ago, and records are kept for %s: in %s they begin to be lost. See what holds the shard, or raise the stream's retention\n",
			kinesis.ShardID(shard), behind.Round(time.Minute), keeps, (keeps - behind).Round(time.Minute))
	case level == 0 && before > 0:
		w.app.notice("weir: %s: no record of it is near the end of the retention any more\n", kinesis.ShardID(shard))
	}
}
