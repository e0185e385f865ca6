package parity

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/sourcetest"
)

// standing are the entries of a partition's quarantine about which nothing final was decided.
func (h *helped) standing(partition int32) (numbers []int64) {
	h.t.Helper()
	var stand partitions.Asides
	if err := h.store.Decisions(h.ctx, runID, func(d partitions.Decision) error { stand.Add(d); return nil }); err != nil {
		h.t.Fatal(err)
	}
	err := h.store.Quarantine(h.ctx, runID, func(q partitions.Quarantined) error {
		if q.Partition == partition && partitions.Replayable(q.Reason) && stand.Of(partition, q.Number).State == partitions.AsideStands {
			numbers = append(numbers, q.Number)
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return numbers
}

// decide replays all entries that stand, and drops the first of those that are left.
func (h *helped) decide() {
	h.t.Helper()
	for p := range int32(2) {
		if all := h.standing(p); len(all) > 0 {
			h.ask(control.Intervention{Partition: p, Kind: control.ReplayAside, Entries: all})
		}
		if left := h.standing(p); len(left) > 0 {
			h.ask(control.Intervention{Partition: p, Kind: control.DropAside, Entries: left[:1]})
		}
	}
}

// A run of the engine in which an operator has replayed and dropped entries of the quarantine, in the middle and at the very end and with a restart in
// between, is explained, and equal to a replay of its log.
func TestARunWithReplayedEntriesIsExplained(t *testing.T) {
	t.Parallel()
	for name, more := range asideFlows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := decidedBy(t, more, 3)
			cfg := o.config(3)
			var decided []partitions.Decision
			cfg.Stream = func(ctx context.Context, job Job) (Outcome, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				o.disturb(job.LogPath)
				out, err := o.helped(ctx, job)
				decided = out.Decisions
				return out, err
			}
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			outcomes := map[string]int{}
			for _, d := range decided {
				if a, ok := d.Aside(); ok {
					outcomes[a.Outcome]++
				}
			}
			if r.Verdict != EqualExplained || outcomes[partitions.OutcomeConsumed] == 0 || outcomes[partitions.OutcomeDropped] == 0 {
				t.Errorf("%s: %v, %+v; %v", r.Verdict, r.Reasons, r.Divergence, outcomes)
			}
			store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(cfg.Dir, "helped.db")})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			run, err := OfRun(t.Context(), RunConfig{
				Plan: cfg.Plan, Store: store, Run: runID, Dir: t.TempDir(), Source: logfile.NewSource(filepath.Join(cfg.Dir, logName), logfile.SourceConfig{Partitions: 2}),
			})
			if err != nil || len(run.Reasons) > 0 || len(run.Decisions) != len(decided) {
				t.Errorf("%v, %v, %d decisions of %d", err, run.Reasons, len(run.Decisions), len(decided))
			}
			// A log that does not have what was decided about: the same as under a flow that reads what another has set aside.
			another := sourcetest.New(sourcetest.Config{Partitions: 2, Bounded: true})
			_, err = OfRun(t.Context(), RunConfig{Plan: cfg.Plan, Store: store, Run: runID, Dir: t.TempDir(), Source: another})
			if !codes.Has(err, codes.RunMismatch) || !strings.Contains(err.Error(), "mended flow") {
				t.Errorf("a replay of another log: %v", err)
			}
		})
	}
}

func (o *decidedStream) helped(ctx context.Context, job Job) (Outcome, error) {
	all, err := readAll(ctx, job)
	if err != nil {
		return Outcome{}, err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(job.Dir, "helped.db")})
	if err != nil {
		return Outcome{}, err
	}
	defer store.Close()
	log := sourcetest.New(sourcetest.Config{Partitions: 2, MaxWait: 10 * time.Millisecond})
	total := int64(0)
	for half := range 2 {
		for p, records := range all {
			middle := len(records) / 2
			if half == 0 {
				records = records[:middle]
			} else {
				records = records[middle:]
			}
			log.Append(int32(p), records...)
			total += int64(len(records))
		}
		e := startHelped(ctx, o.t, store, actors.Config{Plan: job.Plan, Source: log})
		e.until("all records", func(p actors.Progress) bool { return p.Counts.Records == total })
		e.decide()
		e.stop()
		if half == 0 {
			continue
		}
		if err := e.finish(total); err != nil {
			return Outcome{}, err
		}
	}
	return fromStore(ctx, job, store, runID)
}
