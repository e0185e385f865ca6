package drill

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// overseeEvery is how often the overseer looks.
const overseeEvery = 20 * time.Millisecond

// overseer reads the rows of all partitions of a run all the while: how far they are, and how far together.
type overseer struct {
	p    *part
	stop context.CancelFunc
	done chan struct{}

	mu       sync.Mutex
	epoch    map[int32]uint64
	records  map[int32]int64
	merged   record.EventTime
	advances int
	readings int
	back     []string
	ahead    []string
	failed   []string
	// slowest is the longest time after a kill until others had moved everything on. The script alone touches it.
	slowest time.Duration
}

func (p *part) oversee(ctx context.Context) *overseer {
	ctx, stop := context.WithCancel(ctx)
	o := &overseer{p: p, stop: stop, done: make(chan struct{}), epoch: map[int32]uint64{}, records: map[int32]int64{}, merged: record.NoTime}
	go func() {
		defer close(o.done)
		tick := time.NewTicker(overseeEvery)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			if err := o.look(ctx, n); err != nil && ctx.Err() == nil {
				o.mu.Lock()
				o.failed = append(o.failed, err.Error())
				o.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return o
}

// close ends the watch. It may be called again.
func (o *overseer) close() {
	o.stop()
	<-o.done
}

// look reads the group's offsets now and then, and the rows after them, which they may not be ahead of.
func (o *overseer) look(ctx context.Context, n int) error {
	offsets := map[int32]int64{}
	if n%10 == 0 {
		if all, err := o.p.watch.kafka.FetchOffsets(ctx, o.p.run); err == nil { // the group may not be there yet: a courtesy
			for _, at := range all.Offsets()[o.p.topic] {
				offsets[at.Partition] = at.At
			}
		}
	}
	rows, err := o.p.eyes.Runs(ctx)
	if err != nil {
		return err
	}
	for n, at := range offsets {
		next, err := o.next(ctx, n)
		if err != nil {
			return err
		}
		if record.Offset(at).Cmp(next) > 0 && at > 0 {
			o.mu.Lock()
			o.ahead = append(o.ahead, fmt.Sprintf("partition %d: the group stands at %d, the journal at %s", n, at, next))
			o.mu.Unlock()
		}
	}
	o.take(rows)
	return nil
}

func (o *overseer) next(ctx context.Context, n int32) (next record.Position, err error) {
	err = o.p.eyes.Snapshot(ctx, group.RunID(o.p.run, n), func(v control.JournalView) error {
		next = v.State().Cuts[n].Next
		return nil
	})
	return next, err
}

// take notes rows as they were read.
func (o *overseer) take(rows []control.RunInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readings++
	least, seen := record.MaxTime, int32(0)
	for _, r := range rows {
		n, ok := group.PartitionOf(o.p.run, r.Header.RunID)
		if !ok {
			continue
		}
		seen++
		least = min(least, r.Watermark)
		o.epoch[n], o.records[n] = r.Epoch, r.Counts.Records
	}
	if seen < o.p.Partitions {
		return // a partition without a row holds it
	}
	if least < o.merged {
		o.back = append(o.back, fmt.Sprintf("from %s to %s", o.merged, least))
	}
	if least > o.merged {
		o.advances++
	}
	o.merged = least
}

// stands is how far each partition is: its epoch, and the records that are committed.
func (o *overseer) stands() (epochs map[int32]uint64, records map[int32]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.epoch), maps.Clone(o.records)
}

// judge turns what was seen into checks and figures.
func (o *overseer) judge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := func(all []string) string { return strings.Join(all[:min(3, len(all))], "; ") }
	o.p.promise(len(o.back) == 0 && o.advances > 0, "the merged watermark never goes back", "%d advances in %d readings %s", o.advances, o.readings, first(o.back))
	o.p.promise(len(o.ahead) == 0, "the group's offsets are never ahead of the journal", "%d readings %s", o.readings, first(o.ahead))
	o.p.promise(len(o.failed) == 0, "the rows could be read all the while", "%d readings %s", o.readings, first(o.failed))
}
