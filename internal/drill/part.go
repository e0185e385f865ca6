package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// part is one part of the drill: a run of its own in a store that it may share.
type part struct {
	*drill
	name, run, topic string
	dir              string
	storeText        string
	eyes             control.ControlStore
	watch            *watcher
	ttl              time.Duration
	// pace are arguments of every process of the part.
	pace []string
	// inherited are the rows of each partition that the run had before it had an owner.
	inherited map[int32]int64
}

// shortEpochs make many epochs of a small topic.
var shortEpochs = []string{"--epoch", "100ms", "--epoch-records", "10", "--fetch", "4"}

// watchEvery is how often the reader looks, watchLong in the long drill, where it reads much every time.
const (
	watchEvery = 50 * time.Millisecond
	watchLong  = 500 * time.Millisecond
)

// plan is one part to be played.
type plan struct {
	name string
	ttl  time.Duration
	play func(p *part, ctx context.Context) error
}

// planned are the parts of the drill.
func (d *drill) planned() []plan {
	all := []plan{
		{"owners", d.TTL, (*part).owners},
		{"kill", d.TTL, (*part).kill},
		{"zombie", d.ShortTTL, (*part).zombie},
		{"deaf", d.ShortTTL, (*part).deaf},
		{"effect", d.ShortTTL, (*part).effect},
		{"shot", d.ShortTTL, (*part).shot},
		{"handover", d.TTL, (*part).handover},
		{"twins", d.ShortTTL, (*part).twins},
		{"reborn", d.ShortTTL, (*part).reborn},
		{"clock", d.ShortTTL, (*part).clock},
		{"restore", d.ShortTTL, (*part).restore},
		{"keeper", d.ShortTTL, (*part).keeper},
	}
	points := d.points()
	for i := range lanes {
		var mine []string
		for k := i; k < len(points); k += lanes {
			mine = append(mine, points[k])
		}
		all = append(all, plan{fmt.Sprintf("points%d", i+1), d.ShortTTL, func(p *part, ctx context.Context) error { return p.lane(ctx, mine) }})
	}
	return slices.DeleteFunc(all, func(one plan) bool { return len(d.Only) > 0 && !slices.Contains(d.Only, one.name) })
}

// parts runs all parts side by side.
func (d *drill) parts(ctx context.Context) error {
	all := d.planned()
	for _, name := range d.Only {
		if !slices.ContainsFunc(all, func(one plan) bool { return one.name == name }) {
			return codes.New(codes.ConfigInvalid, "the drill has no part %q", name)
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	turns := make(chan struct{}, d.Parallel)
	for _, one := range all {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := d.play(ctx, one); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// play runs one part. An error that is one of the drill's promises is a check that did not hold; only what keeps the drill itself from going on
// is returned.
func (d *drill) play(ctx context.Context, one plan) error {
	p := &part{drill: d, name: one.name, run: fmt.Sprintf("drill-%s-%s", d.id, one.name), dir: filepath.Join(d.Dir, one.name), ttl: one.ttl, pace: shortEpochs}
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.eyes.Close()
	err := one.play(p, ctx)
	p.watch.close(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.promise(err == nil, "the part goes through to its end", "%s", orOK(err))
	p.seen()
	return nil
}

func orOK(err error) string {
	if err == nil {
		return "it did"
	}
	return err.Error()
}

// open makes the part's folder and opens its store twice: for the drill, and for the reader.
func (p *part) open(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
	}
	p.storeText = p.Store
	if p.kind == control.StoreSQLite {
		p.storeText += "." + p.name
	}
	var err error
	if p.eyes, err = p.Open(ctx, p.storeText); err != nil {
		return err
	}
	every := watchEvery
	if p.Records > 0 {
		every = watchLong
	}
	reader, err := p.Open(ctx, p.storeText)
	if err == nil {
		p.watch, err = newWatcher(ctx, p.drill, reader, every)
	}
	if err != nil {
		_ = p.eyes.Close() // the reason to give up says more
	}
	return err
}

// promise notes a check of this part.
func (p *part) promise(ok bool, what, evidence string, args ...any) bool {
	return p.check(p.name, ok, what, evidence, args...)
}

// seen turns what the reader saw into checks.
func (p *part) seen() {
	w := p.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range seeing {
		if kind == seePointers && w.blobs == nil {
			continue
		}
		evidence := fmt.Sprintf("%d readings, %d new epochs, %d outputs, %d checkpoints seen", w.tally.readings, w.tally.epochs, w.tally.rows, w.tally.pointers)
		if wrong := w.wrong[kind]; len(wrong) > 0 {
			evidence = strings.Join(wrong, "; ")
		}
		p.promise(len(w.wrong[kind]) == 0, "reader: "+kind, "%s", evidence)
	}
	p.promise(w.tally.epochs > 0, "reader: it has seen the run advance", "%d new epochs in %d readings", w.tally.epochs, w.tally.readings)
}

// on sets the topic of the part's run, and has the reader watch it.
func (p *part) on(t *topic) {
	p.topic = t.name
	p.watch.add(p.run, t.name)
}

// options of one process.
type options struct {
	// points are failpoints, as WEIR_FAILPOINTS has them; env more of the environment.
	points string
	env    []string
	// standby, daemon: without an end. run is another run id.
	standby, daemon bool
	run             string
	more            []string
}

// weir starts a daemon of this part's run.
func (p *part) weir(name string, o options) (*process, error) {
	run := p.run
	if o.run != "" {
		run = o.run
	}
	args := append([]string{"run", p.flowFile(), "--topic", p.topic, "--group", run, "--run-id", run, "--store", "env:" + storeEnv,
		"--ttl", p.ttl.String(), "--json", "--verbose"}, p.brokerArgs()...)
	if !o.daemon {
		args = append(args, "--once-n", fmt.Sprint(p.report.Records), "--emit", p.emitFile(name))
	}
	if o.standby {
		args = append(args, "--standby")
	}
	args = append(append(args, p.pace...), o.more...)
	env := append([]string{storeEnv + "=" + p.storeText}, o.env...)
	if o.run == "" {
		toTargets, secrets := p.targetArgs()
		args, env = append(args, toTargets...), append(env, secrets...)
	}
	if o.points != "" {
		env = append(env, "WEIR_FAILPOINTS="+o.points)
	}
	return p.fleet.start(p.name+"-"+name, env, args...)
}

func (p *part) emitFile(name string) string { return filepath.Join(p.dir, name+".emit.json") }

// state is the journal of the part's run; ok is false when there is none.
func (p *part) state(ctx context.Context) (s control.RunState, ok bool, err error) {
	return stateOf(ctx, p.eyes, p.run)
}

func stateOf(ctx context.Context, store control.ControlStore, run string) (s control.RunState, ok bool, err error) {
	err = store.Snapshot(ctx, run, func(v control.JournalView) error {
		s = v.State()
		return nil
	})
	if codes.Has(err, codes.RunUnknown) {
		return s, false, nil
	}
	return s, err == nil, err
}

func records(s control.RunState) (n int64) {
	for _, c := range s.Cuts {
		n += c.Counts.Records
	}
	return n
}

func (p *part) lease(ctx context.Context) (control.LeaseInfo, error) {
	l, _, err := p.eyes.LookupLease(ctx, control.StreamLease(p.run))
	return l, err
}

// committed waits until so many records are committed, while a process runs.
func (p *part) committed(ctx context.Context, by *process, n int64) (s control.RunState, err error) {
	err = p.await(ctx, by, patience, func() (ok bool, err error) {
		s, ok, err = p.state(ctx)
		return ok && records(s) >= n, err
	}, "%d records are committed by %s", n, by.name)
	return s, err
}

// patience is how long the drill waits for what has no bound of its own, on a busy machine.
const patience = 60 * time.Second

// await polls while a process runs. The answer is asked for once more after its end: what it did last counts.
func (p *part) await(ctx context.Context, by *process, within time.Duration, ask func() (bool, error), what string, args ...any) error {
	return poll(ctx, within, func() (bool, error) {
		ran := by.running()
		ok, err := ask()
		if !ok && err == nil && !ran {
			err = fmt.Errorf("process %s (pid %d) ended too early, %s; it said:\n%s", by.name, by.pid, by.how(), tail(by.said()))
		}
		return ok, err
	}, what, args...)
}

// owned waits until the lease is under a token, and returns it as it was seen first.
func (p *part) owned(ctx context.Context, by *process, token control.FenceToken, within time.Duration) (l control.LeaseInfo, err error) {
	err = p.await(ctx, by, within, func() (bool, error) {
		l, err = p.lease(ctx)
		if err == nil && l.Token >= token {
			return true, mine(l, by, token)
		}
		return false, err
	}, "%s owns the run under token %d", by.name, token)
	return l, err
}

// mine is nil when a lease is that of a process under a token. An owner id holds the process id.
func mine(l control.LeaseInfo, by *process, token control.FenceToken) error {
	if l.Token != token || !strings.Contains(l.Owner, fmt.Sprintf("-%d-", by.pid)) {
		return fmt.Errorf("%s (pid %d) should own the run under token %d, but %s does under token %d", by.name, by.pid, token, l.Owner, l.Token)
	}
	return nil
}

// waiting waits until a process stands by.
func (p *part) waiting(ctx context.Context, by *process) error {
	return p.await(ctx, by, patience, func() (bool, error) {
		_, _, ok := by.when("standing by")
		return ok, nil
	}, "%s stands by", by.name)
}

// fires waits until the failpoint of a process has fired, and notes the fault. For a stop the process then stands still, for a kill it has ended.
func (p *part) fires(ctx context.Context, by *process, at, action string) error {
	kind := map[string]string{"stop": "SIGSTOP", "kill": "SIGKILL", "panic": "PANIC"}[action]
	var f fired
	err := p.await(ctx, by, patience, func() (ok bool, err error) {
		f, ok = by.fault()
		return ok, nil
	}, "failpoint %s of %s fires", at, by.name)
	if err == nil && action == "stop" {
		err = by.frozen(ctx)
	}
	if err == nil && action == "kill" {
		err = by.wait(ctx, patience)
	}
	p.fault(Fault{Part: p.name, Kind: kind, At: at, Epoch: f.Epoch, Fired: err == nil && f.Failpoint == at && f.Action == action})
	return err
}

// refused checks a process that must not own the run: exit code, code, no results.
func (p *part) refused(ctx context.Context, by *process, who, code string) error {
	if err := by.wait(ctx, patience); err != nil {
		return err
	}
	p.promise(by.code() == codes.ExitFenced, who+" ends with exit code 7", "%s", by.how())
	_, said, ok := by.when("weir: " + code)
	p.promise(ok, who+" is refused with "+code, "%s", or(said, tail(by.said())))
	p.noEmit(by, who)
	return nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// noEmit checks that a process has published nothing.
func (p *part) noEmit(by *process, who string) {
	path := p.emitFile(strings.TrimPrefix(by.name, p.name+"-"))
	_, err := os.Stat(path)
	p.promise(errors.Is(err, os.ErrNotExist), who+" writes no emit document", "%s: %v", filepath.Base(path), orText(err, "it is there"))
}

func orText(err error, text string) string {
	if err != nil {
		return err.Error()
	}
	return text
}

// freeze stops a process outside of any write. On SQLite one that is stopped within a write, be it the renewal of its lease, holds the file: that
// is another part, effect. Such a stop missed its aim, and is aimed again.
func (p *part) freeze(ctx context.Context, a *process) error {
	for {
		if err := a.freeze(ctx); err != nil || p.kind != control.StoreSQLite || !p.heldFile(ctx) {
			return err
		}
		if err := a.thaw(); err != nil {
			return err
		}
	}
}

// heldFile says whether the file of the store cannot be written.
func (p *part) heldFile(ctx context.Context) bool {
	const long = 300 * time.Millisecond
	within, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	l, err := p.eyes.Acquire(within, "drill-probe", "drill-"+p.id, time.Second)
	if err == nil {
		err = p.eyes.Release(ctx, l)
	}
	return err != nil && ctx.Err() == nil
}

// emitted is what is judged of an emit document.
type emitted struct {
	Events     []string         `json:"events"`
	ValuesHash string           `json:"values_hash"`
	Consumed   int64            `json:"consumed"`
	Filtered   int64            `json:"filtered"`
	Omitted    int64            `json:"omitted"`
	Duplicates int64            `json:"duplicates_skipped"`
	Late       int64            `json:"late"`
	Future     int64            `json:"future"`
	Positions  map[string]int64 `json:"positions"`
	FenceToken uint64           `json:"fence_token"`
}

func readEmit(path string) (e emitted, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text, &e)
}
