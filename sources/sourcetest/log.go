package sourcetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Poison is the byte that fills the memory of a released batch.
const Poison = 0xDB

// Config of a Log.
type Config struct {
	// Name of the log. Defaults to "log".
	Name string
	// ID of this incarnation; Recreate changes it.
	ID string
	// Partitions are numbered 0…Partitions-1. Defaults to 1.
	Partitions int32
	// Bounded makes Poll answer io.EOF once everything appended was read.
	Bounded bool
	// Fetch bounds the records of one batch, whatever Poll asks for. 0 is unbounded.
	Fetch int
	// MaxWait is how long a Poll that has nothing waits before it answers empty. 0 waits for ever, or for AnswerEmpty.
	MaxWait time.Duration
	// Rand draws the size of every batch and which partitions an answer holds. Nil: all partitions in rotation, full batches.
	Rand *rand.Rand
}

// Log is a sources.Source in memory. Its methods may be called from any goroutine.
type Log struct {
	cfg Config

	mu      sync.Mutex
	id      string
	parts   []partition
	changed chan struct{} // closed and replaced whenever a waiting Poll has to look again

	openErrs []error
	infoErrs []error
	empties  int // empty answers that are due

	epoch       int // incarnations of the log: Recreate counts it up
	opened      int
	polls       int
	outBatches  int
	outBytes    int
	doubleFrees int
}

type partition struct {
	recs  []record.Record // owned copies, by ascending offset
	offs  []int64
	end   int64
	start int64
	fails []failure
}

type failure struct {
	at  int64
	err error
}

// New makes an empty log.
func New(cfg Config) *Log {
	if cfg.Name == "" {
		cfg.Name = "log"
	}
	if cfg.Partitions <= 0 {
		cfg.Partitions = 1
	}
	return &Log{cfg: cfg, id: cfg.ID, parts: make([]partition, cfg.Partitions), changed: make(chan struct{})}
}

// wake makes every waiting Poll look again. The lock is held.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Log) script(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	l.wake()
}

// Append writes records at the end of a partition and returns the position after them. The log sets their positions and keeps
// copies of all bytes.
func (l *Log) Append(p int32, recs ...record.Record) record.Position {
	var end int64
	l.script(func() {
		part := &l.parts[p]
		for _, r := range recs {
			part.recs = append(part.recs, clone(r, part.end))
			part.offs = append(part.offs, part.end)
			part.end++
		}
		end = part.end
	})
	return record.Offset(end)
}

// Skip leaves a hole of n positions, as compaction and transaction markers do.
func (l *Log) Skip(p int32, n int64) { l.script(func() { l.parts[p].end += n }) }

// Truncate drops what stands before a position, as retention does. A reader that still needs it gets OFFSET_LOST.
func (l *Log) Truncate(p int32, before record.Position) {
	l.script(func() {
		part := &l.parts[p]
		part.start = max(part.start, min(offset(before), part.end))
		n, _ := slices.BinarySearch(part.offs, part.start)
		part.recs, part.offs = part.recs[n:], part.offs[n:]
	})
}

// AddPartition adds an empty partition and returns its number. Readers that are open do not see it.
func (l *Log) AddPartition() int32 {
	var p int32
	l.script(func() {
		p = int32(len(l.parts))
		l.parts = append(l.parts, partition{})
	})
	return p
}

// Recreate empties the log under a new id. Readers that are open get TOPIC_RECREATED.
func (l *Log) Recreate(id string) {
	l.script(func() {
		l.id = id
		l.epoch++
		l.parts = make([]partition, len(l.parts))
	})
}

// FailAt makes the reader that would deliver the record at, or the first one after, this position fail instead, once. What stands
// before it is delivered first. A *sources.Fault is a failure of that partition alone.
func (l *Log) FailAt(p int32, at record.Position, err error) {
	l.script(func() {
		part := &l.parts[p]
		part.fails = append(part.fails, failure{at: offset(at), err: err})
		slices.SortStableFunc(part.fails, func(a, b failure) int { return int(min(1, max(-1, a.at-b.at))) })
	})
}

// FailOpen makes the next calls of Open fail, one for each error. Nil is a success.
func (l *Log) FailOpen(errs ...error) {
	l.script(func() { l.openErrs = append(l.openErrs, errs...) })
}

// FailInfo makes the next calls of Info fail, one for each error. Nil is a success.
func (l *Log) FailInfo(errs ...error) {
	l.script(func() { l.infoErrs = append(l.infoErrs, errs...) })
}

// AnswerEmpty makes the Poll that waits, or the next one that has nothing to deliver, answer empty.
func (l *Log) AnswerEmpty() { l.script(func() { l.empties++ }) }

// End is the position after the last record or hole of a partition.
func (l *Log) End(p int32) record.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return record.Offset(l.parts[p].end)
}

// Opened counts the readers that were opened.
func (l *Log) Opened() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

// Polls counts the answers given, of every kind.
func (l *Log) Polls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.polls
}

// Outstanding counts the batches that were delivered and not released, and their bytes.
func (l *Log) Outstanding() (batches, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outBatches, l.outBytes
}

// DoubleReleases counts batches that were released more than once. It must be zero.
func (l *Log) DoubleReleases() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubleFrees
}

// Info answers for the log as it is now.
func (l *Log) Info(ctx context.Context) (sources.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmpErr(ctx.Err(), pop(&l.infoErrs)); err != nil {
		return sources.Info{}, err
	}
	info := sources.Info{Name: l.cfg.Name, ID: l.id, Bounded: l.cfg.Bounded}
	for p := range l.parts {
		info.Partitions = append(info.Partitions, int32(p))
	}
	return info, nil
}

// Open starts a reader.
func (l *Log) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmpErr(ctx.Err(), pop(&l.openErrs)); err != nil {
		return nil, err
	}
	r := &reader{log: l, epoch: l.epoch, closed: make(chan struct{})}
	for p, pos := range from {
		if p < 0 || int(p) >= len(l.parts) {
			return nil, codes.New(codes.TopicMissing, "log %q has no partition %d", l.cfg.Name, p)
		}
		r.cursors = append(r.cursors, cursor{partition: p, next: offset(pos)})
	}
	slices.SortFunc(r.cursors, func(a, b cursor) int { return int(a.partition - b.partition) })
	l.opened++
	return r, nil
}

func pop(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// offset turns a position into the offset of this log, which has no larger ones.
func offset(p record.Position) int64 {
	n, ok := p.Int64()
	if !ok {
		panic("sourcetest: position " + p.String() + " is no offset")
	}
	return n
}

// clone copies all bytes of a record. Nil stays nil and empty stays empty.
func clone(r record.Record, at int64) record.Record {
	r.Position = record.Offset(at)
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}
