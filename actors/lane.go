package actors

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/record"
)

// part is a batch, or a piece of one, that fits one message.
type part struct {
	batch record.Batch
	// records and bytes are the credit that it takes.
	records, bytes int64
	// first is where it begins; it outlives the batch's memory.
	first record.Position
}

// lane is the way from the source to one partition: its credits, what waits for them, and whether the source is held.
type lane struct {
	in        *incarnation
	partition int32
	to        shell.Ref[toPartition]
	credits   *backpressure.Credits
	machine   *backpressure.Machine
	held      bool
	// blocked: it cannot be read on.
	blocked bool
	// at is how far it has come in event time, lead how far that is ahead of the slowest. caughtUp: its log is read to its end for now.
	// idle: it is out of the merge.
	// still counts the batches that did not move it in event time.
	at             record.EventTime
	still          int
	lead           time.Duration
	caughtUp, idle bool
	// buffered are bytes of results that wait for the journal, when they hold the partition; free is the free disk.
	buffered, free int64
	// asked: the Poll under way asks for this partition, since it was not held when it began.
	asked bool

	told laneState

	aside                   []*part
	asideRecords, asideByte int64
}

func newLane(in *incarnation, partition int32, to shell.Ref[toPartition]) (*lane, error) {
	l := &lane{in: in, partition: partition, to: to, credits: backpressure.NewCredits(in.cfg.CreditRecords, in.cfg.CreditBytes),
		at: record.NoTime, free: math.MaxInt64}
	records, bytes := l.credits.Window()
	var err error
	l.machine, err = backpressure.New(in.cfg.bands(records, bytes))
	return l, err
}

// push splits a batch into parts of at most size records and puts them aside. It returns their number.
func (l *lane) push(b record.Batch, size int) int {
	n := len(b.Records)
	if n <= size {
		l.put(&part{batch: b, records: int64(n), bytes: int64(b.Bytes), first: firstOf(b)})
		return 1
	}
	ends := pieceEnds(b.Records, size)
	pieces := len(ends)
	release := shareRelease(b.Release, pieces)
	bytesLeft, from := b.Bytes, 0
	for i, end := range ends {
		piece := record.Batch{Partition: b.Partition, Records: b.Records[from:end], Next: b.Next, Release: release}
		piece.Bytes = bytesLeft / (pieces - i)
		bytesLeft -= piece.Bytes
		from = end
		if i < pieces-1 {
			piece.Next = piece.Records[len(piece.Records)-1].Position.Next()
		}
		l.put(&part{batch: piece, records: int64(len(piece.Records)), bytes: int64(piece.Bytes), first: firstOf(piece)})
	}
	return pieces
}

// pieceEnds cuts records into pieces of at most size, but an aggregate, whose records share a position, stays whole whatever its size.
func pieceEnds(records []record.Record, size int) []int {
	var ends []int
	for from := 0; from < len(records); {
		end := min(from+size, len(records))
		for end > from && end < len(records) && records[end].Sub > 0 {
			end--
		}
		if end == from { // longer than a piece
			for end = from + 1; end < len(records) && records[end].Sub > 0; end++ {
			}
		}
		ends, from = append(ends, end), end
	}
	return ends
}

func firstOf(b record.Batch) record.Position {
	if len(b.Records) == 0 {
		return b.Next
	}
	return b.Records[0].Position
}

// shareRelease makes a release that acts on its n-th call. The parts of a batch end in any order and in any goroutine.
func shareRelease(release func(), n int) func() {
	if release == nil {
		return nil
	}
	left := new(atomic.Int64)
	left.Store(int64(n))
	return func() {
		if left.Add(-1) == 0 {
			release()
		}
	}
}

func (l *lane) put(p *part) {
	l.aside = append(l.aside, p)
	l.asideRecords += p.records
	l.asideByte += p.bytes
}

// pop takes the next part for which there is credit, or nil.
func (l *lane) pop() *part {
	if len(l.aside) == 0 || !l.credits.Take(l.aside[0].records, l.aside[0].bytes) {
		return nil
	}
	p := l.aside[0]
	l.aside[0] = nil
	l.aside = l.aside[1:]
	if len(l.aside) == 0 {
		l.aside = nil
	}
	l.asideRecords -= p.records
	l.asideByte -= p.bytes
	return p
}

// regulate holds the source when the window is full, and reads on when half of it is free. Between the two nothing changes, since a
// client throws away what it has buffered for a partition that is paused.
func (l *lane) regulate() {
	records, bytes := l.credits.Outstanding()
	now := time.Now()
	l.measure(backpressure.UnfinishedLag, records+l.asideRecords, now)
	l.measure(backpressure.BytesInFlight, bytes+l.asideByte, now)
	l.measure(backpressure.EventTimeLead, l.lead.Milliseconds(), now)
	l.measure(backpressure.FreeDisk, l.free, now)
	full := int64(0)
	if l.machine.Over(backpressure.UnfinishedLag) || l.machine.Over(backpressure.BytesInFlight) {
		full = l.buffered // the window is out, since results wait
	}
	l.measure(backpressure.ProcessBuffer, full, now)
	held := l.blocked || !l.machine.State().Reads()
	switch {
	case held && !l.held:
		l.in.source.Pause(l.partition)
		l.asked = false
	case !held && l.held:
		l.in.source.Resume(l.partition)
	}
	l.held = held
	l.tell()
}

// laneState is what of a queue is told when it changes.
type laneState struct {
	busy, aside, known bool
	state              backpressure.State
}

func (l *lane) measure(g backpressure.Gauge, v int64, now time.Time) {
	if t, moved := l.machine.Measure(g, v, now); moved && l.in.cfg.OnBackpressure != nil {
		l.in.cfg.OnBackpressure(l.partition, t)
	}
}

func (l *lane) queue() Queue {
	q := Queue{Partition: l.partition, Aside: l.asideRecords, State: l.machine.State()}
	q.Records, q.Bytes = l.credits.Outstanding()
	q.WindowRecords, q.WindowBytes = l.credits.Window()
	l.in.settling.fly(&q)
	return q
}

// drop releases what waits aside.
func (l *lane) drop() {
	for _, p := range l.aside {
		p.batch.Done()
	}
	l.aside, l.asideRecords, l.asideByte = nil, 0, 0
}
