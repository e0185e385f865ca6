package sim

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// source is the log as a process reads it: at a pace, in batches that chance cuts, with failures, and through the gate of the process.
type source struct {
	p   *process
	log *sourcetest.Log
}

// Info is sources.Source's.
func (s *source) Info(ctx context.Context) (sources.Info, error) {
	if err := s.p.gate.pass(); err != nil {
		return sources.Info{}, err
	}
	if s.p.sourceFails("info") {
		return sources.Info{}, codes.New(codes.SourceFailure, "injected: the log does not say what it is")
	}
	return s.log.Info(ctx)
}

// Open is sources.Source's.
func (s *source) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	if err := s.p.gate.pass(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.p.w.mutant == Beyond {
		from = beyond(from)
	}
	number := int(s.p.w.readers.Add(1))
	s.p.add(invariant.SourceOpened{Reader: number, From: from})
	if s.p.sourceFails("open") {
		return nil, codes.New(codes.SourceFailure, "injected: the log does not open")
	}
	r, err := s.log.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return &reader{s: s, Reader: r, number: number}, nil
}

// beyond moves every position that is not the beginning by one.
func beyond(from map[int32]record.Position) map[int32]record.Position {
	out := map[int32]record.Position{}
	for n, at := range from {
		if out[n] = at; at != (record.Position{}) {
			out[n] = at.Next()
		}
	}
	return out
}

type reader struct {
	sources.Reader
	s      *source
	number int
}

// Poll is sources.Reader's.
func (r *reader) Poll(ctx context.Context, most int) ([]record.Batch, error) {
	p := r.s.p
	if err := p.gate.pass(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.add(invariant.PollBegan{Reader: r.number})
	pause(ctx, p.pace())
	if p.sourceFails("poll") {
		return nil, codes.New(codes.SourceFailure, "injected: the log fails for a while")
	}
	batches, err := r.Reader.Poll(ctx, most)
	if p.w.mutant == Leaky && len(batches) > 0 && len(batches[0].Records) > 2 {
		batches[0].Records = append(batches[0].Records[:1:1], batches[0].Records[2:]...)
	}
	spans := make([]invariant.Span, len(batches))
	for i := range batches {
		spans[i] = r.lend(&batches[i])
	}
	if len(spans) > 0 {
		p.add(invariant.Polled{Reader: r.number, Batches: spans})
	}
	if dead := p.gate.pass(); dead != nil {
		for i := range batches {
			batches[i].Done()
		}
		return nil, dead
	}
	return batches, err
}

// lend makes a batch tell when it is given back.
func (r *reader) lend(b *record.Batch) invariant.Span {
	span := invariant.Span{Partition: b.Partition, Next: b.Next, Records: int64(len(b.Records)), Bytes: int64(b.Bytes)}
	span.First = b.Next
	if len(b.Records) > 0 {
		span.First = b.Records[0].Position
	}
	release, p, number := b.Release, r.s.p, r.number
	b.Release = func() {
		p.add(invariant.Given{Reader: number, Span: span})
		release()
	}
	return span
}

// Pause is sources.Reader's.
func (r *reader) Pause(ps ...int32) {
	if r.s.p.w.mutant != Deaf {
		r.Reader.Pause(ps...)
	}
	for _, n := range ps {
		r.s.p.add(invariant.Paused{Reader: r.number, Partition: int(n)})
	}
}

// Resume is sources.Reader's.
func (r *reader) Resume(ps ...int32) {
	for _, n := range ps {
		r.s.p.add(invariant.Resumed{Reader: r.number, Partition: int(n)})
	}
	r.Reader.Resume(ps...)
}
