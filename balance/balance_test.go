package balance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/balance"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

const ttl = 6 * time.Second

// floor is where members work: it notes who works on what.
type floor struct {
	t     *testing.T
	mu    sync.Mutex
	at    map[int32][]string
	moves map[int32]int
	// beside are those who got what another works on.
	beside []string
	// drain is how long a partition takes to drain.
	drain time.Duration
}

type worker struct {
	*floor
	name string
}

func (w worker) Assigned(ps []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range ps {
		w.at[p] = append(w.at[p], w.name)
		w.moves[p]++
		if len(w.at[p]) > 1 {
			w.beside = append(w.beside, fmt.Sprintf("%s works on partition %d beside others: %v", w.name, p, w.at[p]))
		}
	}
}

func (w worker) Revoked(ctx context.Context, ps []int32) {
	timer := time.NewTimer(w.drain)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	w.Lost(ps)
}

func (w worker) Lost(ps []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range ps {
		w.at[p] = slices.DeleteFunc(w.at[p], func(n string) bool { return n == w.name })
	}
}

func (f *floor) share(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, who := range f.at {
		if slices.Contains(who, name) {
			n++
		}
	}
	return n
}

func (f *floor) moved() (total, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.moves {
		total, most = total+n, max(most, n)
	}
	return total, most
}

// house is a store and members on it, in a bubble.
type house struct {
	*floor
	store  *controltest.Memory
	leases control.Leases
	units  []int32
	stops  map[string]func()
	work   sync.WaitGroup
}

func newHouse(t *testing.T, units int) *house {
	h := &house{floor: &floor{t: t, at: map[int32][]string{}, moves: map[int32]int{}}, store: controltest.NewMemory(), stops: map[string]func(){}}
	h.leases = h.store
	for p := range units {
		h.units = append(h.units, int32(p))
	}
	return h
}

func (h *house) join(name string) {
	h.t.Helper()
	b, err := balance.New(balance.Config{
		Run: "run", Leases: h.leases, Member: name, TTL: ttl,
		Units: func(context.Context) ([]int32, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Clone(h.units), nil
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stops[name] = stop
	h.work.Go(func() {
		if err := b.Run(ctx, worker{h.floor, name}); err != nil {
			h.t.Errorf("%s: %v", name, err)
		}
	})
}

func (h *house) end() {
	for _, stop := range h.stops {
		stop()
	}
	h.work.Wait()
	for _, who := range h.beside {
		h.t.Error(who)
	}
	for p, who := range h.at {
		if len(who) > 0 {
			h.t.Errorf("partition %d is still worked on by %v", p, who)
		}
	}
	leases, err := h.store.ListLeases(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, l := range leases {
		if l.Valid {
			h.t.Errorf("lease %s is still held by %s", l.Name, l.Owner)
		}
	}
}

// Members come and go: each has its share soon, nobody works beside another, and a rest is a rest.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 20)
		h.drain = time.Second
		h.join("a")
		time.Sleep(ttl)
		if n := h.share("a"); n != 20 {
			t.Errorf("alone, a has %d of 20", n)
		}
		h.join("b")
		time.Sleep(15 * ttl)
		if a, b := h.share("a"), h.share("b"); a != 10 || b != 10 {
			t.Errorf("shares are %d and %d", a, b)
		}
		if total, most := h.moved(); total != 30 || most > 2 {
			t.Errorf("%d moves, one partition %d times; want 20 and then 10 once", total, most)
		}
		h.join("c")
		time.Sleep(15 * ttl)
		before, _ := h.moved()
		time.Sleep(30 * ttl)
		if after, _ := h.moved(); after != before {
			t.Errorf("%d moves at rest", after-before)
		}
		h.stops["b"]()
		time.Sleep(10 * ttl)
		if a, c := h.share("a"), h.share("c"); a != 10 || c != 10 {
			t.Errorf("after b has left the shares are %d and %d", a, c)
		}
		h.end()
	})
}

// Units that go are let go, units that come are claimed.
func TestUnitsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 4)
		h.join("a")
		h.join("b")
		time.Sleep(5 * ttl)
		h.mu.Lock()
		h.units = []int32{3, 7, 8, 9}
		h.mu.Unlock()
		time.Sleep(5 * ttl)
		if a, b := h.share("a"), h.share("b"); a != 2 || b != 2 || len(h.at[0]) > 0 || len(h.at[9]) == 0 {
			t.Errorf("shares are %d and %d: %v", a, b, h.at)
		}
		h.end()
	})
}

// While the store does not answer nothing is lost before its time; what is lost is stopped, and taken up again when the store is back.
func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{ttl / 2, 3 * ttl} {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, 4)
				outage := &outage{Leases: h.store}
				h.leases = outage
				h.join("a")
				time.Sleep(2 * ttl)
				outage.end.Store(time.Now().Add(down).UnixNano())
				time.Sleep(down + 3*ttl)
				if n := h.share("a"); n != 4 {
					t.Errorf("after the outage a has %d of 4", n)
				}
				if _, most := h.moved(); down < ttl && most != 1 {
					t.Errorf("moved %d times in an outage that is shorter than the ttl", most)
				}
				h.end()
			})
		})
	}
}

// outage makes the leases of a store fail until then.
type outage struct {
	control.Leases
	// end is in nanoseconds since the Unix epoch.
	end atomic.Int64
}

func (o *outage) down() error {
	if time.Now().UnixNano() < o.end.Load() {
		return codes.New(codes.StoreUnavailable, "the store is down")
	}
	return nil
}

// Acquire fails in the outage.
func (o *outage) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	if err := o.down(); err != nil {
		return control.Lease{}, err
	}
	return o.Leases.Acquire(ctx, name, owner, ttl)
}

// Renew fails in the outage.
func (o *outage) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	if err := o.down(); err != nil {
		return control.Lease{}, err
	}
	return o.Leases.Renew(ctx, l)
}

// ListLeases fails in the outage.
func (o *outage) ListLeases(ctx context.Context) ([]control.LeaseInfo, error) {
	if err := o.down(); err != nil {
		return nil, err
	}
	return o.Leases.ListLeases(ctx)
}
