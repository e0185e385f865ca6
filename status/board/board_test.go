package board

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
	"github.com/weirstream/weir/status"
)

const ticks = `flow: weir/1
name: ticks
id: id
key: k
time: {field: t, unit: s}
sequence: {field: n, gap_hold: 1h}
operators:
  - {name: last, type: last, input: v}
outputs: [last]
`

// stage is a run on virtual time, with its board.
type stage struct {
	t       *testing.T
	log     *sourcetest.Log
	journal *controltest.Memory
	board   *Board
	cfg     actors.Config
	began   time.Time
	cancel  context.CancelFunc
	ended   chan error
}

// newStage starts a run; it must be called in a bubble.
func newStage(t *testing.T, tune func(*stage)) *stage {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", []byte(ticks), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, journal: controltest.NewMemory(), log: sourcetest.New(sourcetest.Config{Partitions: 2, MaxWait: 100 * time.Millisecond}), ended: make(chan error, 1)}
	s.cfg = actors.Config{
		Plan: plan, Source: s.log, Journal: s.journal, RunID: "ticks-1", MaxFailures: 3,
		Fencing: &actors.Fencing{Leases: s.journal, Owner: "me", TTL: 10 * time.Second},
	}
	if tune != nil {
		tune(s)
	}
	s.began = time.Now()
	s.board = New(Config{Run: "ticks-1", Flow: "ticks", Owner: "me", Every: time.Second})
	s.board.Attach(&s.cfg, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	go func() {
		r, err := actors.Run(ctx, s.cfg)
		s.board.Ended(r, err)
		s.ended <- err
	}()
	return s
}

// put appends records of one key with the given sequence numbers, at seconds of event time that are the same.
func (s *stage) put(p int32, numbers ...int) {
	for _, n := range numbers {
		value := fmt.Sprintf(`{"id":"%d-%d","k":"k%d","t":%d,"n":%d,"v":1}`, p, n, p, 1_700_000_000+n, n)
		s.log.Append(p, record.Record{Key: []byte("k"), Value: []byte(value), Arrival: record.NoTime})
	}
}

// pass lets virtual time go by.
func (s *stage) pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// look is the snapshot, of which it checks what must hold always.
func (s *stage) look() status.Snapshot {
	s.t.Helper()
	snap := s.board.Snapshot()
	for _, p := range snap.Partitions {
		sum := 0.0
		for _, sec := range p.Seconds {
			sum += sec
		}
		if wall := snap.At.Sub(*p.Began).Seconds(); math.Abs(sum-wall) > 1e-6 {
			s.t.Errorf("partition %d: the seconds of its states are %v, and %v have passed: %v", p.Partition, sum, wall, p.Seconds)
		}
		if s.began.After(*p.Began) {
			s.t.Errorf("partition %d has been watched since %v, before the run", p.Partition, p.Began)
		}
	}
	return snap
}

func (s *stage) stop() {
	s.cancel()
	<-s.ended
	synctest.Wait()
}

func (s *stage) why() map[string]status.Reason {
	m := map[string]status.Reason{}
	for _, r := range status.Why(s.look()) {
		m[r.Code] = r
	}
	return m
}

// A life with everything in it: a start, reading, a failure with its back-off, a journal that does not answer, an end. The time in the states of each
// partition adds up to the wall time at every look, and each state shows where it was.
func TestTheTimeOfAPartitionOnTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var once sync.Once
		s := newStage(t, func(s *stage) {
			s.cfg.CreditRecords, s.cfg.EpochBytes, s.cfg.FetchSize = 8, 64, 4
			s.cfg.Backoff = actors.Backoff{Min: 3 * time.Second, Max: 3 * time.Second}
			s.log.FailAt(1, record.Offset(5), codes.New(codes.SourceFailure, "for a moment"))
			s.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 3, Do: func() { <-release }})
		})
		s.put(0, 1, 2, 3)
		s.pass(10 * time.Second)
		if got := s.look(); got.Phase != status.PhaseRunning || got.Partitions[0].State != status.Reading || got.Lease.State != status.LeaseHeld {
			t.Errorf("%s, %s, lease %s", got.Phase, got.Partitions[0].State, got.Lease.State)
		}
		s.put(1, 1, 2, 3, 4, 5, 6, 7)
		s.pass(time.Second) // it fails at the sixth
		if got := s.look(); got.Wait != status.WaitBackoff || got.Partitions[1].State != status.Backoff || got.Cause == nil || got.Cause.Code != "SOURCE_FAILURE" || got.RetryAt == nil {
			t.Errorf("in the back-off: %s %s %+v", got.Phase, got.Wait, got.Cause)
		}
		s.pass(9 * time.Second)
		if got := s.look(); got.Restarts != 1 || len(got.Failures) != 1 || got.Cause != nil {
			t.Errorf("after it: %d restarts, %d failures", got.Restarts, len(got.Failures))
		}
		for i := range 40 {
			s.put(0, 4+i)
		}
		s.pass(20 * time.Second) // the journal does not answer
		why := s.why()
		if r, ok := why[status.WhyCommitSlow]; !ok || r.Since == nil || time.Since(*r.Since) < 15*time.Second {
			t.Errorf("a commit that hangs is not named: %v", why)
		}
		if got := s.look().Partitions[0]; got.State != status.WaitsForCommit && got.State != status.Paused {
			t.Errorf("while the journal hangs partition 0 is %s: %v", got.State, got.Seconds)
		}
		once.Do(func() { close(release) })
		s.pass(10 * time.Second)
		s.stop()
		end := s.look()
		if end.Phase != status.PhaseStopped || end.Partitions[0].State != status.Stopped || end.Cause == nil || end.Cause.Code != "INTERRUPTED" {
			t.Errorf("at the end: %s, %s, %+v", end.Phase, end.Partitions[0].State, end.Cause)
		}
		seconds := end.Partitions[0].Seconds
		if seconds[status.Reading] < 10 || math.Abs(seconds[status.Backoff]-3) > 0.01 || seconds[status.WaitsForCommit]+seconds[status.Paused] < 15 {
			t.Errorf("seconds %v", seconds)
		}
		if end.Counts.Records != 50 || end.Commit.Count == 0 || end.Commit.Total < 15 {
			t.Errorf("counts %+v, commits %+v", end.Counts, end.Commit)
		}
	})
}

// Stalls planted in the engine itself, and what is said of them.
func TestWhyOnTheEngine(t *testing.T) {
	t.Parallel()
	t.Run("silent partition, then an open gap", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, nil)
			s.put(0, 1, 2, 3, 4)
			s.put(1, 1)
			s.pass(time.Minute)
			if why := s.why(); len(why) != 2 || why[status.WhyLateness].Code == "" || why[status.WhySilent].Holder != "partition 1" || time.Since(*why[status.WhySilent].Since) < 50*time.Second {
				t.Errorf("%v", why)
			}
			s.put(1, 2, 5, 6)
			s.pass(time.Minute)
			why := s.why()
			if r := why[status.WhyGap]; len(why) != 1 || r.Holder != "partition 1" || time.Since(*r.Since) < 50*time.Second {
				t.Errorf("%v", why)
			}
			gap := s.look().Partitions[1].Gap
			if gap == nil || gap.First != 3 || gap.Last != 4 || gap.Key != "" {
				t.Errorf("gap %+v", gap)
			}
			s.put(1, 3, 4, 7)
			s.put(0, 5, 6, 7)
			s.pass(10 * time.Second)
			if why := s.why(); len(why) != 1 || why[status.WhyLateness].Code == "" {
				t.Errorf("after the gap: %v", why)
			}
			s.stop()
		})
	})
	t.Run("standing by, then the owner", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var other control.Lease
			s := newStage(t, func(s *stage) {
				s.cfg.Fencing.Standby = true
				var err error
				if other, err = s.journal.Acquire(t.Context(), control.StreamLease("ticks-1"), "other", 30*time.Second); err != nil {
					t.Fatal(err)
				}
			})
			s.pass(10 * time.Second)
			if r := s.why()[status.WhyStandingBy]; r.Holder != "other" || time.Since(*r.Since) < 9*time.Second {
				t.Errorf("%+v", r)
			}
			if ok, wrong := (status.Report{Runs: []status.Snapshot{s.look()}}).Ready(); !ok {
				t.Errorf("one that stands by is not ready: %v", wrong)
			}
			if err := s.journal.Release(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			s.pass(10 * time.Second)
			if got := s.look(); got.Phase != status.PhaseRunning || got.Lease.State != status.LeaseHeld || got.Lease.Token != uint64(other.Token)+1 {
				t.Errorf("%s, lease %+v", got.Phase, got.Lease)
			}
			s.stop()
		})
	})
	t.Run("blocked after repeated panic", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(s *stage) {
				s.cfg.Hooks = actors.Hooks{At: func(_ context.Context, p actors.Point) error {
					if p.Name == actors.AfterStep && p.Partition == 1 {
						panic("poisoned")
					}
					return nil
				}}
			})
			s.put(0, 1, 2)
			s.put(1, 1, 2)
			s.pass(time.Minute)
			r := s.why()[status.WhyBlocked]
			if r.Holder != "partition 1" || r.Since == nil {
				t.Errorf("%+v", s.why())
			}
			if got := s.look().Partitions; got[1].State != status.Blocked || got[1].Input != "BLOCKED" || got[0].State != status.Reading {
				t.Errorf("%s %s, %s", got[1].State, got[1].Input, got[0].State)
			}
			s.stop()
		})
	})
	t.Run("lost records", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(s *stage) {
				s.put(0, 1, 2, 3)
				s.log.Truncate(0, record.Offset(2))
			})
			if err := <-s.ended; !codes.Has(err, codes.OffsetLost) {
				t.Fatal(err)
			}
			got := s.look()
			if r := s.why()["OFFSET_LOST"]; got.Phase != status.PhaseRecoveryBlocked || !r.Holds {
				t.Errorf("%s: %v", got.Phase, s.why())
			}
			if ok, _ := (status.Report{Runs: []status.Snapshot{got}}).Ready(); ok {
				t.Error("it is ready although its recovery is blocked")
			}
		})
	})
	t.Run("one slow partition and one fast", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(s *stage) {
				s.cfg.MaxSkew, s.cfg.FetchSize, s.cfg.CreditRecords = time.Minute, 5, 10
				s.cfg.Hooks.At = func(_ context.Context, p actors.Point) error {
					if p.Name == actors.BeforeStep && p.Partition == 1 {
						<-time.After(2 * time.Second)
					}
					return nil
				}
				for n := range 300 {
					s.put(0, n)
					s.put(1, n)
				}
			})
			s.pass(30 * time.Second)
			e := func(stable int64) sources.Extent {
				return sources.Extent{Stable: record.Offset(stable), End: record.Offset(stable)}
			}
			s.board.Observed(sources.Observation{Extents: map[int32]sources.Extent{0: e(300), 1: e(300)}}, nil)
			why := s.why()
			if r := why["EVENT_TIME_AHEAD"]; r.Holder != "partition 1" || r.Partition == nil || *r.Partition != 0 || r.Since == nil || !strings.Contains(r.Text, "bound is 1m0s") {
				t.Errorf("the fast one: %+v", why)
			}
			if got := s.look().Partitions[0].State; got != status.Paused {
				t.Errorf("the fast partition is %s", got)
			}
			s.stop()
		})
	})
	t.Run("lost records, and the process stays", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(s *stage) {
				s.cfg.StayBlocked = true
				s.put(0, 1, 2, 3)
				s.log.Truncate(0, record.Offset(2))
			})
			s.put(1, 1, 2)
			s.pass(time.Minute)
			got := s.look()
			if got.Phase == status.PhaseStopped || got.Partitions[0].State != status.Blocked {
				t.Fatalf("%s, partition 0 is %s", got.Phase, got.Partitions[0].State)
			}
			r := s.why()["OFFSET_LOST"]
			if !r.Holds || r.Since == nil || !strings.Contains(r.Release, "weir recover") {
				t.Errorf("%+v", s.why())
			}
			if ok, _ := (status.Report{Runs: []status.Snapshot{got}}).Ready(); ok {
				t.Error("it is ready although its recovery is blocked")
			}
			s.stop()
		})
	})
	t.Run("lost lease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, nil)
			s.put(0, 1)
			s.pass(5 * time.Second)
			s.journal.Inject(controltest.Fault{Op: controltest.OpRenew, Call: 1, Err: codes.New(codes.StaleFence, "taken over")})
			if err := <-s.ended; !codes.Has(err, codes.StreamFenceStale) {
				t.Fatal(err)
			}
			if r := s.why()["STREAM_FENCE_OBSOLETO"]; !r.Holds || s.look().Lease.State != status.LeaseLost {
				t.Errorf("%+v, lease %+v", s.why(), s.look().Lease)
			}
		})
	})
}

// How the log stands, and what is made of it: lag in records and in time, an open transaction, a partition that does not move.
func TestObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.put(0, 1, 2, 3)
		s.put(1, 1, 2)
		s.pass(5 * time.Second)
		see := func(start, stable, end int64, hold *sources.Hold) status.Partition {
			e := sources.Extent{Start: record.Offset(start), Stable: record.Offset(stable), End: record.Offset(end), Hold: hold}
			s.board.Observed(sources.Observation{Info: sources.Info{Name: "log"}, Extents: map[int32]sources.Extent{0: e}}, nil)
			return s.look().Partitions[0]
		}
		if p := see(0, 3, 3, nil); *p.LagRecords != 0 || *p.LagSeconds != 0 || p.Stalled || *p.End != "3" {
			t.Errorf("without lag: %+v", p)
		}
		p := see(0, 3, 10, &sources.Hold{Reason: sources.LSOBlocked, Since: time.Now(), By: "tx"})
		if *p.LagRecords != 7 || *p.Readable != 0 || p.Hold == nil || p.Stalled {
			t.Errorf("behind an open transaction: %+v", p)
		}
		if r := s.why()["LSO_BLOCKED"]; r.Holder != "tx" {
			t.Errorf("%+v", r)
		}
		s.pass(2 * time.Minute)
		p = see(0, 10, 10, nil)
		behind := time.Since(time.Unix(1_700_000_003, 0)).Seconds()
		if !p.Stalled || *p.Readable != 7 || p.Hold != nil || math.Abs(*p.LagSeconds-max(behind, 0)) > 1 {
			t.Errorf("a partition that does not move: %+v", p)
		}
		s.board.Observed(sources.Observation{}, codes.New(codes.BrokerUnreachable, "gone"))
		if got := s.look(); got.Source.Unobserved == nil || got.Partitions[0].LagRecords == nil {
			t.Errorf("a log that cannot be asked: %+v", got.Source)
		}
		s.stop()
	})
}

// Refused effects, checkpoints, outages, and boards that come and go.
func TestCountsOfTheBoard(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := New(Config{Run: "r/1", Now: func() time.Time { return now }})
	b.CommitBegan()
	now = now.Add(time.Second)
	if got := b.Snapshot(); got.Commit.Began == nil || got.At.Sub(*got.Commit.Began) != time.Second {
		t.Errorf("%+v", got.Commit)
	}
	b.CommitEnded(codes.New(codes.StaleFence, "another owner"))
	b.Refused(codes.New(codes.StoreUnavailable, "down"))
	b.Checkpoint(control.Pointer{}, codes.New(codes.StaleFence, "another owner"))
	b.Outage(codes.New(codes.BrokerUnreachable, "down"))
	got := b.Snapshot()
	if got.Commit.Began != nil || got.Commit.Failed != 1 || got.Commit.Refused != 2 || got.Checkpoint.Failed != 1 || got.Checkpoint.Cause == nil || got.Source.Outage == nil {
		t.Errorf("%+v %+v %+v", got.Commit, got.Checkpoint, got.Source)
	}
	b.Checkpoint(control.Pointer{Epoch: 4, Bytes: 9}, nil)
	b.Outage(nil)
	if got = b.Snapshot(); got.Checkpoint.Made != 1 || got.Checkpoint.Cause != nil || got.Checkpoint.Epoch != 4 || got.Source.Outage != nil || got.Source.OutageSince != nil {
		t.Errorf("%+v %+v", got.Checkpoint, got.Source)
	}
	set := NewSet("r", func() time.Time { return now })
	ten := New(Config{Run: "r/10"})
	set.Add(ten)
	set.Add(b)
	set.Add(New(Config{Run: "r/10"}))
	if r := set.Report(); len(r.Runs) != 2 || r.Runs[0].Run != "r/1" || r.Watermark != status.NoEventTime {
		t.Errorf("%+v", r)
	}
	set.Remove(b)
	set.Remove(ten) // was replaced
	if r := set.Report(); len(r.Runs) != 1 || r.Runs[0].Run != "r/10" {
		t.Errorf("%+v", r)
	}
}

// Two pressures stand at once: the end of one leaves the other, with its own values and time.
func TestPressuresOfAPartition(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	b := New(Config{Run: "r", Now: func() time.Time { return now }})
	m, err := backpressure.New(backpressure.Config{UnfinishedLag: backpressure.Band{High: 10, Low: 5}, BytesInFlight: backpressure.Band{High: 100, Low: 50}, History: 4})
	if err != nil {
		t.Fatal(err)
	}
	measure := func(g backpressure.Gauge, v int64) status.Pressure {
		now = now.Add(time.Second)
		tr, moved := m.Measure(g, v, now)
		if !moved {
			t.Fatalf("%s %d crosses nothing", g, v)
		}
		b.Backpressure(0, tr)
		return b.Snapshot().Partitions[0].Pressure
	}
	first := measure(backpressure.UnfinishedLag, 12)
	if first.State != "SOURCE_PAUSED" || first.Reason != "LAG_HIGH" || first.Measured != 12 || first.Threshold != 10 || first.Release == "" {
		t.Errorf("%+v", first)
	}
	if p := measure(backpressure.BytesInFlight, 120); p.Reason != "BYTES_HIGH" || p.Measured != 120 {
		t.Errorf("%+v", p)
	}
	if p := measure(backpressure.BytesInFlight, 40); p.State != "SOURCE_PAUSED" || p.Reason != "LAG_HIGH" || p.Measured != 12 || !p.Since.Equal(*first.Since) || strings.Contains(p.Release, "bytes") {
		t.Errorf("when one has ended: %+v", p)
	}
	if got := b.Snapshot().Partitions[0].State; got != status.Starting {
		t.Errorf("a run that has not begun: %s", got)
	}
	if p := measure(backpressure.UnfinishedLag, 4); p.State != "FLOWING" || p.Reason != "" || p.Since != nil {
		t.Errorf("when all have: %+v", p)
	}
}
