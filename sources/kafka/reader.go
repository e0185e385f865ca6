package kafka

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// reader reads the partitions it was opened with. Records pass three places: the buffer of the client, which fetches ahead; the queue,
// what was taken from the client at once so that it can fetch the next answer meanwhile; the batches that are out.
type reader struct {
	session
	cfg     Config
	id      kafkaclient.TopicID
	inflate *inflater
	records pool[record.Record]

	// Only Poll touches these.
	out     []record.Batch
	silence silence

	mu      sync.Mutex
	cursors []*cursor // by ascending partition
	queue   []fetched
	err     error // the reader failed: what is queued is delivered, then this
	closed  bool
	wake    context.CancelFunc // ends the wait of Poll
}

// cursor is where a partition is read.
type cursor struct {
	partition int32
	// next is what the client delivers next: everything before is queued, out, or a hole. Only Poll touches it.
	next   int64
	paused bool // guarded by mu
}

// fetched is a stretch of a partition that waits to be delivered.
type fetched struct {
	*cursor
	records []*kgo.Record // empty: only the position moves
	next    int64
}

// Open implements sources.Source. The reader reads at exactly the given positions, or fails: see the package documentation.
// Errors as Info.
func (s *Source) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r := &reader{cfg: s.cfg, records: pool[record.Record]{limit: keepRecords}}
	at := make(map[int32]kgo.Offset, len(from))
	for p, pos := range from {
		next, ok := pos.Int64()
		if !ok {
			return nil, codes.New(codes.RunMismatch, "position %s of partition %d is no Kafka offset", pos, p)
		}
		at[p] = kgo.NewOffset().At(next)
		r.cursors = append(r.cursors, &cursor{partition: p, next: next})
	}
	slices.SortFunc(r.cursors, func(a, b *cursor) int { return int(a.partition) - int(b.partition) })

	memory := newFetchMemory()
	topic, err := r.find(ctx, s, memory)
	if err != nil {
		return nil, err
	}
	session, err := s.session(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.cfg.Topic: at}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they are how the position moves over transaction markers
		kgo.FetchMaxWait(s.cfg.MaxWait),
		kgo.FetchMaxBytes(s.cfg.FetchBytes),
		kgo.FetchMaxPartitionBytes(s.cfg.PartitionBytes),
		kgo.MaxConcurrentFetches(max(1, cmp.Or(s.cfg.Fetches, topic.Brokers))),
		kgo.WithPools(memory),
		kgo.WithDecompressor(r.inflate),
	)
	if err != nil {
		return nil, err
	}
	r.session = session
	return r, nil
}

// find checks that the topic and its partitions are there, and takes the id and the decompressor of the client that asked: a client's
// own decompressor is bounded by MaxDecompressBatchBytes, which no exported constructor gives.
func (r *reader) find(ctx context.Context, s *Source, memory *fetchMemory) (kafkaclient.Topic, error) {
	q, err := s.session(kgo.WithPools(memory))
	if err != nil {
		return kafkaclient.Topic{}, err
	}
	defer q.Close()
	t, err := q.Find(ctx)
	if err != nil {
		return kafkaclient.Topic{}, err
	}
	for _, c := range r.cursors {
		if !slices.Contains(t.Partitions, c.partition) {
			return kafkaclient.Topic{}, codes.New(codes.TopicMissing, "topic %q has no partition %d; it has %d", q.Topic, c.partition, len(t.Partitions))
		}
	}
	within, ok := q.Client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return kafkaclient.Topic{}, codes.New(codes.Internal, "the Kafka client has no decompressor")
	}
	r.id = t.ID
	r.inflate = &inflater{within: within, memory: memory, limit: int64(s.cfg.InflateBytes)}
	return t, nil
}

// Poll implements sources.Reader.
func (r *reader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	if limit <= 0 {
		limit = math.MaxInt
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if out, err := r.deliver(limit); len(out) > 0 || err != nil {
			return out, err
		}
		if r.fetch(ctx) || ctx.Err() != nil {
			continue
		}
		empty, err := r.ask(ctx)
		if empty {
			return nil, nil
		}
		r.fail(err)
	}
}

// deliver answers from the queue, and with the failure once nothing that may be delivered is queued.
func (r *reader) deliver(limit int) ([]record.Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, sources.ErrClosed
	}
	r.out = r.out[:0]
	keep := r.queue[:0]
	for _, f := range r.queue {
		if f.paused || limit == 0 {
			keep = append(keep, f)
			continue
		}
		if len(f.records) == 0 {
			r.out = append(r.out, record.Batch{Partition: f.partition, Next: record.Offset(f.next)})
			continue
		}
		var b record.Batch
		b, f.records = r.batch(f.partition, f.records, limit)
		limit -= len(b.Records)
		r.out = append(r.out, b)
		if len(f.records) > 0 {
			keep = append(keep, f)
		}
	}
	clear(r.queue[len(keep):])
	r.queue = keep
	if len(r.out) > 0 {
		return r.out, nil
	}
	return nil, r.err
}

// fetch takes what the client has, or waits for it at most MaxWait. It says whether there may be something to deliver.
func (r *reader) fetch(ctx context.Context) bool {
	//lint:ignore SA1012 nil is how kgo is asked for no more than what is buffered
	fetches := r.Client.PollRecords(nil, -1)
	if len(fetches) > 0 {
		return r.takeAll(ctx, fetches)
	}
	wait, cancel := context.WithTimeout(ctx, r.cfg.MaxWait)
	defer cancel()
	if !r.mayWait(cancel) {
		return true
	}
	found := r.takeAll(ctx, r.Client.PollRecords(wait, -1))
	return r.woken() || found
}

// takeAll takes a whole answer of the client and says whether it held anything.
func (r *reader) takeAll(ctx context.Context, fetches kgo.Fetches) (found bool) {
	r.inflate.reset()
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			// The client takes the id from its first metadata, which may be that of a topic recreated since the reader was opened.
			if is := kafkaclient.TopicID(t.TopicID); is != r.id && is != (kafkaclient.TopicID{}) {
				found = true
				r.fail(r.cfg.recreated(r.id, is))
				continue
			}
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if t.Topic == "" && (errors.Is(p.Err, context.DeadlineExceeded) || errors.Is(p.Err, context.Canceled)) {
					continue // the end of the wait
				}
				found = true
				r.fail(r.take(ctx, p))
			}
		}
	}
	return found
}

// mayWait registers what ends a wait, unless there is something to deliver already.
func (r *reader) mayWait(cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.deliverable() {
		return false
	}
	r.wake = cancel
	return true
}

// deliverable says whether something queued may be delivered. The lock is held.
func (r *reader) deliverable() bool {
	return slices.ContainsFunc(r.queue, func(f fetched) bool { return !f.paused })
}

// woken ends a wait, and says whether somebody ended it before.
func (r *reader) woken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	woken := r.wake == nil
	r.wake = nil
	return woken
}

// endWait ends the wait of Poll, if there is one. The lock is held.
func (r *reader) endWait() {
	if r.wake != nil {
		r.wake()
		r.wake = nil
	}
}

// take queues what was fetched of a partition, and says what is wrong with it.
func (r *reader) take(ctx context.Context, p *kgo.FetchPartition) error {
	c := r.cursor(p.Partition)
	if c == nil {
		return r.fault(ctx, nil, p.Err)
	}
	if n := len(p.Records); n > 0 {
		first := p.Records[0].Offset
		if first < c.next || first > c.next && p.LogStartOffset > c.next {
			return r.lost(ctx, c)
		}
		c.next = p.Records[n-1].Offset + 1
		r.enqueue(fetched{cursor: c, records: p.Records, next: c.next})
		r.answered()
	}
	return r.fault(ctx, c, p.Err)
}

func (r *reader) enqueue(f fetched) {
	r.mu.Lock()
	r.queue = append(r.queue, f)
	r.mu.Unlock()
}

// fail keeps the first failure.
func (r *reader) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
}

func (r *reader) cursor(partition int32) *cursor {
	i, ok := slices.BinarySearchFunc(r.cursors, partition, func(c *cursor, p int32) int { return int(c.partition) - int(p) })
	if !ok {
		return nil
	}
	return r.cursors[i]
}

// Pause implements sources.Reader.
func (r *reader) Pause(partitions ...int32) {
	r.setPaused(true, partitions)
	r.Client.PauseFetchPartitions(map[string][]int32{r.cfg.Topic: partitions})
}

// Resume implements sources.Reader.
func (r *reader) Resume(partitions ...int32) {
	r.Client.ResumeFetchPartitions(map[string][]int32{r.cfg.Topic: partitions})
	r.setPaused(false, partitions)
}

func (r *reader) setPaused(paused bool, partitions []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		if c := r.cursor(p); c != nil {
			c.paused = paused
		}
	}
	if !paused {
		r.endWait()
	}
}

// Close implements sources.Reader. It takes up to a second when a broker is gone.
func (r *reader) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.endWait()
	r.mu.Unlock()
	if !closed {
		r.Client.Close()
	}
	return nil
}
