package actors

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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

// endsAtGaps are runs that end when a partition cannot be read.
var endsAtGaps = map[string]func(c *Config, all int64){
	"not to stay":               func(c *Config, _ int64) { c.StayBlocked = false },
	"a number of records":       func(c *Config, all int64) { c.MaxRecords = all },
	"until a number of records": func(c *Config, all int64) { c.UntilRecords = all },
}

// gapRig is a run that ends at a batch of its fullest partition that cannot be read, from 20 to before 25. It commits nothing while it goes on.
func gapRig(t *testing.T, end func(*Config, int64)) (r *rig, bad int32) {
	t.Helper()
	in := randomInput(seeded(t, 93), 3, 120)
	bad = fullest(in)
	r, _ = obeying(t, in)
	r.cfg.EpochEvery = time.Hour
	end(&r.cfg, int64(in.total())-5)
	r.cfg.Source = &badBatch{Log: r.log, partition: bad, from: 20, to: 25}
	return r, bad
}

// badBatch is a log of which one partition has a batch that cannot be read, however often it is tried.
type badBatch struct {
	*sourcetest.Log
	partition int32
	from, to  int64
	armed     atomic.Bool
}

func (b *badBatch) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	if from[b.partition].Cmp(record.Offset(b.to)) < 0 && !b.armed.Swap(true) {
		gapAt(b.Log, b.partition, b.from, b.to)
	}
	r, err := b.Log.Open(ctx, from)
	return &badReader{r, b}, err
}

type badReader struct {
	sources.Reader
	of *badBatch
}

func (r *badReader) Poll(ctx context.Context, most int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, most)
	if codes.Has(err, codes.PoisonBatch) {
		r.of.armed.Store(false)
	}
	return batches, err
}

// passes runs until everything is read, and says how far each partition is.
func (r *rig) passes(bad int32) Result {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r.cfg.unbounded() {
		time.AfterFunc(time.Minute, cancel)
	}
	result, err := Run(ctx, r.cfg)
	r.settled(result)
	if err != nil && !(errors.Is(err, ErrInterrupted) && r.cfg.unbounded()) && !codes.Has(err, codes.RunFinished) {
		r.t.Fatal(err)
	}
	for _, p := range result.Partitions {
		lost := int64(0)
		if p.Partition == bad {
			lost = 5
		}
		if all := r.log.End(p.Partition); p.Next != all || record.Offset(p.Counts.Records+lost) != all {
			r.t.Errorf("partition %d: %d records, next %s of %s", p.Partition, p.Counts.Records, p.Next, all)
		}
	}
	return result
}

// What was read before a gap is committed when the run ends there, so that the gap begins where the partition stands, as who chooses sees it. A gap that is
// accepted then, while nobody runs the run, is passed over by the next process, and nothing else is; until then, each ends with the cause.
func TestAGapIsPassedOverByARunThatEnds(t *testing.T) {
	t.Parallel()
	for name, end := range endsAtGaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, bad := gapRig(t, end)
				for range 2 {
					result, err := r.run()
					if !codes.Has(err, codes.PoisonBatch) || errors.Is(err, ErrInterrupted) || r.lease().Valid {
						t.Fatalf("ended with %v, lease %+v", err, r.lease())
					}
					if p := result.Partitions[bad]; p.Next != record.Offset(20) || p.Status != PartitionBlocked || len(result.Failures) != 1 || result.Failures[0].Partition != bad {
						t.Fatalf("%+v, failures %v", p, result.Failures)
					}
				}
				i := r.ask(accept(bad, 20, 25))
				r.passes(bad)
				if got := r.outcome(i.ID); got.Outcome != control.Applied || got.Epoch == 0 {
					t.Errorf("%+v", got)
				}
				if got := r.decided(partitions.DecisionLossAccepted); len(got) != 1 {
					t.Errorf("decided %q", got)
				}
			})
		})
	}
}

// Records that are lost while nobody runs the run are met before anything is read.
func TestALossIsPassedOverByARunThatEnds(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 94), 3, 120)
	bad := fullest(in)
	for name, end := range endsAtGaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := obeying(t, in)
				all := int64(in.total())
				r.cfg.UntilRecords = 30
				first, err := r.run()
				if err != nil {
					t.Fatal(err)
				}
				next, _ := first.Partitions[bad].Next.Int64()
				r.log.Truncate(bad, record.Offset(next+5))
				r.cfg.UntilRecords = 0
				end(&r.cfg, all-5)
				if _, err := r.run(); !codes.Has(err, codes.OffsetLost) {
					t.Fatalf("ended with %v", err)
				}
				beyond := r.ask(accept(bad, next, next+6))
				if _, err := r.run(); !codes.Has(err, codes.OffsetLost) {
					t.Fatalf("ended with %v", err)
				}
				if got := r.outcome(beyond.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "not moved") {
					t.Errorf("a gap up to where the log does not say that it is: %+v", got)
				}
				r.ask(control.Intervention{Partition: -1, Kind: control.RetryBlocked})
				if _, err := r.run(); !codes.Has(err, codes.OffsetLost) {
					t.Fatalf("a retry while they are still lost ended with %v", err)
				}
				i := r.ask(accept(bad, next, next+5))
				r.passes(bad)
				if got := r.outcome(i.ID); got.Outcome != control.Applied {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// A process that is killed anywhere while it meets a gap, or passes it over, leaves the choice to the next, which applies it once.
func TestAGapIsPassedOverOnceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []Failpoint{BeforeOpen, AfterRestore, AfterPoll, OnMessage, AfterCut, BeforeCommit, AfterCommit, AfterOffsets} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit && n < 60; n++ {
				synctest.Test(t, func(t *testing.T) {
					r, bad := gapRig(t, endsAtGaps["a number of records"])
					if _, err := r.run(); !codes.Has(err, codes.PoisonBatch) {
						t.Fatal(err)
					}
					i := r.ask(accept(bad, 20, 25))
					die, kill := context.WithCancel(context.Background())
					defer kill()
					hooks, seen := every(point, n, func(context.Context) error { kill(); return nil })
					r.cfg.Kill, r.cfg.Hooks = die, hooks
					_, _ = r.run()
					hit = *seen >= n
					r.cfg.Kill, r.cfg.Hooks = nil, Hooks{}
					<-time.After(time.Minute)
					result := r.passes(bad)
					if got, made := r.outcome(i.ID), r.decided(partitions.DecisionLossAccepted); got.Outcome != control.Applied || len(made) != 1 || result.Status != control.RunFinished {
						t.Errorf("killed at passing %d: %+v, decided %q, %s", n, got, made, result.Status)
					}
				})
			}
		})
	}
}

// Whatever goes wrong while a run ends at a gap, it ends with the gap as its cause, and the choice is there for the next process.
func TestARunEndsAtItsGap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(r *rig)
	}{
		"choices cannot be read": {func(r *rig) {
			for n := 1; n <= 8; n++ {
				r.journal.Inject(controltest.Fault{Op: controltest.OpListInterventions, Call: n, Err: errBoom})
			}
		}},
		"a commit fails":           {func(r *rig) { r.journal.Inject(controltest.FailCommit(1)) }},
		"the answer to it is lost": {func(r *rig) { r.journal.Inject(controltest.LoseAnswer(1)) }},
		"a partition panics":       {func(r *rig) { r.at(AfterCut, 1, func() { panic("boom") }) }},
		"the coordinator panics":   {func(r *rig) { r.at(BeforeCommit, 1, func() { panic("boom") }) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, bad := gapRig(t, endsAtGaps["not to stay"])
				c.spoil(r)
				result, err := r.run()
				if !codes.Has(err, codes.PoisonBatch) || result.Partitions[bad].Next != record.Offset(20) {
					t.Fatalf("ended with %v, %+v", err, result.Partitions[bad])
				}
				i := r.ask(accept(bad, 20, 25))
				r.passes(bad)
				if got := r.outcome(i.ID); got.Outcome != control.Applied {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
