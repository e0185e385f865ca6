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
	// Decisions are those that no record made: operators' and policies'. Replay makes them again, unless the stream has read another log.
	Decisions []partitions.Decision
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

	j := judgement{Config: cfg, report: &r}
	if r.Batch, err = j.batch(ctx, cfg.snapshot(), "batch.json", &j.batched, &held{}); err != nil {
		return r, err
	}
	out, err := cfg.Stream(ctx, Job{Config: cfg, LogPath: logPath, LogHash: r.LogHash, Arrivals: r.Arrivals, Emit: filepath.Join(cfg.Dir, "stream.json")})
	if err != nil {
		return r, err
	}
	if r.Stream, r.Crashes = out.Doc, out.Crashes; !cfg.OtherLog {
		j.decided = out.Decisions
	}
	if r.Replay, err = j.replay(ctx, cfg.Plan, "replay.json", &j.replayed, &j.streamed); err != nil {
		return r, err
	}
	return r, j.judge(ctx, out.Exceptions)
}

// judgement is what a comparison goes by, beside the documents.
type judgement struct {
	Config
	report   *Report
	replayed Exceptions
	decided  []partitions.Decision
	// batched and streamed are what stands of the rows of a flow that takes revisions in behind the watermark. Replay and stream have the same rows.
	batched, streamed standing
	// heldRows are the rows of replay and stream where keys may be held.
	heldRows held
}

// replay runs the plan, or one that publishes more, over the arrival log.
func (j *judgement) replay(ctx context.Context, plan *flow.Plan, name string, aside *Exceptions, rows *standing) (emit.Doc, error) {
	cfg := batch.Config{
		Plan: plan, Source: logfile.NewSource(filepath.Join(j.Dir, logName), logfile.SourceConfig{Partitions: j.Partitions}), Mode: emit.ModeReplay,
		Fetch: j.Fetch, Emit: filepath.Join(j.Dir, name), Keep: j.Keep, Decided: j.decided,
		Quarantine: func(q partitions.Quarantined) error { aside.add(q); return nil },
	}
	rows.of(&cfg)
	j.heldRows.of(&cfg)
	return batch.Run(ctx, cfg)
}

func (c Config) snapshot() *snapshot.Source {
	return snapshot.New(snapshot.Config{Path: c.Snapshot, Fields: snapshot.FieldsOf(c.Plan), TempDir: c.Dir})
}

// batch runs the batch mode over a snapshot.
func (j *judgement) batch(ctx context.Context, s sources.Source, name string, rows *standing, ordered *held) (emit.Doc, error) {
	cfg := batch.Config{Plan: j.Plan, Source: s, Mode: emit.ModeBatch, Fetch: j.Fetch, Emit: filepath.Join(j.Dir, name), Keep: j.Keep}
	rows.of(&cfg)
	ordered.of(&cfg)
	return batch.Run(ctx, cfg)
}

// same says whether a batch has the results of the stream.
func (j *judgement) same(doc emit.Doc, rows *standing) bool {
	if j.Plan.Revised {
		return rows.difference(&j.streamed) == ""
	}
	return sameRows(doc, j.report.Stream)
}

// judge compares and, where batch differs, explains.
func (j *judgement) judge(ctx context.Context, streamed Exceptions) error {
	r := j.report
	r.Reasons = compare("replay", r.Replay, "stream", r.Stream)
	if d := j.replayed.difference(streamed); d != "" && !j.OtherLog {
		r.Reasons = append(r.Reasons, d)
	}
	if len(r.Reasons) > 0 {
		r.Verdict = Different
		return j.diverge(r, streamed, "replay", r.Replay, "replay.json")
	}
	if j.same(r.Batch, &j.batched) {
		r.Verdict = EqualToBatch
		return nil
	}
	return j.explain(ctx, streamed)
}

// explain compares with batch over the snapshot, corrected by what the stream has recorded.
func (j *judgement) explain(ctx context.Context, streamed Exceptions) error {
	r := j.report
	lost, err := j.lost(ctx)
	if err != nil {
		return err
	}
	streamed.list = append(streamed.list, lost...)
	changes, noted, err := j.correct(ctx, streamed, j.heldRows.behind)
	if err != nil {
		return err
	}
	streamed.list = append(streamed.list, noted...)
	streamed.sort()
	var rows standing
	var ordered held
	source := snapshot.Corrected(j.snapshot(), changes)
	corrected, err := j.batch(ctx, source, "corrected.json", &rows, &ordered)
	if err != nil {
		return err
	}
	r.Corrected = &corrected
	r.Explained = streamed.explaining()
	if j.same(corrected, &rows) {
		r.Verdict = EqualExplained
		return nil
	}
	difference, err := j.rest(ctx, source, &rows, &ordered)
	switch {
	case err != nil:
		return err
	case difference == "" && (j.adopts() || j.passed()):
		r.Verdict = EqualExplained
		return nil
	}
	r.Verdict = Different
	r.Reasons = append(r.Reasons, "batch over the snapshot, corrected by what the stream recorded, still differs from the stream")
	if difference != "" {
		r.Reasons = append(r.Reasons, difference)
		return nil
	}
	return j.diverge(r, streamed, "corrected batch", corrected, "corrected.json")
}

// adopts says that the flow takes revisions in and does not publish again what they change, passed that something went on behind the watermark.
func (j *judgement) adopts() bool { return j.Plan.RevisionHorizon > 0 && !j.Plan.Revised }
func (j *judgement) passed() bool { return len(j.heldRows.behind) > 0 }

// rest says what differs between the corrected batch, which has other rows than the stream, and the stream all the same, or "".
func (j *judgement) rest(ctx context.Context, corrected sources.Source, rows *standing, ordered *held) (string, error) {
	switch {
	case j.Plan.Revised:
		return rows.difference(&j.streamed), nil
	case j.adopts():
		return j.adopted(ctx, rows)
	case j.passed():
		return ordered.difference(ctx, j.Plan, corrected, &j.heldRows)
	}
	return "", nil
}

// adopted explains a stream whose flow takes revisions in and does not publish again what they change: batch has later values for the
// results that were published before. One more replay publishes all of it. Its first rows must be those of the stream, and what stands of them in
// the end what batch has.
func (j *judgement) adopted(ctx context.Context, corrected *standing) (difference string, err error) {
	var all standing
	var aside Exceptions
	if _, err := j.replay(ctx, j.Plan.Publishing(), "published.json", &aside, &all); err != nil {
		return "", err
	}
	if !all.firstAre(&j.streamed) {
		return "with its revisions published again, the flow has other first results than the stream", nil
	}
	return corrected.difference(&all), nil
}
