package controltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Two handles on one run: the one whose epoch is behind or ahead is refused, and goes on once it has read back.
func checkCompareAndSet(s *session) error {
	a, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	b := s.open()
	if _, err := b.OpenRun(s.ctx, header(1)); err != nil {
		return err
	}
	for _, e := range []uint64{2, 3, 1 << 40} {
		if err := wants(fmt.Sprintf("epoch %d of a new run", e), b.Commit(s.ctx, commit(e)), codes.JournalConflict); err != nil {
			return err
		}
	}
	if err := s.both(a, m, commit(1, control.PartitionCommit{Cut: cut(0, 1)})); err != nil {
		return err
	}
	if err := wants("epoch 1 a second time", b.Commit(s.ctx, commit(1)), codes.JournalConflict); err != nil {
		return err
	}
	state, err := b.OpenRun(s.ctx, header(1))
	if err != nil || state.Epoch != 1 {
		return fmt.Errorf("read back: epoch %d (%v)", state.Epoch, err)
	}
	if err := s.both(b, m, commit(2, control.PartitionCommit{Cut: cut(0, 2)})); err != nil {
		return err
	}
	if err := wants("the first handle, left behind", a.Commit(s.ctx, commit(2)), codes.JournalConflict); err != nil {
		return err
	}
	return s.same(a, m, header(1))
}

// A refusal comes before, between or after parts that are good; nothing of them stands.
func checkRefusals(s *session) error {
	j, m, err := s.start(header(3))
	if err != nil {
		return err
	}
	full := func(p int32, next int64, w record.EventTime) control.PartitionCommit {
		pc := control.PartitionCommit{Cut: cut(p, next), Rows: partitions.Rows{Data: []byte("rows"), Count: 1},
			Quarantine: []partitions.Quarantined{{Reason: "R"}}, Decisions: []partitions.Decision{{Kind: "K"}}}
		pc.Cut.Watermark = w
		pc.Cut.Put = []partitions.StateBlob{{Name: "a", Data: []byte("b")}}
		return pc
	}
	first := commit(1, full(0, 10, 100), full(1, 10, 100), full(2, 10, 100))
	first.Watermark = 100
	if err := s.both(j, m, first); err != nil {
		return err
	}
	at := func(epoch uint64, w record.EventTime, ps ...control.PartitionCommit) control.Commit {
		c := commit(epoch, ps...)
		c.Watermark = w
		return c
	}
	for _, c := range []struct {
		what string
		c    control.Commit
		code *codes.Code
	}{
		{"an epoch behind", at(1, 100, full(0, 11, 101)), codes.JournalConflict},
		{"an epoch ahead", at(3, 100, full(0, 11, 101)), codes.JournalConflict},
		{"epoch 0", at(0, 100, full(0, 11, 101)), codes.Internal},
		{"a partition that the run has not", at(2, 100, full(0, 11, 101), full(7, 11, 101)), codes.Internal},
		{"a partition twice", at(2, 100, full(0, 11, 101), full(0, 12, 101)), codes.Internal},
		{"a position that goes back", at(2, 100, full(0, 11, 101), full(2, 9, 101), full(1, 11, 101)), codes.Internal},
		{"a watermark that goes back", at(2, 100, full(0, 11, 101), full(1, 11, 99)), codes.Internal},
		{"a merged watermark that goes back", at(2, 99, full(0, 11, 101)), codes.Internal},
		{"rows without data", at(2, 100, full(0, 11, 101), control.PartitionCommit{Cut: cut(1, 11), Rows: partitions.Rows{Count: 1}}), codes.Internal},
	} {
		err := j.Commit(s.ctx, c.c)
		if err := wants(c.what, err, c.code); err != nil {
			return err
		}
		if !control.Refused(err) {
			return fmt.Errorf("%s: %w does not count as a refusal", c.what, err)
		}
		if err := s.same(j, m, header(3)); err != nil {
			return fmt.Errorf("after %s: %w", c.what, err)
		}
	}
	if err := s.both(j, m, at(2, 100, full(0, 10, 100))); err != nil { // standing still is allowed
		return err
	}
	return s.same(j, m, header(3))
}

// Eight writers, each with a handle of its own, commit the same epoch at once: one wins, seven are told so, and what stands is the
// winner's and only his.
func checkRace(s *session) error {
	const writers, epochs = 8, 12
	js := make([]control.Journal, writers)
	for i := range js {
		js[i] = s.open()
	}
	if _, err := js[0].OpenRun(s.ctx, header(2)); err != nil {
		return err
	}
	m := NewMemory()
	if _, err := m.OpenRun(s.ctx, header(2)); err != nil {
		return err
	}
	for e := uint64(1); e <= epochs; e++ {
		offer := func(w int) control.Commit {
			var ps []control.PartitionCommit
			for p := range int32(2) {
				pc := control.PartitionCommit{Cut: cut(p, int64(e)), Rows: partitions.Rows{Data: fmt.Appendf(nil, "epoch %d by %d", e, w), Count: 1 + w}}
				pc.Cut.Put = []partitions.StateBlob{{Name: "winner", Data: []byte{byte(w)}}, {Name: fmt.Sprint("only of ", w), Data: []byte{byte(e)}}}
				ps = append(ps, pc)
			}
			return commit(e, ps...)
		}
		errs := make([]error, writers)
		var start, done sync.WaitGroup
		start.Add(1)
		for w := range writers {
			done.Go(func() {
				start.Wait()
				errs[w] = js[w].Commit(s.ctx, offer(w))
			})
		}
		start.Done()
		done.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				return fmt.Errorf("epoch %d was won by %d and by %d", e, winner, w)
			case err == nil:
				winner = w
			case !codes.Has(err, codes.JournalConflict):
				return fmt.Errorf("epoch %d: writer %d was told %w", e, w, err)
			}
		}
		if winner < 0 {
			return fmt.Errorf("epoch %d has no winner", e)
		}
		if err := m.Commit(s.ctx, offer(winner)); err != nil {
			return err
		}
		if err := s.same(js[(winner+1)%writers], m, header(2)); err != nil {
			return fmt.Errorf("epoch %d, won by %d: %w", e, winner, err)
		}
	}
	return nil
}

// Readers beside a writer see one consistent moment in each reading: row runs without a hole, and blobs of one epoch only.
func checkConcurrentReaders(s *session) error {
	const epochs = 40
	writer, m, err := s.start(header(1))
	if err != nil {
		return err
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	errs := make([]error, 3)
	readings := make([]int, len(errs))
	for r := range errs {
		j := s.open()
		readers.Go(func() {
			for last := 0; !stop.Load() && errs[r] == nil; readings[r]++ {
				last, errs[r] = s.consistent(j, last)
			}
		})
	}
	err = func() error {
		for e := uint64(1); e <= epochs; e++ {
			pc := control.PartitionCommit{Cut: cut(0, int64(e)), Rows: partitions.Rows{Data: []byte{byte(e)}, Count: int(e)}}
			for _, name := range []string{"a", "b", "c"} {
				pc.Cut.Put = append(pc.Cut.Put, partitions.StateBlob{Name: name, Data: []byte{byte(e)}})
			}
			if err := s.both(writer, m, commit(e, pc)); err != nil {
				return err
			}
		}
		return nil
	}()
	stop.Store(true)
	readers.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if _, err := s.consistent(writer, epochs); err != nil {
		return err
	}
	return s.same(writer, m, header(1))
}

// consistent reads once; epochs up to last were seen before and must still be there.
func (s *session) consistent(j control.Journal, last int) (int, error) {
	rows, err := ReadOutputs(s.ctx, j, "run", 0)
	if err != nil {
		return last, err
	}
	for i, r := range rows {
		if r.Count != i+1 || int(r.Data[0]) != i+1 {
			return last, fmt.Errorf("a reader finds epoch %d where %d belongs", r.Count, i+1)
		}
	}
	if len(rows) < last {
		return last, fmt.Errorf("a reader finds %d epochs after it had found %d", len(rows), last)
	}
	blobs, err := ReadBlobs(s.ctx, j, "run", 0)
	if err != nil {
		return last, err
	}
	if len(blobs) != 0 && (len(blobs) != 3 || blobs[0].Data[0] != blobs[1].Data[0] || blobs[1].Data[0] != blobs[2].Data[0]) {
		return last, fmt.Errorf("a reader finds blobs of different epochs: %v", blobs)
	}
	return len(rows), nil
}

// countdown is a context that is cancelled when it has been looked at n times, so that a cancellation can be put at every point at
// which an operation looks.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func newCountdown(parent context.Context, n int64) *countdown {
	ctx, cancel := context.WithCancel(parent)
	c := &countdown{Context: ctx, cancel: cancel}
	c.left.Store(n)
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		c.cancel()
	}
}

func (c *countdown) Done() <-chan struct{}       { c.look(); return c.Context.Done() }
func (c *countdown) Err() error                  { c.look(); return c.Context.Err() }
func (c *countdown) Deadline() (time.Time, bool) { return c.Context.Deadline() }

// A commit that is cancelled somewhere stands as a whole or not at all; if it was acknowledged it stands. Then the run goes on.
func checkCancellation(s *session) error {
	w := Workload{Seed: 11, RunID: "run", Partitions: 2, Rows: 10, Blob: 200}
	j, _, err := s.start(w.Header())
	if err != nil {
		return err
	}
	epoch, cancelled := uint64(0), 0
	for looks := int64(1); ; looks++ {
		ctx := newCountdown(s.ctx, looks)
		err := j.Commit(ctx, w.Commit(epoch+1))
		reached := ctx.left.Load() <= 0
		ctx.cancel()
		stands, cerr := w.Check(s.ctx, j)
		switch {
		case cerr != nil:
			return fmt.Errorf("cancelled at look %d: %w", looks, cerr)
		case err == nil && stands != epoch+1:
			return fmt.Errorf("cancelled at look %d: epoch %d was acknowledged and %d stands", looks, epoch+1, stands)
		case err != nil && !errors.Is(err, context.Canceled):
			return fmt.Errorf("cancelled at look %d: the error is %w, not the context's", looks, err)
		case stands != epoch && stands != epoch+1:
			return fmt.Errorf("cancelled at look %d: epoch %d stands after %d", looks, stands, epoch)
		}
		if err != nil {
			cancelled++
		}
		epoch = stands
		if !reached {
			break // the operation never looked that often
		}
	}
	if cancelled == 0 {
		return fmt.Errorf("no commit was cancelled")
	}
	return s.cancelledReads(j, w)
}

func (s *session) cancelledReads(j control.Journal, w Workload) error {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := j.OpenRun(ctx, w.Header())
	for what, err := range map[string]error{
		"OpenRun":    err,
		"Commit":     j.Commit(ctx, w.Commit(1)),
		"LoadBlobs":  j.LoadBlobs(ctx, w.RunID, 0, func(partitions.StateBlob) error { return nil }),
		"Outputs":    j.Outputs(ctx, w.RunID, 0, func(partitions.Rows) error { return nil }),
		"Quarantine": j.Quarantine(ctx, w.RunID, func(partitions.Quarantined) error { return nil }),
		"Decisions":  j.Decisions(ctx, w.RunID, func(partitions.Decision) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) || codes.Of(err) != nil {
			return fmt.Errorf("%s under a cancelled context: %v (code %v)", what, err, codes.Of(err))
		}
	}
	_, err = w.Check(s.ctx, j)
	return err
}
