package consumer

import (
	"context"
	"errors"
	"io"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// read reads until ctx ends (nil), the log ends (io.EOF), or it fails for good. After a failure that passes it goes on behind what was read last; the
// deliveries that are under way do not notice.
func (w *worker) read(ctx context.Context) error {
	failures := 0
	for opened := false; ctx.Err() == nil; {
		from, fault := w.positions()
		if len(from) == 0 {
			return fault
		}
		r, err := w.source.Open(ctx, from)
		if err == nil {
			opened = true
			err = w.poll(ctx, r, &failures)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return io.EOF
		case errors.Is(err, sources.ErrClosed), err == nil, w.setAside(err):
			continue
		case !retryable(err), !opened && failures >= maxFailures:
			return err
		}
		failures++
		w.log.Warn("reading failed; it goes on behind what was read last", "run", w.runID, "failures", failures, "cause", err.Error())
		pause(ctx, w.cfg.delay(restarting, failures))
	}
	return nil
}

// positions are where the partitions that can be read are read next; without any, why.
func (w *worker) positions() (from map[int32]record.Position, fault error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopen = false
	from = map[int32]record.Position{}
	for _, n := range w.order {
		p := w.parts[n]
		if p.fault == nil {
			from[n] = p.next
		} else if fault == nil {
			fault = p.fault
		}
	}
	return from, fault
}

// poll reads from an open reader and closes it.
func (w *worker) poll(ctx context.Context, r sources.Reader, failures *int) error {
	w.mu.Lock()
	w.reader = r
	for _, p := range w.parts {
		if p.paused {
			r.Pause(p.n)
		}
	}
	again := w.reopen
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.reader = nil
		w.mu.Unlock()
		_ = r.Close()
	}()
	for !again {
		batches, err := r.Poll(ctx, w.cfg.FetchSize)
		if err != nil {
			return err
		}
		if len(batches) > 0 {
			*failures = 0
		}
		w.deliver(batches)
		w.mu.Lock()
		again = w.reopen
		w.mu.Unlock()
	}
	return nil
}

// setAside takes a partition that cannot be read out, so that the others go on; false when the error is not of one partition, or passes.
func (w *worker) setAside(err error) bool {
	var f *sources.Fault
	if !errors.As(err, &f) || retryable(f.Err) {
		return false
	}
	w.mu.Lock()
	defer w.unlock()
	p := w.parts[f.Partition]
	if p == nil {
		return false
	}
	p.fault = err
	w.log.Error("a partition cannot be read any further; the others go on", "run", w.runID, "partition", p.n, "position", f.Need.String(), "cause", err.Error())
	w.tell(Held{RunID: w.runID, Partition: p.n, Position: f.Need, Cause: err})
	return true
}

// rewind reads a partition again from its committed position.
func (w *worker) rewind(n int32) error {
	w.mu.Lock()
	r := w.reader
	err := w.void(n)
	w.unlock()
	if err == nil && r != nil {
		_ = r.Close() // it may take a while, and the lease has to be renewed meanwhile
	}
	return err
}

// void makes everything of a partition void that is not committed, and has it read again.
func (w *worker) void(n int32) error {
	p := w.parts[n]
	switch {
	case p == nil:
		return codes.New(codes.TopicMissing, "run %q has no partition %d here", w.runID, n)
	case w.draining, w.atEnd:
		return ErrRevoked
	}
	defer w.look()
	p.cancel(ErrRewound)
	p.ctx, p.cancel = context.WithCancelCause(w.base)
	p.generation++
	p.stale += p.running
	p.running, p.open = 0, 0
	next := p.committedNext()
	// What has been done up to there and is not written yet still is; what was done behind it is read again.
	passed := p.passed - int64(p.settler.Passed())
	p.clear()
	p.omitted = upTo(p.omitted, next, func(o omission) record.Position { return o.at })
	p.hidden = upTo(p.hidden, next, func(at record.Position) record.Position { return at })
	p.place(next)
	p.passed = passed
	w.reopen = true
	return nil
}

// upTo is what stands before a position, of what is ascending.
func upTo[T any](all []T, next record.Position, at func(T) record.Position) []T {
	for i, v := range all {
		if at(v).Cmp(next) >= 0 {
			return all[:i:i]
		}
	}
	return all
}
