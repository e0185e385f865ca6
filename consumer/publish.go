package consumer

import (
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// publishing is how long a copy that could not be written waits before it is tried again.
var publishing = Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5}

// later writes a copy once its delay has passed. The timer lives in this process: when the partition is given up or read again before, the record
// is undone and comes again as it is.
func (w *worker) later(it *item, r record.Record, delay time.Duration) {
	p := it.p
	switch {
	case delay <= 0:
		w.publish(it, r, w.cfg.Retry, true)
	case !w.draining:
		p.timers[it] = time.AfterFunc(delay, func() {
			w.mu.Lock()
			defer w.unlock()
			if p.timers[it] == nil || !p.settler.Due(it.token) {
				return
			}
			delete(p.timers, it)
			w.publish(it, r, w.cfg.Retry, true)
		})
	}
}

// bury writes a dead letter, to the journal or to the log for them.
func (w *worker) bury(it *item, o Outcome) {
	p := it.p
	origin := Origin{Source: w.info.Name, RunID: w.runID, Partition: p.n, Token: w.lease.Token, Attempts: it.attempt, Reason: o.Reason()}
	w.log.Warn("a record is given up", "run", w.runID, "partition", p.n, "position", it.rec.Position.String(), "attempts", it.attempt, "reason", o.Reason())
	if !w.cfg.Quarantine {
		r := clone(DeadLetter(it.rec, origin))
		p.free(&it.from)
		w.publish(it, r, w.cfg.DeadLetter, false)
		return
	}
	row, err := quarantined(it.rec, origin)
	if err != nil {
		w.end(err)
		return
	}
	p.free(&it.from)
	// The row is written by the transaction that moves the position past the record, so there is nothing to wait for.
	p.omit(it.rec.Position, &row)
	w.moved(p, p.settler.Published(it.token))
}

// publish writes a record until that is confirmed, apart from everything else. The lock is held.
func (w *worker) publish(it *item, r record.Record, to Copier, isCopy bool) {
	if w.over {
		return
	}
	it.p.publishing++
	w.busy.Add(1)
	go func() {
		defer w.busy.Done()
		for failures := 1; ; failures++ {
			err := to.Copy(it.ctx, r)
			if err == nil {
				w.cfg.hook("published")
			}
			if w.published(it, r, isCopy, err) || !w.pauseFor(it, w.cfg.delay(publishing, failures)) {
				break
			}
		}
		w.mu.Lock()
		defer w.unlock()
		it.p.publishing--
		w.look()
	}()
}

// pauseFor waits before a write is tried again; false when there is nothing to wait for any more. A stop does not wait for what cannot be written.
func (w *worker) pauseFor(it *item, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-it.ctx.Done():
	case <-w.stopping:
	}
	return false
}

// published takes the answer to a write; true when it was the last one.
func (w *worker) published(it *item, r record.Record, isCopy bool, err error) bool {
	w.mu.Lock()
	defer w.unlock()
	p := it.p
	switch {
	case it.gen != p.generation || w.dead() || err != nil && it.ctx.Err() != nil:
		return true
	case err == nil:
		p.stuck = ""
		if isCopy {
			w.copied.Add(1)
		} else {
			p.omit(it.rec.Position, nil)
		}
		w.moved(p, p.settler.Published(it.token))
		w.pump(p)
		return true
	case isCopy && codes.Has(err, codes.RecordTooLarge):
		kept := *it
		kept.rec, kept.from = r, nil
		kept.rec.Headers = partitions.WithAttempt(r.Headers, it.attempt)
		s := p.settler.TooLarge(it.token)
		_ = w.follow(&kept, Retry("the copy is too large: "+err.Error()), s)
		return true
	}
	// One cause is told once for each partition, however many records wait for it.
	if cause := err.Error(); p.stuck != cause {
		p.stuck = cause
		what := "a dead letter"
		if isCopy {
			what = "a copy"
		}
		w.log.Error(what+" cannot be written; the record stays undone, and it is tried again", "run", w.runID, "partition", p.n, "position", it.rec.Position.String(), "cause", cause)
		w.tell(Held{RunID: w.runID, Partition: p.n, Position: it.rec.Position, Cause: err})
	}
	return false
}
