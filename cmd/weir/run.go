package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/heap"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/logfile"
)

// runOptions are the flags of weir run.
type runOptions struct {
	brokerFlags
	scopeFlags
	recoveryFlags
	kinesisFlags
	listenFlags
	logFlags
	sinkFlags
	topic, group, runID, store, emit, artifacts, log string
	partitions                                       int32
	onceN, untilN, epochRecords                      int64
	fetch                                            int
	epoch, ttl, checkpointEvery                      time.Duration
	standby                                          bool
	checkpoints                                      string
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run FLOW",
		Short: "Run a flow over a live topic, with a journal to resume from",
		Long: "Reads a topic from the position in the run's journal and commits positions, ids, operator state and outputs in one transaction\n" +
			"every epoch. Killed at any moment, it goes on from the last commit when it is started again with the same --run-id.\n" +
			"Ctrl-C or SIGTERM commits what is done and stops; a second one stops at once.\n" +
			"A run has one owner at a time, which holds a lease in the store. A second process with the same --run-id is refused, or with --standby\n" +
			"waits and takes over: at once when the owner ends, and when its lease has run out if it was killed or stalls. An owner that lost its\n" +
			"lease publishes nothing more and ends with exit code 7.\n" +
			"With --scope partition several processes share the partitions out over the consumer group --group, each partition with a lease of its own.",
		Example: "  weir run flow.yaml --brokers 127.0.0.1:9092 --topic ticks --group g1 --run-id ticks-1 --store sqlite:weir.db\n" +
			"  weir run flow.yaml --brokers 127.0.0.1:9092 --topic ticks --run-id bounded-1 --store sqlite:weir.db --once-n 299 --emit out.json\n" +
			"  weir run flow.yaml --brokers 127.0.0.1:9092 --topic ticks --run-id ticks-1 --store env:WEIR_STORE --standby --ttl 10s\n" +
			"  weir run flow.yaml --brokers 127.0.0.1:9092 --topic ticks --group ticks --run-id ticks-2 --store env:WEIR_STORE --scope partition\n" +
			"  weir run flow.yaml --log arrivals.log --run-id file-1 --store sqlite:weir.db --emit out.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stoppedEarly(cmd.Context(), o, a.stream(cmd.Context(), args[0], o))
		},
	}
	f := cmd.Flags()
	o.addBrokers(cmd, "broker addresses, HOST:PORT, separated by commas")
	o.addScope(cmd)
	o.addRecovery(cmd)
	o.addKinesis(cmd)
	o.addListen(cmd)
	o.addLog(cmd)
	o.addSinks(cmd)
	f.StringVar(&o.topic, "topic", "", "topic to read")
	f.StringVar(&o.log, "log", "", "read this arrival log instead of a topic")
	f.Int32Var(&o.partitions, "partitions", 1, "with --log: deal the log to this many partitions, as the topic's producer would")
	f.StringVar(&o.group, "group", "", "consumer group that is told the committed positions, as a courtesy; the journal decides")
	f.StringVar(&o.runID, "run-id", "", "name of the run in the store (required)")
	f.StringVar(&o.store, "store", "", "store of the journal: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH (required)")
	f.StringVar(&o.artifacts, "artifacts", "", "folder for what the run leaves behind: RUN-ID.quarantine.jsonl, and RUN-ID.emit.json unless --emit names another file")
	f.Int64Var(&o.onceN, "once-n", 0, "the input ends after this many records over the whole run; everything is released and the run is FINISHED")
	f.Int64Var(&o.untilN, "until-n", 0, "stop at an open cut after this many records over the whole run, to be resumed later")
	f.StringVar(&o.emit, "emit", "", "write the emit document here when the run ends by --once-n, --until-n or the end of a log")
	f.DurationVar(&o.epoch, "epoch", time.Second, "time between commits")
	f.Int64Var(&o.epochRecords, "epoch-records", 0, "commit after this many records already; 0 is by time alone")
	f.IntVar(&o.fetch, "fetch", 0, "records of one batch at most (default 1024)")
	f.DurationVar(&o.ttl, "ttl", actors.DefaultTTL, "how long the lease of the run lasts unless it is renewed; what a stand-by waits for after a kill")
	f.BoolVar(&o.standby, "standby", false, "wait while another process owns the run, and take over when it ends or its lease runs out")
	f.DurationVar(&o.checkpointEvery, "checkpoint-every", time.Minute, "time between retained checkpoints; 0 makes one at the end only")
	f.StringVar(&o.checkpoints, "checkpoints", "", "where checkpoints are kept: a folder, or \"store\" for the store itself (default: the folder checkpoints of --artifacts; none without it)")
	return cmd
}

func (o runOptions) check() error {
	switch {
	case o.runID == "":
		return usagef("--run-id is missing: name the run, so that it can be resumed")
	case o.store == "":
		return usagef("--store is missing: say where the journal is kept, such as --store sqlite:weir.db")
	case o.onceN < 0 || o.untilN < 0 || o.epochRecords < 0 || o.fetch < 0 || o.epoch <= 0:
		return usagef("--once-n, --until-n, --epoch-records and --fetch must not be negative, and --epoch must be more than 0")
	case o.onceN > 0 && o.untilN > 0:
		return usagef("--once-n ends the run and --until-n keeps it open: give one of them")
	case o.kinesis == "" && o.log == "" && (o.brokers == "" || o.topic == ""):
		return usagef("say what to read: --brokers and --topic, --kinesis, or --log")
	case o.log != "" && o.topic != "":
		return usagef("give either --log, or --brokers and --topic, not both")
	case o.partitions < 1:
		return usagef("--partitions must be at least 1, not %d", o.partitions)
	case o.checkpointEvery < 0:
		return usagef("--checkpoint-every must be 0 (at the end only) or more, not %s", o.checkpointEvery)
	case o.maxSkew < 0 || o.minFreeDisk < autoFreeDisk:
		return usagef("--max-skew must be 0 (no bound) or more, and --min-free-disk %d (weir chooses), 0 (not looked at) or more", autoFreeDisk)
	}
	if err := o.checkBrokers(); err != nil {
		return err
	}
	if err := o.checkKinesis(); err != nil {
		return err
	}
	if err := o.checkScope(); err != nil {
		return err
	}
	if err := partName("--run-id", o.runID); err != nil {
		return err
	}
	if err := o.checkListen(); err != nil {
		return err
	}
	if err := o.checkLog(); err != nil {
		return err
	}
	if err := o.checkSinks(o.brokers); err != nil {
		return err
	}
	return o.checkTTL()
}

func (a *app) stream(ctx context.Context, flowFile string, o runOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	a.useLog(o.logFlags)
	plan, err := a.loadFlow(flowFile)
	if err != nil {
		return err
	}
	if err := o.prepareOutputs(flowFile); err != nil {
		return err
	}
	if err := a.openSinks(ctx, plan, &o); err != nil {
		return err
	}
	faults, err := readFailpoints(a.stderr)
	if err != nil {
		return err
	}
	store, err := openRunStore(ctx, o, faults)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := o.newName(ctx, store); err != nil {
		return err
	}
	if err := a.joinSinks(ctx, &o, store); err != nil {
		return err
	}
	if err := o.measureTTL(ctx, store); err != nil {
		return err
	}
	if err := o.sameScope(ctx, store); err != nil {
		return err
	}
	if err := a.listenTo(ctx, o.listenFlags, o.runID, o.epoch, plan); err != nil {
		return err
	}
	defer a.watch.close()
	if o.kinesis != "" {
		return a.streamed(ctx, plan, o, store, faults)
	}
	source, offsets, err := a.source(o)
	if err != nil {
		return err
	}
	if o.scope == scopePartition {
		return a.apart(ctx, plan, source, o, store, faults)
	}
	return a.whole(ctx, plan, source, offsets, o, store, faults)
}

// whole runs all partitions of a source in one engine.
func (a *app) whole(ctx context.Context, plan *flow.Plan, source sources.Source, offsets commitOffsets, o runOptions, store *runStore, faults *failpoints) error {
	defer a.watch.observing(ctx, source)()
	if wrapSource != nil {
		source = wrapSource(source)
	}
	if err := a.printBound(ctx, plan, source); err != nil {
		return err
	}
	t := a.newTerm(store)
	defer t.end(ctx)
	a.cleanUp = t.abandon
	cfg := actors.Config{
		Plan: plan, Source: source, Journal: store, RunID: o.runID, Group: o.group,
		EpochEvery: o.epoch, EpochRecords: o.epochRecords, MaxRecords: o.onceN, UntilRecords: o.untilN, FetchSize: o.fetch,
		Kill: a.kill, CommitOffsets: offsets, Logger: a.log, OnProgress: a.progress, Hooks: faults.hooks(o.runID),
		Fencing: &actors.Fencing{Leases: t, Owner: drillOwner(), TTL: o.ttl, Standby: o.standby, OnLease: t.tell},
	}
	o.recovery(&cfg, store)
	o.publish(&cfg)
	closing, err := a.addCheckpoints(ctx, &cfg, o, store)
	if err != nil {
		return err
	}
	defer closing()
	board := a.watch.attach(&cfg, o.runID)
	a.working = true
	result, err := actors.Run(ctx, cfg)
	a.watch.over(board, result, err)
	return a.finishRun(ctx, o, plan, t, result, t.blame(ctx, err))
}

// prepareOutputs finds out before the run, not after it, that its results cannot be written.
func (o *runOptions) prepareOutputs(flowFile string) error {
	if o.artifacts != "" {
		if err := os.MkdirAll(o.artifacts, 0o700); err != nil {
			return codes.New(codes.OutputUnwritable, "--artifacts: %w", err)
		}
		if o.emit == "" && (o.onceN > 0 || o.untilN > 0 || o.log != "") {
			o.emit = filepath.Join(o.artifacts, fileName(o.runID)+".emit.json")
		}
	}
	outputs := []named{{"--emit", o.emit}}
	if o.artifacts != "" {
		outputs = append(outputs, named{"--artifacts", o.quarantineFile()})
	}
	if err := distinct(outputs, append(storeFiles(o.store), named{"the flow", flowFile}, named{"--log", o.log})); err != nil {
		return err
	}
	return writable(o.emit)
}

// quarantineFile is where what the run set aside is written.
func (o *runOptions) quarantineFile() string {
	return filepath.Join(o.artifacts, fileName(o.runID)+".quarantine.jsonl")
}

// writable makes sure that a file can be made at path; "" needs none.
func writable(path string) error {
	if path == "" {
		return nil
	}
	spool, err := emit.NewSpool(path)
	if err != nil {
		return err
	}
	spool.Close()
	return nil
}

// addresses splits a list of addresses; nil when one is empty.
func addresses(list string) []string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		if parts[i] = strings.TrimSpace(p); parts[i] == "" {
			return nil
		}
	}
	return parts
}

// wrapSource lets a test break the source of a run, to see that a drill notices.
var wrapSource func(sources.Source) sources.Source

type commitOffsets = func(context.Context, map[int32]record.Position) error

func (a *app) source(o runOptions) (sources.Source, commitOffsets, error) {
	if o.log != "" {
		return logfile.NewSource(o.log, logfile.SourceConfig{Partitions: o.partitions, Faults: true}), nil, nil
	}
	security, err := o.security()
	if err != nil {
		return nil, nil, err
	}
	s, err := kafka.New(kafka.Config{
		Brokers: addresses(o.brokers), Topic: o.topic, Security: security, Logger: a.log, Follow: o.follow(),
		OnOutage: func(cause error) {
			a.watch.outage(cause)
			if cause != nil {
				a.notice("weir: the broker does not answer, trying again: %s\n", printable(cause.Error()))
				return
			}
			a.notice("weir: the broker answers again\n")
		},
	})
	if err != nil || o.group == "" {
		return s, nil, err
	}
	return s, func(ctx context.Context, next map[int32]record.Position) error {
		return s.CommitGroup(ctx, o.group, next)
	}, nil
}

// printBound says how much memory the run may take before it starts.
func (a *app) printBound(ctx context.Context, plan *flow.Plan, source sources.Source) error {
	info, err := source.Info(ctx)
	if err != nil {
		return err
	}
	bound := plan.MemoryBound(len(info.Partitions))
	a.notice("weir: %s: at most %d MiB of memory for the state and buffers of %s\n", printable(info.Name), bound.Total>>20, count(len(info.Partitions), "partition"))
	heap.Floor(min(heapFloor, bound.Total/2)) // to the end of the process
	return nil
}

// heapFloor is how much of its bound a daemon takes before it collects what does not live.
const heapFloor = 128 << 20

func (a *app) progress(p actors.Progress) {
	a.log.Info("committed", "epoch", p.Epoch, "records", p.Counts.Records, "outputs", p.Counts.Outputs, "watermark", p.Watermark.String(), "commit", p.CommitTime)
}

// finishRun writes what the run leaves behind, while its lease is still held, and says how it ended.
func (a *app) finishRun(ctx context.Context, o runOptions, plan *flow.Plan, t *term, result actors.Result, err error) error {
	again := codes.Has(err, codes.RunFinished) && o.emit != "" && missing(o.emit) && (o.onceN == 0 || o.onceN == result.Counts.Records) && o.untilN == 0
	switch {
	case err == nil:
	case again:
		// The process was killed between its last commit and the document: the result stands, only its copy is missing.
		a.notice("weir: run %s has finished before; its emit document was missing and is written now\n", printable(o.runID))
	case errors.Is(err, actors.ErrInterrupted) && a.signal == syscall.SIGTERM && o.onceN == 0 && o.untilN == 0 && o.log == "":
		// Being told to stop is how a daemon ends.
		a.notice("weir: stopped; everything processed is committed\n")
		ctx = context.WithoutCancel(ctx)
		if err := a.leaveQuarantine(ctx, o, t.store, t.verify(ctx)); err != nil || !a.json {
			return err
		}
		return a.document(map[string]any{"stopped": true, "records": result.Counts.Records, "epoch": result.Epoch})
	default:
		return err
	}
	d := emit.New(plan, emit.ModeStream)
	d.Counts, d.Positions, d.Watermark = result.Counts, result.Positions(), result.Watermark
	d.FenceToken, d.Allow = uint64(t.token()), t.verify(ctx)
	d, err = emit.FromJournal(ctx, t.store, o.runID, d, plan, o.emit, emit.DefaultKeep)
	if err != nil {
		return err
	}
	if err := a.leaveQuarantine(ctx, o, t.store, t.verify(ctx)); err != nil {
		return err
	}
	return a.showDoc(plan, d, o.emit)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// showDoc prints the outcome of a run: the document with --json, a few lines otherwise.
func (a *app) showDoc(plan *flow.Plan, d emit.Doc, path string) error {
	for i, nulls := range d.Nulls {
		if d.Rows > 0 && nulls == d.Rows {
			a.notice("weir: output %s: all %d values are null; do the records have the fields that it reads (%s)?\n", plan.Outputs[i].Name, nulls, strings.Join(plan.Inputs, ", "))
		}
	}
	if a.json {
		return a.document(d.Document(true))
	}
	c := d.Counts
	a.printf("%s: %d consumed, %d filtered, %d omitted, %d duplicates skipped, %d late, %d from the future\n", d.Mode, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future)
	a.printf("%d values, %s\n", d.Rows, d.ValuesHash)
	if path != "" {
		a.printf("written to %s\n", path)
	}
	return nil
}
