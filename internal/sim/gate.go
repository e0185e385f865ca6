package sim

import (
	"errors"
	"sync"
	"time"
)

// errDead is what a dead process gets for everything that it still tries.
var errDead = errors.New("sim: the process is dead")

// gate is where a stopped process stands.
type gate struct {
	mu sync.Mutex
	// shut is closed when the process goes on; nil while it runs.
	shut chan struct{}
	dead bool
}

// pass waits while the process is stopped, and says whether it is dead.
func (g *gate) pass() error {
	for {
		g.mu.Lock()
		shut, dead := g.shut, g.dead
		g.mu.Unlock()
		switch {
		case dead:
			return errDead
		case shut == nil:
			return nil
		}
		<-shut
	}
}

// stop shuts the gate for a time. It returns a channel that is closed when the process goes on, which woken is told just before, or nil when
// it is stopped or dead already.
func (g *gate) stop(d time.Duration, woken func()) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead || g.shut != nil {
		return nil
	}
	shut := make(chan struct{})
	g.shut = shut
	time.AfterFunc(d, func() { g.open(shut, woken) })
	return shut
}

func (g *gate) open(shut chan struct{}, woken func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == shut {
		woken()
		close(shut)
		g.shut = nil
	}
}

// die opens the gate for ever, to nothing.
func (g *gate) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}
