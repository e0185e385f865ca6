package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Consumer runs a handler over a log. Make one with New.
type Consumer struct {
	cfg Config
	// renamed: each term of a partition has an owner id of its own, so that one which has abandoned a handler is not taken for the next.
	renamed bool

	mu      sync.Mutex
	workers map[string]*worker
}

// Result is where a consumer has come to.
type Result struct {
	// Next is where each partition is read next, by what was committed.
	Next map[int32]record.Position
	// Undone is how many records of each partition, from the oldest undone one on, were delivered and are not committed.
	Undone map[int32]int
	// Counts of committed records, over the whole life of the run: Consumed were processed, or written again as a copy, Omitted dropped, dead-lettered or
	// passed with their attempts exhausted. An aggregate counts as one record.
	Counts partitions.Counts
}

// New makes a consumer. The error is CONFIG_INVALID.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg.withDefaults(), renamed: cfg.Owner == "", workers: map[string]*worker{}}, nil
}

// Run consumes until ctx ends, the log ends, or something fails. It may be called once.
//
// When ctx ends nothing more is handed over; what was handed over may end within Config.Drain, and then its context ends; the position is
// committed and the lease given back. That is no error.
//
// Errors: STREAM_LEASE_OCUPADO (another owner has the run), STREAM_FENCE_OBSOLETO (the lease was lost), RECORDS_UNDONE (the log has ended and
// something of it is not done), ErrKilled, and whatever the source or the store refuses.
func (c *Consumer) Run(ctx context.Context) (Result, error) {
	if c.cfg.Assigner == nil {
		w := newWorker(&c.cfg, c.cfg.RunID, c.cfg.Source, c.cfg.Standby)
		defer c.track(w)()
		return w.run(ctx, c.draining(context.Background()))
	}
	m := &member{c: c, at: map[int32]*station{}, finished: map[int32]bool{}, results: map[int32]Result{}}
	live, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.cfg.Kill, func() { stop(ErrKilled) })()
	err := c.cfg.Assigner.Run(live, m)
	if err == nil && c.cfg.Kill.Err() != nil {
		err = ErrKilled
	}
	return m.total(), err
}

// partitionRun is the run of one partition, as in actors/group.
func partitionRun(run string, n int32) string { return run + "/" + strconv.Itoa(int(n)) }

// draining makes the context that bounds a draining.
func (c *Consumer) draining(parent context.Context) func() (context.Context, context.CancelFunc) {
	return func() (context.Context, context.CancelFunc) { return context.WithTimeout(parent, c.cfg.Drain) }
}

// track makes a worker known to Rewind and Status.
func (c *Consumer) track(w *worker) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[w.runID] = w
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.workers[w.runID] == w {
			delete(c.workers, w.runID)
		}
	}
}

// Rewind reads a partition again from its committed position: everything delivered and not committed is void, contexts of its handlers end with
// ErrRewound, delayed copies are dropped, and nothing is handed over before those handlers have returned. It is how records whose retry was
// refused come again without another owner.
func (c *Consumer) Rewind(partition int32) error {
	c.mu.Lock()
	w := c.workers[c.cfg.RunID]
	if c.cfg.Assigner != nil {
		w = c.workers[partitionRun(c.cfg.RunID, partition)]
	}
	c.mu.Unlock()
	if w == nil {
		return codes.New(codes.StreamFenceStale, "run %q does not work on partition %d here", c.cfg.RunID, partition)
	}
	return w.rewind(partition)
}

// PartitionStatus is how one partition stands here.
type PartitionStatus struct {
	RunID     string
	Partition int32
	// Next is where it is read next, Committed where it would be read after a restart, as soon as everything is written.
	Next, Committed record.Position
	// InFlight is the number of records from the oldest undone one to the newest delivered one, Running that of handlers at work, Delayed that of
	// copies whose time has not come, Publishing that of copies and dead letters being written.
	InFlight, Running, Delayed, Publishing int
	// Oldest is the undone record that holds the partition, since Since; nothing when InFlight is 0.
	Oldest record.Position
	Since  time.Time
	// Paused: it is held at its source, because of Capacity or Bytes.
	Paused bool
	// Fault is why it is read no more, or nil.
	Fault error
}

// Status tells of every partition that this process works on, by number.
func (c *Consumer) Status() []PartitionStatus {
	c.mu.Lock()
	workers := slices.Collect(maps.Values(c.workers))
	c.mu.Unlock()
	var out []PartitionStatus
	for _, w := range workers {
		out = append(out, w.status()...)
	}
	slices.SortFunc(out, func(a, b PartitionStatus) int { return int(a.Partition) - int(b.Partition) })
	return out
}

func (w *worker) status() (out []PartitionStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.order {
		p := w.parts[n]
		s := PartitionStatus{RunID: w.runID, Partition: n, Next: p.next, Committed: p.committedNext(), InFlight: p.settler.InFlight(), Running: p.running + p.stale,
			Delayed: len(p.timers), Publishing: p.publishing, Paused: p.paused, Fault: p.fault}
		if at, has := p.settler.Oldest(); has {
			s.Oldest, s.Since = at, p.heldSince
		}
		out = append(out, s)
	}
	return out
}

func (w *worker) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Result{Next: map[int32]record.Position{}, Undone: map[int32]int{}}
	for n, p := range w.parts {
		r.Next[n] = p.committedNext()
		if k := p.settler.InFlight(); k > 0 {
			r.Undone[n] = k
		}
		r.Counts.Records += p.counts.Records
		r.Counts.Consumed += p.counts.Consumed
		r.Counts.Omitted += p.counts.Omitted
	}
	return r
}

// member works on the partitions that an assigner gives: each is a run of its own.
type member struct {
	c *Consumer

	mu sync.Mutex
	at map[int32]*station
	// finished partitions have ended, and everything of them is done.
	finished map[int32]bool
	// results are those of the last term of each partition here.
	results map[int32]Result
}

// station is a partition that is assigned.
type station struct {
	stop, kill context.CancelFunc
	// within bounds the draining; it is set before stop.
	within context.Context
	done   chan struct{}
}

var _ sources.Handler = (*member)(nil)

// Assigned implements sources.Handler.
func (m *member) Assigned(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range partitions {
		if m.at[n] != nil || m.finished[n] {
			continue
		}
		s := &station{within: context.Background(), done: make(chan struct{})}
		ctx, stop := context.WithCancel(context.Background())
		dead, kill := context.WithCancel(m.c.cfg.Kill)
		s.stop, s.kill = stop, kill
		m.at[n] = s
		go m.occupy(ctx, dead, s, n)
	}
}

// occupy works on a partition until it is taken away, again after a pause when the work has failed.
func (m *member) occupy(ctx, dead context.Context, s *station, n int32) {
	defer close(s.done)
	cfg := m.c.cfg
	cfg.Kill = dead
	for failures := 1; ctx.Err() == nil && dead.Err() == nil; failures++ {
		cfg := cfg
		if m.c.renamed {
			cfg.Owner = control.NewOwner()
		}
		w := newWorker(&cfg, partitionRun(cfg.RunID, n), sources.Only(cfg.Source, n), true)
		forget := m.c.track(w)
		began := time.Now()
		result, err := w.run(ctx, func() (context.Context, context.CancelFunc) { return m.c.draining(s.within)() })
		forget()
		m.note(n, result, err, ctx.Err() == nil)
		if err == nil || codes.Has(err, codes.RunFinished) {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		if !errors.Is(err, ErrKilled) {
			cfg.Logger.Error("the work on a partition failed; it begins again after a pause", "run", w.runID, "partition", n, "cause", err.Error())
			waiting, cancel := context.WithCancel(ctx)
			stop := context.AfterFunc(dead, cancel)
			pause(waiting, cfg.delay(restarting, failures))
			stop()
			cancel()
		}
	}
}

// note keeps what a term came to. One that ended without an error while its partition was assigned has come to the end of the log.
func (m *member) note(n int32, r Result, err error, assigned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if codes.Has(err, codes.RunFinished) || err == nil && assigned {
		m.finished[n] = true
	}
	if _, opened := r.Next[n]; opened {
		m.results[n] = r
	}
}

// total is everything together.
func (m *member) total() Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Result{Next: map[int32]record.Position{}, Undone: map[int32]int{}}
	for _, r := range m.results {
		maps.Copy(out.Next, r.Next)
		maps.Copy(out.Undone, r.Undone)
		out.Counts.Records += r.Counts.Records
		out.Counts.Consumed += r.Counts.Consumed
		out.Counts.Omitted += r.Counts.Omitted
	}
	return out
}

// Revoked implements sources.Handler.
func (m *member) Revoked(ctx context.Context, partitions []int32) {
	m.leave(partitions, func(s *station) {
		s.within = ctx
		s.stop()
	})
}

// Lost implements sources.Handler.
func (m *member) Lost(partitions []int32) {
	m.leave(partitions, func(s *station) { s.kill() })
}

// leave ends the work on partitions, side by side, and waits until it has ended.
func (m *member) leave(partitions []int32, end func(*station)) {
	m.mu.Lock()
	var leaving []*station
	for _, n := range partitions {
		if s := m.at[n]; s != nil {
			delete(m.at, n)
			end(s)
			leaving = append(leaving, s)
		}
	}
	m.mu.Unlock()
	for _, s := range leaving {
		<-s.done
		s.stop()
		s.kill()
	}
}
