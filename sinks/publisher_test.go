package sinks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

func batch(partition int32, from, to int64) sinks.Rows {
	r := sinks.Rows{Partition: partition, From: from}
	for n := from; n < to; n++ {
		r.Append(record.EventTime(n), []byte("e"), []byte("k"), []operators.Value{operators.Number(float64(n))})
	}
	return r
}

// scripted is a target that fails as it is told.
type scripted struct {
	mu     sync.Mutex
	rows   map[int32][]float64
	fail   func() error // of opening and publishing
	silent bool         // does not tell what stands
	opened int
}

func (s *scripted) Features() sinks.Features { return sinks.Features{} }

func (s *scripted) Open(context.Context, sinks.Target) (sinks.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return nil, err
		}
	}
	at := map[int32]int64{}
	for _, p := range []int32{0, 1} {
		if !s.silent {
			at[p] = int64(len(s.rows[p]))
		}
	}
	return &scriptedWriter{s, sinks.NewProgress(1, at)}, nil
}

type scriptedWriter struct {
	s        *scripted
	progress *sinks.Progress
}

func (w *scriptedWriter) Published() map[int32]int64 { return w.progress.Published() }
func (w *scriptedWriter) Close() error               { return nil }

func (w *scriptedWriter) Publish(_ context.Context, batches []sinks.Rows) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	rest, err := w.progress.Rest(batches)
	if err == nil && w.s.fail != nil {
		err = w.s.fail()
	}
	if err != nil {
		return w.progress.Fail(err)
	}
	for _, r := range rest {
		err := r.Each(1, nil, func(_ int64, row *partitions.Row) error {
			w.s.rows[r.Partition] = append(w.s.rows[r.Partition], row.Values[0].F)
			return nil
		})
		if err != nil {
			return w.progress.Fail(err)
		}
	}
	w.progress.Done(rest)
	return nil
}

func counted(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i)
	}
	return out
}

func history(n int64) func(context.Context, int32, func(sinks.Rows) error) error {
	return func(_ context.Context, partition int32, fn func(sinks.Rows) error) error {
		for from := int64(0); from < n; from += 4 {
			if err := fn(batch(partition, from, min(n, from+4))); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestPublisherWaitsForASinkThatIsDown: two minutes of outage, after which everything is there once; the pauses grow to their bound.
func TestPublisherWaitsForASinkThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		down := func() error {
			if time.Since(began) < 2*time.Minute {
				return codes.New(codes.SinkUnavailable, "down")
			}
			return nil
		}
		ill, well := &scripted{rows: map[int32][]float64{}}, &scripted{rows: map[int32][]float64{}}
		var states []sinks.State
		p := &sinks.Publisher{Sinks: []sinks.Named{{"ill", ill}, {"well", well}}, OnState: func(s sinks.State) { states = append(states, s) }}
		b, err := p.Open(t.Context(), sinks.Target{}, map[int32]int64{0: 0})
		if err != nil {
			t.Fatal(err)
		}
		ill.fail = down
		if err := b.Publish(t.Context(), []sinks.Rows{batch(0, 0, 5), batch(1, 0, 2)}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 2*time.Minute || took > 2*time.Minute+5*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, s := range []*scripted{ill, well} {
			if !slices.Equal(s.rows[0], counted(5)) || !slices.Equal(s.rows[1], counted(2)) {
				t.Errorf("%v", s.rows)
			}
		}
		last := states[len(states)-1]
		if last.Sink != "ill" || last.Err != nil || last.Attempts != len(states)-1 || states[0].Err == nil {
			t.Errorf("states: %v", states)
		}
		if len(states) > 40 {
			t.Errorf("%d attempts in two minutes", len(states))
		}
	})
}

// TestPublisherWaitsAtTheOpening: a sink that is down when it is opened, or while it is filled, is waited for as later; one that refuses is not, nor is a journal
// that cannot be read.
func TestPublisherWaitsAtTheOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		ill, well := &scripted{rows: map[int32][]float64{}}, &scripted{rows: map[int32][]float64{}}
		ill.fail = func() error {
			up := time.Since(began) >= 2*time.Minute
			if up {
				tries++
			}
			if !up || tries == 3 { // the second piece that it is filled with
				return codes.New(codes.SinkUnavailable, "down")
			}
			return nil
		}
		var states []sinks.State
		p := &sinks.Publisher{Sinks: []sinks.Named{{"ill", ill}, {"well", well}}, OnState: func(s sinks.State) { states = append(states, s) }, History: history(10)}
		open := func(ctx context.Context) error {
			b, err := p.Open(ctx, sinks.Target{}, map[int32]int64{0: 10})
			if err == nil {
				err = b.Close()
			}
			return err
		}
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := open(within); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody waits longer than the caller: %v", err)
		}
		states = nil
		if err := open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ill.rows[0], counted(10)) || !slices.Equal(well.rows[0], counted(10)) || well.opened != 2 {
			t.Errorf("%v; %v, opened %d times", ill.rows[0], well.rows[0], well.opened)
		}
		if n := len(states); n < 2 || n > 40 || states[0].Err == nil || states[n-1].Err != nil || states[n-1].Sink != "ill" || states[n-1].Attempts != n-1 {
			t.Errorf("states: %v", states)
		}
		refused := codes.New(codes.SinkInvalid, "no")
		well.fail, tries = func() error { return refused }, 0
		if err := open(t.Context()); !errors.Is(err, refused) || err.Error() != `sink "well": SINK_INVALID: no` {
			t.Errorf("refused: %v", err)
		}
		well.fail = nil
		well.rows = map[int32][]float64{}
		lost := codes.New(codes.StoreUnavailable, "the journal is down")
		p.History = func(context.Context, int32, func(sinks.Rows) error) error { return lost }
		states = nil
		if err := open(t.Context()); !errors.Is(err, lost) || !codes.Has(err, codes.StoreUnavailable) || len(states) != 0 {
			t.Errorf("a journal that cannot be read: %v, told %v", err, states)
		}
	})
}

func TestPublisherStopsAtARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := codes.New(codes.SinkRefused, "no")
		bad := &scripted{rows: map[int32][]float64{}}
		ill := &scripted{rows: map[int32][]float64{}}
		p := &sinks.Publisher{Sinks: []sinks.Named{{"bad", bad}, {"ill", ill}}}
		b, err := p.Open(t.Context(), sinks.Target{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		bad.fail = func() error { return refused }
		ill.fail = func() error { return codes.New(codes.SinkUnavailable, "down for ever") }
		if err := b.Publish(t.Context(), []sinks.Rows{batch(0, 0, 5)}); !errors.Is(err, refused) || err.Error() != `sink "bad": SINK_REFUSED: no` {
			t.Errorf("%v", err)
		}
		// Nobody waits for a sink longer than the caller.
		bad.fail = nil
		within, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Publish(within, []sinks.Rows{batch(0, 0, 5)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestPublisherBringsATargetUpToTheJournal: one that was added later, lost everything while the run was up, or does not tell.
func TestPublisherBringsATargetUpToTheJournal(t *testing.T) {
	t.Parallel()
	s, silent := &scripted{rows: map[int32][]float64{0: counted(3)}}, &scripted{rows: map[int32][]float64{}, silent: true}
	p := &sinks.Publisher{Sinks: []sinks.Named{{"late", s}, {"silent", silent}}, History: history(10), Min: time.Nanosecond, Max: time.Nanosecond}
	b, err := p.Open(t.Context(), sinks.Target{}, map[int32]int64{0: 10, 1: 10})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.rows[0], counted(10)) || !slices.Equal(s.rows[1], counted(10)) || len(silent.rows[0]) != 0 {
		t.Errorf("%v; %v", s.rows, silent.rows)
	}
	if err := b.Publish(t.Context(), []sinks.Rows{batch(0, 10, 12), batch(1, 10, 11)}); err != nil {
		t.Fatal(err)
	}
	p.History = history(12)
	failed := false
	s.fail = func() error {
		if !failed {
			failed, s.rows = true, map[int32][]float64{}
			return codes.New(codes.SinkUnavailable, "its disk was changed for an empty one")
		}
		return nil
	}
	if err := b.Publish(t.Context(), []sinks.Rows{batch(0, 12, 13)}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.rows[0], counted(13)) || !slices.Equal(s.rows[1], counted(12)) || !slices.Equal(silent.rows[0], []float64{10, 11, 12}) {
		t.Errorf("%v; %v", s.rows, silent.rows)
	}
	p.History = nil
	lacking := &scripted{rows: map[int32][]float64{}}
	p.Sinks = []sinks.Named{{"lacking", lacking}}
	if _, err := p.Open(t.Context(), sinks.Target{}, map[int32]int64{0: 1}); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("rows are missing: %v", err)
	}
}

// joint is a target whose rows become visible with a commit of the journal.
type joint struct {
	scripted
	handed []sinks.Rows
}

func (j *joint) Features() sinks.Features { return sinks.Features{AtomicWithJournal: true} }

func (j *joint) Open(ctx context.Context, to sinks.Target) (sinks.Writer, error) {
	w, err := j.scripted.Open(ctx, to)
	if err != nil {
		return nil, err
	}
	return &jointWriter{w, j}, nil
}

type jointWriter struct {
	sinks.Writer
	j *joint
}

func (w *jointWriter) Join(_ context.Context, batches []sinks.Rows) error {
	w.j.handed = batches
	return nil
}

// commit is the journal's.
func (j *joint) commit(t *testing.T, w sinks.Writer) {
	t.Helper()
	if err := w.Publish(t.Context(), j.handed); err != nil {
		t.Fatal(err)
	}
}

// TestPublisherJoins: a sink that is atomic with the journal gets the rows of an epoch by joining, and the others by publishing; what the journal holds already
// it is given as they are.
func TestPublisherJoins(t *testing.T) {
	t.Parallel()
	atomic, plain := &joint{scripted: scripted{rows: map[int32][]float64{}}}, &scripted{rows: map[int32][]float64{}}
	p := &sinks.Publisher{Sinks: []sinks.Named{{Name: "atomic", Sink: atomic}, {Name: "plain", Sink: plain}}, History: history(4)}
	b, err := p.Open(t.Context(), sinks.Target{Outputs: []string{"x"}, Partitions: []int32{0}}, map[int32]int64{0: 4})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(atomic.rows[0], counted(4)) || !slices.Equal(plain.rows[0], counted(4)) {
		t.Errorf("filled with %v and %v", atomic.rows[0], plain.rows[0])
	}
	rows := []sinks.Rows{batch(0, 4, 6)}
	if err := b.Join(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if len(atomic.rows[0]) != 4 || len(plain.rows[0]) != 4 || len(atomic.handed) != 1 {
		t.Errorf("joined: %v, %v, handed over %v", atomic.rows[0], plain.rows[0], atomic.handed)
	}
	if err := b.Publish(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if len(atomic.rows[0]) != 4 || !slices.Equal(plain.rows[0], counted(6)) {
		t.Errorf("published: %v, %v", atomic.rows[0], plain.rows[0])
	}
	w, err := atomic.Open(t.Context(), sinks.Target{Outputs: []string{"x"}, Partitions: []int32{0}})
	if err != nil {
		t.Fatal(err)
	}
	atomic.commit(t, w)
	if !slices.Equal(atomic.rows[0], counted(6)) {
		t.Errorf("committed: %v", atomic.rows[0])
	}
}
