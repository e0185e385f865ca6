package kafka

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// reader reads the partitions it was opened with. Records pass three places: the buffer of the client, which fetches ahead; the queue,
// what was taken from the client at once so that it can fetch the next answer meanwhile; the batches that are out.
//
// What is paused waits in the queue. The client is told only of pauses that last: it throws away what it has buffered for a partition
// that is paused, and one that is resumed has to wait for the answer to the fetch in flight, however long the brokers hold that when
// the other partitions have nothing. A caller that pauses for milliseconds would spend most of its time waiting. So once the queue
// holds as much of paused partitions as an answer has, the client is left alone for a moment, and told if the pause then still lasts.
type reader struct {
	session
	cfg     Config
	id      kafkaclient.TopicID
	beyond  int32 // the number of the next partition, if one is added
	inflate *inflater
	records pool[record.Record]

	// Only Poll touches these.
	out     []record.Batch
	silence silence
	round   uint64

	mu      sync.Mutex
	cursors []*cursor // by ascending partition
	queue   []fetched
	err     error // the reader failed: what is queued is delivered, then this
	closed  bool
	wake    context.CancelFunc // ends the wait of Poll
}

const (
	// shortPause is how long the client is left alone once what is paused has filled the queue.
	shortPause = 50 * time.Millisecond
	// fetchWait bounds how long a broker holds a fetch that has nothing, and with it how long a partition is left out that is resumed
	// after a pause that the client was told of.
	fetchWait = 100 * time.Millisecond
)

// cursor is where a partition is read.
type cursor struct {
	partition int32
	// next is what the client delivers next: everything before is queued, out, or a hole. Only Poll touches it.
	next int64
	// round is the last delivery that left some of the partition in the queue. Only Poll touches it.
	round uint64

	// Guarded by mu. held: the client was told of the pause. err: the partition cannot be read on.
	paused, held bool
	err          error
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
		kgo.MetadataMaxAge(s.cfg.metadataAge()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.cfg.Topic: at}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they are how the position moves over transaction markers
		kgo.FetchMaxWait(min(s.cfg.MaxWait, fetchWait)),
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

// find checks that the topic and its partitions are there, and takes the id.
func (r *reader) find(ctx context.Context, s *Source, memory *fetchMemory) (kafkaclient.Topic, error) {
	q, err := s.session()
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
	r.id, r.beyond = t.ID, int32(len(t.Partitions))
	r.inflate, err = newInflater(s.cfg, memory)
	return t, err
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
		r.follow()
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
		r.fail(nil, err)
	}
}

// follow fails the reader once the client knows of a partition that was not there when it was opened.
func (r *reader) follow() {
	if r.cfg.Follow <= 0 {
		return
	}
	if leader, _, err := r.Client.PartitionLeader(r.cfg.Topic, r.beyond); err == nil && leader >= 0 {
		r.fail(nil, codes.New(codes.PartitionsAdded, "topic %q has more than the %d partitions that it was opened with", r.cfg.Topic, r.beyond))
	}
}

// deliver answers from the queue, with the failure of a partition once nothing of it is queued, and with that of the reader once nothing is that may
// be delivered.
func (r *reader) deliver(limit int) ([]record.Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, sources.ErrClosed
	}
	if err := r.faulted(); err != nil {
		return nil, err
	}
	r.out = r.out[:0]
	r.round++
	share := r.share(limit)
	keep := r.queue[:0]
	for _, f := range r.queue {
		if f.paused || limit == 0 || f.round == r.round {
			keep = append(keep, f)
			continue
		}
		if len(f.records) == 0 {
			r.out = append(r.out, record.Batch{Partition: f.partition, Next: record.Offset(f.next)})
			continue
		}
		var b record.Batch
		b, f.records = r.batch(f.partition, f.records, min(share, limit))
		limit -= len(b.Records)
		r.out = append(r.out, b)
		if len(f.records) > 0 {
			f.round = r.round // what follows in this partition waits for the rest
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

// share is what one stretch may take of an answer of at most limit records: where the limit is short, partitions share it, and none
// fills its caller's window while the others starve. The lock is held.
func (r *reader) share(limit int) int {
	n := 0
	for i := range r.queue {
		if !r.queue[i].paused {
			n++
		}
	}
	return max(1, limit/max(1, n))
}

// faulted is the failure of a partition that is not paused and of which everything before was delivered. It does not wait for the others: they
// may go on for ever. The lock is held.
func (r *reader) faulted() error {
	if r.err != nil {
		return nil
	}
	for _, c := range r.cursors {
		if c.err != nil && !c.paused && !slices.ContainsFunc(r.queue, func(f fetched) bool { return f.cursor == c }) {
			return c.err
		}
	}
	return nil
}

// fetch takes what the client has, or waits for it at most MaxWait. It says whether there may be something to deliver.
func (r *reader) fetch(ctx context.Context) bool {
	if r.crowded() {
		if r.pauseEnds(ctx) {
			return true
		}
		r.hold()
	}
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

// crowded says that the queue holds as much of paused partitions as an answer has, and the client does not know of the pause.
func (r *reader) crowded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := int(r.cfg.FetchBytes)
	for _, f := range r.queue {
		if !f.paused || f.held {
			continue
		}
		for _, k := range f.records {
			room -= len(k.Key) + len(k.Value)
		}
		if room <= 0 {
			return true
		}
	}
	return false
}

// pauseEnds waits a moment for the end of a pause, and says whether there may be something to deliver.
func (r *reader) pauseEnds(ctx context.Context) bool {
	wait, cancel := context.WithTimeout(ctx, shortPause)
	defer cancel()
	if !r.mayWait(cancel) {
		return true
	}
	<-wait.Done()
	return r.woken() || ctx.Err() != nil
}

// hold tells the client of the pauses of what is queued.
func (r *reader) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var partitions []int32
	for _, f := range r.queue {
		if f.paused && !f.held {
			f.held = true
			partitions = append(partitions, f.partition)
		}
	}
	if len(partitions) > 0 { // none would be a question
		r.Client.PauseFetchPartitions(map[string][]int32{r.cfg.Topic: partitions})
	}
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
				r.fail(nil, r.cfg.recreated(r.id, is))
				continue
			}
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if t.Topic == "" && (errors.Is(p.Err, context.DeadlineExceeded) || errors.Is(p.Err, context.Canceled)) {
					continue // the end of the wait
				}
				found = true
				c := r.cursor(p.Partition)
				r.fail(c, r.take(ctx, c, p))
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

// take queues what was fetched of a partition, and says what is wrong with it. c is nil for what is of no partition that is read.
func (r *reader) take(ctx context.Context, c *cursor, p *kgo.FetchPartition) error {
	if c == nil {
		return r.fault(ctx, nil, p.Err)
	}
	if r.failed(c) { // what the client had fetched already
		for _, k := range p.Records {
			k.Recycle()
		}
		return nil
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

// fail keeps the first failure of a partition, which is not fetched any more then, or of the reader if c is nil.
func (r *reader) fail(c *cursor, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := &r.err
	if c != nil {
		kept = &c.err
		r.Client.PauseFetchPartitions(map[string][]int32{r.cfg.Topic: {c.partition}})
	}
	if *kept == nil {
		*kept = err
	}
}

// failed says whether a partition cannot be read on.
func (r *reader) failed(c *cursor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.err != nil
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		if c := r.cursor(p); c != nil {
			c.paused = true
		}
	}
}

// Resume implements sources.Reader.
func (r *reader) Resume(partitions ...int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var held []int32
	for _, p := range partitions {
		c := r.cursor(p)
		if c == nil {
			continue
		}
		if c.held && c.err == nil {
			held = append(held, p)
		}
		c.paused, c.held = false, false
	}
	if len(held) > 0 {
		r.Client.ResumeFetchPartitions(map[string][]int32{r.cfg.Topic: held})
	}
	r.endWait()
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
