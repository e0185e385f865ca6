package consumer

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// commits writes positions that have moved until ctx ends, at most every CommitEvery.
func (w *worker) commits(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		}
		if err := w.commit(w.base); err != nil {
			w.end(err)
			return
		}
		if w.cfg.CommitEvery > 0 && !pause(ctx, w.cfg.CommitEvery) {
			return
		}
	}
}

// commit writes the partitions whose committed position has moved, in one epoch; nothing when there are none.
func (w *worker) commit(ctx context.Context) error {
	w.mu.Lock()
	c := w.collect()
	w.mu.Unlock()
	if len(c.Partitions) == 0 {
		return nil
	}
	return w.write(ctx, c)
}

func (w *worker) collect() control.Commit {
	c := w.newCommit()
	for _, n := range w.order {
		if p := w.parts[n]; p.dirty {
			p.dirty = false
			c.Partitions = append(c.Partitions, p.commit())
		}
	}
	return c
}

func (w *worker) newCommit() control.Commit {
	return control.Commit{RunID: w.runID, Epoch: w.epoch.Load() + 1, Status: control.RunOpen, Watermark: record.NoTime}
}

// commit is the partition's share of an epoch.
func (p *part) commit() control.PartitionCommit {
	at, _ := p.settler.Committed()
	c := control.PartitionCommit{Cut: partitions.Cut{Partition: p.n, Next: at.Next(), Watermark: record.NoTime}}
	passed := int64(p.settler.Passed()) - p.passed
	p.passed += passed
	n := 0
	for ; n < len(p.hidden) && p.hidden[n].Cmp(at) <= 0; n++ {
		passed--
	}
	p.hidden = p.hidden[n:]
	p.counts.Records += passed
	p.counts.Consumed += passed
	for n = 0; n < len(p.omitted) && p.omitted[n].at.Cmp(at) <= 0; n++ {
		if n == 0 || p.omitted[n].at != p.omitted[n-1].at {
			p.counts.Omitted++
			p.counts.Consumed--
		}
		if row := p.omitted[n].row; row != nil {
			c.Quarantine = append(c.Quarantine, *row)
		}
	}
	p.omitted = p.omitted[n:]
	c.Cut.Counts = p.counts
	return c
}

// write commits an epoch. Of a failure that is no refusal it is unknown whether the epoch stands: the journal is asked.
func (w *worker) write(ctx context.Context, c control.Commit) error {
	w.cfg.hook("commit")
	for failures := 1; ; failures++ {
		if ctx.Err() != nil || w.dead() {
			return ended(ctx)
		}
		err := w.cfg.Store.Under(w.held()).Commit(ctx, c)
		if err != nil && !control.Refused(err) {
			w.log.Warn("it is unknown whether a commit stands; the journal is asked", "run", w.runID, "epoch", c.Epoch, "cause", err.Error())
			var stands bool
			if stands, err = w.stands(ctx, c.Epoch, failures); err == nil && !stands {
				continue
			}
		}
		if err != nil {
			return w.refusal(err)
		}
		w.epoch.Store(c.Epoch)
		w.cfg.hook("committed")
		if !w.dead() {
			w.written(c)
			w.courtesy(ctx, c)
		}
		return nil
	}
}

// written says that the partitions of an epoch stand where it says.
func (w *worker) written(c control.Commit) {
	w.mu.Lock()
	defer w.unlock()
	for _, pc := range c.Partitions {
		p := w.parts[pc.Cut.Partition]
		if p.unwritten = p.dirty; !p.unwritten && p.alone > 0 {
			w.pump(p)
		}
	}
}

// stands asks the journal whether it stands at an epoch, until it answers.
func (w *worker) stands(ctx context.Context, epoch uint64, failures int) (bool, error) {
	for ; ; failures++ {
		if !pause(ctx, w.cfg.delay(restarting, failures)) {
			return false, ended(ctx)
		}
		state, err := w.cfg.Store.Under(w.held()).OpenRun(ctx, w.header)
		switch {
		case err == nil && state.Epoch == epoch || codes.Has(err, codes.RunFinished) && state.Epoch == epoch:
			return true, nil
		case err == nil && state.Epoch == epoch-1:
			return false, nil
		case err == nil:
			return false, codes.New(codes.JournalConflict, "run %q stands at epoch %d, so it is unknown what became of epoch %d: another process has written to this run", w.runID, state.Epoch, epoch)
		case control.Refused(err):
			return false, err
		}
	}
}

// refusal is what a refused write means for the worker.
func (w *worker) refusal(err error) error {
	if codes.Has(err, codes.StaleFence) || codes.Has(err, codes.LeaseHeld) {
		w.lost(err)
		return context.Cause(w.base)
	}
	return err
}

// courtesy tells a consumer group.
func (w *worker) courtesy(ctx context.Context, c control.Commit) {
	if w.cfg.CommitOffsets == nil {
		return
	}
	next := make(map[int32]record.Position, len(c.Partitions))
	for _, p := range c.Partitions {
		next[p.Cut.Partition] = p.Cut.Next
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.cfg.CommitOffsets(within, next); err != nil && ctx.Err() == nil {
		w.log.Warn("the consumer group was not told; the journal is what counts", "run", w.runID, "cause", err.Error())
	}
}

// finish commits that the log has ended and everything of it is done.
func (w *worker) finish(ctx context.Context) error {
	w.mu.Lock()
	c := w.collect()
	c.Status = control.RunFinished
	have := map[int32]bool{}
	for i := range c.Partitions {
		c.Partitions[i].Cut.Finished = true
		have[c.Partitions[i].Cut.Partition] = true
	}
	for _, n := range w.order {
		if p := w.parts[n]; !have[n] {
			c.Partitions = append(c.Partitions, control.PartitionCommit{Cut: partitions.Cut{Partition: n, Next: p.committedNext(), Watermark: record.NoTime, Finished: true, Counts: p.counts}})
		}
	}
	w.mu.Unlock()
	return w.write(ctx, c)
}

// committedNext is where the partition is read on after its committed position.
func (p *part) committedNext() record.Position {
	if at, known := p.settler.Committed(); known {
		return at.Next()
	}
	return p.from
}

// claimBlob holds how many terms in a row have begun at a position: version 1 │ position 24 │ claims uvarint.
const claimBlob = "consumer"

func appendClaim(p record.Position, claims int) []byte {
	out, _ := p.AppendBinary([]byte{1}) // a position has no error
	return binary.AppendUvarint(out, uint64(claims))
}

func readClaim(b []byte) (p record.Position, claims int, err error) {
	if len(b) > 1 && b[0] == 1 {
		var rest []byte
		if p, rest, err = record.DecodePosition(b[1:]); err == nil {
			if n, size := binary.Uvarint(rest); size == len(rest) && size > 0 {
				return p, int(min(n, 1<<30)), nil
			}
		}
	}
	return p, 0, codes.New(codes.JournalCorrupt, "state blob %q is damaged: restore the store from a backup, or start a new run id", claimBlob)
}
