package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/batch/catalog"
	batchworker "github.com/weirstream/weir/batch/worker"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

type workerOptions struct {
	store, artifacts, flows, snapshots string
	poll, ttl, reconcile, drain        time.Duration
	batch, concurrency                 int
	once                               bool
	stagingFlags
}

func (a *app) batchWorkerCommand() *cobra.Command {
	var o workerOptions
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Execute the runs that were submitted, each result published once",
		Long: "Takes submitted runs from the store, runs the named flow over the named snapshot, keeps the emit document under its hash in the\n" +
			"folder of artefacts, and publishes the reference. Several workers may stand side by side, on one store and one folder of artefacts.\n" +
			"Killed at any moment, another worker does its run again, and the result is visible once.\n" +
			"With --staging the rows of each result are written to a table as well: before it is published, and seen after that.\n" +
			"SIGTERM or Ctrl-C finishes the runs in hand, within --drain, and gives back the rest; a second one stops at once.",
		Example: "  weir batch worker --store sqlite:weir.db --artifacts artifacts --flows flows --snapshots snapshots\n" +
			"  weir batch worker --store sqlite:weir.db --artifacts artifacts --flows flows --snapshots snapshots --once\n" +
			"  weir batch worker --store sqlite:weir.db --artifacts artifacts --flows flows --snapshots snapshots --staging clickhouse:features --staging-db env:RESULTS_DB",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.batchWorker(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.store, "store", "", "store of the control plane: sqlite:PATH, postgres://… or a reference to it, env:NAME or file:PATH (required)")
	f.StringVar(&o.artifacts, "artifacts", "", "folder of artefacts; it is made if it is not there (required)")
	f.StringVar(&o.flows, "flows", "", "folder of flows, NAME.yaml (required)")
	f.StringVar(&o.snapshots, "snapshots", "", "folder of snapshots, NAME.jsonl or NAME.csv (required)")
	f.DurationVar(&o.poll, "poll", batchworker.DefaultPoll, "longest time between two looks for new runs")
	f.IntVar(&o.batch, "batch", batchworker.DefaultBatch, "most events claimed at once")
	f.IntVar(&o.concurrency, "concurrency", 1, "runs computed at once")
	f.DurationVar(&o.ttl, "ttl", batchworker.DefaultTTL, "life of a run's lease; it is renewed every third of it, and a dead worker's run waits for its end")
	f.DurationVar(&o.reconcile, "reconcile", 0, "time between two looks for orphans (default: --ttl)")
	f.DurationVar(&o.drain, "drain", batchworker.DefaultDrain, "how long the runs in hand may go on after SIGTERM")
	o.addStaging(cmd, true)
	f.BoolVar(&o.once, "once", false, "execute one run that waits, print the reference of its result and end")
	return cmd
}

func (o workerOptions) check() error {
	for _, f := range [...]struct{ flag, value, say string }{
		{"store", o.store, "such as --store sqlite:weir.db"},
		{"artifacts", o.artifacts, "the folder where results are kept"},
		{"flows", o.flows, "the folder of flows that may be asked for"},
		{"snapshots", o.snapshots, "the folder of snapshots that may be asked for"},
	} {
		if f.value == "" {
			return usagef("--%s is missing: %s", f.flag, f.say)
		}
	}
	switch {
	case o.poll <= 0 || o.ttl <= 0 || o.drain <= 0 || o.reconcile < 0:
		return usagef("--poll, --ttl and --drain must be more than 0, and --reconcile must not be negative")
	case o.batch < 1 || o.batch > 500 || o.concurrency < 1:
		return usagef("--batch must be between 1 and 500, and --concurrency at least 1")
	}
	return o.checkStaging()
}

func (a *app) batchWorker(ctx context.Context, o workerOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	names, err := catalog.Open(o.flows, o.snapshots)
	if err != nil {
		return err
	}
	defer names.Close()
	blobs, err := dir.Open(o.artifacts)
	if err != nil {
		return err
	}
	defer blobs.Close()
	scratch, err := filepath.Abs(filepath.Join(o.artifacts, "scratch"))
	if err != nil {
		return codes.New(codes.OutputUnwritable, "--artifacts: %w", err)
	}
	bare, err := openStore(ctx, o.store)
	if err != nil {
		return err
	}
	defer bare.Close()
	store := control.Noting(bare, nil)
	staging, err := o.openStaging(ctx)
	if err != nil {
		return err
	}
	cfg := batchworker.Config{
		Store: store, Blobs: blobs, Catalog: names, Scratch: scratch, Poll: o.poll, Batch: o.batch, Concurrency: o.concurrency, TTL: o.ttl,
		Reconcile: o.reconcile, Drain: o.drain, Kill: a.kill, Logger: a.log, Staging: staging,
	}
	if o.once {
		return a.workOnce(ctx, cfg)
	}
	cfg.OnEnd = a.tellOutcome
	a.notice("weir: worker ready\n")
	report, err := batchworker.Run(ctx, cfg)
	return a.finishWorker(report, err)
}

// tellOutcome prints a line for each run that came to its end.
func (a *app) tellOutcome(o batchworker.Outcome) {
	out := a.stdout
	if a.json {
		out = a.stderr
	}
	line := ""
	switch o.Kind {
	case batchworker.Succeeded:
		line = strings.Join(o.ResultRefs, " ")
	case batchworker.Failed:
		line = o.Error
	case batchworker.Cancelled:
	default:
		return
	}
	fmt.Fprintf(out, "%s %s %s\n", o.RunID, o.Kind, printable(strings.ReplaceAll(line, "\n", "; ")))
}

func (a *app) finishWorker(report batchworker.Report, err error) error {
	if a.json {
		ended := map[string]any{}
		for _, k := range []batchworker.Kind{batchworker.Succeeded, batchworker.Failed, batchworker.Cancelled, batchworker.Ignored, batchworker.Elsewhere, batchworker.GivenUp} {
			ended[strings.ToLower(string(k))] = report.Ended[k]
		}
		if err == nil {
			err = a.document(map[string]any{"ended": ended, "repaired": report.Repaired, "damaged": report.Found})
		}
	}
	if err != nil {
		return err
	}
	a.notice("weir: stopped; the runs in hand were finished\n")
	if a.signal == syscall.SIGTERM {
		return nil // being told to stop is how a daemon ends
	}
	return outcome(codes.ExitInterrupted)
}

// workOnce executes one run and prints its result.
func (a *app) workOnce(ctx context.Context, cfg batchworker.Config) error {
	o, found, err := batchworker.Once(ctx, cfg)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.document(onceDocument(o, found)); err != nil {
			return err
		}
	}
	switch {
	case !found:
		a.notice("weir: no run waits\n")
		return nil
	case o.Kind == batchworker.Failed:
		a.notice("weir: run %s FAILED: %s\n", o.RunID, printable(o.Error))
		return outcome(codes.ExitRuntime)
	case !a.json:
		a.printf("%s\n", strings.Join(o.ResultRefs, "\n"))
	}
	return nil
}

func onceDocument(o batchworker.Outcome, found bool) map[string]any {
	if !found {
		return map[string]any{"run_id": nil, "phase": nil, "result_refs": []string{}, "error": nil, "fence_token": 0}
	}
	doc := map[string]any{"run_id": o.RunID, "phase": string(o.Kind), "result_refs": append([]string{}, o.ResultRefs...), "error": nil, "fence_token": int64(o.Token)}
	if o.Error != "" {
		doc["error"] = o.Error
	}
	return doc
}
