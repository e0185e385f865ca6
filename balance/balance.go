package balance

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sources"
)

// DefaultTTL of the leases.
const DefaultTTL = 15 * time.Second

// Config of a Balancer. Run, Leases and Units are required.
type Config struct {
	// Run names what is dealt.
	Run    string
	Leases control.Leases
	// Units says which partitions there are to work on now. It is asked at every look, one call at a time. After an error the ones before count.
	Units func(ctx context.Context) ([]int32, error)
	// Member names this process; nobody else may have the name. Defaults to control.NewOwner().
	Member string
	// TTL of all leases. Defaults to 15 s. A look comes every third of it.
	TTL time.Duration
	// Logger gets what is claimed, handed over and lost. Defaults to none.
	Logger *slog.Logger
}

// Balancer is an Assigner that deals partitions by leases. It is for one Run.
type Balancer struct {
	cfg Config

	// again is when the keeper comes again. Only the keeper touches it.
	again time.Duration

	mu      sync.Mutex
	member  control.Lease
	claims  map[int32]*claim
	wishes  map[int32]control.Lease
	units   []int32
	mem     memory
	serving bool // a wish is being granted
	work    sync.WaitGroup
}

// claim is a partition that this member has.
type claim struct {
	lease control.Lease
	// leaving: it is being drained; abort ends that.
	leaving bool
	abort   context.CancelFunc
}

var _ sources.Assigner = (*Balancer)(nil)

// New makes a balancer. CONFIG_INVALID says what is missing.
func New(cfg Config) (*Balancer, error) {
	if cfg.Run == "" || cfg.Leases == nil || cfg.Units == nil || cfg.TTL < 0 {
		return nil, codes.New(codes.ConfigInvalid, "a balancer needs a run, a store of leases and the partitions to deal, and a ttl that is not negative")
	}
	if cfg.Member == "" {
		cfg.Member = control.NewOwner()
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Balancer{cfg: cfg, again: cfg.TTL / 3, claims: map[int32]*claim{}, wishes: map[int32]control.Lease{}}, nil
}

func (b *Balancer) name(kind string) string { return kind + "/" + b.cfg.Run + "/" }

func (b *Balancer) partition(kind string, p int32) string {
	return b.name(kind) + strconv.Itoa(int(p))
}

// Run implements sources.Assigner.
func (b *Balancer) Run(ctx context.Context, h sources.Handler) error {
	// Leases are kept until everything is drained, which is after ctx has ended.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := b.join(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	var keeper sync.WaitGroup
	keeper.Go(func() { b.keep(keeping, h) })
	for wait := time.Duration(0); pause(ctx, wait); wait = b.cfg.TTL / 3 {
		b.look(ctx, h)
	}
	b.leave(keeping, h)
	stop()
	keeper.Wait()
	b.work.Wait()
	b.giveBack()
	return nil
}

// pause is false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// join takes the membership, waiting while the store does not answer. It is nil when ctx has ended.
func (b *Balancer) join(ctx context.Context) error {
	for {
		l, err := b.cfg.Leases.Acquire(ctx, b.name("members")+b.cfg.Member, b.cfg.Member, b.cfg.TTL)
		c := codes.Of(err)
		switch {
		case err == nil:
			b.member = l
			return nil
		case c != nil && c.Verdict != codes.Retry:
			return err
		}
		b.cfg.Logger.Warn("the store of leases does not answer", "run", b.cfg.Run, "cause", err.Error())
		if !pause(ctx, b.cfg.TTL/10) {
			return nil
		}
	}
}

// keep renews every lease, and does nothing else.
func (b *Balancer) keep(ctx context.Context, h sources.Handler) {
	for pause(ctx, b.again) {
		b.again = b.cfg.TTL / 3
		b.keepMember(ctx)
		b.mu.Lock()
		held, wishes := make(map[int32]control.Lease, len(b.claims)), make(map[int32]control.Lease, len(b.wishes))
		for p, c := range b.claims {
			held[p] = c.lease
		}
		for p, l := range b.wishes {
			wishes[p] = l
		}
		b.mu.Unlock()
		for p, l := range held {
			fresh, lost := b.renew(ctx, l)
			b.mu.Lock()
			if c := b.claims[p]; c != nil && c.lease.Token == l.Token {
				if c.lease = fresh; lost {
					b.lost(p, c, h)
				}
			}
			b.mu.Unlock()
		}
		for p, l := range wishes {
			fresh, lost := b.renew(ctx, l)
			b.mu.Lock()
			if _, still := b.wishes[p]; still {
				if b.wishes[p] = fresh; lost {
					delete(b.wishes, p)
				}
			}
			b.mu.Unlock()
		}
	}
}

func (b *Balancer) keepMember(ctx context.Context) {
	b.mu.Lock()
	l := b.member
	b.mu.Unlock()
	fresh, lost := b.renew(ctx, l)
	if lost {
		// Others have counted without us for a moment. Nothing hangs on the membership but the shares.
		if again, err := b.cfg.Leases.Acquire(ctx, l.Name, l.Owner, l.TTL); err == nil {
			fresh = again
		}
	}
	b.mu.Lock()
	b.member = fresh
	b.mu.Unlock()
}

// renew tries once. lost: refused, or past its deadline without an answer.
func (b *Balancer) renew(ctx context.Context, l control.Lease) (fresh control.Lease, lost bool) {
	within, cancel := context.WithTimeout(ctx, b.cfg.TTL/3)
	defer cancel()
	fresh, err := b.cfg.Leases.Renew(within, l)
	switch {
	case err == nil:
		return fresh, false
	case codes.Has(err, codes.StaleFence):
		return l, true
	}
	// Another round comes soon; it must still be before the deadline.
	b.again = b.cfg.TTL / 20
	return l, !time.Now().Add(b.again).Before(l.Deadline)
}

// lost ends a claim at once. The caller holds mu.
func (b *Balancer) lost(p int32, c *claim, h sources.Handler) {
	b.cfg.Logger.Warn("a claim was lost", "run", b.cfg.Run, "partition", p)
	if c.leaving {
		c.abort() // what drains it forgets it then
		return
	}
	delete(b.claims, p)
	b.work.Go(func() { h.Lost([]int32{p}) })
}

// look sees how things stand and acts once.
func (b *Balancer) look(ctx context.Context, h sources.Handler) {
	units, err := b.cfg.Units(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.cfg.Logger.Warn("the partitions cannot be listed; the ones before count", "run", b.cfg.Run, "cause", err.Error())
		}
		units = b.units
	}
	b.units = slices.Sorted(slices.Values(units))
	v, err := b.view(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.cfg.Logger.Warn("the leases cannot be read", "run", b.cfg.Run, "cause", err.Error())
		}
		return
	}
	b.act(ctx, decide(b.cfg.Member, v, &b.mem), h)
}

func (b *Balancer) view(ctx context.Context) (view, error) {
	v := view{units: b.units, claims: map[int32]string{}, wishes: map[int32]string{}}
	leases, err := b.cfg.Leases.ListLeases(ctx)
	if err != nil {
		return v, err
	}
	for _, l := range leases {
		if !l.Valid {
			continue
		}
		if name, ok := strings.CutPrefix(l.Name, b.name("members")); ok {
			v.members = append(v.members, name)
		}
		for kind, into := range map[string]map[int32]string{"claims": v.claims, "wishes": v.wishes} {
			if text, ok := strings.CutPrefix(l.Name, b.name(kind)); ok {
				if p, err := strconv.ParseInt(text, 10, 32); err == nil {
					into[int32(p)] = l.Owner
				}
			}
		}
	}
	if !slices.Contains(v.members, b.cfg.Member) {
		v.members = append(v.members, b.cfg.Member)
	}
	return v, nil
}

func (b *Balancer) act(ctx context.Context, m moves, h sources.Handler) {
	for _, p := range m.letGo {
		b.drain(ctx, p, h, false)
	}
	if m.handOver != none {
		b.drain(ctx, m.handOver, h, true)
	}
	for _, p := range m.unwish {
		b.mu.Lock()
		l, have := b.wishes[p]
		delete(b.wishes, p)
		b.mu.Unlock()
		if have {
			_ = b.cfg.Leases.Release(ctx, l) // it runs out by itself otherwise
		}
	}
	for _, p := range m.claim {
		b.claim(ctx, p, h)
	}
	if m.wish != none {
		if l, err := b.cfg.Leases.Acquire(ctx, b.partition("wishes", m.wish), b.cfg.Member, b.cfg.TTL); err == nil {
			b.mu.Lock()
			b.wishes[m.wish] = l
			b.mu.Unlock()
			b.cfg.Logger.Info("asks for a partition", "run", b.cfg.Run, "partition", m.wish)
		}
	}
}

// claim takes a partition, unless another was faster.
func (b *Balancer) claim(ctx context.Context, p int32, h sources.Handler) {
	l, err := b.cfg.Leases.Acquire(ctx, b.partition("claims", p), b.cfg.Member, b.cfg.TTL)
	if err != nil {
		if !codes.Has(err, codes.LeaseHeld) && ctx.Err() == nil {
			b.cfg.Logger.Warn("a partition cannot be claimed", "run", b.cfg.Run, "partition", p, "cause", err.Error())
		}
		return
	}
	b.mu.Lock()
	if c := b.claims[p]; c != nil { // it is ours already: the look was older than that
		c.lease = l
		b.mu.Unlock()
		return
	}
	b.claims[p] = &claim{lease: l}
	b.mu.Unlock()
	b.cfg.Logger.Info("claims a partition", "run", b.cfg.Run, "partition", p, "token", l.Token)
	h.Assigned([]int32{p})
}

// drain lets go of a partition in order, beside everything else. Only one that was wished for is drained at a time.
func (b *Balancer) drain(ctx context.Context, p int32, h sources.Handler, wished bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.claims[p]
	if c == nil || c.leaving || wished && b.serving {
		return
	}
	within, abort := context.WithCancel(context.WithoutCancel(ctx))
	c.leaving, c.abort = true, abort
	b.serving = b.serving || wished
	b.cfg.Logger.Info("hands a partition over", "run", b.cfg.Run, "partition", p)
	b.work.Go(func() {
		defer abort()
		h.Revoked(within, []int32{p})
		b.mu.Lock()
		l := c.lease
		delete(b.claims, p)
		if wished {
			b.serving = false
		}
		b.mu.Unlock()
		b.release(l)
	})
}

// leave drains everything, while leases are still kept.
func (b *Balancer) leave(ctx context.Context, h sources.Handler) {
	b.mu.Lock()
	var all []int32
	for p := range b.claims {
		all = append(all, p)
	}
	b.mu.Unlock()
	for _, p := range all {
		b.drain(ctx, p, h, false)
	}
	b.work.Wait()
}

// giveBack ends the membership and the wishes, so that the others need not wait.
func (b *Balancer) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(b.member)
	for p, l := range b.wishes {
		b.release(l)
		delete(b.wishes, p)
	}
}

const releaseTimeout = 2 * time.Second

// release gives a lease back. What goes wrong is left to the expiry.
func (b *Balancer) release(l control.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = b.cfg.Leases.Release(ctx, l)
}
