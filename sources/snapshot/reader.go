package snapshot

import (
	"context"
	"io"
	"sync"
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

// RowReader is where NewReader takes rows from: Rows, or what wraps them.
type RowReader interface {
	Next(*Row) error
	Close()
}

// Open starts a reader of partition 0. Errors are those of Rows, and codes.TopicMissing for another partition.
func (s *Source) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	return NewReader(s.cfg.Path, from, func() (RowReader, error) {
		// The context of Open may end before that of a Poll; each Poll looks at its own.
		rows, err := s.Rows(ctx)
		if err != nil {
			return nil, err
		}
		rows.ctx = context.WithoutCancel(ctx)
		return rows, nil
	})
}

// NewReader presents rows as a reader of the one partition 0: positions count the rows, the header event_id holds the event id. name
// stands for the rows in errors. Rows before the position are read and left out. open is called once, if at all.
func NewReader(name string, from map[int32]record.Position, open func() (RowReader, error)) (sources.Reader, error) {
	r := &reader{name: name, closed: make(chan struct{}), resumed: make(chan struct{}, 1), done: true}
	for p, pos := range from {
		var ok bool
		if r.from, ok = pos.Int64(); p != 0 {
			return nil, codes.New(codes.TopicMissing, "%s is one partition, 0, and has no partition %d", name, p)
		} else if !ok {
			return nil, codes.New(codes.SnapshotInvalid, "%s has no position %s", name, pos)
		}
		r.done = false
	}
	if r.done {
		return r, nil
	}
	var err error
	if r.rows, err = open(); err != nil {
		return nil, err
	}
	return r, nil
}

// reader reads rows as records.
type reader struct {
	name string
	rows RowReader
	from int64 // the first row to deliver
	at   int64 // rows read
	done bool
	err  error
	one  [1]record.Batch

	mu      sync.Mutex // guards paused, free and rows against Close
	paused  bool
	free    []*block
	closed  chan struct{}
	closing sync.Once
	resumed chan struct{}
}

// block is the memory of one batch.
type block struct {
	buf     []byte
	headers []record.Header
	records []record.Record
	row     Row
}

// Poll returns the next rows.
func (r *reader) Poll(ctx context.Context, max int) ([]record.Batch, error) {
	if max <= 0 {
		max = defaultFetch
	}
	for {
		select {
		case <-r.closed:
			return nil, sources.ErrClosed
		default:
		}
		switch err := ctx.Err(); {
		case err != nil:
			return nil, err
		case r.err != nil:
			return nil, r.err
		case r.done:
			return nil, io.EOF
		}
		if !r.isPaused() {
			b := r.fill(ctx, max)
			if len(b.records) > 0 {
				return r.answer(b), nil // an error, if there is one, is due in the next Poll
			}
			r.recycle(b)
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.closed:
		case <-r.resumed:
		}
	}
}

func (r *reader) isPaused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused
}

// fill reads up to max rows into a block.
func (r *reader) fill(ctx context.Context, max int) *block {
	b := r.block()
	for n := 1; len(b.records) < max && len(b.buf) < maxFetchBytes; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return b
		}
		if err := r.next(&b.row); err == io.EOF {
			r.done = true
			if r.from > r.at {
				r.err = codes.New(codes.SnapshotInvalid, "%s has %d rows, and the reader was to go on at %d: it is another snapshot", r.name, r.at, r.from)
			}
			return b
		} else if err != nil {
			r.err = err
			return b
		}
		if r.at++; r.at > r.from {
			b.add(r.at - 1)
		}
	}
	return b
}

// next reads a row, unless the reader was closed meanwhile.
func (r *reader) next(row *Row) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		return sources.ErrClosed
	}
	return r.rows.Next(row)
}

// add copies the block's row into its memory. Appending may move buf; what was added before keeps the old array.
func (b *block) add(position int64) {
	at := len(b.buf)
	b.buf = append(append(append(b.buf, b.row.ID...), b.row.Key...), b.row.Value...)
	id, key := at+len(b.row.ID), at+len(b.row.ID)+len(b.row.Key)
	b.headers = append(b.headers, record.Header{Key: record.HeaderEventID, Value: b.buf[at:id:id]})
	n := len(b.headers)
	b.records = append(b.records, record.Record{
		Position: record.Offset(position), Arrival: record.NoTime,
		Key: b.buf[id:key:key], Value: b.buf[key:len(b.buf):len(b.buf)], Headers: b.headers[n-1 : n : n],
	})
}

func (r *reader) answer(b *block) []record.Batch {
	r.one[0] = record.Batch{
		Records: b.records, Next: record.Offset(r.at), Bytes: len(b.buf) + recordBytes*len(b.records),
		Release: func() { r.recycle(b) },
	}
	return r.one[:]
}

func (r *reader) block() *block {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		b := r.free[n-1]
		r.free = r.free[:n-1]
		return b
	}
	return &block{}
}

func (r *reader) recycle(b *block) {
	if cap(b.buf) > 2*maxFetchBytes {
		return // one giant row must not stay
	}
	b.buf, b.headers, b.records = b.buf[:0], b.headers[:0], b.records[:0]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < maxFree {
		r.free = append(r.free, b)
	}
}

// Pause stops delivery.
func (r *reader) Pause(partitions ...int32) { r.setPaused(partitions, true) }

// Resume takes it up again.
func (r *reader) Resume(partitions ...int32) {
	r.setPaused(partitions, false)
	select {
	case r.resumed <- struct{}{}:
	default:
	}
}

func (r *reader) setPaused(partitions []int32, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		if p == 0 {
			r.paused = paused
		}
	}
}

// Close ends the reader. Batches that are out stay valid.
func (r *reader) Close() error {
	r.closing.Do(func() {
		close(r.closed)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.rows != nil {
			r.rows.Close()
			r.rows = nil
		}
	})
	return nil
}
