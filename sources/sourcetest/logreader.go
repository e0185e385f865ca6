package sourcetest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// reader reads a Log. All its fields are guarded by the lock of the log.
type reader struct {
	log     *Log
	epoch   int
	cursors []cursor // by ascending partition
	rotor   int
	err     error // the reader failed and answers this from now on
	closed  chan struct{}
}

type cursor struct {
	partition int32
	next      int64
	paused    bool
	// fault: the partition cannot be read on; the others are, once it is paused.
	fault *sources.Fault
}

// Poll implements sources.Reader.
func (r *reader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	var idle <-chan time.Time
	if wait := r.log.cfg.MaxWait; wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		idle = t.C
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batches, changed, err := r.look(limit)
		if err != nil || changed == nil {
			return batches, err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-r.closed:
		case <-idle:
			r.log.mu.Lock()
			r.log.polls++
			r.log.mu.Unlock()
			return nil, nil
		}
	}
}

// look answers from what is there. A channel says that there is nothing, and when to look again.
func (r *reader) look(limit int) ([]record.Batch, <-chan struct{}, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.err == nil && r.epoch != l.epoch {
		r.err = codes.New(codes.TopicRecreated, "log %q was recreated: it is %q now", l.cfg.Name, l.id)
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	var batches []record.Batch
	var fault *sources.Fault
	batches, fault, r.err = r.collect(limit)
	switch {
	case len(batches) > 0: // what stands before a failure goes out first; the failure stays for the next Poll
	case r.err != nil:
		return nil, nil, r.err
	case fault != nil:
		return nil, nil, fault
	case l.cfg.Bounded && r.atEnd():
		return nil, nil, io.EOF
	case l.empties > 0:
		l.empties--
	default:
		return nil, l.changed, nil
	}
	l.polls++
	return batches, nil, nil
}

func (r *reader) atEnd() bool {
	for _, c := range r.cursors {
		if c.next < r.log.parts[c.partition].end {
			return false
		}
	}
	return true
}

// collect takes batches, and finds the first fault of a partition that is not paused, or what ends the reader.
func (r *reader) collect(limit int) (batches []record.Batch, fault *sources.Fault, _ error) {
	if limit <= 0 {
		limit = math.MaxInt
	}
	for range r.cursors {
		c := &r.cursors[r.rotor%len(r.cursors)]
		r.rotor++
		if c.paused || limit == 0 || len(batches) > 0 && r.log.sitsOut() {
			continue
		}
		if c.fault != nil {
			fault = cmp.Or(fault, c.fault)
			continue
		}
		b, err := r.take(c, limit)
		if errors.As(err, &c.fault) {
			fault = cmp.Or(fault, c.fault)
			continue
		}
		if err != nil {
			return batches, nil, err
		}
		if b != nil {
			batches, limit = append(batches, *b), limit-len(b.Records)
		}
	}
	return batches, fault, nil
}

// sitsOut draws whether a partition is left out of an answer.
func (l *Log) sitsOut() bool { return l.cfg.Rand != nil && l.cfg.Rand.IntN(2) == 0 }

// take reads the next batch of a partition, or finds its failure.
func (r *reader) take(c *cursor, limit int) (*record.Batch, error) {
	l, part := r.log, &r.log.parts[c.partition]
	if c.next < part.start || c.next > part.end {
		return nil, &sources.Fault{Partition: c.partition, Need: record.Offset(c.next), After: record.Offset(min(max(c.next, part.start), part.end)), Known: true,
			Err: codes.New(codes.OffsetLost, "log %q partition %d: need offset %d, have %d to %d", l.cfg.Name, c.partition, c.next, part.start, part.end)}
	}
	from, _ := slices.BinarySearch(part.offs, c.next)
	to := from + min(limit, len(part.offs)-from)
	if l.cfg.Fetch > 0 {
		to = min(to, from+l.cfg.Fetch)
	}
	if l.cfg.Rand != nil && to > from {
		to = from + 1 + l.cfg.Rand.IntN(to-from)
	}
	if len(part.fails) > 0 {
		stop, _ := slices.BinarySearch(part.offs, part.fails[0].at)
		if stop <= from && (stop < len(part.offs) || part.fails[0].at < part.end) {
			err := part.fails[0].err
			part.fails = part.fails[1:]
			return nil, err
		}
		to = min(to, stop)
	}
	switch {
	case to > from:
		c.next = part.offs[to-1] + 1
	case from == len(part.offs) && c.next < part.end:
		c.next = part.end // only a hole is left: the position moves alone
	default:
		return nil, nil
	}
	b := l.lend(c.partition, part.recs[from:to], c.next)
	return &b, nil
}

// lend copies records into memory of their own, which is poisoned when the batch is released.
func (l *Log) lend(p int32, recs []record.Record, next int64) record.Batch {
	size := 0
	for _, r := range recs {
		size += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Value)
		}
	}
	arena := make([]byte, 0, size)
	carve := func(src []byte) []byte {
		if src == nil {
			return nil
		}
		at := len(arena)
		arena = append(arena, src...)
		return arena[at:len(arena):len(arena)]
	}
	out := make([]record.Record, len(recs))
	for i, r := range recs {
		r.Key, r.Value, r.Headers = carve(r.Key), carve(r.Value), slices.Clone(r.Headers)
		for j := range r.Headers {
			r.Headers[j].Value = carve(r.Headers[j].Value)
		}
		out[i] = r
	}
	held := size + len(out)*int(unsafe.Sizeof(record.Record{}))
	l.outBatches++
	l.outBytes += held
	released := false
	return record.Batch{Partition: p, Records: out, Next: record.Offset(next), Bytes: held, Release: func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if released {
			l.doubleFrees++
			return
		}
		released = true
		l.outBatches--
		l.outBytes -= held
		for i := range arena {
			arena[i] = Poison
		}
		clear(out)
	}}
}

// Pause implements sources.Reader.
func (r *reader) Pause(partitions ...int32) { r.setPaused(true, partitions) }

// Resume implements sources.Reader.
func (r *reader) Resume(partitions ...int32) { r.setPaused(false, partitions) }

func (r *reader) setPaused(paused bool, partitions []int32) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for i := range r.cursors {
		if slices.Contains(partitions, r.cursors[i].partition) {
			r.cursors[i].paused = paused
		}
	}
	r.log.wake()
}

// Close implements sources.Reader.
func (r *reader) Close() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.err != sources.ErrClosed {
		r.err = sources.ErrClosed
		close(r.closed)
	}
	return nil
}
