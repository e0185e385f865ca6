package actors

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// With StayBlocked, what only a person can decide about does not end a run that has no end of its own:
//
//	records that the log has lost, a batch that cannot be read    that partition is paused at the source, what was read of it is committed,
//	                                                              and the others go on in the same incarnation
//	state of one partition that is damaged or missing             the next incarnation leaves that partition out
//	a log that was recreated, leases that have gone back          the incarnation ends, and the run stands still (StateBlocked)
//
// Nothing is asked of the source for what is blocked. The lease is kept, and renewed, so that no other process runs into the same wall, and what
// is blocked goes on by an operator's choice alone (Config.Interventions). When the process ends, the cause is the end of the run.
//
// A run that does not stay ends with that cause. Before, what was read is committed, so that the gap begins where the partition stands, and what operators
// have chosen about it is asked for: a gap that was accepted while nobody ran the run is passed over (metGap).

// Block is why a run, or one partition of it, waits for an operator.
type Block struct {
	// Partition is -1 for the whole run.
	Partition int32
	// Cause has a code. Since is when it was met.
	Cause error
	Since time.Time
	// Need is the position that is to be read next. Have, when Known, is the first one behind it from which the log can be read on, or where
	// the log ends if that is before Need.
	Need, Have record.Position
	Known      bool
	// Release says in words what would end it.
	Release string
}

// Code is the name of the cause's code.
func (b *Block) Code() string { return codeName(b.Cause) }

const (
	releaseGap    = "an operator's choice: `weir recover RUN --partition N --accept-gap --to POSITION` gives up what is missing, `weir recover RUN --partition N --retry` reads again once it is back"
	releaseState  = "restoring the store from a backup and `weir recover RUN --partition N --retry`, or a new run from a checkpoint (`weir checkpoint restore`)"
	releaseOther  = "removing the cause and `weir recover RUN --partition N --retry`"
	releaseTopic  = "a new run id for the new topic; or, if the wrong log was there for a while, the right one and `weir recover RUN --retry`"
	releaseFence  = "finding out what the store lost, restoring it, and `weir recover RUN --retry`; or a new run id"
	releaseSource = "restoring the records and `weir recover RUN --retry`, or a new run id"
)

// blockOf is the block that a cause makes. It knows positions when the source told them.
func blockOf(partition int32, cause error) *Block {
	b := &Block{Partition: partition, Cause: cause, Since: time.Now()}
	var f *sources.Fault
	if errors.As(cause, &f) {
		b.Need, b.Have, b.Known = f.Need, f.After, f.Known
	}
	switch code := codes.Of(cause); {
	case code == codes.TopicRecreated:
		b.Release = releaseTopic
	case code == codes.FenceRegression:
		b.Release = releaseFence
	case partition < 0:
		b.Release = releaseSource
	case code == codes.OffsetLost || code == codes.PoisonBatch:
		b.Release = releaseGap
	case ofState(cause):
		b.Release = releaseState
	default:
		b.Release = releaseOther
	}
	return b
}

// ofState says that the state of a partition cannot be restored, however often it is tried.
func ofState(err error) bool {
	switch codes.Of(err) {
	case codes.JournalCorrupt, codes.BlobCorrupt, codes.BlobMissing, codes.CheckpointCorrupt:
		return true
	}
	return false
}

// ofRecovery says that only an operator can end a cause: trying again gives the same, and no restart of the process helps.
func ofRecovery(err error) bool {
	switch codes.Of(err) {
	case codes.OffsetLost, codes.PoisonBatch, codes.TopicRecreated, codes.FenceRegression:
		return true
	}
	return ofState(err)
}

// stays says whether what is blocked leaves the run alive.
func (in *incarnation) stays() bool {
	return in.cfg.StayBlocked && in.cfg.unbounded() && (!in.bounded || in.cfg.HandOn)
}

// faulted is what the source said about one partition, when the others can be read on, or operators may have chosen already how it goes on.
func (in *incarnation) faulted(err error) (*sources.Fault, bool) {
	var f *sources.Fault
	if !errors.As(err, &f) || !fatal(err) || !in.stays() && (in.cfg.Interventions == nil || !ofGap(err)) {
		return nil, false
	}
	return f, true
}

// ofGap says whether a cause can be passed over: by accepting a gap.
func ofGap(err error) bool {
	return codes.Has(err, codes.OffsetLost) || codes.Has(err, codes.PoisonBatch)
}

// failed blocks the partition that the source cannot read, if that is what it says.
func (r *readerActor) failed(err error) error {
	f, one := r.in.faulted(err)
	switch {
	case !one || r.byID[f.Partition] == nil:
		return err // what is not read cannot fail
	case r.in.stays():
		if err := r.fault(f, err); err != nil {
			return err
		}
	default: // what was read is processed and committed; the run actor finds out how it goes on
		r.exhausted, r.mode = true, endAgain
		shell.Send(r.in.run, toRun(partitionFault{r.in.stamp(), f.Partition, err}))
	}
	r.next()
	return nil
}

// fault stops reading one partition: what was handed out of it is processed and committed as ever.
func (r *readerActor) fault(f *sources.Fault, err error) error {
	l := r.byID[f.Partition]
	if l.blocked {
		return err // it is not read, and cannot fail
	}
	for _, p := range l.aside {
		r.aside--
		r.taken -= p.records // as if it had never been read: the partition is opened there again
	}
	l.drop()
	l.blocked = true
	l.regulate()
	if r.in.cfg.MaxSkew > 0 {
		r.compare(l)
		r.level()
	}
	r.dirty = true
	shell.Send(r.in.run, toRun(partitionFault{r.in.stamp(), f.Partition, err}))
	return nil
}

// bars says whether a failure blocks the whole run.
func (s *supervisor) bars(f Failure, one bool) bool {
	return !one && s.cur != nil && s.cur.stays() && ofRecovery(f.Cause) && !ofState(f.Cause)
}

// bar blocks the run: its incarnation ends, and no other begins.
func (s *supervisor) barRun(f Failure) {
	s.barred = blockOf(-1, f.Cause)
	s.e.log.Error("recovery is blocked; the run stands still", "run", s.e.cfg.RunID, "epoch", s.state.Epoch, "code", codeName(f.Cause), "cause", f.Cause.Error(), "release", s.barred.Release)
}

// stands says whether there is nothing to open.
func (s *supervisor) stands() bool {
	return s.barred != nil || len(s.all) > 0 && len(s.blocked) == len(s.all)
}

// partitionFault blocks one partition while the incarnation goes on.
func (s *supervisor) partitionFault(m partitionFault) {
	if s.phase != running {
		return // it is met again
	}
	s.blocked[m.partition] = blockedAt{place: readerName, cause: m.err, tries: 1, block: blockOf(m.partition, m.err)}
	s.tellBlocked()
	b := s.blocked[m.partition].block
	if !s.cur.stays() {
		s.again = true // until it is known what operators have chosen
		return
	}
	args := []any{"run", s.e.cfg.RunID, "partition", m.partition, "need", b.Need, "code", b.Code(), "cause", m.err.Error(), "release", b.Release}
	if b.Known {
		args = append(args, "have", b.Have)
	}
	s.e.log.Error("a partition is blocked; the others go on", args...)
}

// metGap is the partition at whose gap a run stands that does not stay, with all that was read before it committed.
func (s *supervisor) metGap() (p int32, met bool) {
	for _, p := range slices.Sorted(maps.Keys(s.blocked)) {
		if s.again && s.endsAt(s.blocked[p]) {
			return p, true
		}
	}
	return -1, false
}

// endsAt says whether a block is the end of the run unless operators have chosen otherwise.
func (s *supervisor) endsAt(b blockedAt) bool {
	return s.cur != nil && !s.cur.stays() && ofGap(b.cause)
}

// judgeMet goes on behind a gap that operators have accepted, and ends the run with its cause otherwise.
func (s *supervisor) judgeMet(m ordersRead) {
	p, met := s.metGap()
	if m.inc != s.number() || s.phase != halted || !met {
		return
	}
	if m.err != nil {
		s.e.log.Warn("what operators have chosen cannot be read; the run ends", "run", s.e.cfg.RunID, "code", codeName(m.err), "cause", m.err.Error())
	} else if s.considerAll(m) {
		s.restart()
		return
	}
	b := s.blocked[p]
	s.failures = append(s.failures, Failure{Incarnation: s.number(), Actor: b.place, Partition: p, Position: b.block.Need, Cause: b.cause})
	s.orderly = true
	s.over(b.cause)
	s.quiet()
}

// meetAgain forgets blocks before which records stand that were read and not committed, since the incarnation failed otherwise: the next one reads
// them again, and then meets the same. No incarnation begins at a block that ends the run.
func (s *supervisor) meetAgain() {
	maps.DeleteFunc(s.blocked, func(p int32, b blockedAt) bool {
		short := b.block.Need.Cmp(s.state.Cuts[p].Next) > 0 || s.endsAt(b)
		s.blockedChanged = s.blockedChanged || short
		return short
	})
}

// tellBlocked lets the incarnation tell which partitions are blocked.
func (s *supervisor) tellBlocked() {
	s.blockedChanged = true
	if s.cur != nil {
		now := maps.Clone(s.blocked)
		s.cur.blockedNow.Store(&now)
	}
}

// damagedState is an error of restoring one partition.
type damagedState struct {
	partition int32
	next      record.Position
	err       error
}

func (d *damagedState) Error() string { return d.err.Error() }
func (d *damagedState) Unwrap() error { return d.err }

// ofOpening is the failure that an error of opening makes: that of one partition, if the run can go on without it.
func (s *supervisor) ofOpening(err error) Failure {
	var d *damagedState
	if errors.As(err, &d) && s.cur.stays() {
		return Failure{Incarnation: s.number(), Actor: partitionName(d.partition), Partition: d.partition, Position: d.next, Cause: err}
	}
	return Failure{Incarnation: s.number(), Actor: runName, Partition: -1, Cause: err}
}

// recovering says whether one of the blocked partitions waits for an operator.
func (s *supervisor) recovering() bool {
	for _, b := range s.blocked {
		if ofRecovery(b.cause) {
			return true
		}
	}
	return false
}

// blockedResults are the partitions that are blocked now, as Progress tells them.
func (in *incarnation) blockedResults(s control.RunState) []PartitionResult {
	return blockedResults(s, *in.blockedNow.Load())
}
