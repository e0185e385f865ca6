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
	// a write to the store. @EPOCH waits for that epoch in the making, or a later one; @+N for the N-th after the one that the process has
	// resumed from. Each fires once in the life of the process.
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
	out    io.Writer
	// making is the epoch in the making, as far as the points that were passed tell. committing says that it is being written.
	making     uint64
	committing bool
	// base is the epoch that the process has resumed from, once it has.
	base    uint64
	resumed bool
	// stopping: the process is about to stand still, and no write begins any more. writes are under way; moving tells of changes.
	stopping bool
	writes   int
	moving   *sync.Cond
}

// readFailpoints reads the environment. It fails with ConfigInvalid.
func readFailpoints(out io.Writer) (*failpoints, error) {
	f := &failpoints{out: out}
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
		f.faults = append(f.faults, one)
	}
	return f, nil
}

func parseFault(entry string) (*fault, error) {
	wrong := func(format string, args ...any) error {
		return codes.New(codes.ConfigInvalid, failpointsEnv+": %q: "+format, append([]any{entry}, args...)...)
	}
	place, action, ok := strings.Cut(entry, "=")
	if !ok || !slices.Contains([]string{actKill, actStop, actPanic}, action) {
		return nil, wrong("write NAME[@EPOCH]=kill, =stop or =panic")
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
	if slices.Contains(checkpointPoints, name) && has {
		return nil, wrong("the making of a checkpoint has no epoch")
	}
	if isStep(name) && name != storePrefix || slices.Contains(checkpointPoints, name) || slices.Contains(actors.Failpoints(), actors.Failpoint(name)) {
		return f, nil
	}
	return nil, wrong("there is no failpoint of that name; there are %v, %v and %sSTEP", actors.Failpoints(), checkpointPoints, storePrefix)
}

// hooks are those of the engine.
func (f *failpoints) hooks() actors.Hooks {
	if len(f.faults) == 0 {
		return actors.Hooks{}
	}
	return actors.Hooks{At: func(_ context.Context, p actors.Point) error {
		f.pass(string(p.Name), f.note(p))
		return nil
	}}
}

// note keeps the epoch in the making up to date, and returns it.
func (f *failpoints) note(p actors.Point) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p.Name {
	case actors.BeforeCommit:
		f.making, f.committing = p.Epoch, true
	case actors.AfterCommit, actors.AfterRestore:
		f.making, f.committing = p.Epoch+1, false
	}
	if p.Name == actors.AfterRestore && !f.resumed {
		f.base, f.resumed = p.Epoch, true
	}
	if p.Epoch > 0 {
		return p.Epoch
	}
	return f.making
}

// store is the hook of a store, or nil when nothing is planned. Writes other than the commit of an epoch have no epoch: a fault that names one
// waits for a commit.
func (f *failpoints) store() func(step string) error {
	if len(f.faults) == 0 {
		return nil
	}
	return func(step string) error {
		f.mu.Lock()
		epoch := uint64(0)
		if f.committing {
			epoch = f.making
		}
		f.mu.Unlock()
		f.pass(storePrefix+step, epoch)
		return nil
	}
}

// pass fires what is planned at a point.
func (f *failpoints) pass(name string, epoch uint64) {
	one := f.due(name, epoch)
	if one == nil {
		return
	}
	if one.action == actStop {
		f.settle(name)
		defer f.unsettle()
	}
	f.tell(one, epoch)
	one.act()
}

func (f *failpoints) due(name string, epoch uint64) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.faults {
		from := one.epoch
		if one.relative {
			from += f.base
		}
		if !one.fired && one.name == name && epoch >= from && (f.resumed || !one.relative) {
			one.fired = true
			return one
		}
	}
	return nil
}

// tell prints the fault before it happens, as one line of JSON, so that whoever planned it can count it.
func (f *failpoints) tell(one *fault, epoch uint64) {
	line, err := record.AppendJSON(nil, map[string]any{
		"failpoint": one.name, "action": one.action, "epoch": epoch, "pid": os.Getpid(), "time": time.Now().UTC().Format(time.RFC3339Nano),
	})
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
