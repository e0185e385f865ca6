package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
)

// Member is this process among those that share a run. It is the Handler that its assigner tells.
type Member struct {
	cfg Config
	// ctx is that of the membership, end ends it with the cause.
	ctx context.Context
	end context.CancelCauseFunc

	mu    sync.Mutex
	units map[int32]*unit
	// over: nothing is started any more.
	over bool
	work sync.WaitGroup
}

var _ Handler = (*Member)(nil)

// unit is one partition of a member.
type unit struct {
	partition int32
	machine   machine
	since     time.Time
	cause     error
	// pause is how long it rests, and timer ends that; generation tells the timers of one unit apart.
	pause      time.Duration
	timer      *time.Timer
	generation uint64
	// drain and kill end the engine that runs.
	drain, kill context.CancelFunc
	lease       *held
	// gone is closed when the partition is released.
	gone chan struct{}
}

// New makes a member. CONFIG_INVALID says what is missing.
func New(cfg Config) (*Member, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Member{cfg: cfg.withDefaults(), ctx: context.Background(), end: func(error) {}, units: map[int32]*unit{}}, nil
}

// Run works on what the assigner gives until ctx ends; then every partition is drained side by side, and the member leaves. It is called once.
//
// It ends with actors.ErrInterrupted when ctx has ended and everything in hand is committed; with the failure of a partition that stood then,
// and was not mended by a later commit; with the assigner's error; or, when nothing but a change of the configuration can help any partition that is assigned,
// with the cause of the first of them. What one partition lacks ends nothing else.
func (m *Member) Run(ctx context.Context) error {
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	m.mu.Lock()
	m.ctx, m.end = within, end
	m.mu.Unlock()
	defer context.AfterFunc(m.cfg.Kill, func() { end(actors.ErrKilled) })()
	err := m.cfg.Assigner.Run(within, m)
	// What an assigner that has failed may have left.
	m.Revoked(context.WithoutCancel(ctx), m.all())
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.work.Wait()
	standing := m.standing()
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case m.cfg.Kill.Err() != nil:
		return actors.ErrKilled
	case ctx.Err() == nil && within.Err() != nil:
		return context.Cause(within)
	case standing != nil:
		return standing
	case ctx.Err() == nil:
		return codes.New(codes.Internal, "whoever assigns the partitions of run %q has ended unasked", m.cfg.Run)
	}
	return actors.ErrInterrupted
}

// Assigned is Handler's.
func (m *Member) Assigned(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return
	}
	for _, p := range partitions {
		u := m.units[p]
		if u == nil {
			u = &unit{partition: p, machine: newMachine()}
			m.units[p] = u
		}
		m.step(u, assigned, nil)
	}
}

// Revoked is Handler's.
func (m *Member) Revoked(ctx context.Context, partitions []int32) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Drain)
	defer cancel()
	m.await(m.leave(partitions, revoked), ctx.Done(), func() { m.leave(partitions, deadline) })
}

// Lost is Handler's.
func (m *Member) Lost(partitions []int32) {
	m.await(m.leave(partitions, lost), nil, nil)
}

// leave tells partitions an event, and returns those that are not gone yet.
func (m *Member) leave(partitions []int32, e event) (waits []chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		u := m.units[p]
		if u == nil {
			continue
		}
		if e != deadline && u.gone == nil {
			u.gone = make(chan struct{})
		}
		if u.gone != nil {
			waits = append(waits, u.gone)
		}
		m.step(u, e, nil)
	}
	return waits
}

// await waits until all are gone; late is called when there is no more time.
func (m *Member) await(waits []chan struct{}, stop <-chan struct{}, late func()) {
	for _, gone := range waits {
		select {
		case <-gone:
			continue
		case <-stop:
			stop = nil
			late()
		}
		<-gone
	}
}

// step moves a partition on. The lock is held.
func (m *Member) step(u *unit, e event, cause error) {
	before := u.machine.phase
	if cause != nil || e == committed || e == assigned && before == Absent {
		u.cause = cause
	}
	for _, a := range u.machine.step(e) {
		m.act(u, a)
	}
	if now := u.machine.phase; now != before {
		u.since = time.Now()
		if now == Absent && m.ctx.Err() == nil {
			u.cause = nil // it is somebody else's now
		}
		c := Change{Partition: u.partition, Phase: now}
		if now == Waiting {
			c.Cause, c.Pause = u.cause, u.pause
		}
		m.cfg.OnChange(c)
	}
	if u.machine.phase == Waiting && e == ended {
		m.hopeless()
	}
}

func (m *Member) act(u *unit, a action) {
	switch a {
	case start:
		m.start(u)
	case drain:
		u.drain()
	case kill:
		u.kill()
	case pause:
		u.pause = m.cfg.Backoff.Pause(u.machine.failures)
		u.generation++
		n := u.generation
		u.timer = time.AfterFunc(u.pause, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if u.generation == n && !m.over {
				m.step(u, due, nil)
			}
		})
		m.cfg.Logger.Warn("the engine of a partition has ended; it is started again", "run", m.cfg.Run, "partition", u.partition, "after", u.pause,
			"failures", u.machine.failures, "cause", errorText(u.cause))
	case forget:
		u.generation++
		u.timer.Stop()
	case release:
		if u.gone != nil {
			close(u.gone)
			u.gone = nil
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// start runs an engine of a partition. The lock is held.
func (m *Member) start(u *unit) {
	ctx, stop := context.WithCancel(context.Background())
	dead, die := context.WithCancel(m.cfg.Kill)
	u.drain, u.kill, u.lease = stop, die, new(held)
	lease := u.lease
	m.work.Go(func() {
		err := m.engine(ctx, dead, u, lease)
		killed := dead.Err() != nil
		stop()
		die()
		if killed {
			lease.giveBack()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case err == nil || codes.Has(err, codes.RunFinished):
			m.step(u, exhausted, nil)
		case errors.Is(err, actors.ErrInterrupted) || errors.Is(err, actors.ErrKilled):
			m.step(u, ended, nil)
		default:
			m.step(u, ended, err)
		}
	})
}

// engine runs one engine to its end.
func (m *Member) engine(ctx, dead context.Context, u *unit, lease *held) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(dead, cancel)()
	cfg, err := m.cfg.Engine(asking, u.partition)
	if err != nil {
		if asking.Err() != nil {
			return actors.ErrInterrupted // nothing was begun
		}
		return err
	}
	if cfg.Fencing == nil {
		return codes.New(codes.Internal, "partition %d would be worked on without a lease", u.partition)
	}
	fencing := *cfg.Fencing
	lease.Leases = fencing.Leases
	fencing.Leases, fencing.Owner, fencing.Standby = lease, "", true
	cfg.RunID, cfg.Kill, cfg.Fencing = RunID(m.cfg.Run, u.partition), dead, &fencing
	told := cfg.OnProgress
	cfg.OnProgress = func(p actors.Progress) {
		m.mu.Lock()
		m.step(u, committed, nil)
		m.mu.Unlock()
		if told != nil {
			told(p)
		}
	}
	_, err = m.cfg.Start(ctx, cfg)
	return err
}

// all are the partitions that are not absent, in ascending order.
func (m *Member) all() (out []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(m.units)) {
		if m.units[p].machine.phase != Absent {
			out = append(out, p)
		}
	}
	return out
}

// Status is one partition of a member.
type Status struct {
	Partition int32
	Phase     Phase
	// Since is when it came to its phase.
	Since time.Time
	// Failures in a row without a commit in between; Cause is the last of them.
	Failures int
	Cause    error
}

// Partitions are those that this process works on, or has yet to let go, in ascending order.
func (m *Member) Partitions() (out []Status) {
	all := m.all()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range all {
		if u := m.units[p]; u.machine.phase != Absent {
			out = append(out, Status{p, u.machine.phase, u.since, u.machine.failures, u.cause})
		}
	}
	return out
}

// standing is the failure of the first partition that has one which no commit has followed. A lease that was lost is none: somebody else goes on.
func (m *Member) standing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(m.units)) {
		if u := m.units[p]; u.cause != nil && !codes.Has(u.cause, codes.StreamFenceStale) {
			return u.cause
		}
	}
	return nil
}

// hopeless ends the membership when every partition that is assigned has failed by something that only another configuration helps: then others
// should get them, and a person should know. The lock is held.
func (m *Member) hopeless() {
	var first error
	for _, p := range slices.Sorted(maps.Keys(m.units)) {
		u := m.units[p]
		if u.machine.phase == Absent {
			continue
		}
		code := codes.Of(u.cause)
		if u.machine.phase != Waiting || code == nil || code.Exit != codes.ExitConfig {
			return
		}
		if first == nil {
			first = codes.New(code, "no partition can be worked on; partition %d: %w", p, u.cause)
		}
	}
	if first != nil {
		m.end(first)
	}
}

// Abandon gives back every lease that is held, while engines may still be at work: whatever they do then is refused. It is for a process that
// is about to end at once.
func (m *Member) Abandon() {
	m.mu.Lock()
	var leases []*held
	for _, u := range m.units {
		if u.lease != nil {
			leases = append(leases, u.lease)
		}
	}
	m.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(l.giveBack)
	}
	all.Wait()
}
