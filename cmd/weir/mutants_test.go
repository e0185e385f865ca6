package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources"
)

// asMutant names what is broken in the weir of this process: a negative control of the drill.
const asMutant = "WEIR_TEST_MUTANT"

// mutate breaks this process.
func mutate(name string) {
	switch name {
	case "":
	case "unfenced":
		wrapStore = func(s control.ControlStore) control.ControlStore { return unfenced{s} }
	case "unchecked":
		wrapStore = func(s control.ControlStore) control.ControlStore { return unchecked{unfenced{s}} }
	case "outputs-late":
		wrapStore = func(s control.ControlStore) control.ControlStore { return &lateOutputs{ControlStore: s} }
	case "no-dedupe":
		wrapSource = func(s sources.Source) sources.Source { return noDedupe{s} }
	case "offsets-ahead":
		wrapOffsets = func(commit commitOffsets) commitOffsets {
			return func(ctx context.Context, next map[int32]record.Position) error {
				ahead := map[int32]record.Position{}
				for p, at := range next {
					n, _ := at.Int64()
					ahead[p] = record.Offset(n + 50) // what is read, and not yet committed
				}
				return commit(ctx, ahead)
			}
		}
	case "moves-stop":
		wrapSource = func(s sources.Source) sources.Source { return &movesStop{Source: s} }
	case "pointer-first":
		wrapBlobs = func(b checkpoint.Blobs) checkpoint.Blobs { return pointerFirst{b} }
	case "sink-lazy":
		wrapSink = func(s sinks.Sink) sinks.Sink { return lazySink{s} }
	case "sink-copies":
		respecSink = func(s flow.SinkSpec) flow.SinkSpec {
			if s.Type == sinkKafka {
				s.Type = sinkIdempotent
			}
			return s
		}
	default:
		panic("no mutant " + name)
	}
}

// movesStop stops all partitions of the process for a while whenever one is opened.
type movesStop struct {
	sources.Source
	mu    sync.Mutex
	until time.Time
}

func (s *movesStop) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Source.Open(ctx, from)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(2500 * time.Millisecond)
	return movesStopReader{r, s}, err
}

type movesStopReader struct {
	sources.Reader
	s *movesStop
}

func (r movesStopReader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	r.s.mu.Lock()
	timer := time.NewTimer(time.Until(r.s.until))
	r.s.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.Reader.Poll(ctx, limit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// unfenced commits without the lease.
type unfenced struct{ control.ControlStore }

func (u unfenced) Under(control.Lease) control.Journal { return u.ControlStore }

// unchecked besides takes every lease for its own: nobody is ever refused.
type unchecked struct{ unfenced }

func (u unchecked) Acquire(_ context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	return control.Lease{Name: name, Owner: owner, Token: 1, Until: time.Now().Add(ttl), Deadline: time.Now().Add(ttl), TTL: ttl}, nil
}

func (u unchecked) Renew(_ context.Context, l control.Lease) (control.Lease, error) {
	l.Until, l.Deadline = time.Now().Add(l.TTL), time.Now().Add(l.TTL)
	return l, nil
}

func (u unchecked) Release(context.Context, control.Lease) error                   { return nil }
func (u unchecked) Fenced(context.Context, control.Lease, ...control.Effect) error { return nil }

// lateOutputs writes the journal of an epoch, and its outputs with the next one.
type lateOutputs struct {
	control.ControlStore
	mu   sync.Mutex
	held map[int32]partitions.Rows
}

func (s *lateOutputs) Under(l control.Lease) control.Journal {
	return lateJournal{s.ControlStore.Under(l), s}
}

type lateJournal struct {
	control.Journal
	s *lateOutputs
}

func (j lateJournal) Commit(ctx context.Context, c control.Commit) error {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	c.Partitions = slices.Clone(c.Partitions)
	next := map[int32]partitions.Rows{}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		mine, held := p.Rows, j.s.held[p.Cut.Partition]
		if c.Status == control.RunFinished {
			held.Data, held.Count, held.Last = append(held.Data, mine.Data...), held.Count+mine.Count, mine.Last
			p.Rows = held
			continue
		}
		mine.Data = bytes.Clone(mine.Data)
		p.Rows, next[p.Cut.Partition] = held, mine
	}
	err := j.Journal.Commit(ctx, c)
	if err == nil {
		if j.s.held == nil {
			j.s.held = map[int32]partitions.Rows{}
		}
		for p, rows := range next {
			j.s.held[p] = rows
		}
	}
	return err
}

// noDedupe makes every delivery an event of its own.
type noDedupe struct{ sources.Source }

func (s noDedupe) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Source.Open(ctx, from)
	return noDedupeReader{r}, err
}

type noDedupeReader struct{ sources.Reader }

func (r noDedupeReader) Poll(ctx context.Context, most int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, most)
	for _, b := range batches {
		for i := range b.Records {
			v := &b.Records[i]
			v.Value = bytes.Replace(v.Value, []byte(`"event_id":"`), fmt.Appendf(nil, `"event_id":"%s.`, v.Position), 1)
			if len(v.Value) == 0 {
				v.Value = nil // a tombstone stays one
			}
		}
	}
	return batches, err
}

// pointerFirst says that a blob is durable long before it is there.
type pointerFirst struct{ checkpoint.Blobs }

func (b pointerFirst) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return checkpoint.Info{}, err
	}
	sum := sha256.Sum256(data)
	time.AfterFunc(time.Minute, func() { b.Blobs.Put(context.WithoutCancel(ctx), bytes.NewReader(data)) })
	return checkpoint.Info{Name: hex.EncodeToString(sum[:]), Size: int64(len(data))}, nil
}

// lazySink publishes the rows of an epoch with the next one.
type lazySink struct{ sinks.Sink }

func (s lazySink) Open(ctx context.Context, t sinks.Target) (sinks.Writer, error) {
	w, err := s.Sink.Open(ctx, t)
	return &lazyWriter{Writer: w}, err
}

type lazyWriter struct {
	sinks.Writer
	held []sinks.Rows
}

func (w *lazyWriter) Publish(ctx context.Context, batches []sinks.Rows) error {
	now := w.held
	w.held = nil
	for _, b := range batches {
		b.Data = bytes.Clone(b.Data)
		w.held = append(w.held, b)
	}
	return w.Writer.Publish(ctx, now)
}

func (w *lazyWriter) Published() map[int32]int64 {
	out := w.Writer.Published()
	for _, b := range w.held {
		out[b.Partition] = b.End()
	}
	return out
}

// TestADrillOfABrokenWeirFails: each mutant turns the part of the drill red that is about it, at the check that names it.
func TestADrillOfABrokenWeirFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mutant, part, check string }{
		{"unfenced", "zombie", "the journal was written last under the owner's token"},
		{"unchecked", "kill", "C0, which does not wait, is refused with STREAM_LEASE_OCUPADO"},
		{"outputs-late", "points1", "the events are those of the reference, each once"},
		{"no-dedupe", "handover", "values_hash is the golden one"},
		{"pointer-first", "restore", "every checkpoint that can be seen has its manifest"},
		{"sink-lazy", "handover", "every row of the journal is in jsonl"},
		{"sink-copies", "points4", "no row is twice in kafka"},
	} {
		t.Run(c.mutant, func(t *testing.T) {
			t.Parallel()
			code, report := runDrill(t, "", []string{asMutant + "=" + c.mutant}, "--only", c.part, "--ttl", "2s", "--sink", "jsonl,kafka")
			if all := failed(report); code != 4 || !strings.Contains(strings.Join(all, "\n"), c.check) {
				t.Errorf("exit %d; %q should have failed, and did:\n%s", code, c.check, strings.Join(all, "\n"))
			}
		})
	}
}
