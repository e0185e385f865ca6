package sim

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// errStrike is the error and the panic of a strike.
var errStrike = errors.New("sim: a strike")

// process is one owner: one call of actors.Run with its own name, its own way to the store, the log and the blobs, and what is to befall it.
type process struct {
	w    *world
	name string
	// owner is its id. Twins have one.
	owner string
	// calm processes are not disturbed.
	calm    bool
	standby bool
	set     settings
	strikes []strike
	gate    gate

	// ctx ends when the process is interrupted, dies when it is killed.
	ctx, dies  context.Context
	stop, kill context.CancelFunc
	done       chan struct{}

	mu     sync.Mutex
	passed map[actors.Failpoint]int
	calls  map[string]int
	told   map[string]bool
	// fails: the process fails at the next batch, since a commit is under way.
	fails bool
}

// newProcess makes a process whose settings and fate the seed draws by its name.
func newProcess(w *world, name string, calm, standby bool) *process {
	p := &process{w: w, name: name, owner: name, calm: calm, standby: standby, done: make(chan struct{}),
		passed: map[actors.Failpoint]int{}, calls: map[string]int{}, told: map[string]bool{}}
	p.set, p.strikes = w.sc.drawProcess(name)
	if calm {
		p.strikes, p.set.skew = nil, 0
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.dies, p.kill = context.WithCancel(context.Background())
	w.register(p)
	return p
}

func (p *process) add(e invariant.Event) { p.w.history.Add(p.name, e) }

func (p *process) injected(kind, detail string) {
	p.add(invariant.Injected{Kind: kind, Detail: detail})
}

// once is injected for what lasts: it is told when it first acts.
func (p *process) once(kind, detail string) {
	p.mu.Lock()
	first := !p.told[kind]
	p.told[kind] = true
	p.mu.Unlock()
	if first {
		p.injected(kind, detail)
	}
}

// undisturbed says that nothing new befalls the process.
func (p *process) undisturbed() bool { return p.calm || p.w.calm.Load() }

func (p *process) number(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[what]++
	return p.calls[what]
}

// fate is that of the next call of an operation.
func (p *process) fate(op string) fate {
	n := p.number(op)
	rng := draw(p.w.sc.Seed, p.name+"/"+op, n)
	f := fate{to: time.Duration(rng.IntN(3000)) * time.Microsecond, back: time.Duration(rng.IntN(3000)) * time.Microsecond}
	if p.undisturbed() {
		return f
	}
	rough, ttl := p.w.sc.Rough, p.w.sc.TTL
	effect := op == opCommit || op == opOpen || op == opPointer
	switch op {
	case opCommit, opOpen:
		rough = 0.005 + 2*rough
	case opPointer:
		rough = 0.01 + 3*rough
	}
	f.goesOn = rng.IntN(3) > 0
	f.lostRequest, f.lostAnswer = rng.Float64() < rough, rng.Float64() < rough
	if rng.Float64() < rough {
		slow := time.Duration(rng.Float64() * 2 * float64(ttl))
		if rng.IntN(2) == 0 {
			f.to += slow
		} else {
			f.back += slow
		}
		p.injected(slowStore, op)
	}
	if op == opLoad && rng.Float64() < 3*rough {
		f.back += time.Duration(rng.Float64() * 3 * float64(time.Second))
		p.injected(slowRestore, "")
	}
	if op == opCommit {
		f.to += time.Duration(2 * rng.Float64() * float64(p.w.sc.Lag))
		if rng.Float64() < 2*rough {
			f.fails, f.to = true, f.to+time.Duration((0.05+0.2*rng.Float64())*float64(ttl))
		}
	}
	if effect && rng.Float64() < rough {
		f.inside = time.Duration((0.1 + 2.4*rng.Float64()) * float64(ttl))
	}
	if effect && rng.Float64() < 1.5*rough {
		f.sent = time.Duration((0.5 + 1.5*rng.Float64()) * float64(ttl))
		f.to = time.Duration((0.6 + 0.4*rng.Float64()) * float64(f.sent))
	}
	if effect && rng.Float64() < 1.5*rough {
		f.stop = time.Duration((0.5 + 2.5*rng.Float64()) * float64(ttl))
	}
	return f
}

func (p *process) blobFate() (slow time.Duration, fails bool) {
	rng := draw(p.w.sc.Seed, p.name+"/blob", p.number("blob"))
	if p.undisturbed() {
		return 0, false
	}
	if rng.Float64() < 2*p.w.sc.Rough {
		slow = time.Duration(rng.Float64() * float64(p.w.sc.TTL))
		p.injected(slowBlobs, "")
	}
	return slow, rng.Float64() < p.w.sc.Rough
}

// pace is how long the next answer of the log takes.
func (p *process) pace() time.Duration {
	rng := draw(p.w.sc.Seed, p.name+"/pace", p.number("pace"))
	return time.Duration(2 * rng.Float64() * float64(p.w.sc.Pace) * float64(p.set.fetch))
}

func (p *process) sourceFails(what string) bool {
	rng := draw(p.w.sc.Seed, p.name+"/source/"+what, p.number("source/"+what))
	if p.undisturbed() || rng.Float64() >= p.w.sc.Rough {
		return false
	}
	p.injected(sourceError, what)
	return true
}

// skew is what the owner's own clock makes of a lease.
func (p *process) skew(l control.Lease) control.Lease {
	if p.set.skew != 0 && !l.Deadline.IsZero() {
		p.once(clockSkew, p.set.skew.String())
		l.Deadline = l.Deadline.Add(p.set.skew)
	}
	if !l.Deadline.IsZero() {
		p.add(invariant.LeaseBelieved{Until: l.Deadline.Sub(p.w.start)})
	}
	return l
}

func (p *process) woken() { p.add(invariant.Woken{}) }

// halt stops the process for a time.
func (p *process) halt(d time.Duration, why string) {
	if p.gate.stop(d, p.woken) == nil {
		return
	}
	kind := stallShort
	if d > p.w.sc.TTL {
		kind = stallLong
	}
	p.injected(kind, why+" for "+d.String())
}

// stopInside stops the process in the middle of a transaction. The store ends one that does nothing for half a ttl.
func (p *process) stopInside(d time.Duration) error {
	shut := p.gate.stop(d, p.woken)
	if shut == nil {
		return nil
	}
	p.injected(stallInside, d.String())
	idle := time.NewTimer(p.w.sc.TTL / 2)
	defer idle.Stop()
	select {
	case <-shut:
		if p.gate.pass() != nil {
			return unavailable("the connection is gone, and the transaction is rolled back")
		}
		return nil
	case <-idle.C:
		return unavailable("the transaction did nothing for too long, and is rolled back")
	}
}

// crash kills the process.
func (p *process) crash() {
	p.gate.die()
	p.kill()
}

// hook is what befalls the process at a failpoint.
func (p *process) hook(_ context.Context, at actors.Point) error {
	if err := p.gate.pass(); err != nil {
		return err
	}
	switch at.Name {
	case actors.AfterRestore:
		p.add(invariant.Restored{Incarnation: at.Incarnation})
	case actors.BeforeStep:
		p.add(invariant.Stepped{Incarnation: at.Incarnation, Partition: at.Partition, Position: at.Position})
	}
	p.mu.Lock()
	p.passed[at.Name]++
	n := p.passed[at.Name]
	fails := p.fails && (at.Name == actors.BeforeStep || at.Name == actors.AfterPoll)
	p.fails = p.fails && !fails
	p.mu.Unlock()
	if p.undisturbed() {
		return nil
	}
	if fails {
		p.injected(failsMeanwhile, "at "+string(at.Name))
		return errStrike
	}
	for _, s := range p.strikes {
		if s.at == at.Name && s.n == n {
			return p.struck(s)
		}
	}
	return nil
}

func (p *process) struck(s strike) error {
	p.injected(s.how+"/"+string(s.at), "")
	switch s.how {
	case strikeCrash:
		p.crash()
		return errDead
	case strikePanic:
		panic(errStrike)
	case strikeError:
		return errStrike
	}
	p.halt(s.stop, "at "+string(s.at))
	return p.gate.pass()
}

// run runs to the end. It is called once.
func (p *process) run() {
	defer close(p.done)
	p.add(invariant.Started{})
	defer p.stop()
	defer p.kill()
	result, err := actors.Run(p.ctx, p.config())
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.add(invariant.Ended{Err: text})
	p.w.ended(p, result, err)
}

// interrupt asks the process to end in order. A stopped one hears of it when it goes on.
func (p *process) interrupt() {
	if p.gate.pass() == nil {
		p.stop()
	}
}

func (p *process) config() actors.Config {
	sc, c := p.w.sc, &client{p: p, s: p.w.server}
	src := sourcetest.Config{Rand: draw(sc.Seed, p.name+"/log", 0), MaxWait: time.Second, Fetch: p.set.batch, Bounded: sc.Bounded}
	b := &blobs{Blobs: p.w.blobs, p: p, pending: map[string][]byte{}}
	cfg := actors.Config{
		Plan: p.w.plan, Source: &source{p: p, log: sc.open(src)}, Journal: c, RunID: runID,
		Fencing:    &actors.Fencing{Leases: c, Owner: p.owner, TTL: sc.TTL, Standby: p.standby, StandEvery: sc.TTL / 10, OnLease: p.lease},
		EpochEvery: p.set.every, EpochRecords: p.set.records, EpochBytes: sc.EpochBytes,
		FetchSize: p.set.fetch, CreditRecords: sc.Window,
		Backoff: actors.Backoff{Min: 10 * time.Millisecond, Max: time.Second}, MaxFailures: 30,
		CommitOffsets: p.tellGroup,
		OnBackpressure: func(n int32, t backpressure.Transition) {
			p.add(invariant.Backpressure{Partition: int(n), Reads: t.To.Reads()})
		},
		Kill: p.dies, Hooks: actors.Hooks{At: p.hook}, Logger: slog.New(slog.DiscardHandler),
		Checkpointer:    &checkpoint.Saver{Store: &checkpoints{p.w.server.mem, c, b}, Blobs: b, Plan: p.w.plan, Keep: sc.Keep},
		CheckpointEvery: sc.CheckpointEvery,
	}
	if p.w.mutant == Wide {
		cfg.CreditRecords *= 8
	}
	if !sc.Bounded {
		cfg.MaxRecords = sc.total()
	}
	return cfg
}

// tellGroup is the consumer group, which is as slow and as little to be relied on as the rest.
func (p *process) tellGroup(ctx context.Context, next map[int32]record.Position) error {
	if err := p.gate.pass(); err != nil {
		return err
	}
	rng := draw(p.w.sc.Seed, p.name+"/group", p.number("group"))
	pause(ctx, time.Duration(rng.IntN(2000))*time.Microsecond)
	if !p.undisturbed() && rng.Float64() < 0.01+p.w.sc.Rough {
		p.injected(groupError, "")
		return unavailable("the group does not answer")
	}
	p.add(invariant.OffsetsTold{Next: maps.Clone(next)})
	return nil
}

func (p *process) lease(e actors.LeaseEvent) {
	p.add(invariant.LeaseTold{Holds: e.Change == actors.LeaseAcquired, What: string(e.Change)})
}
