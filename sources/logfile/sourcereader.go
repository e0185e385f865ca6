package logfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

const (
	// defaultFetch and maxFetchBytes bound one answer of Poll.
	defaultFetch  = 1024
	maxFetchBytes = 4 << 20
	// maxFree bounds the blocks that are kept for later use.
	maxFree = 8
	// recordBytes is what a record takes beside its bytes.
	recordBytes = int(unsafe.Sizeof(record.Record{}) + unsafe.Sizeof(record.Header{}))
)

// sourceReader reads one file for all its partitions. They go through the file together; one that was paused stays at its place and
// goes through the part that it missed by itself until it has caught up. Whatever the order, each byte passes the verifier once, in
// order, at the frontmost place reached.
type sourceReader struct {
	src   *Source
	file  *os.File
	lines *lines
	stamp stamp

	parts []partition
	// front has seen everything before frontAt, and frontCounts counts its arrivals by partition.
	front       *verifier
	frontAt     int64
	frontCounts []int64
	nextMark    int64
	fault       Fault // the last one checked; here so that it is not allocated for every line

	batches []record.Batch
	members []bool
	err     error

	mu      sync.Mutex // guards paused of every partition, and free
	free    []*block
	closed  chan struct{}
	closing sync.Once
	changed chan struct{} // a partition was resumed
}

// partition is one virtual partition.
type partition struct {
	wanted bool
	paused bool
	done   bool  // the end line was reached
	at     int64 // offset of the next line to look at
	count  int64 // arrivals of this partition before at
	from   int64 // the first one to deliver
}

// block is the memory of one answer: the lines, and the records and headers that alias them.
type block struct {
	buf     []byte
	headers []record.Header
	records [][]record.Record // by partition
	bytes   []int             // by partition
	total   int
	out     atomic.Int32
	arrival Arrival
}

// after says whether a place with these counts stands before everything that the reader has to deliver.
func (r *sourceReader) after(counts []int64) bool {
	for p := range r.parts {
		if r.parts[p].wanted && counts[p] > r.parts[p].from {
			return false
		}
	}
	return true
}

// Poll returns what comes next for the partitions that are not paused.
func (r *sourceReader) Poll(ctx context.Context, max int) ([]record.Batch, error) {
	if max <= 0 {
		max = defaultFetch
	}
	for {
		if err := r.stopped(ctx); err != nil {
			return nil, err
		}
		at, wait, err := r.choose()
		if err != nil {
			return nil, err
		}
		if wait {
			select {
			case <-ctx.Done():
			case <-r.closed:
			case <-r.changed:
			}
			continue
		}
		b := r.block()
		if err := r.fill(ctx, b, at, max); err != nil && err != ctx.Err() {
			r.err = r.closedOr(err)
		}
		if b.total > 0 {
			return r.answer(b), nil // an error, if there is one, is due in the next Poll
		}
		r.recycle(b)
	}
}

func (r *sourceReader) stopped(ctx context.Context) error {
	select {
	case <-r.closed:
		return sources.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.err
}

func (r *sourceReader) closedOr(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return sources.ErrClosed
	}
	return err
}

// choose picks the rearmost place at which a partition stands that is not paused, and makes all that stand there members of the
// next run. wait says that only paused partitions are left.
func (r *sourceReader) choose() (at int64, wait bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = -1
	for p := range r.parts {
		q := &r.parts[p]
		if !q.wanted || q.done {
			continue
		}
		wait = true
		if !q.paused && (at < 0 || q.at < at) {
			at = q.at
		}
	}
	if at < 0 && !wait {
		// Nothing is left to deliver, but the log counts as read only when all of it is sound.
		if r.front.end != nil {
			return 0, false, io.EOF
		}
		at = r.frontAt
	}
	r.members = slices.Grow(r.members[:0], len(r.parts))[:len(r.parts)]
	for p := range r.parts {
		q := &r.parts[p]
		r.members[p] = q.wanted && !q.done && !q.paused && q.at == at
	}
	return at, at < 0, nil
}

// fill reads from at on until the block holds max records, or another partition's place is reached, or the end.
func (r *sourceReader) fill(ctx context.Context, b *block, at int64, max int) error {
	limit := r.nextPlace(at)
	r.lines.seek(at)
	var err error
	for n := 0; b.total < max && len(b.buf) < maxFetchBytes && r.lines.at != limit; n++ {
		if n%1024 == 1023 && ctx.Err() != nil {
			break // Poll says so, unless there is something to deliver first
		}
		var more bool
		if more, err = r.step(ctx, b); !more {
			break
		}
	}
	for p := range r.parts {
		if r.members[p] {
			r.parts[p].at = r.lines.at
		}
	}
	return err
}

// nextPlace is the nearest place behind at where another partition stands that is not paused.
func (r *sourceReader) nextPlace(at int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := int64(-1)
	for p := range r.parts {
		q := &r.parts[p]
		if q.wanted && !q.done && !q.paused && q.at > at && (limit < 0 || q.at < limit) {
			limit = q.at
		}
	}
	return limit
}

// step takes one line. more is false when the run ends before or with it.
func (r *sourceReader) step(ctx context.Context, b *block) (more bool, err error) {
	at := r.lines.at
	line, err := r.lines.next()
	if err != nil {
		return false, r.readError(err)
	}
	start := len(b.buf)
	b.buf = append(b.buf, line...)
	kind, err := r.look(b.buf[start:len(b.buf):len(b.buf)], at, &b.arrival)
	switch {
	case err != nil:
		return false, err
	case kind == endLine:
		return false, r.ended()
	case kind != arrivalLine:
		b.buf = b.buf[:start]
		return true, nil
	}
	p := record.PartitionOf(b.arrival.Key, int32(len(r.parts)))
	q := &r.parts[p]
	if !r.members[p] || q.count < q.from {
		b.buf = b.buf[:start]
	} else if due, err := r.due(ctx, &b.arrival, b.total == 0); err != nil || !due {
		b.buf = b.buf[:start]
		r.lines.seek(at) // the line is read again
		return false, err
	} else {
		b.deliver(p, q.count)
	}
	if r.members[p] {
		q.count++
	}
	return true, nil
}

// look parses a line, and if it is the frontmost one, verifies it.
func (r *sourceReader) look(line []byte, at int64, a *Arrival) (lineKind, error) {
	if at == r.frontAt {
		return r.lookAhead(line, at, a)
	}
	if bytes.HasPrefix(line, []byte(arrivalStart)) {
		return arrivalLine, parseArrival(line, a)
	}
	if at == 0 {
		return headerLine, nil
	}
	doc, err := parseOther(line)
	if _, end := doc.(End); end {
		return endLine, err
	}
	return faultLine, err
}

func (r *sourceReader) lookAhead(line []byte, at int64, a *Arrival) (lineKind, error) {
	if n := r.front.seen.Arrivals; n >= r.nextMark {
		r.src.keep(r.stamp, mark{verify: r.front, at: at, counts: r.frontCounts})
		r.nextMark = n + markEvery
	}
	kind, err := r.front.check(line, a, &r.fault)
	if err == nil && kind == arrivalLine {
		r.frontCounts[record.PartitionOf(a.Key, int32(len(r.parts)))]++
	}
	r.frontAt = r.lines.at
	return kind, err
}

// due says whether an arrival that is to be delivered may be: its pause has been waited for and its failure has happened. Both come
// after everything before the arrival was delivered.
func (r *sourceReader) due(ctx context.Context, a *Arrival, first bool) (bool, error) {
	if a.Pause > 0 && r.src.cfg.Wait != nil {
		if !first && !r.src.happened(r.src.waited, a.N) {
			return false, nil
		}
		if r.src.first(r.src.waited, a.N) {
			if err := r.src.cfg.Wait(ctx, a.Pause); err != nil {
				return false, err
			}
		}
	}
	if a.Failure > 0 && r.src.cfg.Faults {
		if !first && !r.src.happened(r.src.failed, a.N) {
			return false, nil
		}
		if r.src.first(r.src.failed, a.N) {
			return false, codes.New(codes.SourceFailure, "%s failed before arrival %d (%.80q), as its fault schedule says, for %v", r.src.path, a.N, a.EventID, a.Failure)
		}
	}
	return true, nil
}

// deliver puts the block's arrival into its partition's records, if it is for this reader to deliver.
func (b *block) deliver(p int32, position int64) {
	a := &b.arrival
	b.headers = append(b.headers, record.Header{Key: record.HeaderEventID, Value: a.EventID})
	n := len(b.headers)
	b.records[p] = append(b.records[p], record.Record{
		Position: record.Offset(position), Arrival: a.Time, Key: a.Key, Value: a.Value, Headers: b.headers[n-1 : n : n],
	})
	b.bytes[p] += len(a.EventID) + len(a.Key) + len(a.Value) + recordBytes
	b.total++
}

// ended makes the members done, and those that have nothing left before the end, paused or not.
func (r *sourceReader) ended() error {
	if _, err := r.lines.next(); err != io.EOF {
		return r.front.refuse(errors.New("something follows the end line"))
	}
	for p := range r.parts {
		q := &r.parts[p]
		if q.wanted && !r.members[p] && q.count < r.frontCounts[p] {
			continue
		}
		if q.done = true; q.wanted && q.from > r.frontCounts[p] {
			return codes.New(codes.LogInvalid, "%s has %d arrivals in partition %d, and the reader was to go on at %d: it is another log", r.src.path, r.frontCounts[p], p, q.from)
		}
	}
	return nil
}

func (r *sourceReader) readError(err error) error {
	if err == io.EOF || err == errUnterminated || err == errLongLine {
		return r.front.cut(err)
	}
	return codes.New(codes.FileMissing, "the arrival log cannot be read: %w", err)
}

func (r *sourceReader) block() *block {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		b := r.free[n-1]
		r.free = r.free[:n-1]
		return b
	}
	return &block{records: make([][]record.Record, len(r.parts)), bytes: make([]int, len(r.parts))}
}

// answer makes the batches of a block.
func (r *sourceReader) answer(b *block) []record.Batch {
	r.batches = r.batches[:0]
	for p, records := range b.records {
		if len(records) == 0 {
			continue
		}
		r.batches = append(r.batches, record.Batch{
			Partition: int32(p), Records: records, Next: record.Offset(r.parts[p].count), Bytes: b.bytes[p],
			Release: func() { r.release(b) },
		})
	}
	b.out.Store(int32(len(r.batches)))
	return r.batches
}

// release takes a batch back; with the last one the block can be used again.
func (r *sourceReader) release(b *block) {
	if b.out.Add(-1) == 0 {
		r.recycle(b)
	}
}

func (r *sourceReader) recycle(b *block) {
	if cap(b.buf) > 2*maxFetchBytes {
		return // one giant value must not stay
	}
	b.buf, b.headers, b.total = b.buf[:0], b.headers[:0], 0
	for p := range b.records {
		b.records[p], b.bytes[p] = b.records[p][:0], 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < maxFree {
		r.free = append(r.free, b)
	}
}

// Pause stops delivery of partitions.
func (r *sourceReader) Pause(partitions ...int32) { r.setPaused(partitions, true) }

// Resume takes partitions up where they stopped.
func (r *sourceReader) Resume(partitions ...int32) {
	r.setPaused(partitions, false)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *sourceReader) setPaused(partitions []int32, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		if p >= 0 && int(p) < len(r.parts) {
			r.parts[p].paused = paused
		}
	}
}

// Close ends the reader. Batches that are out stay valid.
func (r *sourceReader) Close() error {
	var err error
	r.closing.Do(func() {
		close(r.closed)
		err = r.file.Close()
	})
	return err
}
