package group

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

const testFlow = `flow: weir/1
name: apart
id: event_id
key: k
time: {field: t, unit: ms}
lateness: 2s
dedupe: {horizon: 5m}
operators:
  - {name: e, type: ema, input: x, period: 3}
outputs: [e]
`

const testTTL = 3 * time.Second

// fake is an assigner that a test speaks for.
type fake struct {
	joined chan struct{}
	h      Handler
	fail   chan error

	mu   sync.Mutex
	owns map[int32]bool
}

func newFake() *fake {
	return &fake{joined: make(chan struct{}), fail: make(chan error, 1), owns: map[int32]bool{}}
}

func (f *fake) Run(ctx context.Context, h Handler) error {
	f.h = h
	close(f.joined)
	var err error
	select {
	case <-ctx.Done():
	case err = <-f.fail:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []int32
	for p := range f.owns {
		all = append(all, p)
	}
	h.Revoked(context.WithoutCancel(ctx), all)
	return err
}

func (f *fake) assign(ps ...int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range ps {
		f.owns[p] = true
	}
	f.h.Assigned(ps)
}

func (f *fake) take(lost bool, ps ...int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range ps {
		delete(f.owns, p)
	}
	if lost {
		f.h.Lost(ps)
		return
	}
	f.h.Revoked(context.Background(), ps)
}

// world is some members over one log and one journal.
type world struct {
	t       *testing.T
	plan    *flow.Plan
	log     *sourcetest.Log
	journal *controltest.Memory
	parts   int32
	in      [][]record.Record

	mu sync.Mutex
	// barred are the partitions, by member, of which nothing may reach an actor.
	barred map[string]bool
	// fences are the tokens under which each epoch of a run was committed, in order.
	fences map[string][]control.FenceToken
	seen   int
	// after is what reached an actor although its partition had been given up.
	after []string
}

func newWorld(t *testing.T, parts int32) *world {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", []byte(testFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, plan: plan, log: sourcetest.New(sourcetest.Config{Name: "log", ID: "id", Partitions: parts}), journal: controltest.NewMemory(),
		parts: parts, in: make([][]record.Record, parts), barred: map[string]bool{}, fences: map[string][]control.FenceToken{}}
}

// append writes n records to every partition.
func (w *world) append(rng *rand.Rand, n int) {
	for p := range w.in {
		for range n {
			i := len(w.in[p])
			r := record.Record{Arrival: record.NoTime, Key: []byte("k"), Value: fmt.Appendf(nil, `{"event_id":"%d-%d","k":"k%d","t":%d,"x":%d}`, p, i, rng.IntN(3), 1_700_000_000_000+i*500-rng.IntN(1500), rng.IntN(100))}
			w.in[p] = append(w.in[p], r)
			w.log.Append(int32(p), r)
		}
	}
}

// member is one process.
type member struct {
	*fake
	name string
	m    *Member
	err  chan error
	stop context.CancelFunc
	// changes of phase as they were told.
	mu      sync.Mutex
	changes []Change
}

func (m *member) told(c Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, c)
}

// phases are those that a partition came to.
func (m *member) phases(p int32) (out []Phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.changes {
		if c.Partition == p {
			out = append(out, c.Phase)
		}
	}
	return out
}

func (m *member) change(n int) Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes[n]
}

func (w *world) join(name string, tune ...func(*Config)) *member {
	w.t.Helper()
	out := &member{fake: newFake(), name: name, err: make(chan error, 1)}
	cfg := Config{Run: "run", Assigner: out.fake, Engine: w.engine(name), OnChange: out.told}
	for _, f := range tune {
		f(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out.m, out.stop = m, stop
	go func() { out.err <- m.Run(ctx) }()
	<-out.joined
	return out
}

// leave ends a member in order.
func (m *member) leave() error {
	m.stop()
	return <-m.err
}

func (w *world) engine(name string) func(context.Context, int32) (actors.Config, error) {
	return func(_ context.Context, p int32) (actors.Config, error) {
		return actors.Config{
			Plan: w.plan, Source: sources.Only(w.log, p), Journal: &watched{w.journal, w}, FetchSize: 5, EpochEvery: 200 * time.Millisecond,
			Fencing: &actors.Fencing{Leases: w.journal, TTL: testTTL},
			Hooks: actors.Hooks{At: func(_ context.Context, at actors.Point) error {
				if at.Name != actors.OnMessage || at.Actor != fmt.Sprintf("run/partition/%d", p) {
					return nil
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.seen++
				if w.barred[fmt.Sprint(name, p)] {
					w.after = append(w.after, fmt.Sprintf("%s: a message reaches partition %d, which it has given up", name, p))
				}
				return nil
			}},
			Logger: slog.New(slog.DiscardHandler),
		}, nil
	}
}

// bar says from when on nothing of a partition may reach an actor of a member.
func (w *world) bar(m *member, p int32, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.barred[fmt.Sprint(m.name, p)] = is
}

func (w *world) give(m *member, ps ...int32) {
	for _, p := range ps {
		w.bar(m, p, false)
	}
	m.assign(ps...)
}

func (w *world) take(m *member, isLost bool, ps ...int32) {
	m.fake.take(isLost, ps...)
	for _, p := range ps {
		w.bar(m, p, true)
	}
}

// watched is a journal that notes under which token each epoch was committed.
type watched struct {
	*controltest.Memory
	w *world
}

func (j *watched) Under(l control.Lease) control.Journal {
	return &watchedUnder{j.Memory.Under(l), j.w, l}
}

type watchedUnder struct {
	control.Journal
	w *world
	l control.Lease
}

func (j *watchedUnder) Commit(ctx context.Context, c control.Commit) error {
	err := j.Journal.Commit(ctx, c)
	if err == nil {
		j.w.mu.Lock()
		j.w.fences[c.RunID] = append(j.w.fences[c.RunID], j.l.Token)
		j.w.mu.Unlock()
	}
	return err
}

func (w *world) afterwards() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.after)
}

// tokens are those under which the epochs of a run were committed so far.
func (w *world) tokens(id string) []control.FenceToken {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.fences[id])
}

func (w *world) next(p int32) (next record.Position) {
	err := w.journal.Snapshot(context.Background(), RunID("run", p), func(v control.JournalView) error {
		next = v.State().Cuts[p].Next
		return nil
	})
	if err != nil {
		return record.Position{}
	}
	return next
}

// check compares what is published with the machines in a plain loop, and looks at the fences.
func (w *world) check() {
	w.t.Helper()
	for _, wrong := range w.afterwards() {
		w.t.Error(wrong)
	}
	for p := range w.parts {
		var got []byte
		id := RunID("run", p)
		if err := w.journal.Outputs(context.Background(), id, p, func(r partitions.Rows) error { got = append(got, r.Data...); return nil }); err != nil {
			w.t.Fatal(err)
		}
		if want := w.plain(p); !bytes.Equal(got, want) || len(want) == 0 {
			w.t.Errorf("partition %d: %d bytes are published, want %d", p, len(got), len(want))
		}
		if f := w.tokens(id); !slices.IsSorted(f) || uint64(len(f)) != w.journal.Epoch(id) {
			w.t.Errorf("partition %d: epochs were committed under %v", p, f)
		}
	}
}

func (w *world) plain(p int32) []byte {
	m := partitions.New(w.plan, p)
	b := record.Batch{Partition: p}
	for i, r := range w.in[p] {
		r.Position = record.Offset(int64(i))
		b.Records, b.Next = append(b.Records, r), r.Position.Next()
	}
	var eff partitions.Effects
	if err := m.Step(partitions.Deliver{Batch: &b}, &eff); err != nil {
		w.t.Fatal(err)
	}
	return eff.Rows.Data
}
