package controltest

import (
	"sync"
	"sync/atomic"

	"github.com/weirstream/weir/control"
)

// Hooks gives every handle of a harness a hook that can be set while it is open. Its zero value is ready.
type Hooks struct {
	mu sync.Mutex
	of map[control.ControlStore]*settable
}

type settable struct {
	mu sync.Mutex
	fn func(step string) error
}

func (h *settable) step(name string) error {
	h.mu.Lock()
	fn := h.fn
	h.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(name)
}

// Open opens a handle with the hook that it is given.
func (h *Hooks) Open(open func(hook func(step string) error) control.ControlStore) control.ControlStore {
	own := &settable{}
	s := open(own.step)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[control.ControlStore]*settable{}
	}
	h.of[s] = own
	return s
}

// Set is Harness.Hook.
func (h *Hooks) Set(s control.ControlStore, fn func(step string) error) {
	h.mu.Lock()
	own := h.of[s]
	h.mu.Unlock()
	own.mu.Lock()
	defer own.mu.Unlock()
	own.fn = fn
}

// AfterCommit is Harness.AfterCommit, for a store whose hook is called at "committed" before the caller of a write hears of it.
func (h *Hooks) AfterCommit(s control.ControlStore, fn func() error) {
	var done atomic.Bool
	h.Set(s, func(step string) error {
		if step != "committed" || done.Swap(true) {
			return nil
		}
		return fn()
	})
}
