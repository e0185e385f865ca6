// Package board keeps the status of a run up to date from what the engine tells, and gives it out as a status.Snapshot.
//
//	actors.Config.OnState, OnLease, OnProgress, OnQueue, OnWithheld, OnBackpressure, OnCheckpoint ─▶ Board ─▶ Snapshot
//	the journal's commits (Watch), sources.Observer, the source's outages                        ─▶
//
// Nothing here waits, so that every method may be called in an actor. The clock is the caller's.
package board

import (
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/watermark"
)

// DefaultStalled is how long a partition may have readable records without moving.
const DefaultStalled = time.Minute

// Config of a Board.
type Config struct {
	Run, Flow, Owner string
	// Every is the time between commits.
	Every time.Duration
	// Stalled is how long a partition that has readable records may not move before it is called stalled. Defaults to 1 minute.
	Stalled time.Duration
	// ShowKeys puts the keys of open gaps into snapshots: they are record data.
	ShowKeys bool
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Board is the status of one run. Its methods may be called from any goroutine.
type Board struct {
	cfg Config

	mu         sync.Mutex
	phase      status.Phase
	wait       status.Wait
	phaseSince time.Time
	cause      *status.Cause
	release    string
	retryAt    time.Time
	revoked    time.Time
	lease      status.Lease
	standing   bool

	incarnation, restarts uint64
	result                actors.Result
	runStatus             string
	epoch                 uint64
	watermark             record.EventTime
	commit                status.Commit
	checkpoint            status.Checkpoint
	sinks                 []status.Sink
	published             []status.Published
	unopened              map[string]bool // sinks that are down, by whether that began when they were opened
	source                status.Source
	parts                 map[int32]*part
}

// New makes the board of a run that begins now.
func New(cfg Config) *Board {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Stalled <= 0 {
		cfg.Stalled = DefaultStalled
	}
	b := &Board{cfg: cfg, watermark: record.NoTime, parts: map[int32]*part{}, unopened: map[string]bool{}, lease: status.Lease{State: status.LeaseUnfenced}}
	b.commit.Every = cfg.Every.Seconds()
	b.set(status.PhaseWaiting, status.WaitStart, cfg.Now())
	return b
}

// Run is the id of the run.
func (b *Board) Run() string { return b.cfg.Run }

// set is a new phase; one that stands already keeps its time.
func (b *Board) set(p status.Phase, w status.Wait, at time.Time) {
	if p == b.phase && w == b.wait {
		return
	}
	b.phase, b.wait, b.phaseSince = p, w, at
	b.settle(at)
}

// settle accounts the state of every partition.
func (b *Board) settle(at time.Time) {
	for _, p := range b.parts {
		p.settle(b, at)
	}
}

// part finds a partition, or makes it.
func (b *Board) part(n int32, at time.Time) *part {
	p := b.parts[n]
	if p == nil {
		p = newPart(b, n, at)
		b.parts[n] = p
	}
	return p
}

// State takes what actors.Config.OnState tells.
func (b *Board) State(s actors.StateChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	if s.Incarnation > 1 && s.Incarnation > b.incarnation {
		b.restarts += s.Incarnation - max(b.incarnation, 1)
	}
	b.incarnation = max(b.incarnation, s.Incarnation)
	if s.Result.Epoch >= b.epoch { // no commit of it was told before
		for i := range s.Restored {
			c := &s.Restored[i]
			b.part(c.Partition, at).cut(c, b, at)
		}
	}
	b.keep(s.Result, at)
	b.retryAt, b.release = time.Time{}, ""
	switch s.State {
	case actors.StateLeasing:
		b.standing = false // until OnLease says so
		b.set(status.PhaseWaiting, status.WaitStart, at)
	case actors.StateOpening:
		for _, p := range b.parts {
			p.reset()
		}
		b.set(status.PhaseWaiting, status.WaitStart, at)
	case actors.StateRunning:
		b.cause = nil
		for _, p := range b.parts {
			p.progress = at
		}
		b.set(status.PhaseRunning, "", at)
	case actors.StateBackoff:
		b.cause, b.retryAt = lastCause(s.Result), at.Add(s.Pause)
		b.set(status.PhaseWaiting, status.WaitBackoff, at)
	case actors.StateBlocked:
		if b.cause = nil; s.Block != nil {
			b.cause, b.release = status.CauseOf(s.Block.Cause), s.Block.Release
		}
		b.set(status.PhaseRecoveryBlocked, "", at)
	case actors.StateEnding, actors.StateSaving, actors.StateReleasing, actors.StateOver:
		b.set(status.PhaseWaiting, status.WaitEnd, at)
	}
	b.settle(at)
}

func lastCause(r actors.Result) *status.Cause {
	if n := len(r.Failures); n > 0 {
		return status.CauseOf(r.Failures[n-1].Cause)
	}
	return nil
}

// keep takes what stands in the journal.
func (b *Board) keep(r actors.Result, at time.Time) {
	b.result = r
	if r.Epoch >= b.epoch {
		b.epoch = r.Epoch
		if r.Epoch > 0 {
			b.watermark = max(b.watermark, r.Watermark)
		}
	}
	if r.Status != "" {
		b.runStatus = string(r.Status)
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		b.part(p.Partition, at).keep(p, at)
	}
}

// Ended takes what actors.Run returned.
func (b *Board) Ended(r actors.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	b.keep(r, at)
	b.cause = status.CauseOf(err)
	phase := status.PhaseStopped
	if c := codes.Of(err); c != nil && c.Exit == codes.ExitRecovery {
		phase = status.PhaseRecoveryBlocked
	}
	b.set(phase, "", at)
	b.settle(at)
}

// Again says that the run has ended by an error and is started again after a pause.
func (b *Board) Again(err error, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	b.cause, b.retryAt = status.CauseOf(err), at.Add(pause)
	b.set(status.PhaseWaiting, status.WaitBackoff, at)
}

// Revoked says that the group has taken the partition of this run away: what is in hand is committed.
func (b *Board) Revoked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = b.cfg.Now()
}

// Lease takes what actors.Fencing.OnLease tells.
func (b *Board) Lease(e actors.LeaseEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	l := status.Lease{Token: uint64(e.Lease.Token), Holder: e.Lease.Owner, Since: &at, Until: moment(e.Lease.Until)}
	switch e.Change {
	case actors.LeaseWaiting:
		l.State = status.LeaseOthers
		b.set(status.PhaseWaiting, status.WaitLease, at)
	case actors.LeaseAcquired:
		l.State = status.LeaseHeld
		if b.wait == status.WaitLease {
			b.set(status.PhaseWaiting, status.WaitStart, at)
		}
	case actors.LeaseLost:
		l.State = status.LeaseLost
		b.cause = status.CauseOf(e.Cause)
	case actors.LeaseReleased:
		l.State = status.LeaseFree
	}
	b.lease = l
}

// Renewed takes a renewal of the lease, which changes its end alone.
func (b *Board) Renewed(l control.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease.State == status.LeaseHeld && b.lease.Token == uint64(l.Token) {
		b.lease.Until = moment(l.Until)
	}
}

// Progress takes what actors.Config.OnProgress tells.
func (b *Board) Progress(p actors.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	b.epoch, b.runStatus, b.watermark = p.Epoch, string(p.Status), p.Watermark
	b.commit.Count++
	b.commit.Last, b.commit.Seconds = &at, p.CommitTime.Seconds()
	b.commit.Total += p.CommitTime.Seconds()
	for i := range p.Partitions {
		b.part(p.Partitions[i].Partition, at).cut(&p.Partitions[i], b, at)
	}
	for _, q := range p.Queues {
		b.part(q.Partition, at).queued(q)
	}
	for i := range p.Blocked {
		b.part(p.Blocked[i].Partition, at).keep(&p.Blocked[i], at)
	}
	b.settle(at)
}

// CommitBegan says that a commit is under way, CommitEnded how it ended.
func (b *Board) CommitBegan() {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	b.commit.Began = &at
}

// CommitEnded says how the commit under way ended.
func (b *Board) CommitEnded(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commit.Began = nil
	if err != nil {
		b.commit.Failed++
	}
	b.refused(err)
}

// Refused counts an effect that the fence refused.
func (b *Board) Refused(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused(err)
}

func (b *Board) refused(err error) {
	if codes.Has(err, codes.StaleFence) || codes.Has(err, codes.StreamFenceStale) {
		b.commit.Refused++
	}
}

// Queue takes what actors.Config.OnQueue tells.
func (b *Board) Queue(q actors.Queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	p := b.part(q.Partition, at)
	p.queued(q)
	p.settle(b, at)
}

// Withheld takes what actors.Config.OnWithheld tells.
func (b *Board) Withheld(partition int32, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	p := b.part(partition, at)
	p.facts.Withheld = on
	p.settle(b, at)
}

// Backpressure takes what actors.Config.OnBackpressure tells. A partition below 0 is all of them.
func (b *Board) Backpressure(partition int32, t backpressure.Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	if partition < 0 {
		for _, p := range b.parts {
			p.pressed(t, at)
		}
	} else {
		b.part(partition, at).pressed(t, at)
	}
	b.settle(at)
}

// Checkpoint takes what actors.Config.OnCheckpoint tells.
func (b *Board) Checkpoint(p control.Pointer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.checkpoint
	if err != nil {
		c.Failed++
		c.Cause = status.CauseOf(err)
		b.refused(err)
		return
	}
	at := b.cfg.Now()
	c.Made++
	c.Epoch, c.Bytes, c.Last, c.Cause = p.Epoch, p.Bytes, &at, nil
}

// Outage says that the source does not answer, or with nil that it does again.
func (b *Board) Outage(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.source
	if s.Outage = status.CauseOf(cause); cause == nil {
		s.OutageSince = nil
		return
	}
	if s.OutageSince == nil {
		at := b.cfg.Now()
		s.OutageSince = &at
	}
}

// Observed takes how the log stands, or why it could not be asked.
func (b *Board) Observed(o sources.Observation, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	b.source.Unobserved = status.CauseOf(err)
	if err != nil {
		return
	}
	b.source.Name, b.source.Observed = o.Name, &at
	for n, p := range b.parts {
		if e, ok := o.Extents[n]; ok {
			p.extent, p.observed = e, true
		}
		p.reading = o.Lags[n]
		p.unanswer(o.Unanswered[n], at)
	}
}

// Retention takes what actors.Config.OnRetention tells.
func (b *Board) Retention(r actors.RetentionRisk) {
	risk := &r.Risk
	told := &status.Risk{Left: &risk.Left, Removed: &risk.Removed, Read: &risk.Read, Step: &risk.Step}
	if r.Over {
		told = nil
	}
	b.AtRisk(r.Partition, told, risk.In)
}

// AtRisk says that a log is about to remove what a partition needs, within a time unless that is 0; nil says that it is not any more.
func (b *Board) AtRisk(partition int32, risk *status.Risk, within time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	p := b.part(partition, at)
	if risk == nil {
		p.risk = nil
		return
	}
	told := *risk
	told.Since = &at
	if p.risk != nil {
		told.Since = p.risk.Since
	}
	if within > 0 {
		lost := at.Add(within)
		told.LostAt = &lost
	}
	p.risk = &told
}

// Named gives the name of the source, before it was observed.
func (b *Board) Named(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source.Name = name
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// holds says whether a partition can hold the merged watermark.
func holds(p *part) bool {
	return p.blocked != nil || p.input == watermark.Active || p.input == watermark.Paused
}
