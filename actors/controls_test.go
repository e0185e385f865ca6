package actors

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// Controls: each is a client that does what weir promises not to do, and a checker that has to notice.

// resetting is a source with a reset policy: what is lost is stepped over, to the end of the log.
type resetting struct{ *sourcetest.Log }

func (s resetting) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Log.Open(ctx, from)
	return &resettingReader{r, s.Log, from}, err
}

type resettingReader struct {
	sources.Reader
	log  *sourcetest.Log
	from map[int32]record.Position
}

func (r *resettingReader) Poll(ctx context.Context, n int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, n)
	for i := range batches {
		r.from[batches[i].Partition] = batches[i].Next
	}
	var f *sources.Fault
	if !errors.As(err, &f) {
		return batches, err
	}
	r.from[f.Partition] = r.log.End(f.Partition)
	if r.Reader, err = r.log.Open(ctx, r.from); err != nil {
		return nil, err
	}
	return []record.Batch{{Partition: f.Partition, Next: r.from[f.Partition]}}, nil
}

// skipped says what of a dense log a run has passed without a record and without a decision.
func (r *rig) skipped(result Result) error {
	accepted := len(r.decided(partitions.DecisionLossAccepted))
	for _, p := range result.Partitions {
		if next, _ := p.Next.Int64(); next != p.Counts.Records && accepted == 0 {
			return fmt.Errorf("partition %d has processed %d records and stands at %s", p.Partition, p.Counts.Records, p.Next)
		}
	}
	return nil
}

func TestControlResetPolicy(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 90), 2, 60)
	for name, wrap := range map[string]func(*sourcetest.Log) sources.Source{
		"none":       func(l *sourcetest.Log) sources.Source { return l },
		"at the end": func(l *sourcetest.Log) sources.Source { return resetting{l} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := staying(t, in)
				r.cfg.Source, r.cfg.FetchSize = wrap(r.log), 3
				r.at(AfterPoll, 2, func() { r.log.Truncate(fullest(in), record.Offset(25)) })
				stop := r.start()
				<-time.After(time.Minute)
				result, err := stop()
				if noticed := r.skipped(result); (noticed != nil) != (name == "at the end") {
					t.Errorf("the checker says %v", noticed)
				}
				if codes.Has(err, codes.OffsetLost) != (name == "none") {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// early is a journal whose positions are told to the group before they are committed.
type early struct {
	*controltest.Memory
	tell func(map[int32]record.Position)
}

func (e early) Commit(ctx context.Context, c control.Commit) error {
	next := map[int32]record.Position{}
	for _, p := range c.Partitions {
		next[p.Cut.Partition] = p.Cut.Next
	}
	e.tell(next)
	return e.Memory.Commit(ctx, c)
}

func TestControlGroupOffsets(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 91), 2, 60)
	want := plainLoop(t, parse(t, wideFlow), in, 7)
	for _, wrong := range []bool{false, true} {
		t.Run(fmt.Sprintf("before the effect: %v", wrong), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, parse(t, wideFlow), in, small)
				r.journal.Inject(controltest.FailCommit(2))
				ahead, told := 0, 0
				check := func(next map[int32]record.Position) {
					told++
					var state control.RunState
					if err := r.journal.Snapshot(context.Background(), "run", func(v control.JournalView) error { state = v.State(); return nil }); err != nil {
						t.Error(err)
					}
					for p, pos := range next {
						if pos.Cmp(state.Cuts[p].Next) > 0 {
							ahead++
						}
					}
				}
				if wrong {
					r.cfg.Journal = early{r.journal, check}
				} else {
					r.cfg.CommitOffsets = func(_ context.Context, next map[int32]record.Position) error { check(next); return nil }
				}
				r.finish(want)
				if told == 0 || (ahead > 0) != wrong {
					t.Errorf("of %d positions that the group was told, %d were ahead of the journal", told, ahead)
				}
			})
		})
	}
}
