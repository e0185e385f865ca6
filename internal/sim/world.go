package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/sim/invariant"
)

// Played is what has happened.
type Played struct {
	Entries []invariant.Entry
	// Forked is the history of a run that was restored from a checkpoint and finished; nil when no checkpoint was kept.
	Forked []invariant.Entry
	// Unexpected are ends of processes that nothing accounts for.
	Unexpected []string
}

type world struct {
	sc      *Scenario
	plan    *flow.Plan
	mutant  Mutant
	history *invariant.History
	server  *server
	blobs   *checkpointtest.Memory
	// calm: no fault begins any more. finished: the run is.
	calm, finished atomic.Bool
	readers        atomic.Int64
	attempts       atomic.Int64
	start          time.Time
	// over is closed when no process is to be started any more.
	over chan struct{}

	mu         sync.Mutex
	jumped     time.Duration
	all        []*process
	running    map[int]*process
	unexpected []string
}

// Play runs a scenario to its end, in a bubble of testing/synctest.
func Play(sc *Scenario, m Mutant) (*Played, error) {
	plan, err := sc.plan(m)
	if err != nil {
		return nil, err
	}
	w := &world{sc: sc, plan: plan, mutant: m, history: invariant.NewHistory(time.Now), start: time.Now(), over: make(chan struct{}), running: map[int]*process{}}
	w.server = newServer(w.history, w.clock, m)
	w.blobs = checkpointtest.NewMemory(w.server.mem.ID)
	if sc.Drift != 0 {
		w.history.Add("world", invariant.Injected{Kind: clockDrift, Detail: fmt.Sprintf("%+.3f", sc.Drift)})
	}
	var slots sync.WaitGroup
	for n := range sc.Owners {
		slots.Go(func() { w.slot(n) })
	}
	for _, h := range sc.Timetable {
		slots.Go(func() {
			w.wait(h.at)
			w.happen(h)
		})
	}
	w.wait(sc.Quiet)
	w.calm.Store(true)
	impatient := time.AfterFunc(patience, w.giveUp)
	newProcess(w, "last", true, true).run()
	close(w.over)
	slots.Wait()
	impatient.Stop()
	forked, err := w.epilogue()
	if err != nil {
		return nil, err
	}
	// The engine's actors leave a throttled log of dead letters behind, which a bubble has to outlive.
	pause(context.Background(), 10*time.Second)
	return &Played{Entries: w.history.Entries(), Forked: forked, Unexpected: w.unexpected}, nil
}

// clock is the store's.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := time.Since(w.start)
	return w.start.Add(w.sc.Offset + w.jumped + gone + time.Duration(w.sc.Drift*float64(gone)))
}

// wait waits for a time of the scenario, or its end.
func (w *world) wait(at time.Duration) {
	t := time.NewTimer(at - time.Since(w.start))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.over:
	}
}

// out says whether the store is not reached at the moment.
func (w *world) out(p *process) bool {
	now := time.Since(w.start)
	for _, h := range w.sc.Timetable {
		if h.kind == outage && now >= h.at && now < h.at+h.span && !p.calm {
			p.once(outage, h.span.String())
			return true
		}
	}
	return false
}

// restarts is how often a slot starts a process.
const restarts = 12

// slot runs one process after the other, until the run is finished or the last process runs.
func (w *world) slot(n int) {
	rng := draw(w.sc.Seed, "slot", n)
	if n > 0 {
		w.wait(time.Duration(rng.Float64() * 2 * float64(w.sc.TTL)))
	}
	for k := range restarts {
		if w.finished.Load() || w.calm.Load() {
			return
		}
		p := newProcess(w, fmt.Sprintf("p%d.%d", n, k), false, k > 0 || !(n == 0 || w.sc.Intruder && n == 1))
		if w.sc.Twin && n == 1 && k == 0 {
			p.owner = "p0.0"
			p.injected(twins, "")
		}
		w.mu.Lock()
		w.running[n] = p
		w.mu.Unlock()
		p.run()
		pause(context.Background(), time.Duration(rng.Float64()*float64(w.sc.TTL)))
	}
}

// register keeps a process for whoever has to end it.
func (w *world) register(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, p)
}

// patience is how long the undisturbed rest of a scenario may take, in virtual time.
const patience = time.Hour

// giveUp kills what has not ended by itself.
func (w *world) giveUp() {
	w.mu.Lock()
	all := slices.Clone(w.all)
	w.unexpected = append(w.unexpected, fmt.Sprintf("the run has not ended %s after the last fault", patience))
	w.mu.Unlock()
	for _, p := range all {
		p.crash()
	}
}

// happen does what the timetable says.
func (w *world) happen(h happening) {
	if w.calm.Load() {
		return
	}
	w.mu.Lock()
	p := w.running[h.slot]
	if h.kind == clockJump {
		w.jumped += h.span
	}
	w.mu.Unlock()
	if h.kind == clockJump {
		w.history.Add("world", invariant.Injected{Kind: clockJump, Detail: h.span.String()})
	}
	if p == nil {
		return
	}
	select {
	case <-p.done:
		return
	default:
	}
	switch h.kind {
	case stallShort, stallLong:
		p.halt(h.span, "at any time")
	case killed:
		p.injected(killed, "")
		p.crash()
	case interrupted:
		p.injected(interrupted, "")
		p.interrupt()
	}
}

// ended judges how a process ended.
func (w *world) ended(p *process, result actors.Result, err error) {
	if stands := w.server.mem.Epoch(runID); err == nil && (result.Status != control.RunFinished || result.Epoch != stands || result.Counts.Records != w.sc.total()) {
		w.surprise(p, fmt.Errorf("it tells of epoch %d, %s, %d records; the journal stands at epoch %d", result.Epoch, result.Status, result.Counts.Records, stands))
	}
	if err == nil || codes.Has(err, codes.RunFinished) {
		w.finished.Store(true)
		return
	}
	if p.gate.pass() != nil {
		return // what a killed process says is heard by nobody
	}
	if codes.Has(err, codes.StreamLeaseHeld) && !p.standby {
		p.injected(intruder, "")
	}
	if p.calm {
		w.surprise(p, err)
		return
	}
	if w.sc.Twin && codes.Has(err, codes.JournalConflict) {
		return // what keeps twins apart
	}
	switch codes.Of(err) {
	case codes.JournalConflict, codes.JournalCorrupt, codes.FenceRegression, codes.RunMismatch, codes.ConfigInvalid:
		w.surprise(p, err)
	case codes.Internal:
		if !errors.Is(err, errStrike) {
			w.surprise(p, err)
		}
	}
}

func (w *world) surprise(p *process, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unexpected = append(w.unexpected, fmt.Sprintf("%s ended: %v", p.name, err))
}
