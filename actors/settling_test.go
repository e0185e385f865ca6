package actors

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// A cut that stands beyond what was handed out, or before it, is not committed, and the group is not told: the tracker has the last word.
func TestACutIsWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int64{"as handed out": 5, "beyond": 6, "short": 4, "back": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			actortest.Run(t, func(k *actortest.Kit) {
				var told map[int32]record.Position
				b := newBench(k, 1, func(c *Config) {
					c.CommitOffsets = func(_ context.Context, next map[int32]record.Position) error { told = next; return nil }
				})
				b.in.settling.deliver(0, partitions.Bulk{Last: record.Offset(2), Records: 3})
				b.in.settling.deliver(0, partitions.Bulk{First: record.Offset(3), Last: record.Offset(4), Records: 2})
				b.in.settling.seal(0)
				b.in.settling.deliver(0, partitions.Bulk{First: record.Offset(5), Last: record.Offset(9), Records: 5}) // behind the barrier
				cut := partitions.Cut{Next: record.Offset(at), Watermark: record.NoTime, Put: []partitions.StateBlob{{Name: "core"}}}
				c := control.Commit{RunID: "run", Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime, Partitions: []control.PartitionCommit{{Cut: cut}}}
				err := b.in.commit(c, control.RunState{}, nil, nil)
				if at == 5 {
					if err != nil || b.journal.Epoch("run") != 1 || told[0] != record.Offset(5) {
						t.Errorf("%v, epoch %d, told %v", err, b.journal.Epoch("run"), told)
					}
					if f := b.in.settling.flight(0); f.Records != 5 || f.Oldest != record.Offset(5) || f.At == record.NoTime {
						t.Errorf("in flight %+v", f)
					}
					return
				}
				if !codes.Has(err, codes.Internal) || b.journal.Epoch("run") != 0 || told != nil {
					t.Errorf("a cut at %d: %v, epoch %d, told %v", at, err, b.journal.Epoch("run"), told)
				}
			})
		})
	}
}

// The group is told a position exactly when it has moved: all of them once in an incarnation, none twice, none that only another partition moved, and
// again what it did not take.
func TestTheGroupIsToldWhatMoved(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	rng := seeded(t, 41)
	in := randomInput(rng, 3, 90)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		known, calls, refused := map[int32]record.Position{}, 0, false
		r.cfg.CommitOffsets = func(_ context.Context, next map[int32]record.Position) error {
			calls++
			if refused = calls%4 == 0; refused {
				return errBoom
			}
			for p, at := range next {
				if before, has := known[p]; has && at.Cmp(before) <= 0 {
					t.Errorf("partition %d is told at %s after %s", p, at, before)
				}
			}
			maps.Copy(known, next)
			return nil
		}
		r.cfg.OnProgress = func(p Progress) {
			for _, pp := range p.Partitions {
				if at := known[pp.Partition]; at != pp.Next && !refused && pp.Next != (record.Position{}) {
					t.Errorf("epoch %d: partition %d stands at %s, told %s", p.Epoch, pp.Partition, pp.Next, at)
				}
			}
		}
		r.finish(want)
		if calls < 8 {
			t.Errorf("told %d times", calls)
		}
	})
}

// Whoever takes a run on tells the group where it stands, since the one before may have been killed between its commit and that.
func TestTheGroupIsToldAgainAfterARestart(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 42), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		r.cfg.UntilRecords = 30
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		var told []map[int32]record.Position
		r.cfg.UntilRecords = 31
		r.cfg.CommitOffsets = func(_ context.Context, next map[int32]record.Position) error {
			told = append(told, maps.Clone(next))
			return nil
		}
		result, err := r.run()
		if err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || !maps.Equal(told[0], result.Positions()) {
			t.Errorf("told %v, the journal is at %v", told, result.Positions())
		}
	})
}

// While a commit does not come back, what waits for it is told: how much, from which record on, and since when. A commit that stands makes it less.
func TestWhatIsUndoneIsTold(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 43), 1, 40)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		began := time.Now()
		r.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 1, Do: func() { <-time.After(time.Minute) }})
		var queues []Queue
		r.cfg.OnQueue = func(q Queue) { queues = append(queues, q) }
		committed := make(chan Progress, 99)
		r.cfg.OnProgress = func(p Progress) { committed <- p }
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { _, err := Run(ctx, r.cfg); ended <- err }()
		<-time.After(30 * time.Second)
		synctest.Wait()
		last := queues[len(queues)-1]
		if u := last.Undone; u.Records == 0 || u.Bytes == 0 || u.Oldest != (record.Position{}) || !u.Since.Equal(began) {
			t.Errorf("told %+v, began %s", u, began)
		}
		for {
			p := <-committed
			u := p.Queues[0].Undone
			if u.Records != int64(40)-p.Counts.Records || u.Records > 0 && (u.Oldest != p.Partitions[0].Next || u.Since.Before(began)) || u.Records == 0 && !u.Since.IsZero() {
				t.Errorf("after a commit of %d records: %+v", p.Counts.Records, u)
			}
			if p.Counts.Records == 40 {
				break
			}
		}
		cancel()
		if err := <-ended; !codes.Has(err, codes.Interrupted) {
			t.Error(err)
		}
	})
}

// A restore is another term: what was handed out before it is void, and what was committed is where the next one begins.
func TestARestoreVoids(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 44), 2, 80)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, lockstep)
		r.journal.Inject(controltest.LoseAnswer(3), controltest.FailCommit(6), controltest.LoseAnswer(9))
		seen := map[int32]record.Position{}
		r.cfg.OnProgress = func(p Progress) {
			for _, pp := range p.Partitions {
				if pp.Next.Cmp(seen[pp.Partition]) < 0 {
					t.Errorf("partition %d goes back from %s to %s", pp.Partition, seen[pp.Partition], pp.Next)
				}
				seen[pp.Partition] = pp.Next
			}
		}
		if result := r.finish(want); result.Incarnations != 4 {
			t.Errorf("%d incarnations", result.Incarnations)
		}
	})
}

// BenchmarkSettling says what part of the work on a batch its settlement is: 1,024 records through a machine, beside delivering them, with a barrier and
// a commit every 64 batches, in turns. The whole pipeline does more for a record than the machine alone.
func BenchmarkSettling(b *testing.B) {
	const size, perEpoch = 1024, 64
	plan := parse(b, wideFlow)
	in := randomInput(seeded(b, 45), 1, size)[0]
	e := newEngine(context.Background(), Config{Plan: plan, RunID: "run", Journal: controltest.NewMemory()}.withDefaults())
	one := newIncarnation(e, 1)
	one.header.Partitions = []int32{0}
	s, m := newSettling(one), partitions.New(plan, 0)
	var eff partitions.Effects
	var settling, stepping time.Duration
	at := int64(0)
	for n := 1; b.Loop(); n++ {
		batch := record.Batch{Records: in, Next: record.Offset(at + size)}
		for i := range in {
			in[i].Position = record.Offset(at + int64(i))
		}
		at += size
		began := time.Now()
		if err := m.Step(partitions.Deliver{Batch: &batch}, &eff); err != nil {
			b.Fatal(err)
		}
		stepped := time.Now()
		s.deliverPart(0, &part{batch: batch, records: size, bytes: 1 << 17, first: in[0].Position})
		if n%perEpoch == 0 {
			c := control.Commit{Epoch: 1, Partitions: []control.PartitionCommit{{Cut: partitions.Cut{Next: batch.Next}}}}
			s.seal(0)
			if err := s.covers(c); err != nil {
				b.Fatal(err)
			}
			s.settle(c)
			s.told(s.untold())
			eff.Reset()
		}
		settling, stepping = settling+time.Since(stepped), stepping+stepped.Sub(began)
	}
	b.ReportMetric(float64(settling.Nanoseconds())/float64(b.N), "settling-ns/batch")
	b.ReportMetric(float64(settling)/float64(stepping), "settling/step")
	if s.failed != nil || s.flight(0).Records >= perEpoch*size {
		b.Fatalf("%v, in flight %+v", s.failed, s.flight(0))
	}
}
