package parity

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources/logfile"
)

func fixtureConfig(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	plan, err := flow.Parse("flow.yaml", fixture.Flow, nil)
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := replay.ParseSchedule("faults.json", fixture.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	events := filepath.Join(dir, "snapshot.jsonl")
	if err := os.WriteFile(events, fixture.Snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	return Config{Plan: plan, Snapshot: events, Schedule: schedule, Seed: schedule.Seed, Partitions: 4, Dir: dir, Stream: ViaLog}
}

// otherPlan is a stream with a defect: it computes another average than the flow asks for.
func otherPlan(t *testing.T) func(context.Context, Job) (Outcome, error) {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", []byte(strings.Replace(string(fixture.Flow), "period: 3", "period: 4", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, job Job) (Outcome, error) {
		job.Plan = plan
		return ViaLog(ctx, job)
	}
}

// TestADefectIsFound is the negative control: the comparison goes red when a mode is wrong, and shows where.
func TestADefectIsFound(t *testing.T) {
	t.Parallel()
	cfg := fixtureConfig(t)
	cfg.Stream = otherPlan(t)
	r, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := r.Divergence
	if r.Verdict != Different || d == nil {
		t.Fatalf("%s, %v", r.Verdict, d)
	}
	if d.Index != 2 || d.LeftEvent != "fixture.event.0.2" || d.LeftValue != "2.0" || d.RightValue != "null" || d.CauseIsKnown {
		t.Errorf("%+v", d)
	}
}

// TestVerdictsAreCompared: the same values by other verdicts are a difference too.
func TestVerdictsAreCompared(t *testing.T) {
	t.Parallel()
	cfg := fixtureConfig(t)
	cfg.Stream = func(ctx context.Context, job Job) (Outcome, error) {
		out, err := ViaLog(ctx, job)
		for i := range out.Exceptions.list {
			out.Exceptions.list[i].Reason = partitions.ReasonLate
		}
		return out, err
	}
	r, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Different || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0], "replay recorded TOMBSTONE") {
		t.Errorf("%s: %v", r.Verdict, r.Reasons)
	}
}

// TestASweepShrinksWhatFails: the smallest schedule is written where --faults takes it back.
func TestASweepShrinksWhatFails(t *testing.T) {
	t.Parallel()
	cfg := fixtureConfig(t)
	cfg.Schedule = nil
	// A defect that shows under one kind of fault alone: delayed events are lost.
	cfg.Stream = func(ctx context.Context, job Job) (Outcome, error) {
		out, err := ViaLog(ctx, job)
		if err == nil && hasDelay(t, job.LogPath) {
			out.Doc.ValuesHash = "sha256:wrong"
		}
		return out, err
	}
	out := t.TempDir()
	s := Sweep{Config: cfg, Count: 6, OwnFlow: true, Out: out}
	sum, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(sum.Failures) == 0 || len(sum.Failures) == s.Count {
		t.Fatalf("%d of %d seeds fail; the test needs both", len(sum.Failures), s.Count)
	}
	for _, f := range sum.Failures {
		src, err := os.ReadFile(f.Files[0])
		if err != nil {
			t.Fatal(err)
		}
		smallest, err := replay.ParseSchedule(f.Files[0], src)
		if err != nil || len(smallest.Faults) != 1 || smallest.Faults[0].Kind != logfile.Delay {
			t.Errorf("seed %d: %v %s", f.Seed, err, src)
		}
		if !strings.Contains(f.Again, "--faults "+f.Files[0]) {
			t.Errorf("again: %s", f.Again)
		}
	}
}

func hasDelay(t *testing.T, log string) bool {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Error(err)
	}
	return strings.Contains(string(text), `"DELAY"`)
}

// TestThirdPassDefect: the log published three times over one state must not be taken for new events.
func TestThirdPassDefect(t *testing.T) {
	t.Parallel()
	plan, source := drillTopic(t, 3)
	cfg := fixtureConfig(t)
	cfg.Plan = plan
	job := Job{Config: cfg, Arrivals: 3 * 23}
	job.Keep = 100
	for _, every := range []int64{0, 1, 5, 23} {
		job.CrashEvery = every
		job.Dir = t.TempDir()
		out, err := job.stream(context.Background(), source)
		if err != nil {
			t.Fatal(err)
		}
		if out.Doc.ValuesHash != fixture.ValuesHash {
			t.Errorf("crash every %d: %s %v", every, out.Doc.ValuesHash, out.Doc.Values)
		}
		if every > 0 && out.Crashes == 0 {
			t.Errorf("crash every %d: no crash came", every)
		}
	}
}
