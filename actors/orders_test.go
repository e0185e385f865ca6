package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// ask leaves an intervention, and fails the test when that is refused.
func (r *rig) ask(i control.Intervention) control.Intervention {
	r.t.Helper()
	i.RunID, i.Who, i.Why = "run", "ana", "the disk was lost"
	out, err := r.journal.Intervene(context.Background(), i)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// outcome is what became of an intervention.
func (r *rig) outcome(id int64) control.Intervention {
	r.t.Helper()
	all, err := r.journal.ListInterventions(context.Background(), "run", false)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range all {
		if i.ID == id {
			return i
		}
	}
	r.t.Fatalf("intervention %d is not there", id)
	return control.Intervention{}
}

// decided are the decisions of a kind, as "PARTITION@POSITION: DETAIL".
func (r *rig) decided(kind string) (out []string) {
	r.t.Helper()
	err := r.journal.Decisions(context.Background(), "run", func(d partitions.Decision) error {
		if d.Kind == kind {
			out = append(out, fmt.Sprintf("%d@%s: %s", d.Partition, d.Position, d.Detail))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func obeying(t *testing.T, in input, tune ...func(*Config, *sourcetest.Config)) (*rig, *told) {
	r, o := staying(t, in, tune...)
	r.cfg.Interventions = r.journal
	return r, o
}

// gapAt makes a log of which one partition has a batch that cannot be read.
func gapAt(log *sourcetest.Log, p int32, need, after int64) {
	log.FailAt(p, record.Offset(need), &sources.Fault{Partition: p, Need: record.Offset(need), After: record.Offset(after), Known: true, Err: codes.New(codes.PoisonBatch, "injected")})
}

func accept(p int32, from, to int64) control.Intervention {
	return control.Intervention{Partition: p, Kind: control.AcceptGap, From: record.Offset(from), To: record.Offset(to)}
}

// An accepted gap is a decision in the journal, committed with the position that it moves; the partition goes on behind it, and the others have lost
// nothing.
func TestAnAcceptedGap(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 84), 3, 120)
	bad := fullest(in)
	synctest.Test(t, func(t *testing.T) {
		r, o := obeying(t, in)
		gapAt(r.log, bad, 20, 25)
		stop := r.start()
		<-time.After(time.Minute)
		early := r.ask(accept((bad+1)%3, 1<<30, 1<<40))
		i := r.ask(accept(bad, 20, 25))
		<-time.After(time.Minute)
		if got := r.outcome(i.ID); got.Outcome != control.Applied || got.Epoch == 0 {
			t.Errorf("%+v", got)
		}
		if got := r.outcome(early.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "stands at") {
			t.Errorf("a gap from a place where the partition does not stand: %+v", got)
		}
		want := fmt.Sprintf("%d@25: from 20 the log is read on at 25: by ana: the disk was lost (intervention %d)", bad, i.ID)
		if got := r.decided(partitions.DecisionLossAccepted); len(got) != 1 || got[0] != want {
			t.Errorf("decided %q, want %q", got, want)
		}
		if s := o.now(); s.State != StateRunning || o.of(bad).Status != PartitionRead || o.of(bad).Block != nil {
			t.Errorf("%s, %+v", s.State, o.of(bad))
		}
		result, err := stop()
		if !errors.Is(err, ErrInterrupted) || len(result.Failures) != 0 {
			t.Errorf("%v, failures %v", err, result.Failures)
		}
		for _, p := range result.Partitions {
			lost := int64(0)
			if p.Partition == bad {
				lost = 5
			}
			if n := int64(len(in[p.Partition])); p.Next != record.Offset(n) || p.Counts.Records != n-lost {
				t.Errorf("partition %d: %d records, next %s, of %d", p.Partition, p.Counts.Records, p.Next, n)
			}
		}
	})
}

// openLog can be asked where it ends.
type openLog struct {
	*sourcetest.Log
	starts  map[int32]int64
	failing int // questions that fail
}

func (l *openLog) Observe(ctx context.Context) (sources.Observation, error) {
	info, err := l.Info(ctx)
	if l.failing > 0 {
		l.failing--
		err = errBoom
	}
	o := sources.Observation{Info: info, Extents: map[int32]sources.Extent{}}
	for _, p := range info.Partitions {
		o.Extents[p] = sources.Extent{Start: record.Offset(l.starts[p]), Stable: l.End(p), End: l.End(p)}
	}
	return o, err
}

// A position that the log does not have is dismissed with what it has, and moves nothing; a right choice, up to the present end itself, still works.
func TestAnAcceptedGapIsWithinTheLog(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 90), 2, 60)
	end := int64(len(in[0]))
	lose := func(r *rig, l *openLog) { r.log.Truncate(0, record.Offset(12)); l.starts[0] = 12 }
	poison := func(r *rig, _ *openLog) { gapAt(r.log, 0, 10, 14) }
	for name, c := range map[string]struct {
		tune  func(*rig, *openLog)
		blind bool // the source cannot be asked
		from  int64
		wrong map[int64]string
		right int64
	}{
		"to the end":          {lose, false, 0, map[int64]string{end + 1: "beyond its end", 1 << 40: fmt.Sprintf("from 12 to before %d now", end)}, end},
		"to the start":        {lose, false, 0, map[int64]string{11: "from 12,", end + 1: fmt.Sprintf("name a position from 12 to %d", end)}, 12},
		"behind a batch":      {poison, false, 10, map[int64]string{13: "read on from 14", end + 1: "beyond its end"}, 14},
		"of a log unasked":    {lose, true, 0, map[int64]string{11: "names 12", 13: "names 12", end + 1: "names 12"}, 12},
		"of a log that fails": {func(r *rig, l *openLog) { lose(r, l); l.failing = 3 }, false, 0, map[int64]string{end + 1: "beyond its end"}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, o := obeying(t, in, func(c *Config, _ *sourcetest.Config) { c.ObserveEvery = time.Hour })
				l := &openLog{Log: r.log, starts: map[int32]int64{}}
				if !c.blind {
					r.cfg.Source = l
				}
				c.tune(r, l)
				stop := r.start()
				<-time.After(time.Minute)
				opened := r.log.Opened()
				for to, words := range c.wrong {
					i := r.ask(accept(0, c.from, to))
					<-time.After(time.Minute)
					if got := r.outcome(i.ID); got.Outcome != control.Dismissed || got.Epoch != 0 || !strings.Contains(got.Note, words) {
						t.Errorf("to %d: %+v, want %q", to, got, words)
					}
				}
				if got := r.decided(partitions.DecisionLossAccepted); len(got) != 0 || o.of(0).Block == nil || r.log.Opened() != opened {
					t.Errorf("after the dismissals: decided %q, %+v, opened %d times, was %d", got, o.of(0), r.log.Opened(), opened)
				}
				i := r.ask(accept(0, c.from, c.right))
				<-time.After(time.Minute)
				if got := r.outcome(i.ID); got.Outcome != control.Applied || len(r.decided(partitions.DecisionLossAccepted)) != 1 {
					t.Errorf("%+v", got)
				}
				r.log.Append(0, in[0][0])
				<-time.After(time.Minute)
				result, err := stop()
				if p := result.Partitions[0]; !errors.Is(err, ErrInterrupted) || p.Next != record.Offset(end+1) || p.Counts.Records != end+1-(c.right-c.from) {
					t.Errorf("%v, %+v", err, p)
				}
			})
		})
	}
}

// However and wherever a process is killed while it does what an operator has chosen, the choice is applied once, and told as applied.
func TestAChoiceIsAppliedOnceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 85), 2, 60)
	bad := fullest(in)
	for _, point := range []Failpoint{BeforeOpen, AfterRestore, AfterPoll, AfterCut, BeforeCommit, AfterCommit, OnMessage} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit && n < 60; n++ {
				if point == OnMessage {
					n += 3
				}
				synctest.Test(t, func(t *testing.T) {
					r, _ := obeying(t, in)
					r.log.Truncate(bad, record.Offset(12))
					stop := r.start()
					<-time.After(time.Minute)
					_, _ = stop()
					i := r.ask(accept(bad, 0, 12))
					die, kill := context.WithCancel(context.Background())
					defer kill()
					hooks, seen := every(point, n, func(context.Context) error { kill(); return nil })
					r.cfg.Kill, r.cfg.Hooks = die, hooks
					stop = r.start()
					<-time.After(time.Minute)
					_, _ = stop()
					hit = *seen >= n
					r.cfg.Kill, r.cfg.Hooks = nil, Hooks{}
					stop = r.start()
					<-time.After(2 * time.Minute)
					result, _ := stop()
					if got := r.outcome(i.ID); got.Outcome != control.Applied {
						t.Errorf("killed at passing %d: %+v", n, got)
					}
					if got := r.decided(partitions.DecisionLossAccepted); len(got) != 1 {
						t.Errorf("killed at passing %d: decided %q", n, got)
					}
					if p := result.Partitions[bad]; p.Next != record.Offset(int64(len(in[bad]))) || p.Counts.Records != int64(len(in[bad]))-12 {
						t.Errorf("killed at passing %d: %+v", n, p)
					}
				})
			}
		})
	}
}

// The answer to the commit, or that to the settling, is lost: the journal says what was done.
func TestAChoiceWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 86), 2, 60)
	for name, fault := range map[string]controltest.Fault{
		"of the commit":          {Op: controltest.OpCommit, Call: 2, After: true, Err: codes.New(codes.StoreUnavailable, "injected")},
		"of the settling":        {Op: controltest.OpSettleIntervention, Call: 1, After: true, Err: codes.New(codes.StoreUnavailable, "injected")},
		"the settling fails":     {Op: controltest.OpSettleIntervention, Call: 1, Err: codes.New(codes.StoreUnavailable, "injected")},
		"the question fails":     {Op: controltest.OpListInterventions, Call: 40, Err: codes.New(codes.StoreUnavailable, "injected")},
		"the look-up fails":      {Op: controltest.OpDecisions, Call: 1, Err: codes.New(codes.StoreUnavailable, "injected")},
		"the second look-up too": {Op: controltest.OpDecisions, Call: 2, Err: codes.New(codes.StoreUnavailable, "injected")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := obeying(t, in)
				gapAt(r.log, 0, 10, 12)
				r.journal.Inject(fault)
				stop := r.start()
				<-time.After(30 * time.Second)
				i := r.ask(accept(0, 10, 12))
				<-time.After(time.Minute)
				result, err := stop()
				if got := r.outcome(i.ID); got.Outcome != control.Applied || len(r.decided(partitions.DecisionLossAccepted)) != 1 {
					t.Errorf("%+v, decided %q", got, r.decided(partitions.DecisionLossAccepted))
				}
				if p := result.Partitions[0]; !errors.Is(err, ErrInterrupted) || p.Next != record.Offset(int64(len(in[0]))) {
					t.Errorf("%v, %+v", err, p)
				}
				r.journal.AllFired(t)
			})
		})
	}
}

// A partition that is confirmed idle does not hold the merged watermark any more, until its next record.
func TestAConfirmedIdlePartition(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 87), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r, _ := obeying(t, input{in[0], nil})
		var last Progress
		r.cfg.OnProgress = func(p Progress) { last = p }
		stop := r.start()
		<-time.After(time.Minute)
		if last.Watermark != record.NoTime {
			t.Fatalf("the merged watermark is %s before the partition was confirmed idle", last.Watermark)
		}
		i := r.ask(control.Intervention{Partition: 1, Kind: control.ConfirmIdle})
		again := r.ask(control.Intervention{Partition: 1, Kind: control.ConfirmIdle})
		<-time.After(time.Minute)
		if got := r.outcome(i.ID); got.Outcome != control.Applied || len(r.decided(partitions.DecisionIdle)) != 1 || last.Watermark == record.NoTime {
			t.Errorf("%+v, decided %q, watermark %s", got, r.decided(partitions.DecisionIdle), last.Watermark)
		}
		if got := r.outcome(again.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "idle already") {
			t.Errorf("%+v", got)
		}
		before := last.Watermark
		r.log.Append(1, in[0][0])
		<-time.After(time.Minute)
		if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Watermark != before || result.Counts.Records != int64(len(in[0]))+1 {
			t.Errorf("%v, watermark %s, was %s", err, result.Watermark, before)
		}
	})
}

// An open gap that will not be filled is closed, and the watermark goes on.
func TestAGapIsClosedByAnOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := func(id string, ms, seq int64) record.Record {
			return record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, `{"event_id":%q,"instrument":"k","t":%d,"close":1,"volume":1,"seq":%d,"revision":0}`, id, ms, seq)}
		}
		r, _ := obeying(t, input{{row("a", 1_000_000, 1), row("b", 1_050_000, 4)}})
		var last Progress
		r.cfg.OnProgress = func(p Progress) { last = p }
		stop := r.start()
		<-time.After(time.Minute)
		held := last.Watermark
		closing := control.Intervention{Partition: 0, Kind: control.CloseGap, Key: "k", Sequence: 2}
		i := r.ask(closing)
		closing.Sequence = 9
		wrong := r.ask(closing)
		<-time.After(time.Minute)
		if got := r.outcome(i.ID); got.Outcome != control.Applied || last.Watermark <= held || len(r.decided(partitions.DecisionGapClosed)) != 1 {
			t.Errorf("%+v, watermark %s, was %s", got, last.Watermark, held)
		}
		if got := r.outcome(wrong.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "not missing") {
			t.Errorf("%+v", got)
		}
		_, _ = stop()
	})
}

// What is blocked is read again once its cause is gone.
func TestWhatIsBlockedIsReadAgain(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 88), 2, 60)
	for name, c := range map[string]struct {
		tune func(r *rig)
		of   int32
	}{
		"the run":         {func(r *rig) { r.log.FailAt(0, record.Offset(3), codes.New(codes.OffsetLost, "injected")) }, -1},
		"a partition":     {func(r *rig) { gapAt(r.log, 1, 3, 4) }, 1},
		"every partition": {func(r *rig) { gapAt(r.log, 0, 3, 4); gapAt(r.log, 1, 3, 4) }, -1},
		"a partition's state": {func(r *rig) {
			r.cfg.UntilRecords = 20
			if _, err := r.run(); err != nil {
				r.t.Fatal(err)
			}
			r.cfg.UntilRecords = 0
			r.journal.Inject(controltest.Fault{Op: controltest.OpLoadBlobs, Call: 2, Err: codes.New(codes.JournalCorrupt, "injected")})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, o := obeying(t, in)
				c.tune(r)
				stop := r.start()
				<-time.After(time.Minute)
				if s := o.now(); s.State != StateBlocked && c.of == -1 || c.of >= 0 && o.of(c.of).Block == nil {
					t.Errorf("told %s", s.State)
				}
				i := r.ask(control.Intervention{Partition: c.of, Kind: control.RetryBlocked})
				<-time.After(time.Minute)
				again := r.ask(control.Intervention{Partition: c.of, Kind: control.RetryBlocked})
				<-time.After(time.Minute)
				if got := r.outcome(i.ID); got.Outcome != control.Applied || got.Epoch != 0 {
					t.Errorf("%+v", got)
				}
				if got := r.outcome(again.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "not blocked") {
					t.Errorf("%+v", got)
				}
				if o.now().State != StateRunning {
					t.Errorf("told %s", o.now().State)
				}
				if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Counts.Records != int64(in.total()) {
					t.Errorf("%v, %d records of %d", err, result.Counts.Records, in.total())
				}
			})
		})
	}
}
