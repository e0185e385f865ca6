package consumer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// worker is one term of one run: it takes the lease, reads, hands over, commits, and gives the lease back.
type worker struct {
	cfg     *Config
	runID   string
	source  sources.Source
	standby bool
	handler Handler
	log     *slog.Logger

	info   sources.Info
	header control.RunHeader
	epoch  atomic.Uint64
	// copied counts the copies that were written.
	copied atomic.Uint64

	// base is the context of the term. It ends with the reason when the lease is lost, the worker is killed, or something fails for good.
	base context.Context
	end  context.CancelCauseFunc
	// busy are handlers and copies.
	busy sync.WaitGroup
	// changed and dirty hold a token when somebody should look whether the worker has become quiet, or should commit.
	changed, dirty chan struct{}
	// stopping is closed when draining begins.
	stopping chan struct{}

	mu     sync.Mutex
	lease  control.Lease
	parts  map[int32]*part
	order  []int32
	reader sources.Reader
	// reopen: partitions are read again from elsewhere; what the reader still gives is of the past.
	reopen bool
	// draining: nothing is handed over any more. atEnd: everything was read. over: nothing is published any more.
	draining, atEnd, over bool
	tells                 []Held
}

func newWorker(cfg *Config, runID string, source sources.Source, standby bool) *worker {
	return &worker{cfg: cfg, runID: runID, source: source, standby: standby, handler: Chain(cfg.Handler, cfg.Middleware...), log: cfg.Logger,
		changed: make(chan struct{}, 1), stopping: make(chan struct{}), dirty: make(chan struct{}, 1), parts: map[int32]*part{}}
}

// run works until ctx ends (and drains), kill ends (and stops), the log ends, or something fails. drain is asked for the context that bounds the
// draining.
func (w *worker) run(ctx context.Context, drain func() (context.Context, context.CancelFunc)) (Result, error) {
	w.base, w.end = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.end(context.Canceled)
	defer context.AfterFunc(w.cfg.Kill, func() { w.end(ErrKilled) })()
	starting, cancel := context.WithCancel(w.base)
	defer context.AfterFunc(ctx, cancel)()
	defer cancel()
	l, err := w.acquire(starting)
	if err != nil {
		return w.result(), w.unstarted(ctx, err)
	}
	w.lease = l
	w.log.Info("the lease is ours", "run", w.runID, "owner", l.Owner, "token", l.Token)
	var keeping sync.WaitGroup
	kept, release := context.WithCancel(w.base)
	defer release()
	keeping.Go(func() { w.keep(kept) })
	err = w.open(starting)
	if err == nil {
		err = w.consume(ctx, drain)
	} else {
		err = w.unstarted(ctx, err)
	}
	release()
	keeping.Wait()
	w.giveBack(err)
	return w.result(), err
}

// unstarted is the error of a start; none when it was only stopped.
func (w *worker) unstarted(ctx context.Context, err error) error {
	switch {
	case w.base.Err() != nil:
		return context.Cause(w.base)
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// giveBack releases the lease, unless it is lost, or a handler still runs under it, or we play dead.
func (w *worker) giveBack(err error) {
	if codes.Has(err, codes.StreamFenceStale) || errors.Is(err, ErrKilled) || w.running() > 0 {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(w.base), w.cfg.TTL)
	defer cancel()
	if err := w.cfg.Store.Release(within, w.held()); err != nil {
		w.log.Warn("the lease was not given back; it ends by itself", "run", w.runID, "cause", err.Error())
	}
}

// dead says that nothing may be written any more.
func (w *worker) dead() bool { return w.base.Err() != nil || w.cfg.Kill.Err() != nil }

// running is the number of handlers that run.
func (w *worker) running() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		n += p.running + p.stale
	}
	return n
}

// open opens the run in the journal and makes its partitions.
func (w *worker) open(ctx context.Context) error {
	info, err := tryStart(ctx, w, func() (sources.Info, error) { return w.source.Info(ctx) })
	if err != nil {
		return err
	}
	w.info = info
	w.header = control.RunHeader{RunID: w.runID, Fingerprint: Fingerprint, Source: info.Name, SourceID: info.ID, Partitions: slices.Clone(info.Partitions)}
	state, err := tryStart(ctx, w, func() (control.RunState, error) { return w.cfg.Store.Under(w.held()).OpenRun(ctx, w.header) })
	if err != nil {
		return w.refusal(err)
	}
	w.epoch.Store(state.Epoch)
	w.mu.Lock()
	for _, n := range state.Header.Partitions {
		w.addPart(n, state)
	}
	w.mu.Unlock()
	return w.begin(ctx, state)
}

// tryStart does something of a start again while it fails for a passing reason.
func tryStart[T any](ctx context.Context, w *worker, do func() (T, error)) (T, error) {
	for failures := 1; ; failures++ {
		v, err := do()
		if err == nil || !retryable(err) || failures >= maxFailures || !pause(ctx, w.cfg.delay(restarting, failures)) {
			return v, err
		}
	}
}

func (w *worker) addPart(n int32, state control.RunState) {
	cut, known := state.Cuts[n]
	p := &part{n: n, settler: partitions.NewSettler(n, uint64(w.lease.Token), w.cfg.Capacity, w.cfg.terms()), keys: map[string]*queue{}, timers: map[*item]*time.Timer{}}
	p.ctx, p.cancel = context.WithCancelCause(w.base)
	p.place(cut.Next)
	p.counts = cut.Counts
	p.fresh = !known
	w.parts[n] = p
	w.order = append(w.order, n)
}

// place says where the partition is read on.
func (p *part) place(next record.Position) {
	p.from, p.next, p.passed = next, next, 0
	p.settler.Rewind(next.Prev(), next != record.Position{})
}

// begin commits what has to stand before the first read: where new partitions begin, and that this term has begun.
func (w *worker) begin(ctx context.Context, state control.RunState) error {
	c := w.newCommit()
	for _, n := range w.order {
		p := w.parts[n]
		said := false
		if p.fresh && w.cfg.From != nil {
			at, err := w.cfg.From(ctx, n)
			if err != nil {
				return err
			}
			p.place(at)
			said = true
		}
		put, err := w.claim(ctx, p)
		if err != nil {
			return err
		}
		if said || put != nil {
			c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: partitions.Cut{Partition: n, Next: p.from, Watermark: record.NoTime, Counts: p.counts, Put: put}})
		}
	}
	if len(c.Partitions) == 0 {
		return nil
	}
	return w.write(ctx, c)
}

// claim counts the terms that begin at one position.
func (w *worker) claim(ctx context.Context, p *part) ([]partitions.StateBlob, error) {
	if w.cfg.MaxClaims == 0 {
		return nil, nil
	}
	p.claims = 1
	err := w.cfg.Store.LoadBlobs(ctx, w.runID, p.n, func(b partitions.StateBlob) error {
		if b.Name != claimBlob {
			return nil
		}
		at, claims, err := readClaim(b.Data)
		if err == nil && at == p.from {
			p.claims, p.alone = claims+1, w.cfg.Capacity
		}
		return err
	})
	return []partitions.StateBlob{{Name: claimBlob, Data: appendClaim(p.from, p.claims)}}, err
}

// consume reads and commits until there is a reason to stop, and stops.
func (w *worker) consume(ctx context.Context, drain func() (context.Context, context.CancelFunc)) error {
	reading, stopReading := context.WithCancel(w.base)
	committing, stopCommitting := context.WithCancel(w.base)
	defer stopReading()
	defer stopCommitting()
	var loops sync.WaitGroup
	read := make(chan error, 1)
	loops.Go(func() { read <- w.readAll(reading) })
	loops.Go(func() { w.commits(committing) })

	var err error
	atEnd := false
	select {
	case <-ctx.Done():
	case <-w.base.Done():
	case err = <-read:
		if atEnd = errors.Is(err, io.EOF); atEnd {
			err = nil
		}
	}
	stopReading()
	w.quiesce(drain)
	stopCommitting()
	loops.Wait()
	if w.base.Err() != nil {
		return context.Cause(w.base)
	}
	if last := w.conclude(atEnd && ctx.Err() == nil && err == nil); last != nil {
		err = last
	}
	return err
}

// readAll reads as read does, and again at the end of the log (io.EOF) while copies were written meanwhile: they may stand in it. It returns when
// nothing moves any more.
func (w *worker) readAll(ctx context.Context) error {
	for {
		copied := w.copied.Load()
		if err := w.read(ctx); !errors.Is(err, io.EOF) {
			return err
		}
		for !w.all((*part).quiet) {
			select {
			case <-ctx.Done():
				return nil
			case <-w.changed:
				if ctx.Err() != nil {
					w.look() // it was meant for whoever waits for the draining
					return nil
				}
			}
		}
		if w.exhausted(copied) {
			return io.EOF
		}
	}
}

// exhausted says that nothing is left to read: no copy was written since, and nothing was rewound. From then on nothing is rewound any more, since
// nobody would read it.
func (w *worker) exhausted(copied uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atEnd = copied == w.copied.Load() && !w.reopen
	return w.atEnd
}

func (w *worker) all(is func(*part) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		if !is(p) {
			return false
		}
	}
	return true
}

// quiesce lets what was handed over end, as long as it may take, and then ends its contexts.
func (w *worker) quiesce(drain func() (context.Context, context.CancelFunc)) {
	w.mu.Lock()
	w.draining = true
	close(w.stopping)
	for _, p := range w.parts {
		p.clear()
	}
	w.mu.Unlock()
	within, cancel := drain()
	defer cancel()
	w.await(within)
	cause := context.Cause(w.base)
	if cause == nil {
		cause = ErrRevoked
	}
	w.mu.Lock()
	w.over = true // what is settled from now on is undone
	w.mu.Unlock()
	for _, p := range w.parts {
		p.cancel(cause)
	}
	if errors.Is(cause, ErrKilled) {
		return
	}
	abandoned, cancel := context.WithTimeout(context.WithoutCancel(within), w.cfg.Abandon)
	defer cancel()
	idle := make(chan struct{})
	go func() {
		w.busy.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-abandoned.Done():
		w.log.Error("handlers still run although their context has ended; they are abandoned, and the lease is left to expire", "run", w.runID, "handlers", w.running())
	}
}

// await waits until nothing runs, or for the end of ctx or of the term.
func (w *worker) await(ctx context.Context) {
	for !w.all((*part).idle) {
		select {
		case <-ctx.Done():
			return
		case <-w.base.Done():
			return
		case <-w.changed:
		}
	}
}

// conclude commits what is done, and that the log has ended if it has and everything of it is done.
func (w *worker) conclude(atEnd bool) error {
	undone := 0
	var fault error
	w.mu.Lock()
	for _, p := range w.parts {
		undone += p.settler.InFlight()
		if fault == nil {
			fault = p.fault
		}
	}
	w.mu.Unlock()
	if atEnd && undone == 0 && fault == nil {
		return w.finish(w.base)
	}
	if err := w.commit(w.base); err != nil {
		return err
	}
	if atEnd && fault == nil {
		return codes.New(codes.RecordsUndone, "the log has ended, and %d records from the oldest undone one on are not committed; run %q stays open and reads them again when it is started next", undone, w.runID)
	}
	return fault
}
