package parity

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// Verdict of a comparison.
type Verdict string

// The verdicts.
const (
	EqualToBatch   Verdict = "EQUAL_TO_BATCH_GOLDEN"
	EqualExplained Verdict = "EQUAL_EXPLAINED"
	Different      Verdict = "DIFFERENT"
)

// logName is the arrival log's name in the folder of a comparison.
const logName = "arrivals.log"

// Config of a comparison.
type Config struct {
	Plan *flow.Plan
	// Snapshot is the path of the events, Schedule the faults to inject.
	Snapshot string
	Schedule *replay.Schedule
	Seed     uint64
	// Partitions of the topic, Fetch the records of one batch, CrashEvery the records after which the stream is crashed, again and
	// again (0 never). None of them may change anything.
	Partitions int32
	Fetch      int
	CrashEvery int64
	// Stream runs the stream mode. Defaults to ViaBroker.
	Stream func(ctx context.Context, job Job) (Outcome, error)
	// OtherLog: the stream reads a log with other positions and without tombstones, as Kinesis; what it sets aside is compared by number alone.
	OtherLog bool
	// Dir holds the files of the run: log, journal, emit documents.
	Dir string
	// Keep is how many rows the returned documents hold.
	Keep int
	Log  *slog.Logger
}

// Job is what the stream mode is asked to do.
type Job struct {
	Config
	// LogPath is the arrival log and Arrivals the number of its records; LogHash identifies it.
	LogPath, LogHash string
	Arrivals         int64
	// Emit is where the emit document goes.
	Emit string
}

// Outcome is what the stream mode did.
type Outcome struct {
	Doc        emit.Doc
	Exceptions Exceptions
	// Crashes is how often the stream was crashed.
	Crashes int
}

// Report is the outcome of a comparison.
type Report struct {
	Verdict               Verdict
	Arrivals              int64
	FaultsApplied         int64
	LogHash               string
	Batch, Replay, Stream emit.Doc
	// Corrected is batch over the corrected snapshot; nil when it was not needed.
	Corrected *emit.Doc
	// Explained lists the exceptions that explain a difference to batch: what the stream recorded and, when the flow names no field of a
	// revision number, the revisions that were accepted in the place of their events.
	Explained []Exception
	// Reasons says in words what differs; Divergence is the first event that does.
	Reasons    []string
	Divergence *Divergence
	Crashes    int
}

// Run compares the three modes.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.Stream == nil {
		cfg.Stream = ViaBroker
	}
	if cfg.Keep <= 0 {
		cfg.Keep = emit.DefaultKeep
	}
	var r Report
	logPath := filepath.Join(cfg.Dir, logName)
	built, err := replay.Build(ctx, replay.BuildConfig{Snapshot: cfg.Snapshot, Fields: snapshot.FieldsOf(cfg.Plan), Schedule: cfg.Schedule, Seed: cfg.Seed, Out: logPath})
	if err != nil {
		return r, err
	}
	r.Arrivals, r.FaultsApplied, r.LogHash = built.Arrivals, built.FaultsApplied, built.LogHash

	if r.Batch, err = cfg.batch(ctx, cfg.snapshot(), "batch.json"); err != nil {
		return r, err
	}
	var replayed Exceptions
	r.Replay, err = batch.Run(ctx, batch.Config{
		Plan: cfg.Plan, Source: logfile.NewSource(logPath, logfile.SourceConfig{Partitions: cfg.Partitions}), Mode: emit.ModeReplay,
		Fetch: cfg.Fetch, Emit: filepath.Join(cfg.Dir, "replay.json"), Keep: cfg.Keep,
		Quarantine: func(q partitions.Quarantined) error { replayed.add(q); return nil },
	})
	if err != nil {
		return r, err
	}
	out, err := cfg.Stream(ctx, Job{Config: cfg, LogPath: logPath, LogHash: r.LogHash, Arrivals: r.Arrivals, Emit: filepath.Join(cfg.Dir, "stream.json")})
	if err != nil {
		return r, err
	}
	r.Stream, r.Crashes = out.Doc, out.Crashes
	return r, cfg.judge(ctx, &r, replayed, out.Exceptions)
}

func (c Config) snapshot() *snapshot.Source {
	return snapshot.New(snapshot.Config{Path: c.Snapshot, Fields: snapshot.FieldsOf(c.Plan), TempDir: c.Dir})
}

// batch runs the batch mode over a snapshot.
func (c Config) batch(ctx context.Context, s sources.Source, name string) (emit.Doc, error) {
	return batch.Run(ctx, batch.Config{Plan: c.Plan, Source: s, Mode: emit.ModeBatch, Fetch: c.Fetch, Emit: filepath.Join(c.Dir, name), Keep: c.Keep})
}

// judge compares and, where batch differs, explains.
func (c Config) judge(ctx context.Context, r *Report, replayed, streamed Exceptions) error {
	r.Reasons = compare("replay", r.Replay, "stream", r.Stream)
	if d := replayed.difference(streamed); d != "" && !c.OtherLog {
		r.Reasons = append(r.Reasons, d)
	}
	if len(r.Reasons) > 0 {
		r.Verdict = Different
		return c.diverge(r, streamed, "replay", r.Replay, "replay.json")
	}
	if sameRows(r.Batch, r.Stream) {
		r.Verdict = EqualToBatch
		return nil
	}
	changes, revised, err := c.correct(ctx, streamed)
	if err != nil {
		return err
	}
	streamed.list = append(streamed.list, revised...)
	streamed.sort()
	corrected, err := c.batch(ctx, snapshot.Corrected(c.snapshot(), changes), "corrected.json")
	if err != nil {
		return err
	}
	r.Corrected = &corrected
	r.Explained = streamed.explaining()
	if sameRows(corrected, r.Stream) {
		r.Verdict = EqualExplained
		return nil
	}
	r.Verdict = Different
	r.Reasons = append(r.Reasons, "batch over the snapshot, corrected by what the stream recorded, still differs from the stream")
	return c.diverge(r, streamed, "corrected batch", corrected, "corrected.json")
}
