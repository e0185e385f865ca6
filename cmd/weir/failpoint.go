package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// The environment of a drill. None of it is meant for production: it makes a process fail on purpose.
const (
	// failpointsEnv is NAME[@EPOCH]=kill|stop|panic, several separated by commas. NAME is a failpoint of the engine or store:STEP, a step of
	// a write to the store. @EPOCH waits for that epoch in the making, or a later one; @+N for the N-th after the one that the run, or the
	// partition that is one, has resumed from in this process. Each fires once in the life of the process. NAME=tell, for a failpoint of the
	// engine, fails nothing and is told every time.
	failpointsEnv = "WEIR_FAILPOINTS"
	// ownerEnv is the owner id, where two processes are to have the same by mistake.
	ownerEnv = "WEIR_DRILL_OWNER"
	// clockEnv moves the clock by which this process judges leases, such as 2m or -2m. PostgreSQL judges by its own clock, so it moves
	// nothing there.
	clockEnv = "WEIR_DRILL_CLOCK"
)

// The actions of a failpoint.
const (
	actKill  = "kill"
	actStop  = "stop"
	actPanic = "panic"
	actTell  = "tell"
)

// storePrefix marks the steps of the store among the failpoints.
const storePrefix = "store:"

// The failpoints of a checkpoint: before and after each blob, and before and after the pointer. They have no epoch.
const (
	beforeBlob    = "checkpoint:blob"
	afterBlob     = "checkpoint:written"
	beforePointer = "checkpoint:pointer"
	afterPointer  = "checkpoint:kept"
)

var checkpointPoints = []string{beforeBlob, afterBlob, beforePointer, afterPointer}

// isStep says whether a failpoint is a step of the store.
func isStep(name string) bool { return strings.HasPrefix(name, storePrefix) }

// fault is one planned failure.
type fault struct {
	name, action string
	epoch        uint64
	// relative: epoch counts from where the process resumed.
	relative, fired bool
}

// failpoints are the planned failures of this process.
type failpoints struct {
	mu     sync.Mutex
	faults []*fault
	// told are the failpoints that are told and fail nothing.
	told []string
	out  io.Writer
	// engines are those of the process, by run.
	engines map[string]*passing
	// stopping: the process is about to stand still, and no write begins any more. writes are under way; moving tells of changes.
	stopping bool
	writes   int
	moving   *sync.Cond
	// alone is the engine whose commit is the only write under way, nil while there is none: every step of the store is one of that commit.
	alone *passing
}

// passing is how far one engine of the process is, as far as the points that it has passed tell.
type passing struct {
	// making is the epoch in the making. committing says that it is being written.
	making     uint64
	committing bool
	// base is the epoch that the engine has resumed from, once it has.
	base    uint64
	resumed bool
}

// readFailpoints reads the environment. It fails with ConfigInvalid.
func readFailpoints(out io.Writer) (*failpoints, error) {
	f := &failpoints{out: out, engines: map[string]*passing{}}
	f.moving = sync.NewCond(&f.mu)
	text := os.Getenv(failpointsEnv)
	if text == "" {
		return f, nil
	}
	if err := canSignalItself(); err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(text, ",") {
		one, err := parseFault(strings.TrimSpace(entry))
		if err != nil {
			return nil, err
		}
		if one.action == actTell {
			f.told = append(f.told, one.name)
			continue
		}
		f.faults = append(f.faults, one)
	}
	return f, nil
}

func parseFault(entry string) (*fault, error) {
	wrong := func(format string, args ...any) error {
		return codes.New(codes.ConfigInvalid, failpointsEnv+": %q: "+format, append([]any{entry}, args...)...)
	}
	place, action, ok := strings.Cut(entry, "=")
	if !ok || !slices.Contains([]string{actKill, actStop, actPanic, actTell}, action) {
		return nil, wrong("write NAME[@EPOCH]=kill, =stop or =panic, or NAME=tell")
	}
	name, at, has := strings.Cut(place, "@")
	f := &fault{name: name, action: action}
	if has {
		digits, relative := strings.CutPrefix(at, "+")
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || n == 0 {
			return nil, wrong("the epoch %q is not a number from 1 on", at)
		}
		f.epoch, f.relative = n, relative
	}
	if engine := slices.Contains(actors.Failpoints(), actors.Failpoint(name)); action == actTell && (has || !engine) {
		return nil, wrong("what is told is a failpoint of the engine, every time that it is passed: one of %v, without an epoch", actors.Failpoints())
	}
	if slices.Contains(checkpointPoints, name) && has {
		return nil, wrong("the making of a checkpoint has no epoch")
	}
	if isStep(name) && name != storePrefix || slices.Contains(checkpointPoints, name) || slices.Contains(actors.Failpoints(), actors.Failpoint(name)) {
		return f, nil
	}
	return nil, wrong("there is no failpoint of that name; there are %v, %v and %sSTEP", actors.Failpoints(), checkpointPoints, storePrefix)
}

// hooks are those of the engine of a run.
func (f *failpoints) hooks(run string) actors.Hooks {
	if len(f.faults) == 0 && len(f.told) == 0 {
		return actors.Hooks{}
	}
	engine := &passing{}
	f.mu.Lock()
	f.engines[run] = engine
	f.mu.Unlock()
	return actors.Hooks{At: func(_ context.Context, p actors.Point) error {
		epoch := f.note(engine, p)
		if slices.Contains(f.told, string(p.Name)) {
			f.tell(map[string]any{"failpoint": string(p.Name), "action": actTell, "epoch": epoch, "partition": p.Partition, "position": p.Position.String()})
		}
		f.pass(string(p.Name), engine, epoch)
		return nil
	}}
}

// note keeps the epoch in the making up to date, and returns it.
func (f *failpoints) note(engine *passing, p actors.Point) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p.Name {
	case actors.BeforeCommit:
		engine.making, engine.committing = p.Epoch, true
	case actors.AfterCommit, actors.AfterRestore:
		engine.making, engine.committing = p.Epoch+1, false
	}
	if p.Name == actors.AfterRestore && !engine.resumed {
		engine.base, engine.resumed = p.Epoch, true
	}
	if p.Epoch > 0 {
		return p.Epoch
	}
	return engine.making
}

// store is the hook of a store, or nil when nothing is planned. Writes other than the commit of an epoch have no epoch: a fault that names one
// waits for a commit.
func (f *failpoints) store() func(step string) error {
	if len(f.faults) == 0 {
		return nil
	}
	return func(step string) error {
		f.mu.Lock()
		engine, epoch := f.alone, uint64(0)
		if engine != nil && engine.committing {
			epoch = engine.making
		}
		f.mu.Unlock()
		f.pass(storePrefix+step, engine, epoch)
		return nil
	}
}

// pass fires what is planned at a point; engine is nil where none is concerned.
func (f *failpoints) pass(name string, engine *passing, epoch uint64) {
	one := f.due(name, engine, epoch)
	if one == nil {
		return
	}
	if one.action == actStop {
		f.settle(name)
		defer f.unsettle()
	}
	f.tell(map[string]any{"failpoint": one.name, "action": one.action, "epoch": epoch})
	one.act()
}

func (f *failpoints) due(name string, engine *passing, epoch uint64) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if engine == nil {
		engine = &passing{}
	}
	for _, one := range f.faults {
		from := one.epoch
		if one.relative {
			from += engine.base
		}
		if !one.fired && one.name == name && epoch >= from && (engine.resumed || !one.relative) {
			one.fired = true
			return one
		}
	}
	return nil
}

// tell prints what is about to happen as one line of JSON, so that whoever planned it can count it.
func (f *failpoints) tell(what map[string]any) {
	what["pid"], what["time"] = os.Getpid(), time.Now().UTC().Format(time.RFC3339Nano)
	line, err := record.AppendJSON(nil, what)
	if err == nil {
		f.out.Write(append(line, '\n'))
	}
}

// act is the failure. It returns only after a stop that somebody has ended.
func (f *fault) act() {
	switch f.action {
	case actStop:
		stopItself()
	case actKill:
		killItself()
	case actPanic:
		panic("failpoint " + f.name)
	}
}

// drillOwner is the owner id of this process.
func drillOwner() string {
	if id := os.Getenv(ownerEnv); id != "" {
		return id
	}
	return control.NewOwner()
}

// drillClock is the clock of leases, or nil for that of the machine.
func drillClock() (func() time.Time, error) {
	text := os.Getenv(clockEnv)
	if text == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "%s: %q is no duration such as 2m", clockEnv, text)
	}
	return func() time.Time { return time.Now().Add(d) }, nil
}
