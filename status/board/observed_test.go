package board

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/status"
)

// A log that says how far the reading is behind its end, and not where that is: without lag once all that was read is committed, with the log's own word
// until then, and with the time that has passed when it was not asked for long.
func TestLagThatTheLogTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.put(0, 1, 2, 3)
		s.put(1, 1)
		s.pass(5 * time.Second)
		see := func(behind time.Duration, read int64) status.Partition {
			lag := sources.Lag{Behind: behind, At: time.Now(), Read: record.Offset(read)}
			s.board.Observed(sources.Observation{Info: sources.Info{Name: "stream"}, Lags: map[int32]sources.Lag{0: lag}}, nil)
			return s.look().Partitions[0]
		}
		if p := see(0, 3); *p.LagSeconds != 0 || *p.LagRecords != 0 || *p.Readable != 0 || p.End != nil || p.Stalled {
			t.Errorf("all is read and committed: %+v", p)
		}
		if p := see(0, 4); *p.LagSeconds != 0 || p.LagRecords != nil || p.Readable != nil {
			t.Errorf("read, and not committed: %+v", p)
		}
		if p := see(90*time.Second, 3); *p.LagSeconds != 90 || p.LagRecords != nil || p.Stalled {
			t.Errorf("behind: %+v", p)
		}
		if r := s.why()[status.WhyCatchingUp]; r.Partition == nil || *r.Partition != 0 || !strings.Contains(r.Text, "1m30s behind") {
			t.Errorf("%+v", s.why())
		}
		s.pass(2 * time.Minute)
		if p := s.look().Partitions[0]; *p.LagSeconds != 210 || !p.Stalled {
			t.Errorf("not asked for two minutes: %+v", p)
		}
		if see(0, 3); s.look().Partitions[0].Stalled {
			t.Error("stalled with nothing to read")
		}
		s.pass(time.Minute)
		if p := s.look().Partitions[0]; *p.LagSeconds != 60 || p.LagRecords != nil {
			t.Errorf("the word of a minute ago counts: %+v", p)
		}
		s.stop()
	})
}

// A partition that the log does not answer for is named, since it was so first, with the others told as ever.
func TestAPartitionThatIsNotAnsweredFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.put(0, 1, 2, 3)
		s.put(1, 1, 2, 3)
		s.pass(time.Second)
		see := func(silent bool) {
			e := sources.Extent{Stable: record.Offset(3), End: record.Offset(3)}
			o := sources.Observation{Extents: map[int32]sources.Extent{0: e, 1: e}}
			if silent {
				delete(o.Extents, 1)
				o.Unanswered = map[int32]error{1: codes.New(codes.BrokerUnreachable, "no leader")}
			}
			s.board.Observed(o, nil)
		}
		see(true)
		s.pass(20 * time.Second)
		see(true)
		r := s.why()[status.WhyUnanswered]
		if r.Partition == nil || *r.Partition != 1 || r.Since == nil || time.Since(*r.Since) != 20*time.Second || !strings.Contains(r.Text, "no leader") {
			t.Errorf("%+v", s.why())
		}
		if got := s.look(); *got.Partitions[0].LagRecords != 0 || got.Partitions[0].Unobserved != nil {
			t.Errorf("the other one: %+v", got.Partitions[0])
		}
		if ok, wrong := (status.Report{Runs: []status.Snapshot{s.look()}}).Ready(); ok || len(wrong) != 1 {
			t.Errorf("ready %v, %v", ok, wrong)
		}
		see(false)
		if _, told := s.why()[status.WhyUnanswered]; told {
			t.Error("it is still named")
		}
		s.stop()
	})
}

// removing is a log that says what it has, of which more and more is removed.
type removing struct {
	sources.Source
	log   interface{ End(int32) record.Position }
	mu    sync.Mutex
	start int64
}

func (l *removing) Observe(ctx context.Context) (sources.Observation, error) {
	info, err := l.Info(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return sources.Observation{Info: info, Extents: map[int32]sources.Extent{0: {Start: record.Offset(l.start), Stable: l.log.End(0), End: l.log.End(0)}}}, err
}

func (l *removing) remove(n int64) {
	l.mu.Lock()
	l.start += n
	l.mu.Unlock()
}

// A loss that the engine foresees stands in the status with numbers that go on, and is gone once the run has caught up.
func TestAForeseenLossIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log *removing
		var mu sync.Mutex
		slow := true
		s := newStage(t, func(s *stage) {
			log = &removing{Source: s.log, log: s.log}
			s.cfg.Source, s.cfg.FetchSize, s.cfg.CreditRecords, s.cfg.ObserveEvery = log, 5, 10, 5*time.Second
			s.cfg.Hooks.At = func(_ context.Context, p actors.Point) error {
				mu.Lock()
				wait := slow
				mu.Unlock()
				if p.Name == actors.BeforeStep && wait {
					<-time.After(5 * time.Second)
				}
				return nil
			}
			for n := range 2000 {
				s.put(0, n)
			}
		})
		s.pass(5 * time.Minute)
		if _, told := s.why()[status.WhyAtRisk]; told || s.look().Partitions[0].Risk != nil {
			t.Errorf("nothing is removed: %+v", s.why())
		}
		for range 20 {
			log.remove(10)
			s.pass(5 * time.Second)
		}
		first := s.look().Partitions[0].Risk
		r := s.why()[status.WhyAtRisk]
		if first == nil || *first.Left <= 0 || *first.Removed <= *first.Read || first.LostAt == nil || r.Partition == nil || *r.Partition != 0 || r.Holds || r.Since == nil ||
			!strings.Contains(r.Text, "positions are left before") {
			t.Fatalf("%+v: %+v", first, s.why())
		}
		log.remove(10)
		s.pass(10 * time.Second)
		if now := s.look().Partitions[0].Risk; now == nil || now.LostAt.Equal(*first.LostAt) || !now.Since.Equal(*first.Since) {
			t.Errorf("the numbers stand still: %+v, %+v", first, now)
		}
		mu.Lock()
		slow = false
		mu.Unlock()
		s.pass(10 * time.Minute)
		if _, told := s.why()[status.WhyAtRisk]; told {
			t.Errorf("it has caught up: %+v", s.why())
		}
		s.stop()
	})
}

// A set without boards says since when, and a process that is out of its group why.
func TestASetWithoutBoards(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	set := NewSet("r", func() time.Time { return now })
	b := New(Config{Run: "r/0", Now: func() time.Time { return now }})
	set.Add(b)
	now = now.Add(time.Minute)
	if r := set.Report(); r.EmptySince != nil || len(r.Runs) != 1 {
		t.Errorf("%+v", r)
	}
	b.Revoked()
	if s := b.Snapshot(); s.RevokedSince == nil || !s.RevokedSince.Equal(now) {
		t.Errorf("%+v", s.RevokedSince)
	}
	set.Remove(b)
	began := now
	now = now.Add(time.Minute)
	if r := set.Report(); r.EmptySince == nil || !r.EmptySince.Equal(began) || r.Why()[0].Code != status.WhyNoPartitions {
		t.Errorf("%+v", r)
	}
	set.Group(codes.New(codes.BrokerUnreachable, "gone"))
	now = now.Add(time.Minute)
	set.Group(codes.New(codes.BrokerUnreachable, "still gone"))
	if r := set.Report(); r.Group == nil || r.Group.Message != "BROKER_UNREACHABLE: still gone" || now.Sub(*r.GroupSince) != time.Minute || r.Why()[0].Code != status.WhyNoMember {
		t.Errorf("%+v", r)
	}
	set.Group(nil)
	if r := set.Report(); r.Group != nil || r.GroupSince != nil {
		t.Errorf("%+v", r)
	}
}

// The clock of the broker of one partition is two days behind: its records seem to be from the future, are set aside and move no watermark. Which
// partition it is, since when, and what ends it is said; the other one goes on, and once the clock is right so does this one.
func TestBrokersWhoseClocksDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		put := func(p int32, from, to int, behind time.Duration) {
			for n := from; n < to; n++ {
				sec := 1_700_000_000 + n
				s.log.Append(p, record.Record{
					Key: []byte("k"), Value: fmt.Appendf(nil, `{"id":"%d-%d","k":"k%d","t":%d,"n":%d,"v":1}`, p, n, p, sec, n),
					Arrival: record.EventTime(time.Unix(int64(sec), 0).Add(-behind).UnixNano()),
				})
			}
		}
		put(0, 0, 10, 0)
		put(1, 0, 10, 0)
		s.pass(time.Second)
		put(0, 10, 20, 0)
		put(1, 10, 20, 48*time.Hour)
		s.pass(30 * time.Second)
		r := s.why()[status.WhyFuture]
		if r.Partition == nil || *r.Partition != 1 || r.Since == nil || time.Since(*r.Since) < 25*time.Second || !strings.Contains(r.Text, "10 records from the future") || !strings.Contains(r.Release, "max_future_skew") {
			t.Errorf("%+v", s.why())
		}
		if c := s.look().Counts; c.Future != 10 || c.Consumed != 30 {
			t.Errorf("%+v", c)
		}
		put(1, 10, 30, 0) // those of before once more: they were not taken for seen
		s.pass(2 * time.Second)
		if _, told := s.why()[status.WhyFuture]; told {
			t.Errorf("the clock is right again: %+v", s.why())
		}
		s.stop()
	})
}
