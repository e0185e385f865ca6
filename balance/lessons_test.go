package balance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/balance"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
)

// wedged is a worker that hangs when it gets one partition.
type wedged struct {
	worker
	partition int32
	hangs     time.Duration
}

func (w wedged) Assigned(ps []int32) {
	w.worker.Assigned(ps)
	for _, p := range ps {
		if p == w.partition {
			timer := time.NewTimer(w.hangs)
			<-timer.C
		}
	}
}

// Lesson 8: renewal is apart from the work. Whoever is idle, hangs, or takes long to drain keeps its leases.
func TestLessonRenewalIsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 6)
		h.drain = 8 * ttl
		b, err := balance.New(balance.Config{
			Run: "run", Leases: h.leases, Member: "a", TTL: ttl, Units: func(context.Context) ([]int32, error) { return h.units, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		h.stops["a"] = stop
		h.work.Go(func() {
			if err := b.Run(ctx, wedged{worker{h.floor, "a"}, 3, 10 * ttl}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		h.join("b")
		time.Sleep(9 * ttl) // a still hangs; what it has is its own
		leases, err := h.store.ListLeases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, l := range leases {
			if l.Valid && l.Owner == "a" && len(l.Name) > 7 && l.Name[:7] == "claims/" {
				held++
			}
		}
		if held != 4 || h.share("a") != 4 {
			t.Errorf("while it hangs a has %d leases and works on %d, want the 4 that it took", held, h.share("a"))
		}
		time.Sleep(60 * ttl) // each hand-over drains for 8 ttl
		if a, b := h.share("a"), h.share("b"); a != 3 || b != 3 {
			t.Errorf("shares are %d and %d", a, b)
		}
		if _, most := h.moved(); most > 2 {
			t.Errorf("a partition moved %d times", most-1)
		}
		h.end()
	})
}

// Lesson 12: twenty shards, two workers, handlers that burn every core, a ttl of 5 s: each lease moves at most once. WEIR_TEST_BURN burns longer.
//
// Beside the workers a plain loop keeps leases of half the ttl. When that loses one, the machine stood still for longer than the loop can bear, and
// what the workers lost says nothing about them: then it is all done again with twice the ttl.
func TestLessonBusyCores(t *testing.T) {
	if testing.Short() {
		t.Skip("it burns every core for 20 s")
	}
	burn := 20 * time.Second
	if given := os.Getenv("WEIR_TEST_BURN"); given != "" {
		var err error
		if burn, err = time.ParseDuration(given); err != nil || burn < 10*time.Second {
			t.Fatalf("WEIR_TEST_BURN is %q, not a duration of 10s or more", given)
		}
	}
	for ttl := 5 * time.Second; ; ttl, burn = 2*ttl, 2*burn {
		busy := newBusyFloor(t, ttl, burn)
		busy.run()
		total, most := busy.moved()
		t.Logf("ttl %v: %d assignments, one lease moved %d times at most; shares are %v; the plain loop lost: %v", ttl, total, most-1, busy.shares, busy.lost)
		if busy.lost == nil {
			// At that instant one lease may be between its two workers: they move one at a time.
			if worked := busy.shares["a"] + busy.shares["b"]; most > 2 || worked < 19 || worked > 20 || len(busy.beside) > 0 {
				t.Errorf("one lease moved %d times, %d of 20 are worked on, %q", most-1, worked, busy.beside)
			}
			return
		}
		if ttl > time.Minute {
			t.Fatalf("no plain loop keeps leases of %v on this machine: %v", ttl/2, busy.lost)
		}
	}
}

// busyFloor is a floor of which every core burns.
type busyFloor struct {
	floor
	store  *sqlite.Store
	ttl    time.Duration
	burn   time.Duration
	shares map[string]int
	// lost is how the plain loop lost a lease.
	lost error
	work sync.WaitGroup
}

func newBusyFloor(t *testing.T, ttl, burn time.Duration) *busyFloor {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "leases.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &busyFloor{floor: floor{t: t, at: map[int32][]string{}, moves: map[int32]int{}}, store: store, ttl: ttl, burn: burn, shares: map[string]int{}}
}

func (f *busyFloor) run() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), f.burn)
	defer cancel()
	units := make([]int32, 20)
	for p := range units {
		units[p] = int32(p)
	}
	for _, name := range []string{"a", "b"} {
		b, err := balance.New(balance.Config{Run: "run", Leases: f.store, Member: name, TTL: f.ttl, Units: func(context.Context) ([]int32, error) { return units, nil }})
		if err != nil {
			f.t.Fatal(err)
		}
		f.work.Go(func() {
			if err := b.Run(ctx, worker{&f.floor, name}); err != nil {
				f.t.Errorf("%s: %v", name, err)
			}
		})
	}
	var sums [64]uint64
	for i := range min(4*runtime.GOMAXPROCS(0), len(sums)) {
		f.work.Go(func() {
			for sum := uint64(1); ctx.Err() == nil; sums[i] = sum {
				for range 1 << 20 {
					sum = sum*6364136223846793005 + 1442695040888963407
				}
			}
		})
	}
	f.work.Go(func() { f.lost = f.keepPlainly(ctx) })
	f.work.Go(func() {
		within, stop := context.WithTimeout(ctx, f.burn-2*time.Second)
		defer stop()
		<-within.Done()
		f.shares["a"], f.shares["b"] = f.share("a"), f.share("b")
	})
	f.work.Wait()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.t.Fatal(ctx.Err())
	}
}

// keepPlainly keeps ten leases of half the ttl, each renewed every third of that, until ctx ends; it returns how it lost one.
func (f *busyFloor) keepPlainly(ctx context.Context) error {
	var held []control.Lease
	for i := range 10 {
		l, err := f.store.Acquire(ctx, fmt.Sprint("plain/", i), "plain", f.ttl/2)
		if err != nil {
			return err
		}
		held = append(held, l)
	}
	tick := time.NewTicker(f.ttl / 6)
	defer tick.Stop()
	for {
		for i, l := range held {
			fresh, err := f.store.Renew(ctx, l)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			held[i] = fresh
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
