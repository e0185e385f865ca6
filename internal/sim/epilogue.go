package sim

import (
	"context"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources/sourcetest"
)

// epilogue reads what stands in the end, as somebody who had no part in it: what was published, every checkpoint, and what comes out when
// one of them is restored and the run finished from there. It returns the history of that run.
func (w *world) epilogue() ([]invariant.Entry, error) {
	ctx := context.Background()
	w.server.rest()
	if err := w.collect(ctx); err != nil {
		return nil, err
	}
	out, err := w.published(ctx, runID)
	if err != nil {
		return nil, err
	}
	if w.mutant == JournalFirst {
		out.Rows = w.server.late
	}
	w.history.Add("reader", out)
	pointers, err := w.server.mem.ListPointers(ctx, runID)
	if err != nil {
		return nil, err
	}
	for _, p := range pointers {
		w.readCheckpoint(ctx, p)
	}
	return w.fork(ctx, pointers, out.State.Epoch)
}

// published is what a reader finds of a run.
func (w *world) published(ctx context.Context, run string) (invariant.Published, error) {
	mem, out := w.server.mem, invariant.Published{Rows: map[int32][]byte{}}
	err := mem.Snapshot(ctx, run, func(v control.JournalView) error {
		out.State = v.State()
		return nil
	})
	if err != nil {
		return out, err
	}
	doc := emit.New(w.plan, emit.ModeStream)
	for _, p := range out.State.Header.Partitions {
		doc.Positions = put(doc.Positions, p, out.State.Cuts[p].Next)
		err := mem.Outputs(ctx, run, p, func(r partitions.Rows) error {
			out.Rows[p] = append(out.Rows[p], r.Data...)
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	if doc, err = emit.FromJournal(ctx, mem, run, doc, w.plan, "", emit.DefaultKeep); err != nil {
		return out, err
	}
	out.Hash = doc.ValuesHash
	if err := mem.Quarantine(ctx, run, func(q partitions.Quarantined) error { out.Quarantine = append(out.Quarantine, q); return nil }); err != nil {
		return out, err
	}
	return out, mem.Decisions(ctx, run, func(d partitions.Decision) error { out.Decisions = append(out.Decisions, d); return nil })
}

func put[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[k] = v
	return m
}

// readCheckpoint reads a checkpoint that is kept.
func (w *world) readCheckpoint(ctx context.Context, p control.Pointer) {
	m, err := checkpoint.Load(ctx, w.blobs, p)
	if err != nil {
		w.history.Add("reader", invariant.CheckpointRead{Epoch: p.Epoch, Err: err.Error()})
		return
	}
	for _, part := range m.Partitions {
		if !part.Committed {
			continue
		}
		out := invariant.CheckpointRead{Epoch: p.Epoch, Partition: part.Partition}
		for _, r := range part.State {
			data, err := checkpoint.GetBytes(ctx, w.blobs, r.SHA256, r.Size)
			if err != nil {
				out.Err = err.Error()
				break
			}
			out.Blobs = append(out.Blobs, partitions.StateBlob{Name: r.Name, Data: data})
		}
		w.history.Add("reader", out)
	}
}

// collect cleans up in two passes, with as much time between as a clean-up has to leave.
func (w *world) collect(ctx context.Context) error {
	if w.sc.Keep == 0 || w.mutant == PointerFirst {
		return nil
	}
	gc := checkpoint.GC{Store: w.server.mem, Blobs: w.blobs, Keep: w.sc.Keep, Grace: checkpoint.MinGrace, TTL: time.Hour}
	for range 3 {
		pause(ctx, 2*checkpoint.MinGrace)
		w.server.rest()
		did, err := gc.Collect(ctx)
		if err != nil {
			return err
		}
		for _, p := range did.Dropped {
			w.history.Add("collector", invariant.PointerDropped{Epoch: p.Epoch})
		}
		for _, a := range did.Purged {
			if stands, err := w.blobs.Has(ctx, a.Name); err != nil {
				return err
			} else if !stands {
				w.history.Add("collector", invariant.BlobDropped{Name: a.Name})
			}
		}
	}
	return nil
}

// fork restores a checkpoint from the middle of the run as a new run, and finishes that undisturbed.
func (w *world) fork(ctx context.Context, pointers []control.Pointer, last uint64) ([]invariant.Entry, error) {
	var open []control.Pointer
	for _, p := range pointers {
		if p.Epoch < last {
			open = append(open, p)
		}
	}
	if len(open) == 0 || w.mutant != Sound {
		return nil, nil
	}
	h := invariant.NewHistory(time.Now)
	from := open[draw(w.sc.Seed, "fork", 0).IntN(len(open))]
	r := checkpoint.Restorer{Store: w.server.mem, Blobs: w.blobs, Plan: w.plan, TTL: time.Hour}
	const as = runID + "-2"
	if _, err := r.Restore(ctx, runID, from.Epoch, as); err != nil {
		return nil, err
	}
	cfg := actors.Config{
		Plan: w.plan, Source: w.sc.open(sourcetest.Config{Bounded: true}), Journal: w.server.mem, RunID: as,
		Fencing: &actors.Fencing{Leases: w.server.mem, Owner: "fork", TTL: time.Hour}, FetchSize: 7,
	}
	if _, err := actors.Run(ctx, cfg); err != nil {
		return nil, err
	}
	out, err := w.published(ctx, as)
	h.Add("reader", out)
	return h.Entries(), err
}
