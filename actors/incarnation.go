package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources"
)

// The full names of the actors.
const (
	runName         = "run"
	readerName      = runName + "/reader"
	coordinatorName = runName + "/coordinator"
	fanInName       = runName + "/fan-in"
	leaseName       = runName + "/lease"
)

const partitionPrefix = runName + "/partition/"

func partitionName(p int32) string { return partitionPrefix + strconv.Itoa(int(p)) }

// engine is what all incarnations of a run share. It does not change.
type engine struct {
	cfg Config
	log *slog.Logger
	// ctx ends when the run is killed.
	ctx    context.Context
	cancel context.CancelFunc
	run    shell.Ref[toRun]
	// effects ends with ctx, or when the lease is lost: nothing may be written any more.
	effects context.Context
	revoke  context.CancelCauseFunc
	// inherited is the number of records that the run had when this process first read its state, or -1.
	inherited atomic.Int64
	// lastEpoch is the epoch of a FINISHED commit that was tried, or 0.
	lastEpoch atomic.Uint64
	// lease is the last grant. It is nil in a run without Fencing, and before the first.
	lease atomic.Pointer[control.Lease]
	// background are the goroutines that open, end and read back incarnations, and ask for the lease.
	background *sync.WaitGroup
}

// holds says whether this run may still act, by its own clock.
func (e *engine) holds() bool {
	if e.cfg.Fencing == nil {
		return true
	}
	l := e.lease.Load()
	return l != nil && l.Deadline.After(time.Now())
}

// journal is where effects go: through the fence, if there is one.
func (e *engine) journal() (control.Journal, error) {
	switch {
	case e.cfg.Fencing == nil:
		return e.cfg.Journal, nil
	case !e.holds():
		return nil, codes.New(codes.StaleFence, "the lease of run %q has run out by the clock of this process", e.cfg.RunID)
	}
	return e.cfg.Journal.(control.Fencer).Under(*e.lease.Load()), nil
}

// incarnation is one generation of a run's actors. It is filled by the goroutine that restores it and by the run actor, and only read
// once begin is sent.
type incarnation struct {
	*engine
	number uint64
	// ctx ends with the incarnation: Open and Poll.
	ctx    context.Context
	cancel context.CancelFunc
	// workers are the goroutines that poll and commit.
	workers *sync.WaitGroup
	// handed is the number of records handed out to the partitions over the whole life of the run. The reader writes it, the run actor
	// reads it when something has failed.
	handed atomic.Int64

	header control.RunHeader
	state  control.RunState
	// origin names what the rows are computed from.
	origin string
	// partitions are those that are read; blocked are the others.
	partitions []int32
	blocked    map[int32]blockedAt
	// blockedNow are those that are told as blocked: some may have come to it while they were read.
	blockedNow atomic.Pointer[map[int32]blockedAt]
	// bounded says that the log has an end.
	bounded  bool
	machines map[int32]*partitions.Machine
	// restored tells of the machines as they were restored.
	restored []PartitionProgress
	// begun are the effects of machines that Config.Begin has made: they belong to the first cut.
	// So do those of what operators have chosen: orders, with their outcomes.
	begun map[int32]partitions.Effects
	// settled are those that need not be taken again.
	orders   []control.Intervention
	outcomes map[int64]settlement
	settled  map[int64]settlement
	source   sources.Reader
	settling *settling

	reader      shell.Ref[toReader]
	coordinator shell.Ref[toCoordinator]
	fanIn       shell.Ref[toFanIn]
	refs        map[int32]shell.Ref[toPartition]
	// publication is the sinks of the run, nil without any.
	publication *sinks.Publication
	// late is where late events go, nil without any.
	late *sinks.Publication
	// owned is the lease under which it began, for what is refused once that is gone.
	owned *control.Lease
	// spawned in the order of start.
	spawned []shell.Address
}

func newIncarnation(e *engine, number uint64) *incarnation {
	in := &incarnation{
		engine: e, number: number, workers: new(sync.WaitGroup),
		machines: make(map[int32]*partitions.Machine), begun: make(map[int32]partitions.Effects), refs: make(map[int32]shell.Ref[toPartition]),
		outcomes: make(map[int64]settlement),
	}
	in.ctx, in.cancel = context.WithCancel(e.ctx)
	in.blockedNow.Store(&map[int32]blockedAt{})
	return in
}

func (in *incarnation) stamp() stamp { return stamp{in.number} }

// watermark is the merged one of the state that was restored.
func (in *incarnation) watermark() record.EventTime {
	if in.state.Epoch == 0 {
		return record.NoTime
	}
	return in.state.Watermark
}

// restore brings back the last cut and opens the source exactly there. Nothing of the source is asked for records before every
// partition has its state.
func (in *incarnation) restore() error {
	p := Point{Name: BeforeOpen, Actor: runName, Incarnation: in.number}
	if err := in.cfg.Hooks.at(in.ctx, p); err != nil {
		return err
	}
	if err := in.openRun(); err != nil {
		return err
	}
	if err := in.takePending(); err != nil {
		return err
	}
	if err := in.restoreMachines(); err != nil {
		return err
	}
	in.settling, in.restored = newSettling(in), in.progressOfRestored()
	p.Name, p.Epoch = AfterRestore, in.state.Epoch
	if err := in.cfg.Hooks.at(in.ctx, p); err != nil {
		return err
	}
	if err := in.openSinks(); err != nil {
		return err
	}
	var err error
	in.source, err = in.cfg.Source.Open(in.ctx, in.positions())
	return err
}

// restoreMachines restores every partition, and steps in what operators have chosen. A choice that a machine cannot take, since a limit is reached, is
// dismissed: the run goes on without it.
func (in *incarnation) restoreMachines() error {
	for {
		clear(in.begun)
		for _, n := range in.partitions {
			m, err := in.machine(n)
			if err != nil {
				return err
			}
			in.machines[n] = m
		}
		err := in.applyOrders()
		var failed *orderError
		if !errors.As(err, &failed) {
			return err
		}
		in.orders = slices.DeleteFunc(slices.Clone(in.orders), func(i control.Intervention) bool { return i.ID == failed.id })
		in.outcomes[failed.id] = dismissed("it could not be applied, and nothing of it was: %v", failed.err)
	}
}

func (in *incarnation) openRun() error {
	info, err := in.cfg.Source.Info(in.ctx)
	if err != nil {
		return err
	}
	in.bounded = info.Bounded
	in.partitions = slices.DeleteFunc(slices.Clone(info.Partitions), func(p int32) bool {
		_, blocked := in.blocked[p]
		return blocked
	})
	in.header = control.RunHeader{
		RunID: in.cfg.RunID, Fingerprint: in.cfg.Plan.Fingerprint, Source: info.Name, SourceID: info.ID,
		Group: in.cfg.Group, Partitions: info.Partitions,
	}
	journal, err := in.journal()
	if err != nil {
		return err
	}
	in.state, err = journal.OpenRun(in.ctx, in.header)
	if err == nil {
		in.inherited.CompareAndSwap(-1, recordsOf(in.state))
		in.origin = originOf(info, in.state)
	}
	return err
}

func (in *incarnation) machine(n int32) (*partitions.Machine, error) {
	if _, committed := in.state.Cuts[n]; !committed {
		if in.cfg.Begin == nil {
			return partitions.New(in.cfg.Plan, n), nil
		}
		var eff partitions.Effects
		m, err := in.cfg.Begin(in.ctx, n, &eff)
		in.begun[n] = eff
		return m, err
	}
	m, err := partitions.Restore(in.cfg.Plan, n, func(yield func(partitions.StateBlob) error) error {
		return in.cfg.Journal.LoadBlobs(in.ctx, in.cfg.RunID, n, yield)
	})
	if err != nil {
		err = fmt.Errorf("partition %d of run %q: %w", n, in.cfg.RunID, err)
		if ofState(err) {
			err = &damagedState{n, in.state.Cuts[n].Next, err}
		}
		return nil, err
	}
	return m, nil
}

// spawn starts the actors, those first that others send to.
func (in *incarnation) spawn(c *shell.Context) error {
	var err error
	if in.fanIn, err = spawnChild(c, in, fanInName, shell.Behaviour[toFanIn](newFanIn(in))); err != nil {
		return err
	}
	for _, n := range in.partitions {
		a := &partitionActor{in: in, partition: n, machine: in.machines[n], eff: in.begun[n]}
		if in.refs[n], err = spawnChild(c, in, partitionName(n), shell.Behaviour[toPartition](a)); err != nil {
			return err
		}
	}
	if in.coordinator, err = spawnChild(c, in, coordinatorName, shell.Behaviour[toCoordinator](newCoordinator(in))); err != nil {
		return err
	}
	if in.reader, err = spawnChild(c, in, readerName, shell.Behaviour[toReader](newReader(in))); err != nil {
		return err
	}
	shell.Send(in.coordinator, toCoordinator(begin{in.stamp()}))
	shell.Send(in.reader, toReader(begin{in.stamp()}))
	return nil
}

func spawnChild[M stamped](c *shell.Context, in *incarnation, name string, b shell.Behaviour[M]) (shell.Ref[M], error) {
	spec := shell.Spec{Name: name[len(runName)+1:], Incarnation: in.number}
	r, err := shell.Spawn(c, spec, guarded(in, name, b))
	if err == nil {
		in.spawned = append(in.spawned, r.Address)
	}
	return r, err
}

// end stops everything of the incarnation, the reader first, and returns when it has ended. A commit under way is awaited.
func (in *incarnation) end() {
	in.cancel()
	for i := len(in.spawned) - 1; i >= 0; i-- {
		in.spawned[i].Stop()
		<-in.spawned[i].Done()
	}
	in.workers.Wait()
	in.closeSinks()
	if in.source != nil {
		if err := protect(in.source.Close); err != nil {
			in.log.Debug("closing the source", "cause", err.Error())
		}
	}
}
