package handoff_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/snapshot"
	"github.com/weirstream/weir/sources/sourcetest"
)

const flowText = `
flow: weir/1
name: test
id: id
key: key
time: {field: t, unit: s}
lateness: 3s
operators:
  - {name: mean, type: sma, input: x, period: 2, gap: hold}
outputs: [mean]
limits: {ids: 10000, keys: 100, reorder: 10000, ticks: 1000}
`

func planOf(t *testing.T, text string) *flow.Plan {
	t.Helper()
	p, err := flow.Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// event is one event of a log with what it means.
type event struct {
	id, key string
	at      int
	value   string
}

func (e event) line() string { return e.value }

// eventsOf makes events in the order of arrival; disorder stays within the lateness, and some come twice.
func eventsOf(rng *rand.Rand, n int) []event {
	var all []event
	for i := range n {
		e := event{id: fmt.Sprintf("e%03d", i), key: fmt.Sprint(rng.IntN(5)), at: i/3 + rng.IntN(3)}
		e.value = fmt.Sprintf(`{"id":%q,"key":%q,"t":%d,"x":%d}`, e.id, e.key, e.at, rng.IntN(100))
		if all = append(all, e); rng.IntN(8) == 0 {
			all = append(all, all[max(0, len(all)-1-rng.IntN(6))])
		}
	}
	return all
}

// topicOf is the log of events, each key in the partition of Kafka's partitioner, and how many records of every partition come before each
// event of the whole.
func topicOf(events []event, partitions int32) *sourcetest.Log {
	log := sourcetest.New(sourcetest.Config{Name: "ticks", ID: "topic-1", Partitions: partitions, Bounded: true, Fetch: 7})
	for _, e := range events {
		log.Append(record.PartitionOf([]byte(e.key), partitions), record.Record{Key: []byte(e.key), Arrival: record.NoTime, Value: []byte(e.value)})
	}
	return log
}

// seamAt are the ends of the partitions after the first n events.
func seamAt(events []event, n int, partitions int32) map[int32]record.Position {
	counts := make([]int64, partitions)
	for _, e := range events[:n] {
		counts[record.PartitionOf([]byte(e.key), partitions)]++
	}
	seam := map[int32]record.Position{}
	for p, n := range counts {
		seam[int32(p)] = record.Offset(n)
	}
	return seam
}

// historyFile writes the first n events, each once, in no order.
func historyFile(t testing.TB, events []event, n int) string {
	t.Helper()
	unique := map[string]event{}
	for _, e := range events[:n] {
		unique[e.id] = e
	}
	var lines []event
	for _, e := range unique {
		lines = append(lines, e)
	}
	slices.SortFunc(lines, func(a, b event) int { return -cmp.Compare(a.id, b.id) })
	var b bytes.Buffer
	for _, e := range lines {
		fmt.Fprintln(&b, e.line())
	}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const runID = "run-1"

// world is a store and what a hand-over in it needs.
type world struct {
	t     testing.TB
	plan  *flow.Plan
	store *controltest.Memory
	topic sources.Source
	lease control.Lease
}

func newWorld(t testing.TB, plan *flow.Plan, topic sources.Source) *world {
	return &world{t: t, plan: plan, store: controltest.NewMemory(), topic: topic}
}

// own takes the lease of the run as a new owner, whoever had it.
func (w *world) own() control.Journal {
	w.t.Helper()
	if w.lease.Token > 0 {
		if err := w.store.Release(context.Background(), w.lease); err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	w.lease, err = w.store.Acquire(context.Background(), control.StreamLease(runID), control.NewOwner(), time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.store.Under(w.lease)
}

func (w *world) config(history string, seam map[int32]record.Position) handoff.Config {
	w.t.Helper()
	info, err := w.topic.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return handoff.Config{
		Plan: w.plan, History: snapshot.New(snapshot.Config{Path: history, Fields: snapshot.FieldsOf(w.plan)}),
		Journal: w.own(), Runs: w.store, Seam: seam, Fetch: 10, CommitBytes: 1 << 20,
		Header: control.RunHeader{RunID: runID, Fingerprint: w.plan.Fingerprint, Source: info.Name, SourceID: info.ID, Group: "g", Partitions: info.Partitions},
	}
}

func (w *world) handOver(cfg handoff.Config) handoff.Result {
	w.t.Helper()
	r, err := handoff.FromHistory(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// stream runs the engine to the end of the topic and returns what stands in the journal.
func (w *world) stream() emit.Doc {
	w.t.Helper()
	journal := w.own()
	result, err := actors.Run(context.Background(), actors.Config{Plan: w.plan, Source: w.topic, Journal: journal, RunID: runID, Group: "g", EpochRecords: 20})
	if err != nil {
		w.t.Fatal(err)
	}
	d := emit.New(w.plan, emit.ModeStream)
	d.Counts, d.Positions, d.Watermark = result.Counts, result.Positions(), result.Watermark
	d, err = emit.FromJournal(context.Background(), journal, runID, d, w.plan, "", emit.DefaultKeep)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// journal is what the store holds of the run.
func (w *world) journal() handoff.Journal {
	w.t.Helper()
	j, err := handoff.Look(context.Background(), w.store, runID)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}
