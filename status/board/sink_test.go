package board_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/status/board"
)

// A sink that is down is a reason why the run is held, from the first failure until it is back; whoever was told before is told still.
func TestASinkThatIsDownIsAReason(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_767_225_600, 0).UTC()
	b := board.New(board.Config{Run: "r", Flow: "f", Now: func() time.Time { return now }})
	told := 0
	given := &sinks.Publisher{OnState: func(sinks.State) { told++ }}
	cfg := actors.Config{Publisher: given}
	b.Attach(&cfg, nil)
	if cfg.Publisher == given {
		t.Error("the caller's publisher was changed")
	}
	b.State(actors.StateChange{State: actors.StateRunning})
	down := codes.New(codes.SinkUnavailable, "the disk is full")
	first := now
	for attempt := 1; attempt <= 3; attempt++ {
		cfg.Publisher.OnState(sinks.State{Sink: "table", Err: down, Attempts: attempt})
		now = now.Add(time.Second)
	}
	s := b.Snapshot()
	if len(s.Sinks) != 1 || s.Sinks[0].Attempts != 3 || !s.Sinks[0].Since.Equal(first) {
		t.Fatalf("%+v", s.Sinks)
	}
	found := false
	for _, r := range status.Why(s) {
		if r.Code == status.WhySink {
			found = true
			if !r.Holds || r.Holder != "table" || !strings.Contains(r.Text, "the disk is full") || r.Release == "" {
				t.Errorf("%+v", r)
			}
		}
	}
	if !found {
		t.Errorf("why: %+v", status.Why(s))
	}
	cfg.Publisher.OnState(sinks.State{Sink: "other"})
	cfg.Publisher.OnState(sinks.State{Sink: "table", Attempts: 3})
	if s := b.Snapshot(); len(s.Sinks) != 0 || told != 5 {
		t.Errorf("back: %+v, told %d times", s.Sinks, told)
	}
}

// What is published to each sink is counted, what was handed over and does not stand is its lag, and a sink is down from a failure until rows stand, or
// until it opens when that had failed.
func TestWhatSinksArePublished(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_767_225_600, 0).UTC()
	b := board.New(board.Config{Run: "r", Flow: "f", Now: func() time.Time { return now }})
	cfg := actors.Config{Publisher: &sinks.Publisher{Sinks: []sinks.Named{{Name: "table"}, {Name: "lines"}}}}
	b.Attach(&cfg, nil)
	down := codes.New(codes.SinkUnavailable, "the disk is full")
	for i, step := range []struct {
		handed sinks.Handed
		want   status.Published
		down   int
	}{
		{sinks.Handed{Opening: true, Err: down}, status.Published{Retries: 1}, 1},
		{sinks.Handed{Opening: true, Done: true}, status.Published{Retries: 1}, 0},
		{sinks.Handed{Rows: 5, Bytes: 50}, status.Published{Retries: 1, Lag: 5}, 0},
		{sinks.Handed{Rows: 5, Bytes: 50, Err: down}, status.Published{Retries: 2, Lag: 5}, 1},
		{sinks.Handed{Opening: true, Err: down}, status.Published{Retries: 3, Lag: 5}, 1},
		{sinks.Handed{Opening: true, Done: true}, status.Published{Retries: 3}, 1},
		{sinks.Handed{Rows: 3, Bytes: 30}, status.Published{Retries: 3, Lag: 3}, 1},
		{sinks.Handed{Rows: 3, Bytes: 30, Done: true, Took: 2 * time.Second}, status.Published{Retries: 3, Rows: 3, Bytes: 30, Publications: 1, Seconds: 2}, 0},
		{sinks.Handed{Done: true}, status.Published{Retries: 3, Rows: 3, Bytes: 30, Publications: 1, Seconds: 2}, 0},
		{sinks.Handed{Rows: 1, Err: codes.New(codes.SinkInvalid, "no")}, status.Published{Retries: 3, Rows: 3, Bytes: 30, Publications: 1, Seconds: 2}, 0},
	} {
		step.handed.Sink, step.want.Sink = "table", "table"
		b.Handed(step.handed)
		s := b.Snapshot()
		got := s.Published[0]
		got.Last = nil
		if begun := step.handed.Rows > 0 && !step.handed.Done && step.handed.Err == nil; (got.Began != nil) != begun {
			t.Errorf("step %d: under way since %v", i, got.Began)
		}
		got.Began = nil
		if got != step.want || len(s.Sinks) != step.down {
			t.Errorf("step %d: %+v, %d down; want %+v, %d", i, got, len(s.Sinks), step.want, step.down)
		}
		if s.Published[1] != (status.Published{Sink: "lines"}) {
			t.Errorf("step %d: the other sink has %+v", i, s.Published[1])
		}
	}
}
