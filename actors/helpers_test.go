package actors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

const goldenFlow = `flow: weir/1
name: instrument-1-ema
select: {field: instrument, equals: "1"}
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
revision: revision
operators:
  - {name: ema3, type: ema, input: close, period: 3}
outputs: [ema3]
`

const wideFlow = `flow: weir/1
name: wide
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 20s
dedupe: {horizon: 5m}
revision: revision
sequence: {field: seq, gap_hold: 1m}
operators:
  - {name: e, type: ema, input: close, period: 3}
  - {name: s, type: sma, input: e, period: 2}
  - {name: l, type: last, input: volume}
outputs: [e, s, l]
`

const gridFlow = `flow: weir/1
name: grid
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 20s
clock: {every: 30s}
dedupe: {horizon: 5m}
operators:
  - {name: l, type: last, input: close}
outputs: [l]
`

func parse(tb testing.TB, src string) *flow.Plan {
	tb.Helper()
	p, err := flow.Parse("flow.yaml", []byte(src), nil)
	if err != nil {
		tb.Fatalf("flow: %v", err)
	}
	return p
}

// input is a log by partition.
type input [][]record.Record

func (in input) total() (n int) {
	for _, p := range in {
		n += len(p)
	}
	return n
}

// log makes a source of the input.
func (in input) log(cfg sourcetest.Config) *sourcetest.Log {
	cfg.Partitions = int32(len(in))
	l := sourcetest.New(cfg)
	for p, recs := range in {
		l.Append(int32(p), recs...)
	}
	return l
}

// randomInput draws n records: disorder within and beyond the lateness, duplicates, revisions, tombstones, unreadable values, gaps in
// the sequence and in the values.
func randomInput(rng *rand.Rand, parts, n int) input {
	in := make(input, parts)
	seqs := map[string]int{}
	for i := range n {
		key := fmt.Sprintf("key-%d", rng.IntN(7))
		p := record.PartitionOf([]byte(key), int32(parts))
		at := 1_700_000_000_000 + i*1000 - rng.IntN(15_000)
		if rng.IntN(20) == 0 {
			at -= 60_000
		}
		id := fmt.Sprintf("id-%d", i)
		if rng.IntN(10) == 0 {
			id = fmt.Sprintf("id-%d", rng.IntN(i+1))
		}
		closing := fmt.Sprintf("%d.%d", rng.IntN(100), rng.IntN(100))
		if rng.IntN(15) == 0 {
			closing = []string{"null", "NaN", "1e400"}[rng.IntN(3)]
		}
		seqs[key]++
		if rng.IntN(25) == 0 {
			seqs[key] += rng.IntN(3)
		}
		value := []byte(fmt.Sprintf(`{"event_id":%q,"instrument":%q,"t":%d,"close":%s,"volume":%d,"seq":%d,"revision":%d}`,
			id, key, at, closing, rng.IntN(1000), seqs[key], rng.IntN(4)/3))
		switch rng.IntN(30) {
		case 0:
			value = nil
		case 1:
			value = value[:len(value)/2]
		}
		in[p] = append(in[p], record.Record{Key: []byte(key), Value: value, Arrival: record.NoTime})
	}
	return in
}

// published is everything that a run leaves behind, by partition.
type published struct {
	rows       map[int32][]byte
	quarantine []partitions.Quarantined
	decisions  []partitions.Decision
	counts     map[int32]partitions.Counts
	next       map[int32]record.Position
}

func newPublished() *published {
	return &published{rows: map[int32][]byte{}, counts: map[int32]partitions.Counts{}, next: map[int32]record.Position{}}
}

// plainLoop is the reference: the machines in a loop, one partition after the other, batches as they come. It stops after limit records
// of each partition when limits are given, and finishes when finish is true.
func plainLoop(tb testing.TB, plan *flow.Plan, in input, size int) *published {
	tb.Helper()
	out := newPublished()
	var machines []*partitions.Machine
	effects := make([]partitions.Effects, len(in))
	through := record.NoTime
	for p, recs := range in {
		m := partitions.New(plan, int32(p))
		machines = append(machines, m)
		for at := 0; at < len(recs); at += size {
			b := record.Batch{Partition: int32(p)}
			for i, r := range recs[at:min(at+size, len(recs))] {
				r.Position = record.Offset(int64(at + i))
				b.Records = append(b.Records, r)
				b.Next = r.Position.Next()
			}
			step(tb, m, partitions.Deliver{Batch: &b}, &effects[p])
		}
		through = max(through, m.MaxEventTime())
	}
	for p, m := range machines {
		step(tb, m, partitions.EndOfSource{Through: through}, &effects[p])
		out.rows[int32(p)] = effects[p].Rows.Data
		out.quarantine = append(out.quarantine, effects[p].Quarantine...)
		out.decisions = append(out.decisions, effects[p].Decisions...)
		out.counts[int32(p)], out.next[int32(p)] = m.Counts(), m.Next()
	}
	return out
}

func step(tb testing.TB, m *partitions.Machine, ev partitions.Event, eff *partitions.Effects) {
	tb.Helper()
	if err := m.Step(ev, eff); err != nil {
		tb.Fatalf("step: %v", err)
	}
}

// read is what stands in a journal.
func read(tb testing.TB, j control.Journal, result Result) *published {
	tb.Helper()
	out, ctx := newPublished(), context.Background()
	for _, p := range result.Partitions {
		err := j.Outputs(ctx, "run", p.Partition, func(r partitions.Rows) error {
			out.rows[p.Partition] = append(out.rows[p.Partition], r.Data...)
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
		out.counts[p.Partition], out.next[p.Partition] = p.Counts, p.Next
	}
	if err := j.Quarantine(ctx, "run", func(q partitions.Quarantined) error { out.quarantine = append(out.quarantine, q); return nil }); err != nil {
		tb.Fatal(err)
	}
	if err := j.Decisions(ctx, "run", func(d partitions.Decision) error { out.decisions = append(out.decisions, d); return nil }); err != nil {
		tb.Fatal(err)
	}
	return out
}

// diff says in words where two publications differ, or "".
func diff(got, want *published) string {
	var out []string
	for p, rows := range want.rows {
		if !bytes.Equal(got.rows[p], rows) {
			out = append(out, fmt.Sprintf("partition %d: %d bytes of rows, want %d", p, len(got.rows[p]), len(rows)))
		}
		if got.counts[p] != want.counts[p] {
			out = append(out, fmt.Sprintf("partition %d: counts %+v, want %+v", p, got.counts[p], want.counts[p]))
		}
		if got.next[p] != want.next[p] {
			out = append(out, fmt.Sprintf("partition %d: next %s, want %s", p, got.next[p], want.next[p]))
		}
	}
	if !slices.EqualFunc(got.quarantine, want.quarantine, sameQuarantined) {
		out = append(out, fmt.Sprintf("%d quarantined, want %d, or others", len(got.quarantine), len(want.quarantine)))
	}
	if !slices.Equal(got.decisions, want.decisions) {
		out = append(out, fmt.Sprintf("decisions %v, want %v", got.decisions, want.decisions))
	}
	return strings.Join(out, "\n")
}

func sameQuarantined(a, b partitions.Quarantined) bool {
	k, v := bytes.Equal(a.Key, b.Key), bytes.Equal(a.Value, b.Value)
	a.Key, a.Value, b.Key, b.Value = nil, nil, nil, nil
	a.Number, b.Number = 0, 0 // a journal gives it
	return k && v && fmt.Sprint(a) == fmt.Sprint(b)
}

// rig is one run over one input, with everything that a test may turn.
type rig struct {
	t       testing.TB
	cfg     Config
	log     *sourcetest.Log
	journal *controltest.Memory
	logged  *lines
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig makes a run over a bounded log of the input. It must be called inside the bubble.
func newRig(t testing.TB, plan *flow.Plan, in input, tune ...func(*Config, *sourcetest.Config)) *rig {
	r := &rig{t: t, journal: controltest.NewMemory(), logged: &lines{}}
	src := sourcetest.Config{Bounded: true}
	r.cfg = Config{
		Plan: plan, Journal: r.journal, RunID: "run", Group: "group", FetchSize: 7,
		Logger: slog.New(slog.NewTextHandler(r.logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range tune {
		f(&r.cfg, &src)
	}
	r.log = in.log(src)
	r.cfg.Source = r.log
	return r
}

// run runs once and checks what must hold after every run.
func (r *rig) run() (Result, error) {
	r.t.Helper()
	result, err := Run(context.Background(), r.cfg)
	r.settled(result)
	return result, err
}

// settled checks the standing promises: nothing is left out, nothing is released twice.
func (r *rig) settled(Result) {
	r.t.Helper()
	if n, b := r.log.Outstanding(); n != 0 || b != 0 {
		r.t.Errorf("%d batches with %d bytes were never released", n, b)
	}
	if n := r.log.DoubleReleases(); n != 0 {
		r.t.Errorf("%d batches were released twice", n)
	}
}

// finish runs to the end and compares with the reference.
func (r *rig) finish(want *published) Result {
	r.t.Helper()
	result, err := r.run()
	if err != nil {
		r.t.Fatalf("run: %v\n%s", err, r.logged)
	}
	r.compare(result, want)
	return result
}

func (r *rig) compare(result Result, want *published) {
	r.t.Helper()
	if result.Status != control.RunFinished || result.Watermark != record.MaxTime {
		r.t.Errorf("status %s, watermark %s", result.Status, result.Watermark)
	}
	if d := diff(read(r.t, r.journal, result), want); d != "" {
		r.t.Errorf("%s\n%s", d, r.logged)
	}
}

// every makes a hook that calls do at its n-th passing of a failpoint.
func every(name Failpoint, n int, do func(ctx context.Context) error) (Hooks, *int) {
	var mu sync.Mutex
	seen := new(int)
	return Hooks{At: func(ctx context.Context, p Point) error {
		if p.Name != name {
			return nil
		}
		mu.Lock()
		*seen++
		hit := *seen == n
		mu.Unlock()
		if hit {
			return do(ctx)
		}
		return nil
	}}, seen
}

var errBoom = errors.New("boom")

// order watches what is published while a run goes on.
type order struct {
	epochs int
	want   *published
	lens   map[int32]int
}

// watchOrder reads the journal after every commit: what is published only grows, and is the beginning of the reference always, so that no
// record is ever seen before an earlier one of its partition.
func watchOrder(r *rig, want *published) *order {
	w := &order{want: want, lens: map[int32]int{}}
	inner := r.cfg.OnProgress
	r.cfg.OnProgress = func(p Progress) {
		if inner != nil {
			inner(p)
		}
		w.epochs++
		for part, rows := range want.rows {
			var got []byte
			err := r.journal.Outputs(context.Background(), "run", part, func(x partitions.Rows) error { got = append(got, x.Data...); return nil })
			if err != nil || len(got) < w.lens[part] || !bytes.HasPrefix(rows, got) {
				r.t.Errorf("epoch %d, partition %d: %d bytes after %d, not the beginning of the reference (%v)", p.Epoch, part, len(got), w.lens[part], err)
			}
			w.lens[part] = len(got)
		}
	}
	return w
}

// brittle is an operator that panics at one tick of the whole process, once.
type brittle struct {
	operators.Operator
	left *int
	mu   *sync.Mutex
}

func (b brittle) Step(at record.EventTime, x operators.Value) operators.Value {
	b.mu.Lock()
	*b.left--
	hit := *b.left == 0
	b.mu.Unlock()
	if hit {
		panic("brittle")
	}
	return b.Operator.Step(at, x)
}

// breakAt makes a plan whose first operator panics at its n-th tick, counted over everything.
func breakAt(plan *flow.Plan, n int) *flow.Plan {
	broken := *plan
	broken.Nodes = slices.Clone(plan.Nodes)
	made, mu := plan.Nodes[0].New, new(sync.Mutex)
	broken.Nodes[0].New = func() operators.Operator { return brittle{made(), &n, mu} }
	return &broken
}

func seeded(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// once makes a function that acts the first time only.
func once(do func()) func() {
	var first sync.Once
	return func() { first.Do(do) }
}

// lockstep lets a moment of virtual time pass before an answer of the source is used. Time moves only when nothing else can happen, so
// what came before is processed, cut and committed by then: there is an epoch for every Poll.
func lockstep(c *Config, _ *sourcetest.Config) {
	c.EpochRecords = 1
	inner := c.Hooks
	c.Hooks.At = func(ctx context.Context, p Point) error {
		if p.Name == AfterPoll {
			select {
			case <-time.After(time.Microsecond):
			case <-ctx.Done():
			}
		}
		return inner.at(ctx, p)
	}
}
