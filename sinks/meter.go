package sinks

import (
	"context"
	"maps"
	"time"
)

// Handed is what a watched sink tells: that it was opened, that rows are about to be published, and then that they stand, or why they do not, or nobody knows.
type Handed struct {
	Sink string
	// Opening says that it is about opening the sink, and not about rows.
	Opening bool
	// Rows and Bytes are of rows that the target did not hold; Bytes as the journal keeps them, which is the same for every sink.
	Rows, Bytes int64
	// Done says that the sink is open, or that the rows stand; Took is how long that took. Err is why it failed. With neither, it begins.
	Done bool
	Took time.Duration
	Err  error
}

// Watch makes a sink that tells of its openings and of all rows that it is given, those that it lacks of the journal among them. What a context has ended
// is not told.
func Watch(s Named, tell func(Handed)) Named {
	return Named{Name: s.Name, Sink: watched{s.Sink, s.Name, tell}}
}

type watched struct {
	Sink
	name string
	tell func(Handed)
}

// joins is a writer that publishes with the journal's commit.
type joins interface {
	Join(ctx context.Context, batches []Rows) error
}

func (s watched) Open(ctx context.Context, to Target) (Writer, error) {
	began := time.Now()
	w, err := s.Sink.Open(ctx, to)
	s.ended(ctx, Handed{Sink: s.name, Opening: true}, began, err)
	if err != nil {
		return nil, err
	}
	watched := &watchedWriter{Writer: w, sink: s, at: maps.Clone(w.Published()), width: len(to.Outputs)}
	if j, can := w.(joins); can {
		return &watchedJoiner{watched, j}, nil
	}
	return watched, nil
}

func (s watched) ended(ctx context.Context, h Handed, began time.Time, err error) {
	h.Done, h.Took, h.Err = err == nil, time.Since(began), err
	if err == nil || ctx.Err() == nil {
		s.tell(h)
	}
}

// watchedWriter is for one goroutine, as what it watches is.
type watchedWriter struct {
	Writer
	sink  watched
	at    map[int32]int64
	width int
}

func (w *watchedWriter) Publish(ctx context.Context, batches []Rows) error {
	return w.watch(ctx, batches, func() error { return w.Writer.Publish(ctx, batches) })
}

type watchedJoiner struct {
	*watchedWriter
	joins joins
}

func (w *watchedJoiner) Join(ctx context.Context, batches []Rows) error {
	return w.watch(ctx, batches, func() error { return w.joins.Join(ctx, batches) })
}

func (w *watchedWriter) watch(ctx context.Context, batches []Rows, publish func() error) error {
	h := Handed{Sink: w.sink.name}
	for _, r := range batches {
		at, known := w.at[r.Partition]
		if !known {
			at = r.From
		}
		if rest, err := r.After(at, w.width); err == nil { // what is wrong with them the sink says
			h.Rows, h.Bytes = h.Rows+int64(rest.Count), h.Bytes+int64(len(rest.Data))
			w.at[r.Partition] = max(at, r.End())
		}
	}
	w.sink.tell(h)
	began := time.Now()
	err := publish()
	w.sink.ended(ctx, h, began, err)
	return err
}
