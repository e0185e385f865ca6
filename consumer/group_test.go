package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sources"
)

// hand is an assigner by hand.
type hand struct {
	mu sync.Mutex
	h  sources.Handler
	in chan struct{}
	// has are the partitions assigned.
	has []int32
}

func newHand() *hand { return &hand{in: make(chan struct{})} }

func (a *hand) Run(ctx context.Context, h sources.Handler) error {
	a.mu.Lock()
	a.h = h
	a.mu.Unlock()
	close(a.in)
	<-ctx.Done()
	a.mu.Lock()
	has := a.has
	a.mu.Unlock()
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if errors.Is(context.Cause(ctx), ErrKilled) {
		h.Lost(has)
	} else {
		h.Revoked(within, has)
	}
	return nil
}

func (a *hand) assign(ps ...int32) {
	<-a.in
	a.mu.Lock()
	a.has = append(a.has, ps...)
	a.mu.Unlock()
	a.h.Assigned(ps)
}

func TestPartitionRunsAreNamedAsInTheGroup(t *testing.T) {
	t.Parallel()
	if got, want := partitionRun("orders", 17), group.RunID("orders", 17); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each partition is a run of its own, and moves between two processes drained and committed.
func TestPartitionsMove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, false)
		w.put(0, 0, 10)
		w.put(1, 0, 10)
		slow := func(ctx context.Context, _ Delivery) Outcome {
			<-time.After(time.Second)
			return Ack()
		}
		a, b := newHand(), newHand()
		ca, cb := w.config(slow), w.config(slow)
		ca.Assigner, cb.Assigner = a, b
		stopA, stopB := w.start(w.consumer(ca)), w.start(w.consumer(cb))
		a.assign(0, 1)
		after(3500 * time.Millisecond)
		a.h.Revoked(t.Context(), []int32{1})
		w.want("revoked", w.committed("r/1"), "1=4") // what was handed over has ended
		b.assign(1)
		after(time.Minute)
		w.want("partition 0", w.committed("r/0"), "0=10")
		w.want("partition 1", w.committed("r/1"), "1=10")
		if len(w.handled) != 20 {
			t.Errorf("%d handled: %s", len(w.handled), w.seen())
		}
		r, err := stopA()
		wantNil(t, err)
		w.want("what a has", fmt.Sprint(r.Next, r.Counts.Consumed), "map[0:10 1:4] 14")
		_, err = stopB()
		wantNil(t, err)
		w.released()
	})
}

// A partition that is revoked and does not drain ends its contexts; one that is lost does so at once and commits nothing any more.
func TestRevokedAndLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, false)
		w.put(0, 0, 2)
		w.put(1, 0, 2)
		causes := map[int32]error{}
		var mu sync.Mutex
		a := newHand()
		cfg := w.config(func(ctx context.Context, d Delivery) Outcome {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes[d.Partition] = context.Cause(ctx)
			return Ack()
		})
		cfg.Assigner = a
		stop := w.start(w.consumer(cfg))
		a.assign(0, 1)
		synctest.Wait()
		within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		a.h.Revoked(within, []int32{0})
		if d := time.Since(began); d != 5*time.Second || !errors.Is(causes[0], ErrRevoked) {
			t.Errorf("revoked in %v: %v", d, causes[0])
		}
		a.h.Lost([]int32{1})
		synctest.Wait()
		if !errors.Is(causes[1], ErrKilled) {
			t.Errorf("lost: %v", causes[1])
		}
		w.want("committed", w.committed("r/0")+w.committed("r/1"), "0=1")
		_, err := stop()
		wantNil(t, err)
	})
}

// One partition whose work fails begins again after a pause; the others do not notice. A partition that has ended stays ended.
func TestAPartitionFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, true)
		w.put(0, 0, 5)
		w.put(1, 0, 5)
		a := newHand()
		var refuse atomic.Bool
		refuse.Store(true)
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if d.Partition == 1 && refuse.Load() {
				return Retry("not yet")
			}
			return Ack()
		})
		cfg.Assigner = a
		stop := w.start(w.consumer(cfg))
		a.assign(0, 1)
		after(time.Minute)
		w.want("committed", w.committed("r/0")+w.committed("r/1"), "0=5")
		refuse.Store(false)
		after(time.Minute)
		w.want("committed", w.committed("r/0")+w.committed("r/1"), "0=51=5")
		a.assign(1)
		_, err := stop()
		wantNil(t, err)
		again := w.config(nil)
		again.RunID = "r/1"
		again.Source = sources.Only(w.log, 1)
		_, err = w.consumer(again).Run(t.Context())
		wantCode(t, err, codes.RunFinished)
	})
}

// Two processes, moves and losses at random: nothing is lost, and the journal never goes back.
func TestAStormOfMoves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { storm(t, seed) })
		})
	}
}

func storm(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x73746f726d))
	w := newWorld(t, 3, false)
	for p := range int32(3) {
		w.put(p, 0, 200)
	}
	hands, stops := []*hand{newHand(), newHand()}, []func() (Result, error){}
	for i, h := range hands {
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			<-time.After(time.Duration(len(d.Value)) * 20 * time.Millisecond)
			return Ack()
		})
		cfg.Assigner, cfg.Order, cfg.Concurrency, cfg.TTL, cfg.Owner = h, ByKey, 2, 3*time.Second, fmt.Sprint("owner", i)
		stops = append(stops, w.start(w.consumer(cfg)))
	}
	at := map[int32]int{}
	for range 40 {
		p := int32(r.IntN(3))
		before := w.committed(partitionRun("r", p))
		if owner, has := at[p]; has {
			if r.IntN(3) == 0 {
				hands[owner].h.Lost([]int32{p})
			} else {
				hands[owner].h.Revoked(t.Context(), []int32{p})
			}
		}
		at[p] = r.IntN(2)
		hands[at[p]].assign(p)
		after(time.Duration(r.IntN(2000)) * time.Millisecond)
		if now := w.committed(partitionRun("r", p)); goneBack(before, now) {
			t.Fatalf("partition %d went back from %s to %s", p, before, now)
		}
	}
	for p := range int32(3) {
		if _, has := at[p]; !has {
			hands[0].assign(p)
		}
	}
	after(10 * time.Minute)
	for _, stop := range stops {
		_, err := stop()
		wantNil(t, err)
	}
	for p := range int32(3) {
		w.want("committed", w.committed(partitionRun("r", p)), fmt.Sprintf("%d=200", p))
	}
	for p := range 3 {
		for n := range 200 {
			if w.times(fmt.Sprintf("%d:%d#1", p, n)) == 0 {
				t.Errorf("%d:%d was never handled", p, n)
			}
		}
	}
}
