package parity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/snapshot"
)

const drillRecords, drillTimes = 299, 13

// drillTopic publishes the 23-arrival log so many times to 4 partitions.
func drillTopic(t *testing.T, times int) (*flow.Plan, sources.Source) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	plan, err := flow.Parse("flow.yaml", fixture.Flow, nil)
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := replay.ParseSchedule("faults.json", fixture.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	events, log := filepath.Join(dir, "snapshot.jsonl"), filepath.Join(dir, "arrivals.log")
	if err := os.WriteFile(events, fixture.Snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Build(ctx, replay.BuildConfig{Snapshot: events, Fields: snapshot.FieldsOf(plan), Schedule: schedule, Seed: schedule.Seed, Out: log}); err != nil {
		t.Fatal(err)
	}
	broker, err := devbroker.Start(devbroker.Config{Partitions: 4, Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	for range times {
		if err := publish(ctx, broker.Addr(), log); err != nil {
			t.Fatal(err)
		}
	}
	source, err := kafka.New(kafka.Config{Brokers: []string{broker.Addr()}, Topic: topic, MaxWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return plan, source
}

// TestDrillTopicFromAnyInterruption: the topic of 299 records gives the golden hash and the high-waters 78 and 221 whatever record the
// worker stopped at, and whether it stopped at an open cut or was killed with work in hand.
func TestDrillTopicFromAnyInterruption(t *testing.T) {
	t.Parallel()
	step := int64(1)
	if testing.Short() {
		step = 29
	}
	plan, source := drillTopic(t, drillTimes)
	journal, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "drill.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	for k := int64(1); k < drillRecords; k += step {
		cfg := actors.Config{Plan: plan, Source: source, Journal: journal, MaxRecords: drillRecords}
		cfg.RunID = fmt.Sprintf("cut-%d", k)
		stopped := cfg
		stopped.MaxRecords, stopped.UntilRecords = 0, k
		if r, err := actors.Run(context.Background(), stopped); err != nil || r.Counts.Records != k {
			t.Fatalf("stop at %d: %d records, %v", k, r.Counts.Records, err)
		}
		checkDrill(t, cfg, journal)

		cfg.RunID = fmt.Sprintf("kill-%d", k)
		killAt(t, cfg, k)
		checkDrill(t, cfg, journal)
	}
}

// killAt runs until the k-th record was read and then dies without a last cut; commits came every 7 records.
func killAt(t *testing.T, cfg actors.Config, k int64) {
	t.Helper()
	kill, crash := context.WithCancel(context.Background())
	defer crash()
	c := &crasher{every: k}
	var died atomic.Bool
	cfg.Source, cfg.Kill, cfg.EpochRecords, cfg.FetchSize = &counting{Source: cfg.Source, crasher: c}, kill, 7, 3
	cfg.Hooks = actors.Hooks{At: func(_ context.Context, p actors.Point) error {
		if c.seen.Load() >= k && p.Name == moments[k%int64(len(moments))] {
			died.Store(true)
			crash()
		}
		return nil
	}}
	_, err := actors.Run(context.Background(), cfg)
	if err != nil && !errors.Is(err, actors.ErrKilled) {
		t.Fatalf("kill at %d: %v", k, err)
	}
	if !died.Load() {
		t.Fatalf("the kill at %d did not come", k)
	}
}

func checkDrill(t *testing.T, cfg actors.Config, journal *sqlite.Store) {
	t.Helper()
	r, err := actors.Run(context.Background(), cfg)
	if err != nil && !codes.Has(err, codes.RunFinished) { // a kill after the last commit leaves nothing to do
		t.Fatalf("%s: %v", cfg.RunID, err)
	}
	job := Job{Config: Config{Plan: cfg.Plan, Keep: 100}}
	out, err := fromStore(context.Background(), job, journal, cfg.RunID)
	if err != nil {
		t.Fatalf("%s: %v", cfg.RunID, err)
	}
	if out.Doc.ValuesHash != fixture.ValuesHash || len(out.Doc.Events) != 6 {
		t.Errorf("%s: %s %v", cfg.RunID, out.Doc.ValuesHash, out.Doc.Values)
	}
	c := r.Counts
	if c.Records != drillRecords || c.Consumed != 6 || c.Omitted != drillTimes || c.Filtered != 15*drillTimes || c.Duplicates != 7*drillTimes-6 {
		t.Errorf("%s: %+v", cfg.RunID, c)
	}
	if p := r.Positions(); p[0] != record.Offset(78) || p[3] != record.Offset(221) || p[1] != (record.Position{}) || p[2] != (record.Position{}) {
		t.Errorf("%s: positions %v", cfg.RunID, p)
	}
}
