package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

type batchOptions struct {
	flow, snapshot, log, emit string
	partitions                int32
	fetch                     int
	handOver                  handOverOptions
}

func (a *app) batchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "batch",
		Short:   "Run flows over bounded input",
		Example: "  weir batch run --flow flow.yaml --snapshot data.jsonl --emit out.json",
		Args:    cobra.NoArgs,
		RunE:    a.needsSubcommand,
	}
	cmd.AddCommand(a.batchRunCommand(), a.batchWorkerCommand())
	return cmd
}

func (a *app) batchRunCommand() *cobra.Command {
	var o batchOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a flow over a snapshot (batch) or an arrival log (replay)",
		Long: "With --snapshot the events are taken in (event time, event id) order and nothing is late; a row that cannot be read fails the run.\n" +
			"With --log the records are taken as they arrived, with every fault in the log; what cannot be read or is late is set aside.\n" +
			"Memory does not grow with the input.\n\n" +
			"With --hand-over-to the snapshot is the history of a topic: it becomes the beginning of a stream run, which `weir run --run-id` continues\n" +
			"with the topic, exactly where it ended when the mark was made (--at), or now. What the history and the topic both have counts once. Killed at\n" +
			"any moment, the same command goes on where it stood; half a history is never continued.",
		Example: "  weir batch run --flow flow.yaml --snapshot data.csv --emit out.json\n  weir batch run --flow flow.yaml --log arrivals.log --partitions 4 --json\n" +
			"  weir batch run --flow flow.yaml --snapshot history.jsonl --hand-over-to ticks-1 --store sqlite:weir.db --brokers 127.0.0.1:9092 --topic ticks --at ticks.mark.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.batchRun(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.flow, "flow", "", "flow file (required)")
	f.StringVar(&o.snapshot, "snapshot", "", "snapshot: JSON Lines or CSV")
	f.StringVar(&o.log, "log", "", "arrival log")
	f.StringVar(&o.emit, "emit", "", "write the emit document here")
	f.Int32Var(&o.partitions, "partitions", 1, "with --log: deal the log to this many partitions, as the topic's producer would")
	f.IntVar(&o.fetch, "fetch", 0, "records read at once (default 1024)")
	o.handOver.add(cmd)
	return cmd
}

func (a *app) batchRun(ctx context.Context, o batchOptions) error {
	switch {
	case o.flow == "":
		return usagef("--flow is missing: name the flow to run")
	case (o.snapshot == "") == (o.log == ""):
		return usagef("give either --snapshot or --log")
	case o.partitions < 1:
		return usagef("--partitions must be at least 1, not %d", o.partitions)
	case o.fetch < 0:
		return usagef("--fetch must not be negative")
	}
	if err := o.handOver.check(&o); err != nil {
		return err
	}
	if o.handOver.run != "" {
		return a.handOver(ctx, o)
	}
	if err := distinct([]named{{"--emit", o.emit}}, []named{{"--flow", o.flow}, {"--snapshot", o.snapshot}, {"--log", o.log}}); err != nil {
		return err
	}
	plan, err := a.loadFlow(o.flow)
	if err != nil {
		return err
	}
	cfg := batch.Config{Plan: plan, Source: o.source(plan), Mode: emit.ModeBatch, Fetch: o.fetch, Emit: o.emit}
	if o.log != "" {
		cfg.Mode = emit.ModeReplay
	}
	d, err := batch.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return a.showDoc(plan, d, o.emit)
}

func (o batchOptions) source(plan *flow.Plan) sources.Source {
	if o.log != "" {
		return logfile.NewSource(o.log, logfile.SourceConfig{Partitions: o.partitions})
	}
	return snapshot.New(snapshot.Config{Path: o.snapshot, Fields: snapshot.FieldsOf(plan)})
}
