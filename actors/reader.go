package actors

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// readerActor stands between the source and the partitions. It asks the source for more, splits what comes into parts, hands a part
// out when its partition has credit for it and keeps it aside otherwise, and puts barriers between parts.
//
//	          ask                      deliver, barrier
//	source ◀────── reader ────────────────────────────▶ partition
//	       ──────▶        ◀────────────────────────────
//	        polled                    credit
//
// One Poll is under way at a time, in a goroutine; while one is not, because every partition is held or all has been read, nothing
// asks the source.
type readerActor struct {
	in    *incarnation
	lanes []*lane
	byID  map[int32]*lane
	// ask wakes the polling goroutine with the number of records to ask for.
	ask      chan int
	stopPoll context.CancelFunc
	polling  bool

	// taken counts the records handed out or aside over the whole life of the run, limit ends the intake unless it is 0.
	taken, limit int64
	aside        int
	skew         *backpressure.Skew
	// low: the free disk holds everything.
	low bool
	// since is the event time at which the first partition began.
	since record.EventTime
	// exhausted: nothing more is read. told: the coordinator knows that everything is handed out.
	exhausted, told bool
	mode            endMode

	// dirty: something was handed out since the last barrier. polledEmpty: an empty answer was.
	dirty, polledEmpty bool

	sinceCut int64
	dueAsked bool
}

func newReader(in *incarnation) *readerActor {
	r := &readerActor{in: in, byID: make(map[int32]*lane), ask: make(chan int, 1), skew: backpressure.NewSkew(in.cfg.MaxSkew), since: record.NoTime}
	r.limit, r.mode = in.cfg.limit()
	for _, cut := range in.state.Cuts {
		r.taken += cut.Counts.Records
	}
	in.handed.Store(r.taken)
	return r
}

// Receive handles one message.
func (r *readerActor) Receive(_ *shell.Context, m toReader) error {
	switch m := m.(type) {
	case begin:
		return r.begin()
	case polled:
		return r.polled(m)
	case credit:
		return r.credit(m)
	case progressed:
		r.byID[m.partition].idle = m.idle
		r.align(m.partition, m.at)
		r.next()
	case buffered:
		l := r.byID[m.partition]
		l.buffered = m.bytes
		l.regulate()
	case disk:
		r.disk(m.free)
	case cutRequest:
		r.cut(m)
	case gather:
		for _, l := range r.lanes {
			shell.Send(l.to, toPartition(askMaxTime(m)))
		}
	case finish:
		for _, l := range r.lanes {
			r.in.settling.seal(l.partition)
			shell.Send(l.to, toPartition(endOfSource{m.stamp, m.through}))
			shell.Send(l.to, toPartition(barrier{m.stamp, m.epoch}))
		}
	case stopIntake:
		r.stop(m.mode)
	}
	return nil
}

func (r *readerActor) begin() error {
	for _, p := range r.in.partitions {
		l, err := newLane(r.in, p, r.in.refs[p])
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
		r.byID[p] = l
		if m := r.in.machines[p]; m != nil && r.in.cfg.MaxSkew > 0 {
			l.at, l.idle = m.MaxEventTime(), m.Status() == watermark.Idle || m.Finished()
			if l.at != record.NoTime && (r.since == record.NoTime || l.at < r.since) {
				r.since = l.at
			}
			r.compare(l)
		}
	}
	r.level()
	if r.limit > 0 && r.in.inherited.Load() > r.limit {
		return codes.New(codes.RunMismatch, "run %q has committed %d records already, and %d were asked for; ask for more, or use a new --run-id",
			r.in.cfg.RunID, r.taken, r.limit)
	}
	r.exhausted = r.limit > 0 && r.taken >= r.limit
	r.dirty = len(r.in.begun) > 0
	ctx, cancel := context.WithCancel(r.in.ctx)
	r.stopPoll = cancel
	r.in.workers.Go(func() { r.poll(ctx) })
	if r.in.cfg.FreeDisk != nil && r.in.cfg.MinFreeDisk > 0 {
		r.in.workers.Go(func() { r.watchDisk(ctx) })
	}
	r.next()
	return nil
}

// poll is the goroutine that waits for the source.
func (r *readerActor) poll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-r.ask:
			shell.Send(r.in.reader, toReader(r.pollOnce(ctx, n)))
		}
	}
}

// emptyPause is the least time that an empty answer takes: a source that answers empty at once must not make a loop hot.
const emptyPause = time.Millisecond

func (r *readerActor) pollOnce(ctx context.Context, n int) (m polled) {
	m.stamp = r.in.stamp()
	began := time.Now()
	poll, cancel := r.patient(ctx)
	defer cancel()
	m.err = protect(func() (err error) {
		m.batches, err = r.in.source.Poll(poll, n)
		if m.waited = ranOut(ctx, poll, err); m.waited {
			err = nil
		}
		if hook := r.in.cfg.Hooks.at(ctx, Point{Name: AfterPoll, Actor: readerName, Incarnation: r.in.number}); hook != nil {
			return hook
		}
		return err
	})
	if m.err == nil && len(m.batches) == 0 && time.Since(began) < emptyPause {
		timer := time.NewTimer(emptyPause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return m
}

// next asks the source for more, unless a Poll is under way, every partition is held, or nothing more is wanted.
func (r *readerActor) next() {
	if r.exhausted {
		r.tellEnd()
		return
	}
	if r.polling {
		return
	}
	open, free := int64(0), int64(0)
	for _, l := range r.lanes {
		l.asked = !l.held
		if l.asked {
			records, _ := l.credits.Available()
			open, free = open+1, free+records
		}
	}
	if open == 0 {
		return
	}
	// What comes beyond the credit of its partition waits aside: all in all never more than all credits.
	n := min(open*int64(r.in.cfg.FetchSize), free)
	if r.limit > 0 {
		n = min(n, r.limit-r.taken)
	}
	r.polling = true
	r.ask <- int(max(n, 1)) // never blocks: there is room for one, and one Poll is under way at a time
}

func (r *readerActor) polled(m polled) error {
	r.polling = false
	end := errors.Is(m.err, io.EOF)
	switch {
	case r.exhausted || r.in.ctx.Err() != nil:
		m.Discard()
		return nil
	case codes.Has(m.err, codes.PartitionsAdded) && r.in.cfg.unbounded() && !r.in.cfg.HandOn:
		r.in.log.Info("the source has new partitions; the run opens it again", "run", r.in.cfg.RunID, "code", codes.PartitionsAdded.Name)
		m.Discard()
		r.stop(endAgain) // the next incarnation reads them too
		return nil
	case m.err != nil && !end:
		m.Discard()
		return r.failed(m.err)
	}
	for i := range m.batches {
		if err := r.take(&m.batches[i]); err != nil {
			return err
		}
	}
	if end && !r.exhausted {
		r.exhausted = true
		switch {
		case r.limit > 0:
			r.mode = endShort
		case len(r.in.blocked) > 0:
			r.mode = endBlocked
		case r.in.cfg.HandOn:
			r.mode = endHandOn
		}
	}
	if len(m.batches) == 0 && !end {
		if !m.waited {
			r.emptyPolls(m.stamp)
		}
		r.askedInVain()
	}
	for _, l := range r.lanes {
		r.flush(l)
	}
	r.next()
	return nil
}

// take puts a batch aside, cut short where the limit stands.
func (r *readerActor) take(b *record.Batch) error {
	l := r.byID[b.Partition]
	if l == nil || r.exhausted {
		b.Done()
		if l == nil {
			return codes.New(codes.Internal, "the source delivered partition %d, which the run does not read", b.Partition)
		}
		return nil
	}
	if left := r.limit - r.taken; r.limit > 0 && int64(len(b.Records)) > left {
		for left < int64(len(b.Records)) && b.Records[left].Sub > 0 {
			left++ // an aggregate stays whole
		}
		if left < int64(len(b.Records)) {
			b.Records = b.Records[:left]
			b.Next = b.Records[left-1].Position.Next()
		}
	}
	r.known(l, false)
	r.taken += int64(len(b.Records))
	r.exhausted = r.limit > 0 && r.taken >= r.limit
	r.aside += l.push(*b, r.in.cfg.partSize())
	return nil
}

// flush hands out what has credit, and holds or reads the partition as its queue says.
func (r *readerActor) flush(l *lane) {
	if r.in.cfg.MaxSkew > 0 {
		l.regulate() // its lead may be another one
	}
	for !l.machine.Over(backpressure.EventTimeLead) || r.exhausted {
		p := l.pop()
		if p == nil {
			break
		}
		r.aside--
		r.dirty = true
		r.sinceCut += p.records
		r.in.handed.Add(p.records)
		r.in.settling.deliverPart(l.partition, p)
		shell.Send(l.to, toPartition(deliver{r.in.stamp(), p}))
	}
	l.regulate()
	if n := r.in.cfg.EpochRecords; n > 0 && r.sinceCut >= n && !r.dueAsked {
		r.dueAsked = true
		shell.Send(r.in.coordinator, toCoordinator(epochDue{stamp: r.in.stamp()}))
	}
}

func (r *readerActor) credit(m credit) error {
	l := r.byID[m.partition]
	if !l.credits.Give(m.records, m.bytes) {
		return codes.New(codes.Internal, "partition %d gives back %d records and %d bytes, more than it has", m.partition, m.records, m.bytes)
	}
	r.flush(l)
	r.next()
	return nil
}

// emptyPolls tells the partitions for which the source was asked that it had nothing. One that we held ourselves was not asked.
func (r *readerActor) emptyPolls(s stamp) {
	if r.in.cfg.Plan.IdleAfterPolls == 0 {
		return
	}
	for _, l := range r.lanes {
		if l.asked {
			r.polledEmpty = true
			shell.Send(l.to, toPartition(emptyPoll{s}))
		}
	}
}

func (r *readerActor) cut(m cutRequest) {
	if !r.dirty && !m.always && !(m.force && r.polledEmpty) {
		shell.Send(r.in.coordinator, toCoordinator(unchanged{m.stamp}))
		return
	}
	r.dirty, r.polledEmpty, r.sinceCut, r.dueAsked = false, false, 0, false
	queues := make([]Queue, len(r.lanes))
	for i, l := range r.lanes {
		r.in.settling.seal(l.partition)
		shell.Send(l.to, toPartition(barrier{m.stamp, m.epoch}))
		queues[i] = l.queue()
	}
	shell.Send(r.in.coordinator, toCoordinator(barrierSent{m.stamp, queues}))
}

// stop ends the intake: what was handed out will be processed, what is aside is as if it had never been read.
func (r *readerActor) stop(mode endMode) {
	if r.told {
		return
	}
	r.exhausted, r.mode = true, mode
	r.stopPoll()
	r.dropAside()
	r.tellEnd()
}

func (r *readerActor) tellEnd() {
	if r.aside > 0 || r.told {
		return
	}
	r.told = true
	shell.Send(r.in.coordinator, toCoordinator(intakeEnded{r.in.stamp(), r.mode}))
}

func (r *readerActor) dropAside() {
	for _, l := range r.lanes {
		l.drop()
	}
	r.aside = 0
}

// Stopping ends the polling goroutine.
func (r *readerActor) Stopping(*shell.Context) error {
	if r.stopPoll != nil {
		r.stopPoll()
	}
	r.dropAside()
	return nil
}

// Stopped does nothing.
func (r *readerActor) Stopped(*shell.Context) error { return nil }
