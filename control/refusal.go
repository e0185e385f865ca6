package control

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/weirstream/weir/codes"
)

// Refusal is an effect that the fence has refused to an owner whose lease was taken over: nothing of it stands. It is written by the process that was
// refused, beside everything that is fenced, so that people see what a stale owner has tried.
type Refusal struct {
	// ID is given by the store, in order.
	ID int64
	// RunID is the stream or batch run, Lease the name of its lease.
	RunID, Lease string
	// Owner and Token of who was refused.
	Owner string
	Token FenceToken
	// Effect is one of the Effect… constants, Target what it was for: the name of a sink, or "".
	Effect, Target string
	// Detail is what the refusal said.
	Detail string
	// MetOwner and MetToken are whose the lease was when the refusal was noted; "" and 0 when it is gone.
	MetOwner string
	MetToken FenceToken
	At       time.Time
}

// What is refused.
const (
	EffectOpen       = "open the run"
	EffectCommit     = "commit an epoch"
	EffectCheckpoint = "keep a checkpoint"
	EffectSettle     = "settle an intervention"
	EffectPublish    = "publish to a sink"
	// EffectBatch is any of a batch run's: its start, its result, its end.
	EffectBatch = "change a batch run"
)

// MaxRefusals is how many refusals of a lease a store keeps: the newest.
const MaxRefusals = 200

// maxRefusalText bounds the texts of a refusal, in bytes.
const maxRefusalText = 500

// Refusals keeps them.
type Refusals interface {
	// NoteRefusal adds one, with ID, MetOwner, MetToken and At from the store, under no lease, and drops the oldest of its lease beyond MaxRefusals. Texts that are
	// too long are cut.
	NoteRefusal(ctx context.Context, r Refusal) error
	// ListRefusals lists those of a run, and of the runs that its partitions are, by ID; "" is all runs.
	ListRefusals(ctx context.Context, runID string) ([]Refusal, error)
}

// Fit checks a refusal and makes its texts fit to be kept. Internal for one without a lease.
func (r Refusal) Fit() (Refusal, error) {
	if badText(r.Lease, MaxName) != "" || r.Effect == "" {
		return r, codes.New(codes.Internal, "a refusal under the lease %q cannot be noted", r.Lease)
	}
	for _, text := range []*string{&r.RunID, &r.Owner, &r.Effect, &r.Target, &r.Detail} {
		*text = oneLine(*text)
	}
	r.ID, r.MetOwner, r.MetToken, r.At = 0, "", 0, time.Time{}
	return r, nil
}

// oneLine is text of one line without control characters, at most maxRefusalText bytes.
func oneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
	if len(s) > maxRefusalText {
		s = strings.ToValidUTF8(s[:maxRefusalText-3], "") + "…"
	}
	return s
}

// OfRun says whether a run is the one that is asked for, or one of its partitions; "" asks for all.
func (r Refusal) OfRun(runID string) bool {
	return runID == "" || r.RunID == runID || strings.HasPrefix(r.RunID, runID+"/")
}

// noteTime bounds how long a process that was refused takes to write that down.
const noteTime = 2 * time.Second

// Noting is the store of a process that notes what it is refused: every effect on a stream or batch run that meets StaleFence is also written down, for
// ListRefusals. tell, unless nil, is called when that could not be done; nothing else depends on it.
func Noting(s ControlStore, tell func(error)) ControlStore { return noting{s, tell} }

type noting struct {
	ControlStore
	tell func(error)
}

// Note writes a refusal down if err is one, and returns err.
func (n noting) note(ctx context.Context, l Lease, runID, effect string, err error) error {
	if codes.Has(err, codes.StaleFence) {
		Note(ctx, n.ControlStore, Refusal{RunID: runID, Lease: l.Name, Owner: l.Owner, Token: l.Token, Effect: effect, Detail: err.Error()}, n.tell)
	}
	return err
}

// Note writes a refusal down, also when the context of what was refused has ended. tell, unless nil, is called when that could not be done.
func Note(ctx context.Context, s Refusals, r Refusal, tell func(error)) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := s.NoteRefusal(within, r); err != nil && tell != nil {
		tell(err)
	}
}

// Under is Fencer's.
func (n noting) Under(l Lease) Journal { return notingJournal{n.ControlStore.Under(l), n, l} }

// KeepPointer is Checkpoints'.
func (n noting) KeepPointer(ctx context.Context, l Lease, p Pointer) error {
	return n.note(ctx, l, p.RunID, EffectCheckpoint, n.ControlStore.KeepPointer(ctx, l, p))
}

// SettleIntervention is Interventions'.
func (n noting) SettleIntervention(ctx context.Context, l Lease, runID string, id int64, outcome InterventionOutcome, epoch uint64, note string) error {
	return n.note(ctx, l, runID, EffectSettle, n.ControlStore.SettleIntervention(ctx, l, runID, id, outcome, epoch, note))
}

// Fenced is Effects'.
func (n noting) Fenced(ctx context.Context, l Lease, effects ...Effect) error {
	return n.note(ctx, l, strings.TrimPrefix(l.Name, RunLease("")), EffectBatch, n.ControlStore.Fenced(ctx, l, effects...))
}

type notingJournal struct {
	Journal
	n noting
	l Lease
}

// OpenRun is Journal's.
func (j notingJournal) OpenRun(ctx context.Context, h RunHeader) (RunState, error) {
	state, err := j.Journal.OpenRun(ctx, h)
	return state, j.n.note(ctx, j.l, h.RunID, EffectOpen, err)
}

// Commit is Journal's.
func (j notingJournal) Commit(ctx context.Context, c Commit) error {
	return j.n.note(ctx, j.l, c.RunID, EffectCommit, j.Journal.Commit(ctx, c))
}

// BeginRun is Beginner's.
func (j notingJournal) BeginRun(ctx context.Context, h RunHeader, c Commit) error {
	return j.n.note(ctx, j.l, h.RunID, EffectCommit, BeginRun(ctx, j.Journal, h, c))
}
