package actors

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
	"github.com/weirstream/weir/watermark"
)

// bench is an incarnation whose actors are probes, except the one under test.
type bench struct {
	k           *actortest.Kit
	in          *incarnation
	log         *sourcetest.Log
	journal     *controltest.Memory
	run         *actortest.Probe[toRun]
	reader      *actortest.Probe[toReader]
	coordinator *actortest.Probe[toCoordinator]
	fanIn       *actortest.Probe[toFanIn]
	parts       []*actortest.Probe[toPartition]
}

const testIncarnation = 2

func newBench(k *actortest.Kit, parts int, tune func(*Config)) *bench {
	b := &bench{k: k, journal: controltest.NewMemory()}
	b.log = sourcetest.New(sourcetest.Config{Partitions: int32(parts)})
	cfg := Config{Plan: parse(k.T, wideFlow), Source: b.log, Journal: b.journal, RunID: "run"}
	if tune != nil {
		tune(&cfg)
	}
	e := newEngine(context.Background(), cfg.withDefaults())
	b.in = newIncarnation(e, testIncarnation)
	b.run = actortest.NewProbe[toRun](k, "run probe")
	b.reader = actortest.NewProbe[toReader](k, "reader probe")
	b.coordinator = actortest.NewProbe[toCoordinator](k, "coordinator probe")
	b.fanIn = actortest.NewProbe[toFanIn](k, "fan-in probe")
	e.run, b.in.reader, b.in.coordinator, b.in.fanIn = b.run.Ref(), b.reader.Ref(), b.coordinator.Ref(), b.fanIn.Ref()
	from := map[int32]record.Position{}
	for p := range int32(parts) {
		probe := actortest.NewProbe[toPartition](k, fmt.Sprint("partition probe ", p))
		b.parts = append(b.parts, probe)
		b.in.refs[p] = probe.Ref()
		b.in.partitions = append(b.in.partitions, p)
		from[p] = record.Position{}
	}
	b.in.header.Partitions = b.in.partitions
	var err error
	if b.in.source, err = b.log.Open(context.Background(), from); err != nil {
		k.T.Fatal(err)
	}
	if b.in.state, err = b.journal.OpenRun(context.Background(), control.RunHeader{RunID: "run", Fingerprint: "f", Source: "log", Partitions: b.in.partitions}); err != nil {
		k.T.Fatal(err)
	}
	b.in.settling = newSettling(b.in)
	k.T.Cleanup(func() { e.cancel(); b.in.workers.Wait() })
	return b
}

func now(b *bench) stamp { return b.in.stamp() }

func old() stamp { return stamp{testIncarnation - 1} }

// spawnReader puts the real reader in the place of its probe.
func (b *bench) spawnReader() shell.Ref[toReader] {
	r := actortest.Spawn(b.k, "reader", guarded(b.in, readerName, shell.Behaviour[toReader](newReader(b.in))))
	b.in.reader = r
	return r
}

func plain(n int) (recs []record.Record) {
	for i := range n {
		recs = append(recs, record.Record{Value: []byte(fmt.Sprintf(`{"n":%d}`, i)), Arrival: record.NoTime})
	}
	return recs
}

// Without credit a partition is held at the source and what was fetched waits aside; with credit it goes on at exactly the next record,
// and only when half of the window is free is the source read again. (B22)
func TestReaderHoldsAndGoesOnAtTheNextRecord(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 2, func(c *Config) { c.FetchSize, c.CreditRecords = 10, 40 })
		b.log.Append(0, plain(500)...)
		r := b.spawnReader()
		shell.Send(r, toReader(begin{now(b)}))
		next := int64(0)
		take := func() (out []deliver) {
			k.Settle()
			for _, m := range b.parts[0].Rest() {
				d := m.(deliver)
				for _, rec := range d.part.batch.Records {
					if rec.Position != record.Offset(next) {
						t.Fatalf("record %s, want %d", rec.Position, next)
					}
					next++
				}
				out = append(out, d)
			}
			return out
		}
		held := take()
		if next != 40 {
			t.Fatalf("%d records handed out, want the window", next)
		}
		polls := b.log.Polls()
		b.parts[0].ExpectNone(time.Hour)
		if b.log.Polls() != polls {
			t.Errorf("the source was asked %d times for a partition that is held", b.log.Polls()-polls)
		}
		give := func(d deliver) {
			d.part.batch.Done()
			shell.Send(r, toReader(credit{now(b), 0, d.part.records, d.part.bytes}))
		}
		// One part back: not half of the window, so the source rests.
		give(held[0])
		if take(); b.log.Polls() != polls || next != 40 {
			t.Errorf("%d polls and %d records with a quarter of the window free", b.log.Polls()-polls, next)
		}
		give(held[1])
		more := append(held[2:], take()...)
		if b.log.Polls() == polls || next != 60 {
			t.Errorf("%d records with half of the window free", next)
		}
		for len(more) > 0 {
			give(more[0])
			more = append(more[1:], take()...)
		}
		if next != 500 {
			t.Errorf("%d of 500 records were handed out", next)
		}
	})
}

func TestReaderSplitsAndSharesTheRelease(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 1, func(c *Config) { c.FetchSize = 1000; c.CreditRecords = 7 })
		b.log.Append(0, plain(20)...)
		greedy, polls := b.in.source, 0
		b.in.source = &scripted{poll: func(ctx context.Context, _ int) ([]record.Batch, error) {
			if polls++; polls == 1 {
				return greedy.Poll(ctx, 20) // more than it was asked for
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		r := b.spawnReader()
		shell.Send(r, toReader(begin{now(b)}))
		var sizes []int
		var parts []deliver
		for range 3 {
			d := actortest.Expect[deliver](b.parts[0])
			sizes = append(sizes, len(d.part.batch.Records))
			parts = append(parts, d)
			if want := d.part.batch.Records[len(d.part.batch.Records)-1].Position.Next(); d.part.batch.Next != want {
				t.Errorf("next %s, want %s", d.part.batch.Next, want)
			}
			shell.Send(r, toReader(credit{now(b), 0, d.part.records, d.part.bytes}))
		}
		if !slices.Equal(sizes, []int{7, 7, 6}) {
			t.Errorf("parts of %v records", sizes)
		}
		for i, d := range parts {
			if n, _ := b.log.Outstanding(); n != 1 {
				t.Errorf("released before part %d was done", i)
			}
			d.part.batch.Done()
		}
		if n, _ := b.log.Outstanding(); n != 0 {
			t.Error("not released after the last part")
		}
	})
}

// Messages of an earlier incarnation are dropped by every actor, and their memory goes back.
func TestStaleMessagesAreDropped(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 1, nil)
		b.log.Append(0, plain(3)...)
		batches, err := b.in.source.Poll(context.Background(), 3)
		if err != nil {
			t.Fatal(err)
		}
		p := actortest.Spawn(k, "partition", guarded(b.in, partitionName(0), shell.Behaviour[toPartition](&partitionActor{in: b.in, machine: partitions.New(b.in.cfg.Plan, 0)})))
		shell.Send(p, toPartition(deliver{old(), &part{batch: batches[0], records: 3}}))
		shell.Send(p, toPartition(barrier{old(), 1}))
		f := actortest.Spawn(k, "fan-in", guarded(b.in, fanInName, shell.Behaviour[toFanIn](newFanIn(b.in))))
		shell.Send(f, toFanIn(cutTaken{stamp: old(), epoch: 1}))
		shell.Send(f, toFanIn(maxTime{old(), 1}))
		c := actortest.Spawn(k, "coordinator", guarded(b.in, coordinatorName, shell.Behaviour[toCoordinator](newCoordinator(b.in))))
		shell.Send(c, toCoordinator(aligned{stamp: old(), epoch: 1}))
		shell.Send(c, toCoordinator(tick{old()}))
		shell.Send(c, toCoordinator(intakeEnded{old(), endFinish}))
		r := actortest.Spawn(k, "reader", guarded(b.in, readerName, shell.Behaviour[toReader](newReader(b.in))))
		shell.Send(r, toReader(begin{old()}))
		shell.Send(r, toReader(polled{stamp: old(), err: errBoom}))
		b.reader.ExpectNone(time.Hour)
		b.coordinator.ExpectNone(time.Hour)
		b.fanIn.ExpectNone(time.Hour)
		b.parts[0].ExpectNone(time.Hour)
		if n, _ := b.log.Outstanding(); n != 0 {
			t.Error("a stale batch was not released")
		}
		if b.journal.Epoch("run") != 0 {
			t.Error("a stale cut was committed")
		}
		// The same messages of this incarnation do something.
		shell.Send(p, toPartition(barrier{now(b), 1}))
		actortest.Expect[cutTaken](b.fanIn)
		shell.Send(c, toCoordinator(tick{now(b)}))
		actortest.Expect[cutRequest](b.reader)
	})
}

// A message of an earlier incarnation does not reach the supervisor either: it neither opens nor ends anything.
func TestSupervisorDropsStaleMessages(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		log := sourcetest.New(sourcetest.Config{})
		cfg := Config{Plan: parse(t, wideFlow), Source: log, Journal: controltest.NewMemory(), RunID: "run"}
		e := newEngine(context.Background(), cfg.withDefaults())
		e.log = slog.New(slog.DiscardHandler)
		out := make(chan outcome, 1)
		s := newSupervisor(e, out, func(Result) {})
		ref := actortest.Spawn(k, "run", shell.Behaviour[toRun](s))
		e.run = ref
		shell.Send(ref, toRun(start{}))
		k.Settle()
		for _, m := range []toRun{opened{stamp{7}, errBoom}, ended{stamp{7}, endFinish}, quiet{stamp{7}}, retry{stamp{7}}, committed{stamp{7}, control.RunState{Epoch: 9}}} {
			shell.Send(ref, m)
		}
		k.Advance(time.Hour)
		if s.phase != running || s.cur.number != 1 || s.state.Epoch != 0 || len(out) != 0 {
			t.Errorf("phase %d, incarnation %d, epoch %d", s.phase, s.cur.number, s.state.Epoch)
		}
		shell.Send(ref, toRun(interrupt{}))
		if o := <-out; o.result.Incarnations != 1 {
			t.Errorf("%+v", o.result)
		}
		e.background.Wait()
	})
}

// The next barrier waits for the answer to the commit of the one before, while data flows on.
func TestCoordinatorHasOneCutUnderWay(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		release := make(chan struct{})
		b := newBench(k, 1, nil)
		b.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 1, Do: func() { <-release }})
		c := actortest.Spawn(k, "coordinator", guarded(b.in, coordinatorName, shell.Behaviour[toCoordinator](newCoordinator(b.in))))
		b.in.coordinator = c
		shell.Send(c, toCoordinator(begin{now(b)}))
		first := actortest.Expect[cutRequest](b.reader)
		if first.epoch != 1 || first.force {
			t.Errorf("%+v", first)
		}
		b.in.settling.deliver(0, partitions.Bulk{Last: record.Offset(4), Records: 5})
		b.in.settling.seal(0)
		cut := control.PartitionCommit{Cut: partitions.Cut{Next: record.Offset(5), Watermark: record.NoTime, Put: []partitions.StateBlob{{Name: "core"}}}}
		cut.Rows.Append(1, []byte("id"), []byte("key"), nil)
		shell.Send(c, toCoordinator(aligned{stamp: now(b), epoch: 1, partitions: []control.PartitionCommit{cut}, watermark: record.NoTime}))
		b.reader.ExpectNone(time.Hour) // 3600 ticks
		close(release)
		if got := actortest.Expect[committed](b.run); got.state.Epoch != 1 || got.state.Cuts[0].Next != record.Offset(5) || got.state.Cuts[0].Put != nil {
			t.Errorf("%+v", got.state)
		}
		if got := actortest.Expect[recycle](b.parts[0]); cap(got.rows) == 0 {
			t.Error("the memory of the rows did not come back")
		}
		if second := actortest.Expect[cutRequest](b.reader); second.epoch != 2 {
			t.Errorf("%+v", second)
		}
		// Nothing to cut: the same epoch is asked for again, a tick later.
		shell.Send(c, toCoordinator(unchanged{now(b)}))
		if third := actortest.Expect[cutRequest](b.reader); third.epoch != 2 {
			t.Errorf("%+v", third)
		}
		c.Stop()
		k.ExpectStop(c.Address)
		b.reader.ExpectNone(time.Hour)
	})
}

// The merged watermark is a function of the cut, not of the order in which partitions answer, and never goes back.
func TestFanInDoesNotDependOnTheOrderOfAnswers(t *testing.T) {
	t.Parallel()
	type answer struct {
		status watermark.Status
		w      record.EventTime
	}
	cuts := [][3]answer{
		{{watermark.Active, 10}, {watermark.Active, 5}, {watermark.Active, 7}},
		{{watermark.Idle, 10}, {watermark.Active, 20}, {watermark.Idle, 7}},
		{{watermark.Active, 12}, {watermark.Idle, 20}, {watermark.Active, 30}},
		{{watermark.Idle, 12}, {watermark.Idle, 20}, {watermark.Idle, 30}},
		{{watermark.Active, 13}, {watermark.Active, 40}, {watermark.Active, 50}},
		{{watermark.Finished, 13}, {watermark.Finished, 40}, {watermark.Finished, 50}},
	}
	want := []record.EventTime{5, 20, 20, 20, 20, record.MaxTime}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		actortest.Run(t, func(k *actortest.Kit) {
			b := newBench(k, 3, nil)
			f := actortest.Spawn(k, "fan-in", guarded(b.in, fanInName, shell.Behaviour[toFanIn](newFanIn(b.in))))
			for e, cut := range cuts {
				for _, p := range order {
					c := control.PartitionCommit{Cut: partitions.Cut{Partition: int32(p), Watermark: cut[p].w}}
					shell.Send(f, toFanIn(cutTaken{now(b), uint64(e + 1), cut[p].status, c, PartitionProgress{}}))
				}
				got := actortest.Expect[aligned](b.coordinator)
				if got.watermark != want[e] || got.epoch != uint64(e+1) || len(got.partitions) != 3 || got.partitions[0].Cut.Partition != 0 || got.partitions[2].Cut.Partition != 2 {
					t.Errorf("order %v, cut %d: %+v, want watermark %d", order, e, got, want[e])
				}
			}
		})
	}
}

// An answer to another barrier than the one being aligned is a defect of ours, and stops the epoch.
func TestFanInRefusesMixedEpochs(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 2, nil)
		f := actortest.Spawn(k, "fan-in", guarded(b.in, fanInName, shell.Behaviour[toFanIn](newFanIn(b.in))))
		shell.Send(f, toFanIn(cutTaken{stamp: now(b), epoch: 1}))
		shell.Send(f, toFanIn(cutTaken{stamp: now(b), epoch: 2}))
		if failure := k.ExpectFailure(f.Address); !fatal(failure.Cause) {
			t.Errorf("cause %v", failure.Cause)
		}
		b.coordinator.ExpectNone(time.Hour)
	})
}

// Too many results that wait for the journal withhold the credit of their partition until the next barrier.
func TestPartitionWithholdsCredit(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 1, func(c *Config) { c.EpochBytes = 300 })
		p := actortest.Spawn(k, "partition", guarded(b.in, partitionName(0), shell.Behaviour[toPartition](&partitionActor{in: b.in, machine: partitions.New(b.in.cfg.Plan, 0)})))
		b.log.Append(0, plain(3)...) // unreadable: quarantined with their bytes
		for i := range 3 {
			batches, err := b.in.source.Poll(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			shell.Send(p, toPartition(deliver{now(b), &part{batch: batches[0], records: 1, bytes: int64(10 + i)}}))
		}
		actortest.Expect[credit](b.reader)
		if got := actortest.Expect[buffered](b.reader); got.bytes < 300 {
			t.Errorf("%+v", got)
		}
		b.reader.ExpectNone(time.Hour)
		actortest.Expect[epochDue](b.coordinator)
		b.coordinator.ExpectNone(time.Hour)
		shell.Send(p, toPartition(barrier{now(b), 1}))
		if got := actortest.Expect[buffered](b.reader); got.bytes != 0 {
			t.Errorf("%+v", got)
		}
		if got := actortest.Expect[credit](b.reader); got.records != 2 || got.bytes != 23 {
			t.Errorf("%+v", got)
		}
		if got := actortest.Expect[cutTaken](b.fanIn); len(got.commit.Quarantine) != 3 || got.commit.Cut.Counts.Omitted != 3 {
			t.Errorf("%+v", got.commit)
		}
	})
}
