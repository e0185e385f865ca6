package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// world is a log, a store and what was written elsewhere, on virtual time.
type world struct {
	t     *testing.T
	log   *sourcetest.Log
	store *controltest.Memory

	mu      sync.Mutex
	handled []string
	copies  []record.Record
	dead    []record.Record
	held    []Held
}

func newWorld(t *testing.T, partitions int32, bounded bool) *world {
	return &world{t: t, store: controltest.NewMemory(), log: sourcetest.New(sourcetest.Config{Name: "in", ID: "id", Partitions: partitions, Bounded: bounded})}
}

// put appends records p:from … p:to-1, whose value says so and whose key is one of three.
func (w *world) put(p int32, from, to int) {
	for i := from; i < to; i++ {
		w.log.Append(p, record.Record{Key: fmt.Append(nil, "k", i%3), Value: fmt.Appendf(nil, "%d:%d", p, i), Headers: []record.Header{{Key: "h", Value: []byte("v")}}})
	}
}

func (w *world) config(h Handler) Config {
	return Config{Source: w.log, Store: w.store, RunID: "r", CommitEvery: -1, Handler: func(ctx context.Context, d Delivery) Outcome {
		w.mu.Lock()
		w.handled = append(w.handled, fmt.Sprintf("%s#%d", d.Value, d.Attempt))
		w.mu.Unlock()
		if h == nil {
			return Ack()
		}
		return h(ctx, d)
	}, OnHeld: func(h Held) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = append(w.held, h)
	}}
}

// back writes copies to the end of partition 0 of the log.
func (w *world) back() Copier {
	return CopierFunc(func(_ context.Context, r record.Record) error {
		w.mu.Lock()
		w.copies = append(w.copies, clone(r))
		w.mu.Unlock()
		w.log.Append(0, r)
		return nil
	})
}

func (w *world) graveyard() Copier {
	return CopierFunc(func(_ context.Context, r record.Record) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dead = append(w.dead, clone(r))
		return nil
	})
}

func (w *world) consumer(cfg Config) *Consumer {
	w.t.Helper()
	c, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// start runs a consumer beside the test; the function that it returns stops it and returns how it ended.
func (w *world) start(c *Consumer) (stop func() (Result, error)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	type end struct {
		r   Result
		err error
	}
	done := make(chan end, 1)
	go func() {
		r, err := c.Run(ctx)
		done <- end{r, err}
	}()
	return func() (Result, error) {
		cancel()
		e := <-done
		done <- e
		return e.r, e.err
	}
}

// seen are the deliveries that were handled, sorted.
func (w *world) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(w.handled)), " ")
}

func (w *world) times(delivery string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.handled {
		if h == delivery {
			n++
		}
	}
	return n
}

// committed is what the journal says: p=next for each partition.
func (w *world) committed(run string) string {
	var out []string
	err := w.store.Snapshot(context.Background(), run, func(v control.JournalView) error {
		cuts := v.State().Cuts
		for _, p := range slices.Sorted(maps.Keys(cuts)) {
			out = append(out, fmt.Sprintf("%d=%s", p, cuts[p].Next))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return strings.Join(out, " ")
}

func (w *world) epoch(run string) (n uint64) {
	w.t.Helper()
	err := w.store.Snapshot(context.Background(), run, func(v control.JournalView) error {
		n = v.State().Epoch
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) quarantine(run string) (out []partitions.Quarantined) {
	w.t.Helper()
	err := w.store.Quarantine(context.Background(), run, func(q partitions.Quarantined) error {
		out = append(out, q)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) released() {
	w.t.Helper()
	if n, b := w.log.Outstanding(); n != 0 || b != 0 || w.log.DoubleReleases() != 0 {
		w.t.Errorf("%d batches of %d bytes are out, %d were released twice", n, b, w.log.DoubleReleases())
	}
}

func (w *world) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, fn)
}

func wantCode(t *testing.T, err error, code *codes.Code) {
	t.Helper()
	if !codes.Has(err, code) {
		t.Errorf("got %v, want %s", err, code.Name)
	}
}

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

var errDown = errors.New("the copies' log is away")

// after waits on virtual time until everything that happens within d has happened.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
