package drill

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weirstream/weir/record"
)

const (
	// feedEvery is how often records are written.
	feedEvery = 20 * time.Millisecond
	// stepTime is how long a step takes, roughly. Three quarters of the input are spread over that, so that partitions have something to do when they
	// are moved, or not.
	stepTime = 4 * time.Second
	// stepLimit is longer than all that the script waits for in one step. A quarter of the input is for that, ever more slowly: what is waited for
	// may need another record, and so they must not run out.
	stepLimit = 6 * patience
)

// stream feeds a log little by little, a share of it in each step of the script.
type stream struct {
	feed  *sliced
	share float64
	total int64

	mu sync.Mutex
	// began is when the step began, base how many records were sent by then.
	began      time.Time
	base, sent int64
	err        error

	done chan struct{}
	stop context.CancelFunc
}

// stream starts to feed a log of so many records in so many steps. The track is told of every record.
func (t *topic) stream(ctx context.Context, log string, told *track, total int64, steps int) *stream {
	within, stop := context.WithCancel(ctx)
	s := &stream{feed: t.slices(ctx, log, told.write), share: float64(total) / float64(steps), total: total, began: time.Now(), done: make(chan struct{}), stop: stop}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(feedEvery)
		defer tick.Stop()
		for within.Err() == nil {
			if err := s.more(); err != nil {
				s.mu.Lock()
				s.err = err
				s.mu.Unlock()
				return
			}
			select {
			case <-within.Done():
			case <-tick.C:
			}
		}
	}()
	return s
}

// dueAfter is how many records of a step's share are to be sent after so much of it. It is less than the share always.
func dueAfter(share float64, in time.Duration) int64 {
	spread := 0.75 * min(1, in.Seconds()/stepTime.Seconds())
	rest := 0.25 * math.Sqrt(min(1, in.Seconds()/stepLimit.Seconds()))
	return int64(share * (spread + rest))
}

// more sends what is due.
func (s *stream) more() error {
	s.mu.Lock()
	size := min(s.base+dueAfter(s.share, time.Since(s.began)), s.total) - s.sent
	s.sent += size
	s.mu.Unlock()
	if size <= 0 {
		return nil
	}
	return s.feed.next(size)
}

// step begins the next step.
func (s *stream) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.base = time.Now(), s.sent
}

// rest sends what is left.
func (s *stream) rest(ctx context.Context) error {
	s.stop()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.sent >= s.total {
		return s.err
	}
	left := s.total - s.sent
	s.sent = s.total
	return s.feed.next(left)
}

// track is when each record of a topic was handed over to be written. The partitions of a topic of the drill are dense: the n-th record of a
// partition has the offset n.
type track struct {
	partitions int32
	mu         sync.Mutex
	at         map[int32][]time.Time
}

func newTrack(partitions int32) *track {
	return &track{partitions: partitions, at: map[int32][]time.Time{}}
}

func (t *track) write(r record.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := record.PartitionOf(r.Key, t.partitions)
	t.at[p] = append(t.at[p], time.Now())
}

// written is how many records of a partition were handed over.
func (t *track) written(p int32) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.at[p]))
}

// when is the time at which a record was handed over; false when none of that offset was.
func (t *track) when(p int32, offset int64) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset < 0 || offset >= int64(len(t.at[p])) {
		return time.Time{}, false
	}
	return t.at[p][offset], true
}
