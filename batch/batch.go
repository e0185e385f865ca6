package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
)

// DefaultFetch is how many records are read at once.
const DefaultFetch = 1024

// maxFailures bounds how often a source may fail in a row without giving a record.
const maxFailures = 10

// Config of a run.
type Config struct {
	Plan   *flow.Plan
	Source sources.Source
	// Mode is emit.ModeBatch or emit.ModeReplay. A batch fails at the first record that cannot be read; a replay sets it aside.
	Mode string
	// Fetch is how many records are read at once. Defaults to DefaultFetch.
	Fetch int
	// Emit is the path of the emit document, or "".
	Emit string
	// Keep is how many rows stay in the returned document. Defaults to emit.DefaultKeep.
	Keep int
	// Row is called with every row, in the order of the document. May be nil.
	Row func(*partitions.Row) error
	// Quarantine is called with every record set aside, and Decision with every recorded decision. Both may be nil.
	Quarantine func(partitions.Quarantined) error
	Decision   func(partitions.Decision) error
	// Decided are the recorded decisions of a run that this one replays, in their order: those that no record makes are made again where they were made.
	Decided []partitions.Decision
}

// Run runs the flow to the end of its source and returns the emit document. Memory does not grow with the input: rows wait in files
// until they can be merged.
func Run(ctx context.Context, cfg Config) (emit.Doc, error) {
	if cfg.Fetch <= 0 {
		cfg.Fetch = DefaultFetch
	}
	if cfg.Keep <= 0 {
		cfg.Keep = emit.DefaultKeep
	}
	r := &run{cfg: cfg, lanes: map[int32]*lane{}, doc: emit.New(cfg.Plan, cfg.Mode)}
	defer r.close()
	info, err := cfg.Source.Info(ctx)
	if err != nil {
		return r.doc, err
	}
	if !info.Bounded {
		return r.doc, codes.New(codes.ConfigInvalid, "%s has no end; a batch needs a bounded source", info.Name)
	}
	for _, p := range info.Partitions {
		l, err := newLane(cfg, p, len(info.Partitions) > 1)
		if err != nil {
			return r.doc, err
		}
		r.lanes[p] = l
	}
	if len(r.lanes) == 1 {
		if err := r.writeDirectly(); err != nil {
			return r.doc, err
		}
	}
	if err := r.read(ctx); err != nil {
		return r.doc, err
	}
	return r.finish(ctx)
}

type run struct {
	cfg   Config
	lanes map[int32]*lane
	doc   emit.Doc
	// writer takes the rows at once when there is one partition: they come in their final order.
	writer *emit.Writer
}

func (r *run) writeDirectly() error {
	w, err := emit.NewWriter(r.cfg.Plan, r.cfg.Emit)
	if err != nil {
		return err
	}
	w.Keep = r.cfg.Keep
	r.writer = w
	return nil
}

// read polls to the end. A source that fails for a while is opened again where it was.
func (r *run) read(ctx context.Context) error {
	failures := 0
	for {
		progress, err := r.readOnce(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if progress {
			failures = 0
		}
		failures++
		if c := codes.Of(err); c == nil || c.Verdict != codes.Retry || failures >= maxFailures {
			return err
		}
	}
}

func (r *run) readOnce(ctx context.Context) (progress bool, err error) {
	from := make(map[int32]record.Position, len(r.lanes))
	for p, l := range r.lanes {
		from[p] = l.machine.Next()
	}
	reader, err := r.cfg.Source.Open(ctx, from)
	if err != nil {
		return false, err
	}
	defer reader.Close()
	for {
		batches, err := reader.Poll(ctx, r.cfg.Fetch)
		// What came with an error is good.
		for i := range batches {
			progress = true
			if stepErr := r.deliver(ctx, &batches[i]); stepErr != nil {
				return true, stepErr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return progress, nil
		case err != nil:
			return progress, err
		case ctx.Err() != nil:
			return progress, context.Cause(ctx)
		}
	}
}

func (r *run) deliver(ctx context.Context, b *record.Batch) error {
	defer b.Done()
	l := r.lanes[b.Partition]
	if l == nil {
		return codes.New(codes.Internal, "the source delivered partition %d, which it had not named", b.Partition)
	}
	return l.pieces(b, func(ev partitions.Event) error { return r.step(ctx, l, ev) })
}

func (r *run) step(ctx context.Context, l *lane, ev partitions.Event) error {
	if err := l.machine.Step(ev, &l.effects); err != nil {
		return err
	}
	if err := r.report(ctx, l); err != nil {
		return err
	}
	var err error
	if r.writer != nil {
		err = l.eachRow(r.row)
	} else {
		err = l.spool.Append(l.effects.Rows)
	}
	l.effects.Reset()
	return err
}

// row gives a row to whoever wants it.
func (r *run) row(row *partitions.Row) error {
	if r.cfg.Row != nil {
		if err := r.cfg.Row(row); err != nil {
			return err
		}
	}
	return r.writer.Row(row)
}

func (r *run) report(ctx context.Context, l *lane) error {
	for _, q := range l.effects.Quarantine {
		l.decided.took(q)
		if r.cfg.Mode == emit.ModeBatch && (q.Reason == partitions.ReasonUnreadable || q.Reason == partitions.ReasonTombstone) {
			return codes.New(codes.SnapshotInvalid, "%s: %s: %s", r.place(ctx, q), q.Reason, q.Detail)
		}
		if r.cfg.Quarantine != nil {
			if err := r.cfg.Quarantine(q); err != nil {
				return err
			}
		}
	}
	for _, d := range l.effects.Decisions {
		if r.cfg.Decision != nil {
			if err := r.cfg.Decision(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// Locator is a source that knows where its records stand.
type Locator interface {
	// Locate names the place of a record for a message, such as FILE:LINE. It may read the source again.
	Locate(ctx context.Context, partition int32, at record.Position) (string, error)
}

// place names a record, by its line where the source can tell it.
func (r *run) place(ctx context.Context, q partitions.Quarantined) string {
	if l, ok := r.cfg.Source.(Locator); ok {
		if place, err := l.Locate(ctx, q.Partition, q.Position); err == nil {
			return place
		}
	}
	return fmt.Sprintf("record %s (counted from 0 in event time order)", q.Position)
}

// finish releases what waits, up to the instant that the partitions have in common, and writes the document.
func (r *run) finish(ctx context.Context) (emit.Doc, error) {
	r.doc.Positions = map[int32]record.Position{}
	r.doc.Watermark = record.MaxTime
	order := slices.Sorted(maps.Keys(r.lanes))
	through := record.NoTime
	for _, p := range order { // what was decided at the end may move event time in any of them
		l := r.lanes[p]
		if err := l.rest(p, func(ev partitions.Event) error { return r.step(ctx, l, ev) }); err != nil {
			return r.doc, err
		}
		through = max(through, l.machine.MaxEventTime())
	}
	for _, p := range order {
		l := r.lanes[p]
		if err := r.step(ctx, l, partitions.EndOfSource{Through: through}); err != nil {
			return r.doc, err
		}
		r.doc.Positions[p] = l.machine.Next()
		r.doc.Counts = emit.Add(r.doc.Counts, l.machine.Counts())
	}
	if r.writer != nil {
		w := r.writer
		r.writer = nil
		return w.Finish(r.doc)
	}
	var runs []emit.Run
	for _, p := range order {
		runs = append(runs, r.lanes[p].spool.Run())
	}
	if r.cfg.Row != nil {
		if err := emit.Merge(len(r.cfg.Plan.Outputs), runs, r.cfg.Row); err != nil {
			return r.doc, err
		}
	}
	return emit.Write(r.doc, r.cfg.Plan, runs, r.cfg.Emit, r.cfg.Keep)
}

func (r *run) close() {
	if r.writer != nil {
		r.writer.Discard()
	}
	for _, l := range r.lanes {
		if l.spool != nil {
			l.spool.Close()
		}
	}
}

// lane is one partition.
type lane struct {
	machine *partitions.Machine
	effects partitions.Effects
	spool   *emit.Spool
	width   int
	row     partitions.Row
	decided decided
}

func newLane(cfg Config, p int32, spooled bool) (*lane, error) {
	l := &lane{machine: partitions.New(cfg.Plan, p), width: len(cfg.Plan.Outputs), decided: decidedOf(cfg.Decided, p)}
	if !spooled {
		return l, nil
	}
	var err error
	l.spool, err = emit.NewSpool(cfg.Emit)
	return l, err
}

func (l *lane) eachRow(fn func(*partitions.Row) error) error {
	var err error
	for rest := l.effects.Rows.Data; len(rest) > 0; {
		if rest, err = partitions.DecodeRow(rest, l.width, &l.row); err != nil {
			return err
		}
		if err := fn(&l.row); err != nil {
			return err
		}
	}
	return nil
}
