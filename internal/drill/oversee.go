package drill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// overseeEvery is how often the overseer looks.
const overseeEvery = 20 * time.Millisecond

// overseer reads the rows of all partitions of a run all the while: how far they are together, and how long each stood still.
type overseer struct {
	p    *part
	stop context.CancelFunc
	done chan struct{}

	mu       sync.Mutex
	epoch    map[int32]uint64
	token    map[int32]control.FenceToken
	commits  map[int32][]time.Time // by the store's clock
	merged   record.EventTime
	advances int
	readings int
	back     []string
	ahead    []string
	failed   []string
	// still is how long partitions stood still: those that moved, and the others.
	still map[bool][]time.Duration

	// slowest is the longest time after a kill until others had moved everything on. The script alone touches it.
	slowest time.Duration
}

func (p *part) oversee(ctx context.Context) *overseer {
	ctx, stop := context.WithCancel(ctx)
	o := &overseer{p: p, stop: stop, done: make(chan struct{}), epoch: map[int32]uint64{}, token: map[int32]control.FenceToken{},
		commits: map[int32][]time.Time{}, merged: record.NoTime, still: map[bool][]time.Duration{}}
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
	var leases []control.LeaseInfo
	if n%5 == 0 {
		if leases, err = o.p.eyes.ListLeases(ctx); err != nil {
			return err
		}
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
	o.take(rows, leases)
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
func (o *overseer) take(rows []control.RunInfo, leases []control.LeaseInfo) {
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
		if r.Epoch > o.epoch[n] {
			o.epoch[n] = r.Epoch
			o.commits[n] = append(o.commits[n], r.Committed)
		}
	}
	for _, l := range leases {
		if n, ok := group.PartitionOf(control.StreamLease(o.p.run), l.Name); ok {
			o.token[n] = l.Token
		}
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

func (o *overseer) epochs() map[int32]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.epoch)
}

func (o *overseer) tokens() map[int32]control.FenceToken {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.token)
}

// moved notes the longest time between two commits of each partition since a move began, less the time between epochs.
func (o *overseer) moved(began time.Time, before map[int32]control.FenceToken) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, all := range o.commits {
		longest := time.Duration(0)
		for i := 1; i < len(all); i++ {
			if all[i].After(began) {
				longest = max(longest, all[i].Sub(all[i-1]))
			}
		}
		is := before[n] != o.token[n]
		o.still[is] = append(o.still[is], max(0, longest-apartEpoch))
	}
}

// judge turns what was seen into checks and figures.
func (o *overseer) judge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := func(all []string) string { return strings.Join(all[:min(3, len(all))], "; ") }
	o.p.promise(len(o.back) == 0 && o.advances > 0, "the merged watermark never goes back", "%d advances in %d readings %s", o.advances, o.readings, first(o.back))
	o.p.promise(len(o.ahead) == 0, "the group's offsets are never ahead of the journal", "%d readings %s", o.readings, first(o.ahead))
	o.p.promise(len(o.failed) == 0, "the rows could be read all the while", "%d readings %s", o.readings, first(o.failed))
	for is, name := range map[bool]string{true: "moved", false: "unmoved"} {
		all := slices.Sorted(slices.Values(o.still[is]))
		if len(all) > 0 {
			o.p.figure(name+"_stood_median", all[len(all)/2])
			o.p.figure(name+"_stood_longest", all[len(all)-1])
		}
	}
}
