package actors

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// scripted is a source whose answers a test writes.
type scripted struct {
	poll   func(ctx context.Context, max int) ([]record.Batch, error)
	polls  atomic.Int64
	closes atomic.Int64
}

func (s *scripted) Info(context.Context) (sources.Info, error) {
	return sources.Info{Name: "scripted", Partitions: []int32{0}}, nil
}

func (s *scripted) Open(context.Context, map[int32]record.Position) (sources.Reader, error) {
	return s, nil
}

func (s *scripted) Poll(ctx context.Context, max int) ([]record.Batch, error) {
	s.polls.Add(1)
	return s.poll(ctx, max)
}

func (s *scripted) Pause(...int32)  {}
func (s *scripted) Resume(...int32) {}
func (s *scripted) Close() error    { s.closes.Add(1); return errBoom }

// A source that answers empty at once must not make a processor hot.
func TestEmptyAnswersDoNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), input{nil})
		src := &scripted{poll: func(context.Context, int) ([]record.Batch, error) { return nil, nil }}
		r.cfg.Source = src
		ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Microsecond)
		defer cancel()
		if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) {
			t.Error(err)
		}
		if n := src.polls.Load(); n > 1001 || n < 900 {
			t.Errorf("%d polls in a second", n)
		}
		if src.closes.Load() != 1 {
			t.Errorf("closed %d times", src.closes.Load())
		}
		if r.journal.Epoch("run") != 0 {
			t.Error("a run that has read nothing has something to commit")
		}
	})
}

func TestSourceThatBreaksItsContract(t *testing.T) {
	t.Parallel()
	batch := func(p int32, at ...int64) record.Batch {
		b := record.Batch{Partition: p}
		for _, n := range at {
			b.Records = append(b.Records, record.Record{Position: record.Offset(n), Arrival: record.NoTime})
			b.Next = record.Offset(n + 1)
		}
		return b
	}
	for name, c := range map[string]struct {
		poll func(context.Context, int) ([]record.Batch, error)
		want string
		code *codes.Code
	}{
		"a partition of its own": {func(context.Context, int) ([]record.Batch, error) { return []record.Batch{batch(3, 0)}, nil },
			"the source delivered partition 3", codes.Internal},
		"backwards": {func(context.Context, int) ([]record.Batch, error) {
			return []record.Batch{batch(0, 5), batch(0, 4)}, nil
		},
			"position 4 was delivered after 6", codes.Internal},
		"a panic": {func(context.Context, int) ([]record.Batch, error) { panic("client") },
			"run/reader failed 3 times without a commit in between; the run stands at epoch 0, nothing beyond it was published: panic: client", codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, parse(t, wideFlow), input{nil})
				r.cfg.Source, r.cfg.MaxFailures = &scripted{poll: c.poll}, 3
				_, err := Run(context.Background(), r.cfg)
				if !codes.Has(err, c.code) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			})
		})
	}
}

// More than was asked for: the batch is cut short, and the run stands behind its last record.
func TestBatchBeyondTheLimitIsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := plain(10)
		for i := range all {
			all[i].Position = record.Offset(int64(3 * i))
		}
		released := 0
		src := &scripted{poll: func(context.Context, int) ([]record.Batch, error) {
			b := record.Batch{Records: all, Next: record.Offset(100), Release: func() { released++ }}
			return []record.Batch{b, {Records: all[:0], Next: record.Offset(200), Release: func() { released++ }}}, nil
		}}
		r := newRig(t, parse(t, wideFlow), input{nil})
		r.cfg.Source, r.cfg.UntilRecords = src, 7
		result, err := Run(context.Background(), r.cfg)
		if err != nil || result.Counts.Records != 7 || result.Partitions[0].Next != record.Offset(19) || released != 2 {
			t.Errorf("%v, %+v, %d released", err, result, released)
		}
	})
}

// Holes of the log, as compaction and transaction markers leave them, move the position; the last one too.
func TestHolesMoveThePosition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), input{nil, nil})
		r.log.Append(0, plain(2)...)
		r.log.Skip(0, 10)
		r.log.Append(0, plain(1)...)
		r.log.Skip(0, 5)
		r.log.Skip(1, 7)
		result, err := r.run()
		if err != nil || result.Counts.Records != 3 || result.Partitions[0].Next != record.Offset(18) || result.Partitions[1].Next != record.Offset(7) {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

// The answer to the very last commit is lost while the run is being stopped: the journal is asked, and the run has finished.
func TestLostAnswerToTheLastCommitOfAStoppedRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 40), 2, 30)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		ctx, stop := context.WithCancel(context.Background())
		r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
			if p.Name != AfterCommit {
				return nil
			}
			stop()
			<-time.After(time.Second)
			return errBoom
		}
		result, err := Run(ctx, r.cfg)
		if err != nil || len(result.Failures) != 1 || result.Incarnations != 1 {
			t.Errorf("%v, %+v", err, result)
		}
		r.compare(result, want)
	})
}

// A fatal end after a commit of which nobody knows: the result says what the journal says.
func TestResultIsReadBackAfterAnUnknownCommit(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 41), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		inner := r.cfg.Hooks
		r.cfg.Hooks.At = func(ctx context.Context, p Point) error {
			if p.Name == AfterCommit && p.Epoch == 3 {
				return codes.New(codes.Internal, "injected")
			}
			return inner.at(ctx, p)
		}
		result, err := r.run()
		if !codes.Has(err, codes.Internal) || result.Epoch != 3 || r.journal.Epoch("run") != 3 || result.Counts.Records == 0 {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

// fragile is a log handler that panics at a message, in the run actor itself.
type fragile struct{ slog.Handler }

func (f fragile) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "running" {
		panic("log full")
	}
	return f.Handler.Handle(ctx, r)
}

func TestFailureOfTheRunActorItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), randomInput(seeded(t, 42), 2, 30), func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		r.cfg.Logger, r.cfg.MaxFailures = slog.New(fragile{slog.NewTextHandler(r.logged, nil)}), 3
		result, err := r.run()
		if !codes.Has(err, codes.Internal) || !strings.Contains(err.Error(), "run failed 3 times without a commit in between") ||
			!strings.Contains(err.Error(), "panic: log full") || result.Status != control.RunOpen || result.Incarnations != 3 {
			t.Errorf("%v, %+v", err, result)
		}
	})
}

// Credit that was never taken is a defect of ours, and stops the epoch.
func TestReaderRefusesCreditThatWasNotTaken(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 1, nil)
		r := b.spawnReader()
		shell.Send(r, toReader(begin{now(b)}))
		shell.Send(r, toReader(credit{now(b), 0, 1, 1}))
		if f := k.ExpectFailure(r.Address); !codes.Has(f.Cause, codes.Internal) {
			t.Errorf("cause %v", f.Cause)
		}
	})
}

// An aggregate that stands across the limit comes whole. When the answer to the commit of it is lost, the run has more records than were
// asked for, and has ended all the same.
func TestAggregateAcrossTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := plain(10)
		for i := range all {
			all[i].Position = record.Offset(int64(min(i, 5)))
			all[i].Sub = uint32(max(i-5, 0))
		}
		src := &scripted{poll: func(ctx context.Context, _ int) ([]record.Batch, error) {
			return []record.Batch{{Records: all, Next: record.Offset(6)}}, nil
		}}
		r := newRig(t, parse(t, wideFlow), input{nil})
		r.cfg.Source, r.cfg.UntilRecords = src, 7
		r.cfg.Hooks, _ = every(AfterCommit, 1, func(context.Context) error { return errBoom })
		result, err := Run(context.Background(), r.cfg)
		if err != nil || result.Counts.Records != 10 || result.Partitions[0].Next != record.Offset(6) || result.Incarnations != 2 {
			t.Errorf("%v, %+v", err, result)
		}
		if _, err := Run(context.Background(), r.cfg); !codes.Has(err, codes.RunMismatch) {
			t.Errorf("another run for fewer than there are: %v", err)
		}
	})
}
