package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/parity"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

const (
	demoTopic = "demo"
	demoRun   = "demo"
	// The worker commits every demoEpoch records. The publisher waits after so many for that commit, and then after demoHeld for the
	// kill: the worker has records in hand by then that it has not committed.
	demoEpoch, demoHeld = 8, 13
	// demoReading gives the worker time to take what was published after its commit.
	demoReading = 200 * time.Millisecond
	// demoTTL is the life of a run's lease: how long the run of a dead worker waits, and how long a busy machine may keep a live one waiting.
	demoTTL = "3s"
	// demoTimeout only keeps a demo that hangs from hanging for ever.
	demoTimeout = 3 * time.Minute
)

// within bounds a part of the demo.
func (d *demo) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, demoTimeout, codes.New(codes.Internal, "the demo has not come to its end within %s", demoTimeout))
}

func (a *app) demoCommand() *cobra.Command {
	kinesis := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story on embedded defaults: nothing to install, nothing left behind",
		Long: "Builds an arrival log with faults, publishes it to its own broker over the Kafka protocol, streams it with a worker process,\nkills that worker in the middle with SIGKILL, starts it again, and compares batch, replay and stream.\n" +
			"With --kinesis the same over an emulator of Kinesis, which needs Node.js and npm; its packages are kept in the user's cache folder.",
		Example: "  weir demo\n  weir demo --json\n  weir demo --kinesis",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), kinesis) },
	}
	cmd.Flags().BoolVar(&kinesis, "kinesis", false, "stream through an emulator of Kinesis instead of a Kafka-compatible broker")
	return cmd
}

func (a *app) demo(ctx context.Context, kinesis bool) error {
	started := time.Now()
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return codes.New(codes.OutputUnwritable, "a temporary folder: %w", err)
	}
	a.cleanUp = func() { os.RemoveAll(dir) }
	defer a.cleanUp()
	cfg, err := fixtureConfig(dir)
	if err != nil {
		return err
	}
	d := &demo{app: a, dir: dir}
	d.say("weir demo: one flow, three modes, one hash\n")
	d.say("The data: %d events of three instruments, one minute apart. The flow: take instrument 1 and compute the", bytes.Count(fixture.Snapshot, []byte("\n")))
	d.say("exponential moving average of its closing price over 3 events (" + flowText(cfg.Plan) + ").\n")
	cfg.Stream, cfg.Partitions, cfg.Log = d.stream, 4, a.quiet()
	if kinesis {
		cfg.Stream, cfg.OtherLog = d.overKinesis, true
	}
	report, err := parity.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if !a.json {
		d.compared(report)
	}
	within, cancel := d.within(ctx)
	defer cancel()
	path, err := d.batchPath(within)
	if err != nil {
		return err
	}
	if a.json {
		doc := report.Document(true)
		doc["worker_kills"], doc["batch_run"] = d.kills, path.document()
		if err := a.document(doc); err != nil {
			return err
		}
	} else {
		d.conclude(time.Since(started))
	}
	if report.Verdict == parity.Different || report.Stream.ValuesHash != fixture.ValuesHash || path.publications != 1 {
		return outcome(codes.ExitDifference)
	}
	return nil
}

// fixtureConfig lays the embedded fixture out in dir.
func fixtureConfig(dir string) (parity.Config, error) {
	cfg := parity.Config{Dir: dir, Snapshot: filepath.Join(dir, "snapshot.jsonl"), Partitions: 4}
	for name, data := range map[string][]byte{"snapshot.jsonl": fixture.Snapshot, "flow.yaml": fixture.Flow} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return cfg, codes.New(codes.OutputUnwritable, "%w", err)
		}
	}
	var err error
	if cfg.Plan, err = flow.Parse("flow.yaml", fixture.Flow, nil); err != nil {
		return cfg, err
	}
	cfg.Schedule, err = replay.ParseSchedule("fault_schedule.json", fixture.Schedule)
	if err == nil {
		cfg.Seed = cfg.Schedule.Seed
	}
	return cfg, err
}

func flowText(p *flow.Plan) string {
	return fmt.Sprintf("fingerprint %.19s…", p.Fingerprint)
}

// demo tells the story while it happens.
type demo struct {
	*app
	dir   string
	step  int
	kills int
	// log are the flags that name the log to a worker, env what its environment has beside ours.
	log, env []string
}

func (d *demo) say(format string, args ...any) {
	if !d.json {
		d.printf(format+"\n", args...)
	}
}

func (d *demo) next(format string, args ...any) {
	d.step++
	d.say("%d. %s", d.step, fmt.Sprintf(format, args...))
}

// stream is the stream mode with real processes: half of the log, a worker, SIGKILL, the other half, the same worker again.
func (d *demo) stream(ctx context.Context, job parity.Job) (parity.Outcome, error) {
	var out parity.Outcome
	ctx, cancel := d.within(ctx)
	defer cancel()
	d.next("Batch has run over the events. For the other modes they arrive as they do in life: %d arrivals, with faults", job.Arrivals)
	d.say("   injected (a duplicate, a delay, a missing event, a late revision, a pause, a burst, an outage of the source).")
	broker, err := devbroker.Start(devbroker.Config{Partitions: job.Partitions, Topics: []string{demoTopic}, Logger: d.quiet()})
	if err != nil {
		return out, err
	}
	defer broker.Close()
	d.next("A broker of its own listens on %s; the first %d arrivals go to its topic %q over the Kafka protocol.", broker.Addr(), demoHeld, demoTopic)
	d.log = []string{"--brokers", broker.Addr(), "--topic", demoTopic, "--group", "demo"}
	producer, err := sinkkafka.New(sinkkafka.Config{Brokers: []string{broker.Addr()}, Topic: demoTopic})
	if err != nil {
		return out, err
	}
	defer producer.Close()
	return d.killed(ctx, job, producer)
}

// killed publishes a log while a worker reads it that is killed in the middle and started again.
func (d *demo) killed(ctx context.Context, job parity.Job, producer sinks.Producer) (out parity.Outcome, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gate := newGate(demoEpoch, demoHeld)
	gate.Producer = producer
	published := make(chan error, 1)
	go func() {
		_, err := replay.Publish(ctx, replay.PublishConfig{Log: job.LogPath, Producer: gate})
		published <- err
	}()
	if err := d.killWorker(ctx, job, gate); err != nil {
		cancel()
		<-published
		return out, err
	}
	if err := <-published; err != nil {
		return out, err
	}
	d.next("The rest is published, and the worker started again with the same command. It goes on from its last commit;")
	d.say("   what the dead one had processed but not committed is read again, and its results come once.")
	worker, err := d.worker(ctx, job)
	if err != nil {
		return out, err
	}
	if err := worker.wait(); err != nil {
		return out, err
	}
	return parity.FromJournal(ctx, job, filepath.Join(d.dir, "demo.db"), demoRun)
}

// killWorker starts a worker, lets it commit once, gives it more, and kills it.
func (d *demo) killWorker(ctx context.Context, job parity.Job, gate *gate) error {
	worker, err := d.worker(ctx, job)
	if err != nil {
		return err
	}
	defer worker.kill()
	if err := d.awaitCommit(ctx, worker, demoEpoch); err != nil {
		return err
	}
	gate.pass(ctx)
	select {
	case <-gate.reached:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	reading := time.NewTimer(demoReading)
	defer reading.Stop()
	<-reading.C
	worker.kill()
	d.kills++
	at, err := d.committed(ctx)
	if err != nil {
		return err
	}
	d.next("A worker process (pid %d) reads them. It has committed %d and is given the other %d: killed with SIGKILL.", worker.cmd.Process.Pid, at, demoHeld-at)
	gate.pass(ctx)
	return nil
}

// gate holds a publisher after certain numbers of records, with everything before them written, until it is let pass.
type gate struct {
	sinks.Producer
	n       int
	stops   []int
	release chan struct{}
	reached chan struct{} // gets one for the last stop
}

func newGate(stops ...int) *gate {
	return &gate{stops: stops, release: make(chan struct{}), reached: make(chan struct{}, 1)}
}

func (g *gate) Produce(ctx context.Context, r record.Record) error {
	if len(g.stops) > 0 && g.n == g.stops[0] {
		if err := g.Flush(ctx); err != nil {
			return err
		}
		if g.stops = g.stops[1:]; len(g.stops) == 0 {
			g.reached <- struct{}{}
		}
		select {
		case <-g.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g.n++
	return g.Producer.Produce(ctx, r)
}

// pass lets the publisher go on.
func (g *gate) pass(ctx context.Context) {
	select {
	case g.release <- struct{}{}:
	case <-ctx.Done():
	}
}

// worker is a child process that runs `weir run`.
type worker struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	done   chan error
}

func (d *demo) worker(ctx context.Context, job parity.Job) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, codes.New(codes.Internal, "the demo does not find its own program: %w", err)
	}
	w := &worker{done: make(chan error, 1)}
	w.cmd = exec.CommandContext(ctx, self, append([]string{"run", filepath.Join(d.dir, "flow.yaml"),
		"--run-id", demoRun, "--store", "sqlite:" + filepath.Join(d.dir, "demo.db"), "--once-n", fmt.Sprint(job.Arrivals),
		"--epoch", "1h", "--epoch-records", fmt.Sprint(demoEpoch), "--fetch", "1", "--ttl", demoTTL, "--standby"}, d.log...)...)
	w.cmd.Env = append(os.Environ(), d.env...)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := w.cmd.Start(); err != nil {
		return nil, codes.New(codes.Internal, "the worker process does not start: %w", err)
	}
	go func() { w.done <- w.cmd.Wait() }()
	return w, nil
}

// kill may be called again.
func (w *worker) kill() {
	w.cmd.Process.Signal(syscall.SIGKILL)
	w.done <- <-w.done
}

func (w *worker) wait() error {
	err := <-w.done
	w.done <- err // kill may still be called
	if err != nil {
		return codes.New(codes.Internal, "the worker process failed (%w): %s", err, bytes.TrimSpace(w.output.Bytes()))
	}
	return nil
}

// awaitCommit watches the worker's journal, from outside, until so many records are committed.
func (d *demo) awaitCommit(ctx context.Context, w *worker, records int64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-w.done:
			w.done <- err
			return codes.New(codes.Internal, "the worker process ended early (%v): %s", err, bytes.TrimSpace(w.output.Bytes()))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		n, err := d.committed(ctx)
		if err != nil || n >= records {
			return err
		}
	}
}

func (d *demo) committed(ctx context.Context) (int64, error) {
	path := filepath.Join(d.dir, "demo.db")
	if missing(path) {
		return 0, nil
	}
	journal, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		// The worker may be making it at this moment.
		if c := codes.Of(err); c != nil && c.Verdict == codes.Retry {
			return 0, nil
		}
		return 0, err
	}
	defer journal.Close()
	runs, err := journal.Runs(ctx)
	if err != nil || len(runs) == 0 {
		return 0, err
	}
	return runs[0].Counts.Records, nil
}

func (d *demo) compared(r parity.Report) {
	d.next("The three modes:\n")
	d.printf("%s\n", reportTable(r))
	d.printf("%s\n", verdictText(r))
	if r.Stream.ValuesHash == fixture.ValuesHash {
		d.printf("The hash is the one this fixture must always give.\n")
	}
	d.printf("\n")
}

func (d *demo) conclude(took time.Duration) {
	d.printf("\nIt took %.1f s; nothing is left behind.\n\n", took.Seconds())
	d.printf("What next:\n")
	d.printf("  weir parity --seeds 50          fifty random fault schedules, crashes included\n")
	d.printf("  weir parity --crash-every 3     crash the stream after every third record\n")
	d.printf("  README.md                       your own flow, your own data, a live topic, the HTTP API\n")
}
