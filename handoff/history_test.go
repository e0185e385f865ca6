package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/snapshot"
	"github.com/weirstream/weir/sources/sourcetest"
)

// batchOver is the result that everything is compared with: a batch over all events.
func batchOver(t *testing.T, w *world, events []event) emit.Doc {
	t.Helper()
	path := historyFile(t, events, len(events))
	d, err := batch.Run(context.Background(), batch.Config{Plan: w.plan, Mode: emit.ModeBatch, Source: snapshot.New(snapshot.Config{Path: path, Fields: snapshot.FieldsOf(w.plan)})})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sameResult(t *testing.T, where string, got, want emit.Doc) {
	t.Helper()
	if got.ValuesHash != want.ValuesHash || !reflect.DeepEqual(got.Events, want.Events) || got.Counts.Consumed != want.Counts.Consumed || got.Counts.Late != 0 {
		t.Fatalf("%s: %d rows %s, %+v; want %d rows %s, %+v", where, got.Rows, got.ValuesHash, got.Counts, want.Rows, want.ValuesHash, want.Counts)
	}
}

// For every split of a log into a history and a stream, with the history ending at the seam or beyond it, the engine's result is that of the
// batch over everything, and of the stream over everything.
func TestEverySplitIsTheBatch(t *testing.T) {
	t.Parallel()
	for _, parts := range []int32{1, 4} {
		t.Run(fmt.Sprint(parts, " partitions"), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, uint64(parts)))
			plan := planOf(t, flowText)
			events := eventsOf(rng, 80)
			whole := newWorld(t, plan, topicOf(events, parts))
			want := batchOver(t, whole, events)
			sameResult(t, "the whole stream", whole.stream(), want)
			for split := 0; split <= len(events); split++ {
				known := min(len(events), split+rng.IntN(12))
				w := newWorld(t, plan, topicOf(events, parts))
				cfg := w.config(historyFile(t, events, known), seamAt(events, split, parts))
				cfg.CommitBytes = 1 + rng.IntN(2000)
				r := w.handOver(cfg)
				m, err := handoff.Of(handoff.KindBatch, w.journal(), nil)
				if err != nil || !reflect.DeepEqual(m.Next(), cfg.Seam) || !reflect.DeepEqual(r.State.Cuts, w.journal().State.Cuts) || r.State.Watermark != m.Watermark {
					t.Fatalf("split at %d: %v, next %v, want %v; %+v", split, err, m.Next(), cfg.Seam, r.State)
				}
				low := record.MaxTime
				for _, cut := range r.State.Cuts {
					low = min(low, cut.Watermark)
				}
				if r.State.Watermark != low {
					t.Fatalf("split at %d: the merged watermark is %s, the lowest %s", split, r.State.Watermark, low)
				}
				d := w.stream()
				sameResult(t, fmt.Sprintf("split at %d, history up to %d", split, known), d, want)
				if d.Counts.Duplicates != d.Counts.Records-want.Counts.Consumed {
					t.Fatalf("split at %d: %d of %d records were skipped, %d are events", split, d.Counts.Duplicates, d.Counts.Records, want.Counts.Consumed)
				}
			}
		})
	}
}

// Killed at any call of the journal, before it and after it, and started again, the hand-over ends with the same run; half of it is never
// continued by a stream.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	plan := planOf(t, flowText)
	events := eventsOf(rand.New(rand.NewPCG(3, 3)), 120)
	const parts, split, known = 4, 90, 100
	history := historyFile(t, events, known)
	begin := func() (*world, handoff.Config) {
		w := newWorld(t, plan, topicOf(events, parts))
		cfg := w.config(history, seamAt(events, split, parts))
		cfg.CommitBytes = 400
		return w, cfg
	}
	w, cfg := begin()
	epochs := 0
	cfg.OnCommit = func(uint64, int64) { epochs++ }
	undisturbed := w.handOver(cfg)
	if epochs < 4 || undisturbed.Resumed {
		t.Fatalf("%d epochs, resumed %v: too few to be killed between", epochs, undisturbed.Resumed)
	}
	want := w.stream()
	killed := errors.New("killed")
	for _, op := range []controltest.Op{controltest.OpOpen, controltest.OpCommit} {
		calls := map[controltest.Op]int{controltest.OpOpen: 1, controltest.OpCommit: epochs}[op]
		for call := 1; call <= calls; call++ {
			for _, after := range []bool{false, true} {
				where := fmt.Sprintf("killed at call %d of %s, after it: %v", call, op, after)
				w, cfg := begin()
				ctx, kill := context.WithCancelCause(context.Background())
				w.store.Inject(controltest.Fault{Op: op, Call: call, After: after, Do: func() { kill(killed) }, Err: killed})
				if _, err := handoff.FromHistory(ctx, cfg); !errors.Is(err, killed) {
					t.Fatalf("%s: %v", where, err)
				}
				w.store.AllFired(t)
				ended := op == controltest.OpCommit && call == epochs && after
				mustNotContinue(t, w, ended)
				again := w.config(history, cfg.Seam)
				again.CommitBytes = 400
				r := w.handOver(again)
				if ended != r.Done || !reflect.DeepEqual(r.History, undisturbed.History) {
					t.Fatalf("%s: done %v, %+v", where, r.Done, r.History)
				}
				d := w.stream()
				sameResult(t, where, d, want)
				if d.Counts != want.Counts {
					t.Fatalf("%s: %+v, want %+v", where, d.Counts, want.Counts)
				}
			}
		}
	}
}

// mustNotContinue checks that neither an engine nor a manifest takes a run over whose history is open.
func mustNotContinue(t *testing.T, w *world, ended bool) {
	t.Helper()
	j := w.journal()
	if !j.Known || j.State.Epoch == 0 || ended {
		return
	}
	if _, err := handoff.Of(handoff.KindBatch, j, nil); !codes.Has(err, codes.HandoverUnfinished) {
		t.Fatalf("a manifest of a history that is open: %v", err)
	}
	_, err := partitions.Restore(w.plan, 0, func(yield func(partitions.StateBlob) error) error {
		return w.store.LoadBlobs(context.Background(), runID, 0, yield)
	})
	if !codes.Has(err, codes.HandoverUnfinished) {
		t.Fatalf("the state of a history that is open was restored: %v", err)
	}
}

// An answer that is lost is looked up: the hand-over goes on without being started again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	plan := planOf(t, flowText)
	events := eventsOf(rand.New(rand.NewPCG(5, 5)), 120)
	w := newWorld(t, plan, topicOf(events, 2))
	cfg := w.config(historyFile(t, events, 60), seamAt(events, 50, 2))
	cfg.CommitBytes = 300
	w.store.Inject(controltest.LoseAnswer(1), controltest.FailCommit(3), controltest.LoseAnswer(5))
	w.handOver(cfg)
	w.store.AllFired(t)
	sameResult(t, "after lost answers", w.stream(), batchOver(t, w, events))
}

// Two that hand over to one run: the second has no lease, so nothing of it is written.
func TestTheLeaseDecides(t *testing.T) {
	t.Parallel()
	plan := planOf(t, flowText)
	events := eventsOf(rand.New(rand.NewPCG(6, 6)), 60)
	w := newWorld(t, plan, topicOf(events, 2))
	stale := w.config(historyFile(t, events, 30), seamAt(events, 30, 2))
	w.handOver(w.config(historyFile(t, events, 30), seamAt(events, 30, 2)))
	before := w.journal().State
	if _, err := handoff.FromHistory(context.Background(), stale); !codes.Has(err, codes.StreamFenceStale) {
		t.Errorf("an owner without the lease: %v", err)
	}
	if after := w.journal().State; after.Epoch != before.Epoch {
		t.Errorf("it wrote epoch %d after %d", after.Epoch, before.Epoch)
	}
	if _, _, err := handoff.Acquire(context.Background(), w.store, runID, "another", 1e9, 0); !codes.Has(err, codes.StreamLeaseHeld) {
		t.Errorf("the lease of a living owner: %v", err)
	}
}

func TestRefusedHandOvers(t *testing.T) {
	t.Parallel()
	plan := planOf(t, flowText)
	events := eventsOf(rand.New(rand.NewPCG(8, 8)), 60)
	const parts = 2
	history := historyFile(t, events, 40)
	seam := seamAt(events, 40, parts)
	// begun is a hand-over that was stopped after its first epoch.
	begun := func(t *testing.T, w *world) {
		cfg := w.config(history, seam)
		cfg.CommitBytes = 1
		ctx, stop := context.WithCancel(context.Background())
		cfg.OnCommit = func(uint64, int64) { stop() }
		if _, err := handoff.FromHistory(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	finished := func(t *testing.T, w *world) { w.handOver(w.config(history, seam)); w.stream() }
	for name, c := range map[string]struct {
		before func(*testing.T, *world)
		change func(*testing.T, *handoff.Config)
		code   *codes.Code
		says   string
	}{
		"a run that a stream has begun": {commitSome, nil, codes.RunMismatch, "not begun by a hand-over"},
		"a run that has finished":       {finished, nil, codes.RunFinished, "has ended"},
		"another flow":                  {begun, func(t *testing.T, c *handoff.Config) { c.Header.Fingerprint = "sha256:other" }, codes.RunMismatch, "fingerprint"},
		"another history":               {begun, func(t *testing.T, c *handoff.Config) { c.History = other(t, c, events) }, codes.RunMismatch, "another one"},
		"another history, done":         {func(t *testing.T, w *world) { w.handOver(w.config(history, seam)) }, func(t *testing.T, c *handoff.Config) { c.History = other(t, c, events) }, codes.RunMismatch, "no hand-over of this history"},
		"another seam that was given":   {begun, func(_ *testing.T, c *handoff.Config) { c.Seam, c.Fixed = seamAt(events, 39, parts), true }, codes.RunMismatch, "is asked to at"},
		"a topic that has grown": {begun, func(_ *testing.T, c *handoff.Config) {
			c.Header.Partitions, c.Seam = []int32{0, 1, 2}, seamAt(events, 40, 3)
		}, codes.RunMismatch, "keys are dealt"},
		"a topic that was made again": {begun, func(_ *testing.T, c *handoff.Config) { c.Header.SourceID = "topic-2" }, codes.TopicRecreated, "topic-2"},
		"a seam without a partition":  {nil, func(_ *testing.T, c *handoff.Config) { delete(c.Seam, 1) }, codes.Internal, "seam"},
		"a history without an end":    {nil, func(_ *testing.T, c *handoff.Config) { c.History = sourcetest.New(sourcetest.Config{ID: "x"}) }, codes.ConfigInvalid, "snapshot"},
		"a history without a name":    {nil, func(_ *testing.T, c *handoff.Config) { c.History = sourcetest.New(sourcetest.Config{Bounded: true}) }, codes.ConfigInvalid, "hash"},
		"a row that is not readable":  {nil, func(t *testing.T, c *handoff.Config) { c.History = unreadable(t, c) }, codes.SnapshotInvalid, "bad.jsonl:2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan, topicOf(events, parts))
			if c.before != nil {
				c.before(t, w)
			}
			cfg := w.config(history, map[int32]record.Position{0: seam[0], 1: seam[1]})
			if c.change != nil {
				c.change(t, &cfg)
			}
			before := w.journal()
			if _, err := handoff.FromHistory(context.Background(), cfg); !codes.Has(err, c.code) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %s with %q", err, c.code.Name, c.says)
			}
			if after := w.journal(); after.Known != before.Known || after.State.Epoch != before.State.Epoch {
				t.Errorf("a refusal wrote epoch %d after %d (known %v, before %v)", after.State.Epoch, before.State.Epoch, after.Known, before.Known)
			}
		})
	}
}

// commitSome is a stream's first epoch.
func commitSome(t *testing.T, w *world) {
	t.Helper()
	cfg := w.config(historyFile(t, nil, 0), seamAt(nil, 0, 2))
	if _, err := cfg.Journal.OpenRun(context.Background(), cfg.Header); err != nil {
		t.Fatal(err)
	}
	c := control.Commit{RunID: runID, Epoch: 1, Status: control.RunOpen, Watermark: record.NoTime}
	for p := range int32(2) {
		c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: partitions.New(w.plan, p).Cut()})
	}
	c.Partitions = c.Partitions[:1]
	if err := cfg.Journal.Commit(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}

func other(t *testing.T, c *handoff.Config, events []event) sources.Source {
	return snapshot.New(snapshot.Config{Path: historyFile(t, events, 41), Fields: snapshot.FieldsOf(c.Plan)})
}

// unreadable is a snapshot whose second row has a field that the flow cannot take.
func unreadable(t *testing.T, c *handoff.Config) sources.Source {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	text := `{"id":"a","key":"1","t":1,"x":1}` + "\n" + `{"id":"b","key":"1","t":2,"x":"much"}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return snapshot.New(snapshot.Config{Path: path, Fields: snapshot.FieldsOf(c.Plan)})
}

// What a history sets aside stands at the seam and names its record, since positions are those of the log.
func TestWhatIsSetAsideStandsAtTheSeam(t *testing.T) {
	t.Parallel()
	plan := planOf(t, strings.Replace(flowText, "lateness", "revision: rev\nlateness", 1))
	events := []event{
		{id: "a", key: "1", value: `{"id":"a","key":"1","t":1,"x":1,"rev":2}`},
		{id: "b", key: "1", value: `{"id":"b","key":"1","t":2,"x":1}`},
	}
	w := newWorld(t, plan, topicOf(nil, 1))
	w.handOver(w.config(historyFile(t, events, 2), map[int32]record.Position{0: record.Offset(50)}))
	var got []string
	err := w.store.Quarantine(context.Background(), runID, func(q partitions.Quarantined) error {
		got = append(got, fmt.Sprintf("%s %s %s", q.Position, q.Reason, q.Detail))
		return nil
	})
	if want := []string{"50 REVISED the event came first as revision 2 (record 0 of the history)"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %q", err, got)
	}
	got = nil
	err = w.store.Decisions(context.Background(), runID, func(d partitions.Decision) error {
		got = append(got, d.Position.String()+" "+d.Kind)
		return nil
	})
	if want := []string{"50 HISTORY_BEGUN", "50 SEAM"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %q", err, got)
	}
}
