package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/status/board"
)

// Shards of a stream show their lag: none once everything is read and committed, though their positions cannot be subtracted.
func TestKinesisLagIsShown(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	l := startListening(t, r.dir, "run", r.args("shown", "--epoch", "50ms")...)
	var told status.Report
	l.await(t, "no lag in both shards", func() bool {
		told = l.report(t)
		lag := 0
		for _, s := range told.Runs {
			for _, p := range s.Partitions {
				if p.LagRecords != nil && *p.LagRecords == 0 && p.LagSeconds != nil && *p.LagSeconds == 0 && s.Counts.Records > 0 {
					lag++
				}
			}
		}
		return lag > 0 && len(told.Runs) == 2
	})
	for _, s := range told.Runs {
		if s.Source.Name != "kinesis:ticks" || s.Source.Unobserved != nil {
			t.Errorf("the source is %+v", s.Source)
		}
		for _, p := range s.Partitions {
			if p.End != nil || p.Stalled {
				t.Errorf("%+v", p)
			}
		}
	}
	if text := must(t, r.dir, "status", "--url", l.url); !strings.Contains(text, "PARTITION") {
		t.Errorf("%s", text)
	}
}

// What the alarm finds near the end of the retention stands in the status of the shard, and is gone with it.
func TestKinesisRetentionIsShown(t *testing.T) {
	t.Parallel()
	w := &watching{set: board.NewSet("r", nil)}
	for p := range int32(2) {
		w.set.Add(board.New(board.Config{Run: group.RunID("r", p)}))
	}
	risks := func() (all []*status.Risk) {
		for _, s := range w.set.Report().Runs {
			for _, p := range s.Partitions {
				all = append(all, p.Risk)
			}
		}
		return all
	}
	w.atRisk("r/1", 1, true, 20*time.Hour, 24*time.Hour)
	got := risks()
	if len(got) != 1 || *got[0].Age != 72_000 || *got[0].Kept != 86_400 || got[0].LostAt == nil || time.Until(*got[0].LostAt) > 4*time.Hour {
		t.Fatalf("%+v", got)
	}
	w.atRisk("r/1", 1, false, time.Hour, 24*time.Hour)
	if got := risks(); len(got) != 1 || got[0] != nil {
		t.Errorf("%+v", got)
	}
}
