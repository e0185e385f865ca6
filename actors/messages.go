package actors

import (
	"runtime/debug"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/watermark"
)

// Every message belongs to an incarnation. Actors of an incarnation are stopped before the next one starts and a reference never
// reaches a later actor, but goroutines outlive what they worked for: a receiver drops what is not of its own incarnation.

type stamp struct{ inc uint64 }

func (s stamp) incarnation() uint64 { return s.inc }

type stamped interface{ incarnation() uint64 }

// endMode is how the intake ends.
type endMode uint8

const (
	// endFinish: everything is released, the last cut is FINISHED.
	endFinish endMode = iota
	// endHandOn: nothing is released, the last cut is FINISHED: the log goes on elsewhere.
	endHandOn
	// endUntil: an open cut at a number of records.
	endUntil
	// endShort: an open cut, since a bounded log ended before the number of records that was asked for.
	endShort
	// endBlocked: an open cut, since a bounded log ended while a partition was blocked.
	endBlocked
	// endInterrupt: an open cut, since the run was asked to stop.
	endInterrupt
	// endAgain: an open cut, since another incarnation is to begin.
	endAgain
)

// To the run actor.
type (
	toRun interface {
		stamped
		forRun()
	}
	// start opens the first incarnation, resume goes on after a failure of the run actor itself.
	start  struct{ stamp }
	resume struct{ stamp }
	// opened says that the state is restored and the source is open, or why not.
	opened struct {
		stamp
		err error
	}
	// committed is the new state of the journal.
	committed struct {
		stamp
		state control.RunState
	}
	// ended says that the last cut is committed.
	ended struct {
		stamp
		mode endMode
	}
	// partitionFault says that one partition cannot be read on, while the others are.
	partitionFault struct {
		stamp
		partition int32
		err       error
	}
	// quiet says that every actor and goroutine of the incarnation has ended.
	quiet struct{ stamp }
	// retry ends a back-off.
	retry struct{ stamp }
	// readBack is what the journal says after an unknown commit.
	readBack struct {
		stamp
		state control.RunState
		err   error
	}
	// ordersDue asks for interventions, ordersRead are those that are pending, of those that are new which stand in the journal, and
	// how the log stood if a gap is to be accepted. last: they are the last before a FINISHED cut, met: those at a gap at which the run ends
	// otherwise; both of an incarnation.
	ordersDue  struct{ stamp }
	ordersRead struct {
		stamp
		last, met bool
		pending   []control.Intervention
		stand     map[int64]bool
		log       *logSeen
		err       error
	}
	// finishing says that the next cut would be FINISHED: is anything pending? ordersSwept says that what was left at the end of the run is settled.
	finishing   struct{ stamp }
	ordersSwept struct{ stamp }
	// observeDue asks for a look at the log, observed is what was seen.
	observeDue struct{ stamp }
	observed   struct {
		stamp
		seen sources.Observation
		err  error
	}
	// interrupt asks for an orderly end, kill for one at once. They come from outside and belong to no incarnation.
	interrupt struct{ stamp }
	kill      struct{ stamp }
	// leaseNews is what the lease actor says. Its number is that of the lease actor, not of an incarnation. Without a change it is a lease
	// that was not granted, or with ended, an end that gave nothing back.
	leaseNews struct {
		stamp
		change LeaseChange
		lease  control.Lease
		err    error
		ended  bool
	}
)

func (start) forRun()          {}
func (resume) forRun()         {}
func (opened) forRun()         {}
func (committed) forRun()      {}
func (ended) forRun()          {}
func (partitionFault) forRun() {}
func (quiet) forRun()          {}
func (retry) forRun()          {}
func (readBack) forRun()       {}
func (observeDue) forRun()     {}
func (observed) forRun()       {}
func (ordersDue) forRun()      {}
func (ordersRead) forRun()     {}
func (finishing) forRun()      {}
func (ordersSwept) forRun()    {}
func (interrupt) forRun()      {}
func (kill) forRun()           {}
func (leaseNews) forRun()      {}

// To the reader.
type (
	toReader interface {
		stamped
		forReader()
	}
	// begin says that every actor is there.
	begin struct{ stamp }
	// polled is the answer of the source.
	polled struct {
		stamp
		batches []record.Batch
		err     error
		// waited: it has ended by our own patience.
		waited bool
	}
	// credit gives back what a batch took.
	credit struct {
		stamp
		partition      int32
		records, bytes int64
	}
	// progressed says how far a partition has come in event time. It is sent with MaxSkew only.
	progressed struct {
		stamp
		partition int32
		at        record.EventTime
		idle      bool
	}
	// buffered says how many bytes of results wait for the journal and keep credit back, or 0.
	buffered struct {
		stamp
		partition int32
		bytes     int64
	}
	// disk is the free disk, in bytes.
	disk struct {
		stamp
		free int64
	}
	// cutRequest asks for a barrier. There is none when nothing was handed out since the last one; with force, empty answers of the
	// source count as something, and with always there is one whatever happened.
	cutRequest struct {
		stamp
		epoch  uint64
		force  bool
		always bool
	}
	// gather asks every partition for its maximum event time, behind all data.
	gather struct{ stamp }
	// finish ends every partition and cuts it.
	finish struct {
		stamp
		epoch   uint64
		through record.EventTime
	}
	// stopIntake ends reading at once.
	stopIntake struct {
		stamp
		mode endMode
	}
)

func (begin) forReader()      {}
func (polled) forReader()     {}
func (credit) forReader()     {}
func (progressed) forReader() {}
func (buffered) forReader()   {}
func (disk) forReader()       {}
func (cutRequest) forReader() {}
func (gather) forReader()     {}
func (finish) forReader()     {}
func (stopIntake) forReader() {}

// Discard gives the batches' memory back.
func (m polled) Discard() {
	for i := range m.batches {
		m.batches[i].Done()
	}
}

// To a partition.
type (
	toPartition interface {
		stamped
		forPartition()
	}
	// deliver is one batch, or a part of one.
	deliver struct {
		stamp
		part *part
	}
	emptyPoll struct{ stamp }
	// barrier asks for a cut.
	barrier struct {
		stamp
		epoch uint64
	}
	askMaxTime  struct{ stamp }
	endOfSource struct {
		stamp
		through record.EventTime
	}
	// recycle gives the memory of committed rows back.
	recycle struct {
		stamp
		rows []byte
	}
)

func (deliver) forPartition()     {}
func (emptyPoll) forPartition()   {}
func (barrier) forPartition()     {}
func (askMaxTime) forPartition()  {}
func (endOfSource) forPartition() {}
func (recycle) forPartition()     {}

// Discard gives the batch's memory back.
func (m deliver) Discard() { m.part.batch.Done() }

// To the fan-in.
type (
	toFanIn interface {
		stamped
		forFanIn()
	}
	// cutTaken is a partition's answer to a barrier.
	cutTaken struct {
		stamp
		epoch  uint64
		status watermark.Status
		commit control.PartitionCommit
		seen   PartitionProgress
	}
	maxTime struct {
		stamp
		time record.EventTime
	}
)

func (cutTaken) forFanIn() {}
func (maxTime) forFanIn()  {}

// To the coordinator.
type (
	toCoordinator interface {
		stamped
		forCoordinator()
	}
	tick struct{ stamp }
	// epochDue asks for a cut before its time.
	epochDue struct {
		stamp
		force bool
	}
	// unchanged says that there was nothing to cut.
	unchanged struct{ stamp }
	// barrierSent says how full the queues were when the barrier left.
	barrierSent struct {
		stamp
		queues []Queue
	}
	// aligned is the cut of all partitions, in ascending order.
	aligned struct {
		stamp
		epoch      uint64
		partitions []control.PartitionCommit
		seen       []PartitionProgress
		watermark  record.EventTime
	}
	// through is the maximum event time over all partitions.
	through struct {
		stamp
		time record.EventTime
	}
	// commitDone is the journal's answer.
	commitDone struct {
		stamp
		err error
	}
	// mayFinish is the answer to finishing: the last cut is FINISHED, or with open, an open one.
	mayFinish struct {
		stamp
		open bool
	}
	// intakeEnded says that nothing more is handed out.
	intakeEnded struct {
		stamp
		mode endMode
	}
)

func (begin) forCoordinator()       {}
func (tick) forCoordinator()        {}
func (epochDue) forCoordinator()    {}
func (unchanged) forCoordinator()   {}
func (barrierSent) forCoordinator() {}
func (aligned) forCoordinator()     {}
func (through) forCoordinator()     {}
func (commitDone) forCoordinator()  {}
func (mayFinish) forCoordinator()   {}
func (intakeEnded) forCoordinator() {}

// guarded makes a behaviour drop what is not of its incarnation, and gives tests their failpoint.
func guarded[M stamped](in *incarnation, actor string, b shell.Behaviour[M]) shell.Behaviour[M] {
	return shell.Intercept(b, func(_ *shell.Context, m M) (pass bool, err error) {
		defer func() {
			if !pass {
				drop(m)
			}
		}()
		if m.incarnation() != in.number {
			return false, nil
		}
		if err := in.cfg.Hooks.at(in.ctx, Point{Name: OnMessage, Actor: actor, Incarnation: in.number}); err != nil {
			return false, err
		}
		return true, nil
	})
}

func drop(m any) {
	if d, ok := m.(shell.Discarder); ok {
		d.Discard()
	}
}

// after sends m to an actor once d has passed. The receiver tells a late one by its incarnation.
func after[M any](d time.Duration, to shell.Ref[M], m M) *time.Timer {
	return time.AfterFunc(d, func() { shell.Send(to, m) })
}

// protect turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &shell.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return f()
}
