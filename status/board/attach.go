package board

import (
	"context"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sinks"
)

// Attach makes a run tell the board everything, beside whoever it tells already. committed, unless nil, is called with every commit that stands,
// before anything else is; it keeps nothing of it and must not block.
func (b *Board) Attach(cfg *actors.Config, committed func(control.Commit)) {
	chain(&cfg.OnState, b.State)
	chain(&cfg.OnQueue, b.Queue)
	chain(&cfg.OnProgress, b.Progress)
	chain(&cfg.OnRetention, b.Retention)
	chain2(&cfg.OnWithheld, b.Withheld)
	chain2(&cfg.OnBackpressure, func(p int32, t backpressure.Transition) { b.Backpressure(p, t) })
	chain2(&cfg.OnCheckpoint, b.Checkpoint)
	b.publisher(&cfg.Publisher)
	b.publisher(&cfg.Late)
	w := watch{b, committed}
	if f, ok := cfg.Journal.(control.Fencer); ok {
		cfg.Journal = fencedJournal{journal{cfg.Journal, w}, f}
	} else if cfg.Journal != nil {
		cfg.Journal = journal{cfg.Journal, w}
	}
	if cfg.Fencing == nil {
		return
	}
	fencing := *cfg.Fencing
	fencing.Leases = leases{fencing.Leases, b}
	chain(&fencing.OnLease, b.Lease)
	cfg.Fencing = &fencing
}

// publisher has the sinks of a publisher tell the board.
func (b *Board) publisher(of **sinks.Publisher) {
	if *of == nil {
		return
	}
	watched := **of
	chain(&watched.OnState, b.Sink)
	watched.Sinks = make([]sinks.Named, len((*of).Sinks))
	for i, s := range (*of).Sinks {
		b.known(s.Name)
		watched.Sinks[i] = sinks.Watch(s, b.Handed)
	}
	*of = &watched
}

func chain[T any](to *func(T), then func(T)) {
	before := *to
	*to = func(v T) {
		then(v)
		if before != nil {
			before(v)
		}
	}
}

func chain2[T, U any](to *func(T, U), then func(T, U)) {
	before := *to
	*to = func(v T, u U) {
		then(v, u)
		if before != nil {
			before(v, u)
		}
	}
}

type watch struct {
	board     *Board
	committed func(control.Commit)
}

// journal tells of commits.
type journal struct {
	control.Journal
	watch watch
}

// OpenRun is control.Journal's.
func (j journal) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	j.watch.board.Named(h.Source)
	state, err := j.Journal.OpenRun(ctx, h)
	j.watch.board.Refused(err)
	return state, err
}

// Commit is control.Journal's.
func (j journal) Commit(ctx context.Context, c control.Commit) error {
	j.watch.board.CommitBegan()
	err := j.Journal.Commit(ctx, c)
	if err == nil && j.watch.committed != nil {
		j.watch.committed(c)
	}
	j.watch.board.CommitEnded(err)
	return err
}

// fencedJournal is a journal that can write under a lease.
type fencedJournal struct {
	journal
	fencer control.Fencer
}

// Under is control.Fencer's.
func (j fencedJournal) Under(l control.Lease) control.Journal {
	return journal{j.fencer.Under(l), j.watch}
}

// leases tells of renewals.
type leases struct {
	control.Leases
	board *Board
}

// Renew is control.Leases'.
func (l leases) Renew(ctx context.Context, lease control.Lease) (control.Lease, error) {
	renewed, err := l.Leases.Renew(ctx, lease)
	if err == nil {
		l.board.Renewed(renewed)
	}
	return renewed, err
}
