package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/watermark"
)

// Defaults of a Config.
const (
	DefaultFetch       = 1024
	DefaultCommitBytes = 32 << 20
)

// Config of a batch whose run a stream continues. Everything but Fetch, CommitBytes and OnCommit is required.
type Config struct {
	Plan *flow.Plan
	// History is bounded, has one partition, and gives its records in (event time, event id) order. Its id names it.
	History sources.Source
	// Journal is written under the run's lease; Runs tells what is in it.
	Journal control.Journal
	Runs    control.RunLister
	// Header is that of the stream: run id, topic, its identity and all its partitions, numbered from 0.
	Header control.RunHeader
	// Seam is where the log of each partition is read on. Fixed says that it was taken before the history was, and must be the one of an
	// attempt before this one; otherwise that attempt's stands, since it is the earlier one.
	Seam  map[int32]record.Position
	Fixed bool
	// Fetch is how many records are read at once, CommitBytes how many bytes of results are committed together. Default to DefaultFetch
	// and DefaultCommitBytes.
	Fetch       int
	CommitBytes int
	// OnCommit is told of every epoch.
	OnCommit func(epoch uint64, records int64)
}

// Result is what FromHistory leaves.
type Result struct {
	// State of the run, for Of.
	State control.RunState
	// History that was taken in.
	History History
	// Resumed says that an attempt before this one had begun; Done that it had ended, and nothing was left to do.
	Resumed, Done bool
	// MaxEventTime is the greatest event time of the history, or record.NoTime; not known (NoTime) of one that was Done.
	MaxEventTime record.EventTime
}

// FromHistory runs a flow over a history and leaves a run that the log continues, exactly at the seam. It may be ended at any moment: called
// again with the same history it goes on from its last commit, and when everything was committed before it says so. Memory is bounded by the
// plan and CommitBytes.
//
// Errors: RUN_MISMATCH for a run that is there and is no hand-over of this history to this seam, RUN_FINISHED, SNAPSHOT_INVALID for a
// record that the flow cannot read, STREAM_FENCE_OBSOLETO, what the journal and the history say, and the cause of ctx.
func FromHistory(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Fetch <= 0 {
		cfg.Fetch = DefaultFetch
	}
	if cfg.CommitBytes <= 0 {
		cfg.CommitBytes = DefaultCommitBytes
	}
	info, err := cfg.History.Info(ctx)
	if err != nil {
		return Result{}, err
	}
	t := &taking{Config: cfg, id: info.ID}
	t.out.History.ID = info.ID
	if err := t.check(info); err != nil {
		return t.out, err
	}
	if err := t.begin(ctx); err != nil || t.out.Done {
		return t.out, t.because(ctx, err)
	}
	if err := t.read(ctx); err != nil {
		return t.out, t.because(ctx, err)
	}
	err = t.commit(ctx, true)
	return t.out, t.because(ctx, err)
}

// taking is a history that is being taken in.
type taking struct {
	Config
	id       string
	lanes    []*lane
	state    control.RunState
	opened   bool
	out      Result
	position record.Position
}

// lane is one partition of the topic.
type lane struct {
	machine *partitions.Machine
	effects partitions.Effects
	batch   record.Batch
}

func (t *taking) check(info sources.Info) error {
	if !info.Bounded || len(info.Partitions) != 1 || info.Partitions[0] != 0 || info.ID == "" {
		return codes.New(codes.ConfigInvalid, "%s cannot be taken in as a history: it has to be a snapshot, with an end, an order and a hash", info.Name)
	}
	for i, p := range slices.Sorted(slices.Values(t.Header.Partitions)) {
		if _, ok := t.Seam[p]; !ok || int(p) != i {
			return codes.New(codes.Internal, "the seam of run %q has %d positions for the partitions %v, which are not numbered from 0", t.Header.RunID, len(t.Seam), t.Header.Partitions)
		}
	}
	return nil
}

// because is the reason why a context ended, rather than that it did; a lease that was lost surfaces as it does in the engine.
func (t *taking) because(ctx context.Context, err error) error {
	switch {
	case codes.Has(err, codes.StaleFence):
		return codes.New(codes.StreamFenceStale, "run %q has another owner: %w", t.Header.RunID, err)
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// begin makes the machines, or brings those back that an attempt before this one has committed. A run that is new is not opened yet, so
// that a history that turns out to be unreadable leaves nothing behind unless it is large.
func (t *taking) begin(ctx context.Context) error {
	known, stored, err := t.lookUp(ctx)
	if err != nil {
		return err
	}
	if known {
		if have, want := len(stored.Partitions), len(t.Header.Partitions); have != want {
			return t.mismatch("it was begun when the topic had %d partitions, it has %d now, and keys are dealt to others", have, want)
		}
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	if t.state.Epoch == 0 {
		return t.fresh()
	}
	return t.resume(ctx)
}

func (t *taking) lookUp(ctx context.Context) (bool, control.RunHeader, error) {
	runs, err := t.Runs.Runs(ctx)
	for _, r := range runs {
		if r.Header.RunID == t.Header.RunID {
			return true, r.Header, err
		}
	}
	return false, control.RunHeader{}, err
}

func (t *taking) mismatch(format string, args ...any) error {
	return codes.New(codes.RunMismatch, "run %q cannot take in the history %s: %s. Use a new run id", t.Header.RunID, t.id, fmt.Sprintf(format, args...))
}

func (t *taking) open(ctx context.Context) error {
	state, err := t.Journal.OpenRun(ctx, t.Header)
	if err != nil {
		return err
	}
	t.state, t.opened = state, true
	return nil
}

func (t *taking) fresh() error {
	for p := range int32(len(t.Header.Partitions)) {
		l := &lane{machine: partitions.New(t.Plan, p)}
		if err := l.machine.Step(partitions.BeginHistory{ID: t.id, Next: t.Seam[p]}, &l.effects); err != nil {
			return err
		}
		t.lanes = append(t.lanes, l)
	}
	return nil
}

func (t *taking) resume(ctx context.Context) error {
	t.out.Resumed, t.out.State = true, t.state
	open, records := 0, int64(0)
	for p := range int32(len(t.Header.Partitions)) {
		if _, committed := t.state.Cuts[p]; !committed {
			return t.mismatch("it is in the store, and was not begun by a hand-over")
		}
		m, err := partitions.RestoreHistory(t.Plan, p, func(yield func(partitions.StateBlob) error) error {
			return t.Journal.LoadBlobs(ctx, t.Header.RunID, p, yield)
		})
		if err != nil {
			return fmt.Errorf("partition %d of run %q: %w", p, t.Header.RunID, err)
		}
		switch {
		case m.History() == t.id:
			open++
		case m.History() != "":
			return t.mismatch("it has begun to take in another one, %s", m.History())
		}
		records += m.Counts().Records
		t.lanes = append(t.lanes, &lane{machine: m})
	}
	switch open {
	case 0:
		if err := t.done(ctx, records); err != nil {
			return err
		}
		return t.sameSeam()
	case len(t.lanes):
		t.position = record.Offset(records) // every record so far is counted in one partition
		return t.sameSeam()
	}
	return codes.New(codes.JournalCorrupt, "run %q has %d partitions that take a history in and %d that do not: restore the store from a backup, or start a new run id", t.Header.RunID, open, len(t.lanes)-open)
}

func (t *taking) sameSeam() error {
	for p, l := range t.lanes {
		if at := l.machine.Next(); t.Fixed && at != t.Seam[int32(p)] {
			return t.mismatch("partition %d of it reads on at %s, and is asked to at %s", p, at, t.Seam[int32(p)])
		}
	}
	return nil
}

// done finds out whether the run is the result of this very history, and has not gone on.
func (t *taking) done(ctx context.Context, records int64) error {
	ended := make(map[int32]bool)
	err := t.Journal.Decisions(ctx, t.Header.RunID, func(d partitions.Decision) error {
		if id, records, ok := partitions.HistoryOf(d); ok {
			cut := t.state.Cuts[d.Partition]
			ended[d.Partition] = id == t.id && d.Position == cut.Next && records == cut.Counts.Records
		}
		return nil
	})
	if err != nil {
		return err
	}
	for p := range t.lanes {
		if !ended[int32(p)] {
			return t.mismatch("it is in the store, and is no hand-over of this history, or has gone on since")
		}
	}
	t.out.Done, t.out.History.Records = true, records
	return nil
}

// read takes everything in, and commits whenever there is enough.
func (t *taking) read(ctx context.Context) error {
	reader, err := t.History.Open(ctx, map[int32]record.Position{0: t.position})
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		batches, err := reader.Poll(ctx, t.Fetch)
		for i := range batches {
			takeErr := t.take(ctx, &batches[i])
			batches[i].Done()
			if takeErr != nil {
				return takeErr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if t.weight() >= t.CommitBytes {
			if err := t.commit(ctx, false); err != nil {
				return err
			}
		}
	}
}

// take deals records to the partitions in which the topic has their keys.
func (t *taking) take(ctx context.Context, b *record.Batch) error {
	n := int32(len(t.lanes))
	for i := range b.Records {
		l := t.lanes[record.PartitionOf(b.Records[i].Key, n)]
		l.batch.Records = append(l.batch.Records, b.Records[i])
	}
	for p, l := range t.lanes {
		if len(l.batch.Records) == 0 {
			continue
		}
		l.batch.Partition, l.batch.Next = int32(p), b.Next
		known, decided := len(l.effects.Quarantine), len(l.effects.Decisions)
		err := l.machine.Step(partitions.Backfill{Batch: &l.batch}, &l.effects)
		clear(l.batch.Records)
		l.batch.Records = l.batch.Records[:0]
		if err != nil {
			return err
		}
		if err := t.aside(ctx, l, known, decided); err != nil {
			return err
		}
	}
	return nil
}

// aside refuses what cannot be read, as every batch does, and moves the rest to the seam: positions of a history would pass for those of
// the log.
func (t *taking) aside(ctx context.Context, l *lane, known, decided int) error {
	for i := range l.effects.Quarantine[known:] {
		q := &l.effects.Quarantine[known+i]
		if q.Reason == partitions.ReasonUnreadable || q.Reason == partitions.ReasonTombstone {
			return codes.New(codes.SnapshotInvalid, "%s: %s: %s", t.place(ctx, q.Position), q.Reason, q.Detail)
		}
		q.Detail += fmt.Sprintf(" (record %s of the history)", q.Position)
		q.Position = l.machine.Next()
	}
	for i := range l.effects.Decisions[decided:] {
		d := &l.effects.Decisions[decided+i]
		d.Detail += fmt.Sprintf(" (record %s of the history)", d.Position)
		d.Position = l.machine.Next()
	}
	return nil
}

// locator is a history that knows where its records stand, such as a snapshot.
type locator interface {
	Locate(ctx context.Context, partition int32, at record.Position) (string, error)
}

func (t *taking) place(ctx context.Context, at record.Position) string {
	if l, ok := t.History.(locator); ok {
		if place, err := l.Locate(ctx, 0, at); err == nil {
			return place
		}
	}
	return fmt.Sprintf("record %s of the history (counted from 0 in event time order)", at)
}

// asideBytes is a quarantined record or a decision without its bytes, roughly.
const asideBytes = 200

func (t *taking) weight() (bytes int) {
	for _, l := range t.lanes {
		bytes += len(l.effects.Rows.Data) + asideBytes*(len(l.effects.Quarantine)+len(l.effects.Decisions))
		for i := range l.effects.Quarantine {
			bytes += l.effects.Quarantine[i].Size()
		}
	}
	return bytes
}

// commit makes an epoch of all partitions, the last one with the seam.
func (t *taking) commit(ctx context.Context, last bool) error {
	c := control.Commit{RunID: t.Header.RunID, Epoch: t.state.Epoch + 1, Status: control.RunOpen, Watermark: record.NoTime}
	if t.state.Epoch > 0 {
		c.Watermark = t.state.Watermark
	}
	merge := watermark.NewMerge(t.Header.Partitions)
	for _, l := range t.lanes {
		if last {
			if err := l.machine.Step(partitions.Seam{Next: l.machine.Next()}, &l.effects); err != nil {
				return err
			}
		}
		cut := l.machine.Cut()
		merge.Update(cut.Partition, l.machine.Status(), cut.Watermark)
		c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: cut, Rows: l.effects.Rows, Quarantine: l.effects.Quarantine, Decisions: l.effects.Decisions})
	}
	c.Watermark = max(c.Watermark, merge.Watermark())
	write := t.write
	if !t.opened {
		write = t.beginRun
	}
	if err := write(ctx, c); err != nil {
		return err
	}
	t.committed(c)
	return nil
}

// beginRun makes the run with its first epoch, in one: were this process killed between the two, `weir run` would begin the run without its history.
func (t *taking) beginRun(ctx context.Context, c control.Commit) error {
	err := control.BeginRun(ctx, t.Journal, t.Header, c)
	for again := 0; err != nil && !control.Refused(err) && ctx.Err() == nil && again < 2; again++ {
		known, _, readErr := t.lookUp(ctx)
		if readErr != nil {
			return err
		}
		if known {
			err = nil // nobody else may write it: its answer was lost
			break
		}
		err = control.BeginRun(ctx, t.Journal, t.Header, c)
	}
	if codes.Has(err, codes.JournalConflict) {
		return t.mismatch("another process has begun to write it")
	}
	if err != nil {
		return err
	}
	if err := t.open(ctx); err != nil {
		return err
	}
	if t.state.Epoch != c.Epoch {
		return t.mismatch("another process has begun to write it")
	}
	return nil
}

// write commits, and finds out what became of a commit whose answer is lost: it stands, or it is tried once more.
func (t *taking) write(ctx context.Context, c control.Commit) error {
	err := t.Journal.Commit(ctx, c)
	for again := 0; err != nil && !control.Refused(err) && ctx.Err() == nil && again < 2; again++ {
		state, readErr := t.Journal.OpenRun(ctx, t.Header)
		switch {
		case readErr != nil:
			return err
		case state.Epoch == c.Epoch:
			return nil
		case state.Epoch != c.Epoch-1:
			return codes.New(codes.JournalConflict, "run %q stands at epoch %d, epoch %d was to be committed: another process writes to it", c.RunID, state.Epoch, c.Epoch)
		}
		err = t.Journal.Commit(ctx, c)
	}
	return err
}

func (t *taking) committed(c control.Commit) {
	t.state.Epoch, t.state.Watermark, t.state.Status = c.Epoch, c.Watermark, c.Status
	t.state.Cuts = make(map[int32]partitions.Cut, len(c.Partitions))
	t.out.History.Records, t.out.MaxEventTime = 0, record.NoTime
	for i, p := range c.Partitions {
		cut := p.Cut
		cut.Put, cut.Delete = nil, nil
		t.state.Cuts[cut.Partition] = cut
		t.out.History.Records += cut.Counts.Records
		t.out.MaxEventTime = max(t.out.MaxEventTime, t.lanes[i].machine.MaxEventTime())
		t.lanes[i].effects.Reset()
	}
	t.out.State = t.state
	if t.OnCommit != nil {
		t.OnCommit(c.Epoch, t.out.History.Records)
	}
}
