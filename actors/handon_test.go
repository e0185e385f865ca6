package actors

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// A log ends and goes on in another, whose run begins with what the first one left. Together they give what one log gives, wherever the
// cut is, and however often both are killed.
func TestHandOnAndBegin(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 61), 1, 120)
	whole := plainLoop(t, plan, in, 7)
	for _, at := range []int{0, 1, 59, 119, 120} {
		for _, point := range []Failpoint{"", BeforeOpen, AfterRestore, BeforeCommit, AfterCommit} {
			synctest.Test(t, func(t *testing.T) {
				journal := controltest.NewMemory()
				logOf := func(run string, records []record.Record, tune func(*Config)) (Result, error) {
					r := newRig(t, plan, input{records}, func(c *Config, _ *sourcetest.Config) { c.EpochRecords, c.Journal, c.RunID = 10, journal, run })
					tune(&r.cfg)
					return r.untilOver(point)
				}
				parent, err := logOf("parent", in[0][:at], func(c *Config) { c.HandOn = true })
				if err != nil || parent.Status != control.RunFinished || parent.Partitions[0].Finished || parent.Epoch == 0 {
					t.Fatalf("cut at %d: %+v, %v", at, parent, err)
				}
				asked := 0
				child, err := logOf("child", in[0][at:], func(c *Config) {
					c.Begin = func(ctx context.Context, p int32, eff *partitions.Effects) (*partitions.Machine, error) {
						asked++
						m, err := partitions.Restore(plan, 0, func(yield func(partitions.StateBlob) error) error {
							return journal.LoadBlobs(ctx, "parent", 0, yield)
						})
						if err != nil {
							return nil, err
						}
						return partitions.Inherit(plan, p, []*partitions.Machine{m}, func(string) bool { return true }, eff)
					}
				})
				if err != nil || child.Status != control.RunFinished || !child.Partitions[0].Finished || asked == 0 {
					t.Fatalf("cut at %d: %+v, %v, asked %d times", at, child, err, asked)
				}
				var rows []byte
				for _, run := range []string{"parent", "child"} {
					if err := journal.Outputs(context.Background(), run, 0, func(r partitions.Rows) error { rows = append(rows, r.Data...); return nil }); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(rows, whole.rows[0]) {
					t.Errorf("cut at %d, killed at %q: %d bytes of rows, want %d", at, point, len(rows), len(whole.rows[0]))
				}
				sum := addCounts(parent.Counts, child.Counts)
				if sum != whole.counts[0] {
					t.Errorf("cut at %d, killed at %q: counts %+v, want %+v", at, point, sum, whole.counts[0])
				}
			})
		}
	}
}

// untilOver runs a run that is killed at the first, second, … passing of a failpoint until it is not.
func (r *rig) untilOver(point Failpoint) (Result, error) {
	for n := 1; ; n++ {
		kill, crash := context.WithCancel(context.Background())
		r.cfg.Kill = kill
		hooks, _ := every(point, n, func(context.Context) error { crash(); return nil })
		r.cfg.Hooks = hooks
		result, err := Run(context.Background(), r.cfg)
		crash()
		r.settled(result)
		if n > 1 && codes.Has(err, codes.RunFinished) {
			err = nil // the kill before came too late
		}
		if !errors.Is(err, ErrKilled) {
			return result, err
		}
	}
}

// A partition that begins with rows of its own commits them without waiting for a record.
func TestBeginCommitsWithoutARecord(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, input{nil}, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		r.cfg.Begin = func(_ context.Context, p int32, eff *partitions.Effects) (*partitions.Machine, error) {
			return partitions.Inherit(plan, p, []*partitions.Machine{partitions.New(plan, 7)}, func(string) bool { return true }, eff)
		}
		ctx, stop := context.WithCancel(context.Background())
		r.cfg.OnProgress = func(Progress) { stop() }
		if _, err := Run(ctx, r.cfg); !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		if got := read(t, r.journal, Result{}); r.journal.Epoch("run") != 1 || len(got.decisions) != 1 || got.decisions[0].Kind != partitions.DecisionInherited {
			t.Errorf("epoch %d, decided %+v", r.journal.Epoch("run"), got.decisions)
		}
	})
}
