package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// part is one partition of a worker. Everything in it is guarded by the worker's lock.
type part struct {
	n       int32
	settler *partitions.Settler
	// ctx is that of the handlers and copies of this generation; a rewind ends it and makes another.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	generation int

	// next is read next. backlog was read and has not found room in the tracker; the partition is paused while there is any.
	next    record.Position
	backlog []entry
	paused  bool
	bytes   int

	// keys are the queues that are not empty, or whose record is being handled; ready are those that may hand one over.
	keys    map[string]*queue
	ready   []*queue
	running int
	// stale handlers are those of earlier generations that still run; none of this one starts before they have returned.
	stale int

	timers     map[*item]*time.Timer
	publishing int
	// stuck is the cause for which copies of this partition cannot be written, as it was told.
	stuck string

	// claims is how many terms in a row have begun at the position of this one; begun says that its first record was handed over.
	claims int
	begun  bool
	// alone is how many records are still handed over one by one, each committed before the next: a term that begins where an earlier one began
	// has to find out which record ends it. unwritten says that the position has moved since the last commit.
	alone     int
	unwritten bool
	// open deliveries were handed over and are the handler's to settle (Config.Explicit).
	open int

	dirty bool
	// from is where this term began to read; fresh says that the journal has nothing of the partition yet. passed is the tracker's count of passed
	// deliveries up to which counts reckon.
	from   record.Position
	fresh  bool
	passed int64
	// omitted are the records that are done without having been processed, and hidden the positions that are no records, both behind the
	// committed position of the journal, ascending.
	omitted []omission
	hidden  []record.Position
	counts  partitions.Counts
	// heldSince is when the oldest undone record became that; told says that the alarm about it was given.
	heldSince time.Time
	heldAt    record.Position
	told      bool
	// fault is why the partition is read no more.
	fault error
}

// entry is one record of the log: its records (several for an aggregate, none for positions that hold nothing).
type entry struct {
	at   record.Position
	recs []record.Record
	from *loan
}

// loan is the memory of a batch; it is given back when no record of it is needed any more.
type loan struct {
	batch record.Batch
	left  int
}

type omission struct {
	at record.Position
	// row is the dead letter, unless it went elsewhere.
	row *partitions.Quarantined
}

type queue struct {
	key   string
	keyed bool
	items []*item
}

// item is a delivery.
type item struct {
	w       *worker
	p       *part
	ctx     context.Context
	gen     int
	token   partitions.Token
	rec     record.Record
	from    *loan
	attempt int
	claims  int
	open    bool
}

// free says that the record's bytes are not needed any more.
func (p *part) free(l **loan) {
	if *l == nil {
		return
	}
	loan := *l
	*l = nil
	if loan.left--; loan.left <= 0 {
		p.bytes -= loan.batch.Bytes
		loan.batch.Done()
	}
}

// take adds a batch to the backlog, record of the log by record of the log.
func (p *part) take(b record.Batch) {
	p.next = b.Next
	l := &loan{batch: b}
	p.bytes += b.Bytes
	recs := b.Records
	for len(recs) > 0 {
		n := 1
		for n < len(recs) && recs[n].Position == recs[0].Position {
			n++
		}
		p.backlog = append(p.backlog, entry{at: recs[0].Position, recs: recs[:n:n], from: l})
		l.left += n
		recs = recs[n:]
	}
	if l.left == 0 {
		l.left = 1
		p.free(&l)
	}
	// Positions behind the last record that hold nothing (compaction, transaction markers) are passed too.
	if last := b.Next.Prev(); last != b.Next && (len(b.Records) == 0 || b.Records[len(b.Records)-1].Position.Cmp(last) < 0) {
		p.backlog = append(p.backlog, entry{at: last})
	}
}

// enqueue puts a delivery behind those of its key.
func (p *part) enqueue(it *item, order Order) {
	key, keyed := "", order == InPartition
	if order == ByKey && it.rec.Key != nil {
		key, keyed = string(it.rec.Key), true
	}
	if keyed {
		if q := p.keys[key]; q != nil {
			q.items = append(q.items, it)
			return
		}
	}
	q := &queue{key: key, keyed: keyed, items: []*item{it}}
	if keyed {
		p.keys[key] = q
	}
	p.ready = append(p.ready, q)
}

// returned says that the delivery handed over by a queue was handled.
func (p *part) returned(q *queue) {
	switch {
	case len(q.items) > 0:
		p.ready = append(p.ready, q)
	case q.keyed && p.keys[q.key] == q:
		delete(p.keys, q.key)
	}
}

// clear forgets what has not been handed over, and what waits. It stays undone.
func (p *part) clear() {
	for _, q := range p.ready {
		if !q.keyed {
			p.drop(q)
		}
	}
	for _, q := range p.keys {
		p.drop(q)
	}
	for _, e := range p.backlog {
		for range e.recs {
			l := e.from
			p.free(&l)
		}
	}
	for _, t := range p.timers {
		t.Stop()
	}
	p.ready, p.backlog = nil, nil
	p.keys, p.timers = map[string]*queue{}, map[*item]*time.Timer{}
}

func (p *part) drop(q *queue) {
	for _, it := range q.items {
		p.free(&it.from)
	}
	q.items = nil
}

// omit notes a record that is done without having been processed. Aggregates count once.
func (p *part) omit(at record.Position, row *partitions.Quarantined) {
	i, _ := slices.BinarySearchFunc(p.omitted, at, func(o omission, at record.Position) int {
		if c := o.at.Cmp(at); c != 0 {
			return c
		}
		return -1 // behind those of the same position
	})
	p.omitted = slices.Insert(p.omitted, i, omission{at, row})
}

// quiet says that nothing of the partition moves by itself: nothing is read and not handed over, runs, waits or is written.
func (p *part) quiet() bool {
	return len(p.backlog) == 0 && len(p.ready) == 0 && p.idle() && len(p.timers) == 0
}

// idle says that no handler runs, nothing that was handed over waits for its handler to settle it, and nothing is written.
func (p *part) idle() bool { return p.running == 0 && p.stale == 0 && p.publishing == 0 && p.open == 0 }
