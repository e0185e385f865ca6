package actors

import (
	"context"
	"errors"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/record"
)

// What holds a partition beside its window: event time that runs ahead of the others, a disk that is nearly full, results that nobody takes, a
// block. Each is a gauge of the partition's machine (or, the block, a state of the lane), so that why it is held, since when, and what
// releases it is told in one way.
//
// Event time is aligned by what partitions have processed. The slowest partition that has something to read is never held, so one can always go
// on. A partition whose log is read to its end for now, that is idle, has ended or is blocked holds nobody: it would for ever. A
// blocked one goes on holding the merged watermark, which is another matter: results wait for it, and are not lost. What is under way when a partition is
// held is still processed, so the difference in event time is at most the bound and what one window holds.

// patience is how long a partition that is asked for and says nothing holds those that are ahead of it.
const patience = 500 * time.Millisecond

// diskEvery is how often FreeDisk is asked.
const diskEvery = 2 * time.Second

// align takes how far a partition has come in event time, and holds or releases whoever that concerns.
func (r *readerActor) align(p int32, at record.EventTime) {
	l := r.byID[p]
	if at == l.at {
		l.still++
	} else {
		l.at, l.still = at, 0
	}
	if r.since == record.NoTime {
		r.since = at
	}
	r.compare(l)
	r.level()
}

// stillBatches is how many batches in a row may move no event time (all filtered, late, or not readable) before a partition holds nobody.
const stillBatches = 8

// compare tells where a partition stands. One that reads and has not come to an event yet stands where the first one began.
func (r *readerActor) compare(l *lane) {
	at := l.at
	if at == record.NoTime {
		at = r.since
	}
	r.skew.Update(l.partition, at, !l.blocked && !l.caughtUp && !l.idle && l.still < stillBatches)
}

// known takes what is known about a partition being read to its end, without looking at the others yet.
func (r *readerActor) known(l *lane, caughtUp bool) {
	if r.in.cfg.MaxSkew > 0 && l.caughtUp != caughtUp {
		l.caughtUp = caughtUp
		r.compare(l)
	}
}

// level measures every partition against the slowest.
func (r *readerActor) level() {
	if r.in.cfg.MaxSkew == 0 {
		return
	}
	for _, l := range r.lanes {
		if l.at == record.NoTime {
			r.compare(l) // where the first one began may be known by now
		}
	}
	for _, l := range r.lanes {
		l.lead = r.skew.Lead(l.partition)
		r.flush(l)
	}
}

// askedInVain says that a Poll had nothing for those it asked for.
func (r *readerActor) askedInVain() {
	for _, l := range r.lanes {
		if l.asked {
			r.known(l, true)
		}
	}
	r.level()
}

// patient bounds a Poll while partitions may be held for the sake of others.
func (r *readerActor) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.in.cfg.MaxSkew == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// ranOut says whether a Poll has ended by its patience alone: nothing is lost, and the source has not said that it has nothing.
func ranOut(ctx, poll context.Context, err error) bool {
	return err != nil && errors.Is(err, context.DeadlineExceeded) && poll.Err() != nil && ctx.Err() == nil
}

// bands are the thresholds of a partition.
func (c *Config) bands(records, bytes int64) backpressure.Config {
	out := backpressure.Config{
		UnfinishedLag: backpressure.Band{High: records, Low: records / 2},
		BytesInFlight: backpressure.Band{High: bytes, Low: bytes / 2},
		ProcessBuffer: backpressure.Band{High: c.EpochBytes, Low: c.EpochBytes - 1},
		History:       16,
	}
	if c.MaxSkew > 0 {
		high := max(c.MaxSkew.Milliseconds(), 1)
		out.EventTimeLead = backpressure.Band{High: high, Low: high / 2}
	}
	if c.MinFreeDisk > 0 {
		out.FreeDisk = backpressure.Band{High: 2 * c.MinFreeDisk, Low: c.MinFreeDisk}
	}
	return out
}

// watchDisk measures the free disk, at once and then every so often, until the incarnation ends.
func (r *readerActor) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		var free int64
		err := protect(func() (err error) { free, err = r.in.cfg.FreeDisk(); return err })
		if err == nil {
			shell.Send(r.in.reader, toReader(disk{r.in.stamp(), free}))
		} else {
			r.in.log.Warn("the free disk is not known", "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// disk takes a measurement.
func (r *readerActor) disk(free int64) {
	low := r.low
	for _, l := range r.lanes {
		l.free = free
		l.regulate()
		r.low = l.machine.Over(backpressure.FreeDisk)
	}
	if r.low != low {
		why := map[bool]backpressure.Reason{true: backpressure.DiskLow, false: backpressure.DiskFreed}[r.low]
		r.in.log.Warn("the free disk", "run", r.in.cfg.RunID, "reason", string(why), "free", free, "low", r.in.cfg.MinFreeDisk, "again", 2*r.in.cfg.MinFreeDisk)
	}
	r.next()
}
