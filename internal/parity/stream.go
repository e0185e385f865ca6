package parity

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks/emit"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/logfile"
)

// topic is the name of the topic on the comparison's own broker.
const topic = "parity"

// ViaBroker streams the log through an embedded broker, over the Kafka protocol. A log without arrivals is read from its file: a
// topic has no end of its own, and where nothing comes there is no last record to stop after.
func ViaBroker(ctx context.Context, job Job) (Outcome, error) {
	if job.Arrivals == 0 {
		return ViaLog(ctx, job)
	}
	broker, err := devbroker.Start(devbroker.Config{Partitions: job.Partitions, Topics: []string{topic}, Logger: job.Log})
	if err != nil {
		return Outcome{}, err
	}
	defer broker.Close()
	if err := publish(ctx, broker.Addr(), job.LogPath); err != nil {
		return Outcome{}, err
	}
	source, err := kafka.New(kafka.Config{Brokers: []string{broker.Addr()}, Topic: topic, Logger: job.Log})
	if err != nil {
		return Outcome{}, err
	}
	return job.stream(ctx, source)
}

// ViaLog streams the log from its file, through the same actors and journal, without a broker.
func ViaLog(ctx context.Context, job Job) (Outcome, error) {
	return job.stream(ctx, logfile.NewSource(job.LogPath, logfile.SourceConfig{Partitions: job.Partitions, Faults: true}))
}

func publish(ctx context.Context, addr, log string) error {
	producer, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	_, err = replay.Publish(ctx, replay.PublishConfig{Log: log, Producer: producer})
	return err
}

// stream runs the actors over a source to the end of the log, crashing them on the way as often as asked.
func (job Job) stream(ctx context.Context, source sources.Source) (Outcome, error) {
	journal, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(job.Dir, "journal.db")})
	if err != nil {
		return Outcome{}, err
	}
	defer journal.Close()
	c := &crasher{every: job.CrashEvery}
	for {
		var result actors.Result
		result, err = job.attempt(ctx, source, journal, c)
		if !errors.Is(err, actors.ErrKilled) || ctx.Err() != nil {
			break
		}
		c.count++
		c.noteProgress(result.Counts.Records)
	}
	// A crash after the last commit leaves nothing to do.
	if err != nil && !(c.count > 0 && codes.Has(err, codes.RunFinished)) {
		return Outcome{}, err
	}
	path := filepath.Join(job.Dir, "journal.db")
	out, err := FromJournal(ctx, job, path, runID)
	out.Crashes = c.count
	return out, err
}

// runID names the only run in a comparison's journal.
const runID = "parity"

// attempt is one life of the worker.
func (job Job) attempt(ctx context.Context, source sources.Source, journal *sqlite.Store, c *crasher) (actors.Result, error) {
	kill, crash := context.WithCancel(context.Background())
	defer crash()
	cfg := actors.Config{
		Plan: job.Plan, Source: source, Journal: journal, RunID: runID, MaxRecords: job.Arrivals, FetchSize: job.Fetch,
		Kill: kill, Logger: job.Log, Backoff: actors.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond},
	}
	if job.CrashEvery > 0 {
		// Commits have to be denser than crashes, or nothing would ever be committed.
		cfg.EpochRecords = max(1, job.CrashEvery/3)
		cfg.Source = &counting{Source: source, crasher: c}
		c.seen.Store(0)
		cfg.Hooks = actors.Hooks{At: func(ctx context.Context, p actors.Point) error {
			if !c.due(p.Name) {
				return nil
			}
			crash()
			<-ctx.Done() // it dies here: one that went on may have come to its end before anybody looks
			return ctx.Err()
		}}
	}
	return actors.Run(ctx, cfg)
}

// crasher decides when the worker dies: after so many records, at another moment of its loop each time.
type crasher struct {
	every     int64
	seen      atomic.Int64
	count     int
	committed int64
}

// moments are where a crash may come, in turn.
var moments = []actors.Failpoint{
	actors.BeforeCommit, actors.AfterStep, actors.AfterCommit, actors.BeforeStep, actors.AfterCut, actors.AfterPoll,
}

func (c *crasher) due(at actors.Failpoint) bool {
	return c.seen.Load() >= c.every && at == moments[c.count%len(moments)]
}

// noteProgress moves the crashes apart when one came before anything was committed, so that the run comes to its end.
func (c *crasher) noteProgress(records int64) {
	if records == c.committed {
		c.every *= 2
	}
	c.committed = records
}

// counting tells the crasher how many records were read.
type counting struct {
	sources.Source
	crasher *crasher
}

func (s *counting) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return &countingReader{r, s.crasher}, nil
}

type countingReader struct {
	sources.Reader
	crasher *crasher
}

func (r *countingReader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, limit)
	for i := range batches {
		r.crasher.seen.Add(int64(len(batches[i].Records)))
	}
	return batches, err
}

// FromJournal makes the outcome of a stream that other processes have run, from the journal they left at path.
func FromJournal(ctx context.Context, job Job, path, run string) (Outcome, error) {
	journal, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return Outcome{}, err
	}
	defer journal.Close()
	return fromStore(ctx, job, journal, run)
}

func fromStore(ctx context.Context, job Job, journal control.ControlStore, run string) (Outcome, error) {
	var state control.RunState
	err := journal.Snapshot(ctx, run, func(v control.JournalView) error {
		state = v.State()
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	return job.outcome(ctx, journal, run, state)
}

func (job Job) outcome(ctx context.Context, journal control.ControlStore, run string, state control.RunState) (Outcome, error) {
	d := emit.New(job.Plan, emit.ModeStream)
	d.Positions, d.Watermark = map[int32]record.Position{}, state.Watermark
	for p, cut := range state.Cuts {
		d.Positions[p] = cut.Next
		d.Counts = emit.Add(d.Counts, cut.Counts)
	}
	var out Outcome
	err := journal.Quarantine(ctx, run, func(q partitions.Quarantined) error { out.Exceptions.add(q); return nil })
	if err == nil {
		out.Decisions, err = decisions(ctx, journal, run)
	}
	if err != nil {
		return out, err
	}
	out.Doc, err = emit.FromJournal(ctx, journal, run, d, job.Plan, job.Emit, job.Keep)
	return out, err
}
