package shell

import "github.com/asynkron/protoactor-go/actor"

// Context is what a behaviour may ask for while it handles a message. It must not be kept or used by another goroutine.
type Context struct {
	cell  *cell
	inner actor.Context
}

// Self is the actor's own address.
func (c *Context) Self() Address { return Address{c.cell} }

// Parent is the address of the actor that spawned this one, zero for a root.
func (c *Context) Parent() Address { return Address{c.cell.parent} }

// System is the system that the actor lives in.
func (c *Context) System() *System { return c.cell.sys }

// Watch asks for one Terminated when the actor has ended; at once if it has ended already. Watching twice is watching once.
func (c *Context) Watch(a Address) { Watch(Address{c.cell}, a) }

// Watch makes watcher a watcher of whom, as Context.Watch does, from outside. It is safe for concurrent use.
func Watch(watcher, whom Address) {
	if watcher.cell == nil || whom.cell == nil {
		return
	}
	if whom.cell.addWatcher(watcher.cell) {
		whom.cell.tellTerminated(watcher.cell)
	}
}

// The methods of Spawner.

func (c *Context) system() *System { return c.cell.sys }

func (c *Context) parentCell() *cell { return c.cell }

func (c *Context) spawn(p *actor.Props, id string) error {
	_, err := c.inner.SpawnNamed(p, id)
	return err
}
