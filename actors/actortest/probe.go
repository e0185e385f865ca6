package actortest

import (
	"sync"
	"time"

	"github.com/weirstream/weir/actors/shell"
)

// Queue is what Expect and Fish read: a probe of any message type.
type Queue interface {
	// Name of the probe.
	Name() string
	// next takes the next message, waiting at most d of virtual time.
	next(d time.Duration) (any, bool)
	kit() *Kit
}

// Probe is an actor that keeps what it is sent, and the ends that it watches, in order.
type Probe[M any] struct {
	k   *Kit
	ref shell.Ref[M]

	mu      sync.Mutex
	kept    []any
	arrived chan struct{}
}

// NewProbe starts a probe.
func NewProbe[M any](k *Kit, name string) *Probe[M] {
	k.T.Helper()
	p := &Probe[M]{k: k, arrived: make(chan struct{}, 1)}
	p.ref = Spawn(k, name, shell.Behaviour[M](probing[M]{p}))
	return p
}

// Ref is the address that the actor under test sends to.
func (p *Probe[M]) Ref() shell.Ref[M] { return p.ref }

// Name of the probe.
func (p *Probe[M]) Name() string { return p.ref.Name() }

// Watch makes the end of an actor a message of this probe: a shell.Terminated, behind everything that the actor sent it.
func (p *Probe[M]) Watch(a shell.Address) { shell.Watch(p.ref.Address, a) }

// ExpectNone says that no message comes for d of virtual time. Time passes by d.
func (p *Probe[M]) ExpectNone(d time.Duration) {
	p.k.T.Helper()
	if m, ok := p.next(d); ok {
		p.k.T.Fatalf("actortest: %s: expected nothing for %v, got %T: %+v", p.Name(), d, m, m)
	}
}

// Rest takes every message that is there once all is quiet.
func (p *Probe[M]) Rest() []any {
	p.k.Settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.kept
	p.kept = nil
	return rest
}

// Expect takes the probe's next message, which must be a T.
func Expect[T any](q Queue) T {
	k := q.kit()
	k.T.Helper()
	m, ok := q.next(k.patience)
	if !ok {
		k.T.Fatalf("actortest: %s: expected a %T, got nothing for %v", q.Name(), *new(T), k.patience)
	}
	v, ok := m.(T)
	if !ok {
		k.T.Fatalf("actortest: %s: expected a %T, got %T: %+v", q.Name(), *new(T), m, m)
	}
	return v
}

// Fish takes messages from the probe until one is a T for which fits is true (nil fits every T). What it passes over is gone.
func Fish[T any](q Queue, fits func(T) bool) T {
	k := q.kit()
	k.T.Helper()
	end := time.Now().Add(k.patience)
	passed := 0
	for {
		m, ok := q.next(time.Until(end))
		if !ok {
			k.T.Fatalf("actortest: %s: fished for a %T for %v, passed over %d other messages", q.Name(), *new(T), k.patience, passed)
		}
		if v, ok := m.(T); ok && (fits == nil || fits(v)) {
			return v
		}
		passed++
	}
}

func (p *Probe[M]) kit() *Kit { return p.k }

func (p *Probe[M]) keep(m any) {
	p.mu.Lock()
	p.kept = append(p.kept, m)
	p.mu.Unlock()
	signal(p.arrived)
}

func (p *Probe[M]) pop() (any, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == 0 {
		return nil, false
	}
	m := p.kept[0]
	p.kept = p.kept[1:]
	return m, true
}

func (p *Probe[M]) next(d time.Duration) (any, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if m, ok := p.pop(); ok {
			return m, true
		}
		select {
		case <-p.arrived:
		case <-timer.C:
			return p.pop()
		}
	}
}

type probing[M any] struct{ p *Probe[M] }

func (b probing[M]) Receive(_ *shell.Context, m M) error {
	b.p.keep(m)
	return nil
}

func (b probing[M]) Terminated(_ *shell.Context, t shell.Terminated) error {
	b.p.keep(t)
	return nil
}
