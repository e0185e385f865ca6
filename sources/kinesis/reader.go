package kinesis

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Open implements sources.Source: it reads the shards named in from, each behind the record before its position; the zero position is
// Config.StartAt. Errors: TOPIC_MISSING for a shard that is not listed, and those of Shards.
func (s *Stream) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	if err := s.listed(ctx, from); err != nil {
		return nil, err
	}
	r := &reader{s: s, woken: make(chan struct{}, 1)}
	// The reader outlives the context of its opening.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	for number, pos := range from {
		r.shards = append(r.shards, &shard{r: r, number: number, next: pos, free: make(chan struct{}, 1)})
	}
	slices.SortFunc(r.shards, func(a, b *shard) int { return int(a.number) - int(b.number) })
	for _, sh := range r.shards {
		sh.free <- struct{}{}
		r.workers.Go(func() { sh.run(inner) })
	}
	return r, nil
}

// listed asks whether the stream holds the shards.
func (s *Stream) listed(ctx context.Context, from map[int32]record.Position) error {
	within, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	shards, err := s.Shards(within)
	if err != nil {
		return err
	}
	for number := range from {
		if !slices.ContainsFunc(shards, func(sh Shard) bool { return sh.Number == number }) {
			return codes.New(codes.TopicMissing, "stream %q holds no shard %s: it was closed longer ago than records are kept, or never was", s.cfg.Stream, ShardID(number))
		}
	}
	return nil
}

// Open implements sources.Source.
func (s shardSource) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	for number := range from {
		if number != s.number {
			return nil, codes.New(codes.Internal, "shard %d is opened through the view of shard %d", number, s.number)
		}
	}
	return s.Stream.Open(ctx, from)
}

// reader reads shards. Each has a goroutine, which fetches one page ahead and waits until it was delivered: a reader holds at most one page of
// every shard, beside the batches that are out.
type reader struct {
	s       *Stream
	cancel  context.CancelFunc
	workers sync.WaitGroup
	// woken holds one token when something may be deliverable.
	woken chan struct{}
	out   []record.Batch

	mu     sync.Mutex
	shards []*shard // by ascending number
	turn   int      // whose turn it is to be delivered first
	err    error
	closed bool
}

func (r *reader) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Poll implements sources.Reader.
func (r *reader) Poll(ctx context.Context, max int) ([]record.Batch, error) {
	patience := time.NewTimer(r.s.cfg.MaxWait)
	defer patience.Stop()
	began := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batches, err := r.take(max)
		if err != nil || len(batches) > 0 {
			return batches, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.woken:
		case <-patience.C:
			if r.nothing(began) {
				return nil, nil
			}
			patience.Reset(r.s.cfg.MaxWait)
		}
	}
}

// take delivers what is ready of shards that are not paused, at most max records but at least one whole record of the log.
func (r *reader) take(max int) ([]record.Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, sources.ErrClosed
	}
	r.out = r.out[:0]
	ended := 0
	if r.err == nil {
		for _, sh := range r.shards { // the others may go on for ever, so it does not wait for them
			if sh.fault != nil && sh.ready == nil && !sh.paused {
				return nil, sh.fault
			}
		}
	}
	for i := range r.shards {
		sh := r.shards[(r.turn+i)%len(r.shards)]
		if sh.ended && sh.ready == nil {
			ended++
			continue
		}
		if sh.paused || sh.ready == nil || max > 0 && records(r.out) >= max {
			continue
		}
		left := 0
		if max > 0 {
			left = max - records(r.out)
		}
		r.out = append(r.out, sh.deliver(left))
	}
	if len(r.shards) > 0 {
		r.turn = (r.turn + 1) % len(r.shards)
	}
	switch {
	case len(r.out) > 0:
		return r.out, nil
	case r.err != nil:
		return nil, r.err
	case ended == len(r.shards):
		return nil, io.EOF
	}
	return nil, nil
}

func records(batches []record.Batch) (n int) {
	for i := range batches {
		n += len(batches[i].Records)
	}
	return n
}

// nothing says whether every shard that is read was asked since then and is at its end. Without one there is nobody to say so.
func (r *reader) nothing(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := false
	for _, sh := range r.shards {
		if sh.paused || sh.ended || sh.fault != nil {
			continue
		}
		if sh.ready != nil || sh.emptyAt.Before(since) {
			return false
		}
		asked = true
	}
	return asked
}

// Pause implements sources.Reader.
func (r *reader) Pause(partitions ...int32) { r.setPaused(partitions, true) }

// Resume implements sources.Reader.
func (r *reader) Resume(partitions ...int32) { r.setPaused(partitions, false) }

func (r *reader) setPaused(partitions []int32, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sh := range r.shards {
		if slices.Contains(partitions, sh.number) {
			sh.paused = paused
		}
	}
	if !paused {
		r.wake()
	}
}

// Close implements sources.Reader.
func (r *reader) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wake()
	r.workers.Wait()
	r.s.lags.forget(r.shards)
	return nil
}

// fail ends the reader with the first error, or one shard of it: the others are read on once it is paused.
func (r *reader) fail(sh *shard, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.As(err, &sh.fault) {
		r.wake()
		return
	}
	if r.err == nil && !r.closed && !errors.Is(err, context.Canceled) {
		r.err = err
	}
	r.wake()
}
