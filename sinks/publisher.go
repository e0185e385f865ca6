package sinks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
)

// Named is a sink with the name by which people know it.
type Named struct {
	Name string
	Sink Sink
}

// State is told when a sink goes down and when it is back.
type State struct {
	Sink string
	// Err is why it is down, nil when it is back. Attempts have failed since it went down.
	Err      error
	Attempts int
}

// Publisher publishes the rows of a run to all of its sinks, side by side.
//
// A sink that is down, at the opening or later, is opened and tried again until it is back or the caller's context ends: nothing else of the run fails by
// it, but nothing is committed either, so that the run holds its source by itself. A refusal ends the publication.
type Publisher struct {
	// Sinks of the run, each under a name of its own.
	Sinks []Named
	// Min is the pause after the first failure, doubled for each further one up to Max. Default to 100 ms and 5 s.
	Min, Max time.Duration
	// OnState, unless nil, is told what becomes of the sinks. Calls of one sink do not overlap.
	OnState func(State)
	// OnRefused, unless nil, is told when a target has refused this owner for one who came after it (STALE_FENCE). It may be called by several goroutines.
	OnRefused func(sink string, err error)
	// History gives the rows of a partition that the journal holds, from row 0 on and in order, for a target that lacks some: one that was added to the
	// run, or has lost what it had.
	History func(ctx context.Context, partition int32, fn func(Rows) error) error
}

// Publication is the sinks of a run, opened for an owner. Its methods are used by one goroutine.
type Publication struct {
	p       *Publisher
	to      Target
	writers []Writer
	// committed is where the journal stands, by partition; it is read while sinks are at work, and written between.
	committed map[int32]int64
}

// Open opens every sink and brings each to where the journal stands, which committed says by partition. Errors are refusals of Sink.Open and
// Writer.Publish, with the name of the sink, those of History, or the end of ctx.
func (p *Publisher) Open(ctx context.Context, to Target, committed map[int32]int64) (*Publication, error) {
	b := &Publication{p: p, to: to, writers: make([]Writer, len(p.Sinks)), committed: map[int32]int64{}}
	maps.Copy(b.committed, committed)
	err := b.each(ctx, func(ctx context.Context, i int) error {
		return b.persist(ctx, i, func(context.Context, Writer) error { return nil })
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Join hands rows to the sinks that are AtomicWithJournal, just before the journal's commit. The rows of a partition are to begin where the journal stands,
// in order. Errors: those of Publish.
func (b *Publication) Join(ctx context.Context, batches []Rows) error {
	b.begin(batches)
	return b.each(ctx, func(ctx context.Context, i int) error {
		if !b.joins(i) {
			return nil
		}
		return b.persist(ctx, i, func(ctx context.Context, w Writer) error {
			j, can := w.(Joiner)
			if !can {
				return codes.New(codes.Internal, "the sink declares AtomicWithJournal, and its writer cannot join")
			}
			return j.Join(ctx, batches)
		})
	})
}

// Publish makes rows visible in every other sink. The rows of a partition are to begin where the journal stands, or stood before the commit that Join was for,
// in order. Errors: a refusal of a sink, or the end of ctx.
func (b *Publication) Publish(ctx context.Context, batches []Rows) error {
	b.begin(batches)
	err := b.each(ctx, func(ctx context.Context, i int) error {
		if b.joins(i) {
			return nil
		}
		return b.persist(ctx, i, func(ctx context.Context, w Writer) error { return w.Publish(ctx, batches) })
	})
	if err == nil {
		for _, r := range batches {
			b.committed[r.Partition] = r.End()
		}
	}
	return err
}

func (b *Publication) joins(i int) bool { return b.p.Sinks[i].Sink.Features().AtomicWithJournal }

// begin notes where the journal stands.
func (b *Publication) begin(batches []Rows) {
	begun := map[int32]bool{}
	for _, r := range batches {
		if !begun[r.Partition] {
			b.committed[r.Partition], begun[r.Partition] = r.From, true
		}
	}
}

// Close closes the sinks.
func (b *Publication) Close() error {
	var errs []error
	for i, w := range b.writers {
		if w != nil {
			errs = append(errs, w.Close())
			b.writers[i] = nil
		}
	}
	return errors.Join(errs...)
}

// each does something with all sinks at once. The first error ends the others.
func (b *Publication) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	if len(b.p.Sinks) == 1 {
		return b.named(0, do(ctx, 0))
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	var once sync.Once
	var all sync.WaitGroup
	for i := range b.p.Sinks {
		all.Go(func() {
			if err := do(within, i); err != nil {
				once.Do(func() { first = b.named(i, err) })
				cancel()
			}
		})
	}
	all.Wait()
	return first
}

func (b *Publication) named(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sink %q: %w", b.p.Sinks[i].Name, err)
}

// persist does something with the writer of one sink, however often it takes.
func (b *Publication) persist(ctx context.Context, i int, do func(context.Context, Writer) error) error {
	pause := cmpOr(b.p.Min, 100*time.Millisecond)
	for attempt := 1; ; attempt++ {
		err := b.attempt(ctx, i, do)
		var history *historyError
		switch c := codes.Of(err); {
		case err == nil:
			if attempt > 1 {
				b.tell(State{Sink: b.p.Sinks[i].Name, Attempts: attempt - 1})
			}
			return nil
		case ctx.Err() != nil || c == nil || c.Verdict != codes.Retry || errors.As(err, &history):
			return err
		}
		b.tell(State{Sink: b.p.Sinks[i].Name, Err: err, Attempts: attempt})
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, cmpOr(b.p.Max, 5*time.Second))
	}
}

func (b *Publication) attempt(ctx context.Context, i int, do func(context.Context, Writer) error) error {
	if b.writers[i] == nil {
		if err := b.open(ctx, i); err != nil {
			return err
		}
	}
	err := do(ctx, b.writers[i])
	if err != nil {
		b.refused(i, err)
		// Whatever it says, another writer has to read back what stands.
		_ = b.writers[i].Close()
		b.writers[i] = nil
	}
	return err
}

// open opens one sink and publishes what it lacks of the journal.
func (b *Publication) open(ctx context.Context, i int) error {
	to := b.to
	to.Committed = maps.Clone(b.committed)
	w, err := b.p.Sinks[i].Sink.Open(ctx, to)
	if err != nil {
		b.refused(i, err)
		return err
	}
	at := w.Published()
	for partition, want := range b.committed {
		if n, known := at[partition]; known && n < want && err == nil {
			err = b.catchUp(ctx, w, partition, n)
		}
	}
	if err != nil {
		b.refused(i, err)
		_ = w.Close() // the reason to give up says more
		return err
	}
	b.writers[i] = w
	return nil
}

func (b *Publication) catchUp(ctx context.Context, w Writer, partition int32, from int64) error {
	if b.p.History == nil {
		return codes.New(codes.SinkInvalid, "partition %d of run %q stands at row %d in the target, and the journal is further: rows are missing, and there is no history to take them from", partition, b.to.RunID, from)
	}
	var published error
	err := b.p.History(ctx, partition, func(r Rows) error {
		if r.End() > from {
			published = w.Publish(ctx, []Rows{r})
		}
		return published
	})
	if err != nil && published == nil {
		return &historyError{err}
	}
	return err
}

// historyError is one of the journal's: it says nothing about the sink.
type historyError struct{ error }

func (e *historyError) Unwrap() error { return e.error }

func (b *Publication) refused(i int, err error) {
	if b.p.OnRefused != nil && codes.Has(err, codes.StaleFence) {
		b.p.OnRefused(b.p.Sinks[i].Name, err)
	}
}

func (b *Publication) tell(s State) {
	if b.p.OnState != nil {
		b.p.OnState(s)
	}
}

func cmpOr(d, other time.Duration) time.Duration {
	if d <= 0 {
		return other
	}
	return d
}
