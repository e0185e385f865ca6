package board

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// maxFailures is how many of the last failures a snapshot tells.
const maxFailures = 10

// Snapshot is the run at this moment.
func (b *Board) Snapshot() status.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.cfg.Now()
	s := status.Snapshot{
		Run: b.cfg.Run, Flow: b.cfg.Flow, At: at, Live: true, Owner: b.cfg.Owner, Lease: b.lease,
		Phase: b.phase, Wait: b.wait, PhaseSince: moment(b.phaseSince), Cause: b.cause, Release: b.release, RetryAt: moment(b.retryAt), RevokedSince: moment(b.revoked),
		Status: b.runStatus, Incarnation: b.incarnation, Restarts: b.restarts, Epoch: b.epoch, Commit: b.commit, Checkpoint: b.checkpoint, Source: b.source, Sinks: slices.Clone(b.sinks), Published: slices.Clone(b.published),
		Watermark: status.EventTime{T: b.watermark}, Holders: []int32{}, Partitions: []status.Partition{}, Failures: b.failures(),
	}
	for _, n := range slices.Sorted(maps.Keys(b.parts)) {
		p := b.parts[n]
		s.Partitions = append(s.Partitions, p.snapshot(b, at))
		s.Counts = s.Counts.Plus(countsOf(p.counts))
		if p.pressure.State == backpressure.RecoveryBlocked.String() && b.phase == status.PhaseRunning {
			s.Phase, s.Wait, s.PhaseSince = status.PhaseRecoveryBlocked, "", p.pressure.Since
		}
	}
	s.Holders = append(s.Holders, b.holders()...)
	return s
}

// holders are the partitions at which the merged watermark stands.
func (b *Board) holders() (out []int32) {
	least := record.MaxTime
	for _, p := range b.parts {
		if holds(p) {
			least = min(least, p.watermark)
		}
	}
	for n, p := range b.parts {
		if holds(p) && p.watermark == least {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

func (b *Board) failures() []status.Failure {
	all := b.result.Failures
	all = all[max(len(all)-maxFailures, 0):]
	out := make([]status.Failure, len(all))
	for i, f := range all {
		out[i] = failureOf(f)
	}
	return out
}

func failureOf(f actors.Failure) status.Failure {
	out := status.Failure{Incarnation: f.Incarnation, Actor: f.Actor, Cause: *status.CauseOf(f.Cause)}
	if f.Partition >= 0 {
		n := f.Partition
		out.Partition, out.Position = &n, f.Position.String()
	}
	return out
}

// Set is the boards of one run, or of its partitions when they run apart. Its methods may be called from any goroutine.
type Set struct {
	run string
	now func() time.Time

	mu     sync.Mutex
	boards []*Board
	empty  time.Time
	group  *status.Cause
	since  time.Time // of group
}

// NewSet makes an empty set; now defaults to time.Now.
func NewSet(run string, now func() time.Time) *Set {
	if now == nil {
		now = time.Now
	}
	return &Set{run: run, now: now, empty: now()}
}

// Add takes a board in, in the place of one of the same run.
func (s *Set) Add(b *Board) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(x *Board) bool { return x.cfg.Run == b.cfg.Run })
	s.boards = append(s.boards, b)
}

// Remove takes the board out, for a partition that is another process's now.
func (s *Set) Remove(b *Board) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(x *Board) bool { return x == b })
}

func (s *Set) remove(which func(*Board) bool) {
	if s.boards = slices.DeleteFunc(s.boards, which); len(s.boards) == 0 {
		s.empty = s.now()
	}
}

// Group says why the process is no member of its group at present, or with nil that it is.
func (s *Set) Group(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause != nil && s.group == nil {
		s.since = s.now()
	}
	s.group = status.CauseOf(cause)
}

// Report is the set at this moment, with its parts in the order of their run ids and the least of their watermarks.
func (s *Set) Report() status.Report {
	s.mu.Lock()
	boards := slices.Clone(s.boards)
	r := status.Report{Format: status.Format, Run: s.run, At: s.now(), Live: true, Runs: []status.Snapshot{}}
	if len(boards) == 0 {
		r.EmptySince = moment(s.empty)
	}
	if r.Group = s.group; s.group != nil {
		r.GroupSince = moment(s.since)
	}
	s.mu.Unlock()
	for _, b := range boards {
		r.Runs = append(r.Runs, b.Snapshot())
	}
	r.Merge()
	return r
}

// Each calls fn with every board.
func (s *Set) Each(fn func(*Board)) {
	s.mu.Lock()
	boards := slices.Clone(s.boards)
	s.mu.Unlock()
	for _, b := range boards {
		fn(b)
	}
}
