package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// deliver takes batches from the source.
func (w *worker) deliver(batches []record.Batch) {
	w.mu.Lock()
	defer w.unlock()
	for _, b := range batches {
		p := w.parts[b.Partition]
		if p == nil || p.fault != nil || w.draining || w.reopen {
			b.Done() // a rewind reads it again, and so does the next owner
			continue
		}
		p.take(b)
		w.pump(p)
	}
}

// pump hands the backlog to the tracker as far as there is room, and pauses or resumes the partition at its source.
func (w *worker) pump(p *part) {
	for len(p.backlog) > 0 && !w.draining && w.admit(p, p.backlog[0]) {
		p.backlog = p.backlog[1:]
	}
	over := len(p.backlog) > 0 || p.bytes >= w.cfg.Bytes || p.paused && p.bytes > w.cfg.Bytes/2
	if over != p.paused {
		p.paused = over
		switch {
		case w.reader == nil:
		case over:
			w.reader.Pause(p.n)
		default:
			w.reader.Resume(p.n)
		}
	}
	w.start(p)
}

// admit makes deliveries of one record of the log; false when there is no room.
func (w *worker) admit(p *part, e entry) bool {
	wasDrained := p.settler.Drained()
	if p.alone > 0 && (!wasDrained || p.unwritten) {
		return false
	}
	t, err := p.settler.DeliverParts(e.at, len(e.recs))
	switch {
	case errors.Is(err, partitions.ErrSettlementFull):
		return false
	case err != nil:
		w.end(internal("partition %d delivers %s out of order: %w", p.n, e.at, err))
		return false
	}
	if wasDrained {
		p.held(e.at)
	}
	if len(e.recs) == 0 {
		p.hidden = append(p.hidden, e.at)
		w.moved(p, p.settler.Done(t))
		return true
	}
	for i, r := range e.recs {
		if w.cfg.Envelope {
			r, _ = OpenEnvelope(r)
		}
		it := &item{w: w, p: p, ctx: p.ctx, gen: p.generation, token: partitions.Token{Ticket: t, Sub: uint32(i)}, rec: r, from: e.from, attempt: partitions.Attempt(r.Headers)}
		if !p.begun {
			it.claims = p.claims
		}
		p.enqueue(it, w.cfg.Order)
	}
	p.begun = true
	p.alone = max(p.alone-1, 0)
	return true
}

// start starts handlers as far as there is anything to hand over.
func (w *worker) start(p *part) {
	for !w.draining && !w.dead() && p.stale == 0 && p.running < w.cfg.Concurrency && len(p.ready) > 0 {
		q := p.ready[0]
		p.ready = p.ready[1:]
		p.running++
		w.busy.Add(1)
		go w.work(p, p.generation, q)
	}
}

// work hands deliveries over, one after the other, until there is none.
func (w *worker) work(p *part, generation int, q *queue) {
	defer w.busy.Done()
	var it *item
	defer func() {
		if it == nil {
			return
		}
		// The handler has ended its goroutine (runtime.Goexit), and this one with it. Another one goes on.
		_ = w.settle(it, Retry("the handler ended its goroutine"))
		if next := w.after(p, generation, q); next != nil {
			w.busy.Add(1)
			go w.work(p, generation, next)
		}
	}()
	for q != nil {
		w.mu.Lock()
		if p.generation == generation && len(q.items) > 0 && !w.draining && !w.dead() {
			it, q.items = q.items[0], q.items[1:]
			if w.cfg.Explicit {
				it.open = true
				p.open++
			}
		}
		w.mu.Unlock()
		if it != nil {
			w.handle(it)
		}
		it = nil
		q = w.after(p, generation, q)
	}
}

// after is the queue to go on with, or nil.
func (w *worker) after(p *part, generation int, q *queue) *queue {
	w.mu.Lock()
	defer w.unlock()
	w.look()
	if p.generation != generation {
		p.stale--
		w.start(p)
		return nil
	}
	p.returned(q)
	if w.draining || w.dead() || len(p.ready) == 0 || p.stale > 0 {
		p.running--
		return nil
	}
	q, p.ready = p.ready[0], p.ready[1:]
	return q
}

func (w *worker) handle(it *item) {
	if w.cfg.MaxClaims > 0 && it.claims > w.cfg.MaxClaims {
		w.giveUp(it)
		return
	}
	o := w.call(it)
	w.cfg.hook("handled")
	if o.IsZero() && w.cfg.Explicit {
		return
	}
	// What is wrong was told to the log and to OnHeld; there is nobody else to tell.
	if w.settle(it, o) != nil {
		w.mu.Lock()
		defer w.unlock()
		it.p.free(&it.from)
	}
}

// giveUp settles a record that was claimed too often as one whose attempts are exhausted.
func (w *worker) giveUp(it *item) {
	o := Retry(fmt.Sprintf("%d terms in a row began with this record and none of them ended it", it.claims-1))
	w.mu.Lock()
	defer w.unlock()
	_ = w.follow(it, o, it.p.settler.GiveUp(it.token, o))
}

// settle takes an outcome.
func (w *worker) settle(it *item, o Outcome) error {
	if _, own := o.Delay(); o.IsRetry() && !own {
		o = o.Delayed(w.cfg.delay(w.cfg.Backoff, it.attempt))
	}
	w.mu.Lock()
	defer w.unlock()
	if it.gen != it.p.generation || w.dead() {
		it.p.free(&it.from)
		w.closed(it)
		return ErrVoid
	}
	return w.follow(it, o, it.p.settler.Settle(it.token, o, it.attempt))
}

// follow does what a step asks for.
func (w *worker) follow(it *item, o Outcome, s partitions.Step) error {
	p := it.p
	switch {
	case s.Err != nil:
		w.log.Warn("a record stays undone and holds its partition", "run", w.runID, "partition", p.n, "position", it.rec.Position.String(), "attempt", it.attempt, "cause", s.Err.Error())
		w.tell(Held{RunID: w.runID, Partition: p.n, Position: it.rec.Position, Cause: s.Err})
		w.closed(it)
		w.trust(p)
		return s.Err
	case s.Action == partitions.ActDone:
		w.done(it, s)
	case s.Action == partitions.ActCopy:
		r := clone(it.rec)
		p.free(&it.from)
		r.Headers = partitions.WithAttempt(r.Headers, s.Attempt)
		w.later(it, r, s.Delay)
		w.trust(p)
	case s.Action == partitions.ActBury:
		w.bury(it, o)
	case s.Settled == partitions.SettledTwice:
		return ErrSettled
	default:
		return ErrVoid
	}
	w.closed(it)
	w.pump(p)
	return nil
}

// closed says that nobody is expected to settle the delivery any more.
func (w *worker) closed(it *item) {
	if it.open && it.gen == it.p.generation {
		it.p.open--
	}
	it.open = false
	w.look()
}

// tell calls OnHeld when the lock is given back.
func (w *worker) tell(h Held) { w.tells = append(w.tells, h) }

func (w *worker) unlock() {
	tells := w.tells
	w.tells = nil
	w.mu.Unlock()
	for _, h := range tells {
		w.cfg.OnHeld(h)
	}
}

func (w *worker) done(it *item, s partitions.Step) {
	p := it.p
	if s.Omitted {
		p.omit(it.rec.Position, nil)
		if s.Exhausted {
			w.log.Warn("a record is passed, its attempts are exhausted and there are no dead letters", "partition", p.n, "position", it.rec.Position.String(), "attempts", it.attempt)
		}
	}
	p.free(&it.from)
	w.moved(p, s.Settled)
}

// moved notes a new committed position, to be written.
func (w *worker) moved(p *part, s partitions.Settled) {
	if s != partitions.SettledMoved {
		return
	}
	p.dirty, p.unwritten = true, true
	if at, has := p.settler.Oldest(); has {
		p.held(at)
	}
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// trust ends the probation of a partition.
func (w *worker) trust(p *part) {
	if p.alone > 0 {
		p.alone = 0
		w.pump(p)
	}
}

// held notes the oldest undone record.
func (p *part) held(at record.Position) { p.heldAt, p.heldSince, p.told = at, time.Now(), false }

// look wakes whoever waits for the worker to become quiet.
func (w *worker) look() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
