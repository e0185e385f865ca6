package sinks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// joining is a sink whose writers join the journal.
type joining struct{ sinks.Sink }

func (s joining) Open(ctx context.Context, to sinks.Target) (sinks.Writer, error) {
	w, err := s.Sink.Open(ctx, to)
	return joiningWriter{w}, err
}

type joiningWriter struct{ sinks.Writer }

func (w joiningWriter) Join(ctx context.Context, batches []sinks.Rows) error {
	return w.Publish(ctx, batches)
}

// TestWatch: what was handed over is told before and after, without what stood; a failure leaves it open; what a watched writer can do stays.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &scripted{rows: map[int32][]float64{0: {0, 1, 2}}}
		var told []sinks.Handed
		open := func(s sinks.Sink) sinks.Writer {
			w, err := sinks.Watch(sinks.Named{Name: "a", Sink: s}, func(h sinks.Handed) { told = append(told, h) }).Sink.Open(t.Context(), sinks.Target{Outputs: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		w := open(joining{inner})
		inner.fail = func() error { time.Sleep(time.Second); return nil }
		size := func(partition int32, from, to int64) int64 { return int64(len(batch(partition, from, to).Data)) }
		if err := w.Publish(t.Context(), []sinks.Rows{batch(0, 1, 5), batch(1, 0, 2)}); err != nil {
			t.Fatal(err)
		}
		want := sinks.Handed{Sink: "a", Rows: 4, Bytes: size(0, 3, 5) + size(1, 0, 2)}
		after := want
		after.Done, after.Took = true, time.Second
		if len(told) != 3 || told[0] != (sinks.Handed{Sink: "a", Opening: true, Done: true}) || told[1] != want || told[2] != after {
			t.Errorf("told %+v, want %+v and %+v", told, want, after)
		}
		joiner, can := w.(interface {
			Join(context.Context, []sinks.Rows) error
		})
		if !can {
			t.Fatal("a writer that joins the journal is none any more")
		}
		if err := joiner.Join(t.Context(), []sinks.Rows{batch(0, 5, 6)}); err != nil || told[4].Rows != 1 || !told[4].Done {
			t.Errorf("%v, told %+v", err, told[3:])
		}
		inner.fail = nil
		w, told = open(inner), nil
		if _, can := w.(interface {
			Join(context.Context, []sinks.Rows) error
		}); can {
			t.Error("a writer that does not join the journal does so")
		}
		down := codes.New(codes.SinkUnavailable, "down")
		inner.fail = func() error { return down }
		if err := w.Publish(t.Context(), []sinks.Rows{batch(0, 6, 9)}); err != down {
			t.Fatal(err)
		}
		if len(told) != 2 || told[0].Rows != 3 || told[1].Done || told[1].Err != down {
			t.Errorf("after a failure told %+v", told)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		told = nil
		if _, err := sinks.Watch(sinks.Named{Name: "a", Sink: inner}, func(h sinks.Handed) { told = append(told, h) }).Sink.Open(ended, sinks.Target{}); err != down || told != nil {
			t.Errorf("%v, of what was given up told %+v", err, told)
		}
	})
}
