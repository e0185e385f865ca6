package parity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/replay"
)

// TestASweepGoesOnAfterASeedThatCannotRun: the error is kept as a failure, with the schedule, and the other seeds count.
func TestASweepGoesOnAfterASeedThatCannotRun(t *testing.T) {
	t.Parallel()
	cfg := fixtureConfig(t)
	runs := 0
	cfg.Stream = func(ctx context.Context, job Job) (Outcome, error) {
		if runs++; job.Seed == 1 {
			return Outcome{}, codes.New(codes.LimitReached, "the limit is reached")
		}
		return ViaLog(ctx, job)
	}
	s := Sweep{Config: cfg, Count: 3, OwnFlow: true, Out: t.TempDir()}
	sum, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(sum.Failures) != 1 || sum.Equal+sum.Explained != 2 || runs != 3 {
		t.Fatalf("%+v after %d runs", sum, runs)
	}
	f := sum.Failures[0]
	if f.Seed != 1 || !f.NotRun || len(f.Reasons) != 1 || !strings.Contains(f.Reasons[0], "the limit is reached") {
		t.Errorf("%+v", f)
	}
	src, err := os.ReadFile(f.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := replay.ParseSchedule(f.Files[0], src); err != nil || len(kept.Faults) != f.Faults {
		t.Errorf("the schedule that was kept: %v, %v, want %d faults", kept, err, f.Faults)
	}
	if text := sum.Text(); !strings.Contains(text, "0 different, 1 could not be run") || !strings.Contains(text, "--faults "+f.Files[0]) {
		t.Errorf("%s", text)
	}
	if doc := sum.Document(); doc["different"] != 0 || doc["not_run"] != 1 {
		t.Errorf("%v", doc)
	}
	if left, err := os.ReadDir(cfg.Dir); err != nil || len(left) != 1 { // the snapshot
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// TestWhatEndsASweep: an interruption, and what is the same under every seed. Nothing is run before Out is known to be writable.
func TestWhatEndsASweep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runs := 0
	base := fixtureConfig(t)
	base.Stream = func(ctx context.Context, job Job) (Outcome, error) {
		runs++
		cancel()
		return Outcome{}, ctx.Err()
	}
	sweep := Sweep{Config: base, Count: 3, OwnFlow: true}

	nowhere := sweep
	nowhere.Out = filepath.Join(base.Dir, "missing")
	if _, err := nowhere.Run(ctx); !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), nowhere.Out) || runs != 0 {
		t.Errorf("no such folder: %v after %d runs", err, runs)
	}
	aFile := sweep
	aFile.Out = base.Snapshot
	if _, err := aFile.Run(ctx); !codes.Has(err, codes.OutputUnwritable) || runs != 0 {
		t.Errorf("a file for a folder: %v after %d runs", err, runs)
	}
	sweep.Out = t.TempDir()
	blind := sweep
	blind.Snapshot = filepath.Join(base.Dir, "missing.jsonl")
	if _, err := blind.Run(ctx); !codes.Has(err, codes.FileMissing) || runs != 0 {
		t.Errorf("no snapshot: %v after %d runs", err, runs)
	}
	if _, err := sweep.Run(ctx); !errors.Is(err, context.Canceled) || runs != 1 {
		t.Errorf("interrupted: %v after %d runs", err, runs)
	}
}
