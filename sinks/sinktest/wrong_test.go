package sinktest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// memory is a target in memory, right unless a fault is named.
type memory struct {
	mu       sync.Mutex
	features sinks.Features
	fault    string
	runs     map[string]*run
}

type run struct {
	token uint64
	named string
	rows  []Seen
	ends  map[int32]int64
}

func (m *memory) run(name string) *run {
	if m.fault == "names are folded" {
		name = strings.ToLower(name)
	}
	if m.runs[name] == nil {
		m.runs[name] = &run{ends: map[int32]int64{}}
	}
	return m.runs[name]
}

func (m *memory) place() Place {
	return Place{
		Sink: func(hook func(string) error) sinks.Sink {
			if hook == nil {
				hook = func(string) error { return nil }
			}
			return &memorySink{m, hook}
		},
		Seen: func(_ testing.TB, name string) []Seen {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.run(name).rows
		},
	}
}

type memorySink struct {
	*memory
	hook func(string) error
}

func (s *memorySink) Features() sinks.Features { return s.features }

func (s *memorySink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	if err := s.step(ctx, "opening"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.run(target.RunID)
	if s.fault != "keeps no sequence" && !sinks.SameSequence(r.named, target.Sequence) {
		return nil, codes.New(codes.SinkInvalid, "holds %s, which is not %s", r.named, target.Sequence)
	}
	if s.features.FencedByTarget && s.fault != "anybody opens" && target.Token < r.token {
		return nil, sinks.Overtaken("memory", target, target.Partitions[0])
	}
	if r.token = max(r.token, target.Token); r.named == "" || s.fault == "keeps the last sequence" {
		r.named = target.Sequence
	}
	at := map[int32]int64{}
	for _, p := range target.Partitions {
		switch s.fault {
		case "forgets what stands":
			at[p] = 0
		case "believes in one row more":
			at[p] = r.ends[p] + min(1, r.ends[p])
		default:
			at[p] = r.ends[p]
		}
	}
	if !s.features.ReadBack {
		at = nil
	}
	return &memoryWriter{s: s, to: target, json: sinks.NewJSON(target), progress: sinks.NewProgress(len(target.Outputs), at)}, nil
}

func (s *memorySink) step(ctx context.Context, name string) error {
	if err := s.hook(name); err != nil {
		return err
	}
	return ctx.Err()
}

type memoryWriter struct {
	s        *memorySink
	to       sinks.Target
	json     *sinks.JSON
	progress *sinks.Progress
	late     []Seen
}

func (w *memoryWriter) Published() map[int32]int64 {
	if w.s.fault == "shares its map" {
		return w.s.run(w.to.RunID).ends
	}
	return w.progress.Published()
}

func (w *memoryWriter) Publish(ctx context.Context, batches []sinks.Rows) error {
	err := w.publish(ctx, batches)
	switch w.s.fault {
	case "goes on after an error":
		return err
	case "swallows errors":
		return nil
	}
	return w.progress.Fail(err)
}

func (w *memoryWriter) publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.rest(batches)
	if err != nil {
		return err
	}
	rows, err := w.encode(rest)
	if err != nil {
		return err
	}
	if w.s.fault == "checks, then acts" {
		if err := w.check(rest); err != nil {
			return err
		}
	}
	if err := w.s.step(ctx, "encoded"); err != nil {
		return err
	}
	if w.s.fault == "half a batch" && len(rows) > 4 {
		w.append(rows[: len(rows)/2 : len(rows)/2][1:], rest)
		if err := w.s.step(ctx, "half"); err != nil {
			return err
		}
	}
	if w.s.fault == "publishes at Close" {
		w.late = append(w.late, rows...)
		w.progress.Done(rest)
		return nil
	}
	if w.s.fault != "checks, then acts" {
		if err := w.check(rest); err != nil {
			return err
		}
	}
	w.append(rows, rest)
	if err := w.s.step(ctx, "written"); err != nil {
		return err
	}
	w.progress.Done(rest)
	return nil
}

// rest is Progress' but for the faults.
func (w *memoryWriter) rest(batches []sinks.Rows) ([]sinks.Rows, error) {
	if w.s.fault == "takes what it is given" {
		return batches, nil
	}
	if w.s.fault == "leaves whole batches out only" {
		var out []sinks.Rows
		for _, b := range batches {
			if b.End() > w.progress.Published()[b.Partition] {
				out = append(out, b)
			}
		}
		return out, nil
	}
	return w.progress.Rest(batches)
}

func (w *memoryWriter) encode(rest []sinks.Rows) ([]Seen, error) {
	var out []Seen
	for _, b := range rest {
		err := b.Each(len(w.to.Outputs), nil, func(n int64, row *partitions.Row) error {
			if w.s.fault == "nulls become 0" {
				for i := range row.Values {
					row.Values[i].OK = true
				}
			}
			out = append(out, Seen{b.Partition, n, string(w.json.Append(nil, b.Partition, n, row))})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check refuses a stale owner, or rows that do not continue what stands.
func (w *memoryWriter) check(rest []sinks.Rows) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	r := w.s.run(w.to.RunID)
	f := w.s.features
	if f.FencedByTarget && w.to.Token < r.token && w.s.fault != "checks when it opens only" {
		return sinks.Overtaken("memory", w.to, w.to.Partitions[0])
	}
	if !f.Once || w.s.fault == "takes what it is given" || w.s.fault == "leaves whole batches out only" || w.s.fault == "checks when it opens only" {
		return nil
	}
	ends := maps.Clone(r.ends)
	for _, b := range rest {
		if b.From != ends[b.Partition] {
			return codes.New(codes.SinkUnavailable, "row %d of partition %d stands by another hand", b.From, b.Partition)
		}
		ends[b.Partition] = b.End()
	}
	return nil
}

func (w *memoryWriter) append(rows []Seen, rest []sinks.Rows) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	r := w.s.run(w.to.RunID)
	r.rows = append(r.rows, rows...)
	for _, b := range rest {
		r.ends[b.Partition] = b.End()
	}
}

func (w *memoryWriter) Close() error {
	w.append(w.late, nil)
	return nil
}

// The right sinks, by what they promise.
var (
	fenced = sinks.Features{Once: true, ReadBack: true, FencedByTarget: true, IdempotentByKey: true, AppendOnly: true}
	linear = sinks.Features{Once: true, ReadBack: true, IdempotentByKey: true, AppendOnly: true}
	keyed  = sinks.Features{IdempotentByKey: true, AppendOnly: true}
)

func TestRightSinksPass(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]sinks.Features{"fenced": fenced, "linear": linear, "keyed": keyed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, func(testing.TB) Place { return (&memory{features: f, runs: map[string]*run{}}).place() })
		})
	}
}

// TestWrongSinksFail: each fault is found by at least one check, so that a sink that passes has none of them.
func TestWrongSinksFail(t *testing.T) {
	t.Parallel()
	wrong := map[string]sinks.Features{}
	for _, fault := range []string{
		"forgets what stands", "believes in one row more", "shares its map", "goes on after an error", "swallows errors", "checks, then acts", "half a batch",
		"publishes at Close", "takes what it is given", "leaves whole batches out only", "nulls become 0", "names are folded",
	} {
		wrong[fault] = linear
	}
	wrong["anybody opens"], wrong["checks when it opens only"] = fenced, fenced
	for fault, f := range wrong {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var found []string
			for _, c := range checks {
				r := &recorder{TB: t}
				r.run(func() { c.run(r, (&memory{features: f, fault: fault, runs: map[string]*run{}}).place()) })
				if r.first != "" {
					found = append(found, c.name+": "+r.first)
				}
			}
			if len(found) == 0 {
				t.Error("no check has found it")
			}
			for _, text := range found {
				t.Log(text)
			}
		})
	}
}

// TestSequences: a target that compares them passes, and one that does not is found.
func TestSequences(t *testing.T) {
	t.Parallel()
	RunSequence(t, func(testing.TB) Place { return (&memory{features: linear, runs: map[string]*run{}}).place() })
	for _, fault := range []string{"keeps no sequence", "keeps the last sequence"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			found := false
			for _, c := range sequences {
				r := &recorder{TB: t}
				r.run(func() { c.run(r, (&memory{features: linear, fault: fault, runs: map[string]*run{}}).place()) })
				found = found || r.first != ""
			}
			if !found {
				t.Error("no check has found it")
			}
		})
	}
}

// TestOverstatedFeaturesFail: what is right for less is wrong for more.
func TestOverstatedFeaturesFail(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*memory){
		"Once of one that appends copies": func(m *memory) { m.features = fenced; m.fault = "takes what it is given" },
		"Once without ReadBack":           func(m *memory) { m.features = keyed; m.features.Once = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := false
			for _, c := range checks {
				m := &memory{runs: map[string]*run{}}
				change(m)
				r := &recorder{TB: t}
				r.run(func() { c.run(r, m.place()) })
				found = found || r.first != ""
			}
			if !found {
				t.Error("no check has found it")
			}
		})
	}
}

// recorder is a testing.TB that keeps the first failure to itself.
type recorder struct {
	testing.TB
	first string
}

type stop struct{}

func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != any(stop{}) {
			panic(p)
		}
	}()
	f()
}

func (r *recorder) note(text string) {
	if r.first == "" {
		r.first = text
	}
}

func (r *recorder) Helper()                   {}
func (r *recorder) Failed() bool              { return r.first != "" }
func (r *recorder) Error(args ...any)         { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any)         { r.note(fmt.Sprint(args...)); panic(stop{}) }
func (r *recorder) Fatalf(f string, a ...any) { r.note(fmt.Sprintf(f, a...)); panic(stop{}) }
