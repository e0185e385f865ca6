package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/parity"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks/emit"
)

type parityOptions struct {
	flow, snapshot, faults, via, out string
	seeds                            int
	seed                             uint64
	partitions                       int32
	fetch                            int
	crashEvery                       int64
	summary                          bool
	parityRunFlags
}

func (a *app) parityCommand() *cobra.Command {
	var o parityOptions
	cmd := &cobra.Command{
		Use:   "parity",
		Short: "Run a flow as batch, replay and stream and compare values, hash and counts",
		Long: "Without arguments it runs the embedded fixture. EQUAL_TO_BATCH_GOLDEN: all three give the same. EQUAL_EXPLAINED: replay and stream\n" +
			"are equal, and batch is too once the events are left out or revised that the stream recorded as late, lost or revised.\n" +
			"DIFFERENT: exit code 4, with the first event that differs.\n" +
			"With --run a run that has ended is compared with a replay of its log, in which the recorded decisions of operators are made again.",
		Example: "  weir parity\n  weir parity --flow flow.yaml --snapshot data.jsonl --faults faults.json --partitions 8 --crash-every 1000\n  weir parity --seeds 500\n  weir parity --run ticks-1 --store sqlite:weir.db --log arrivals.log --flow flow.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.parity(cmd.Context(), o, cmd.Flags().Changed("seed"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.flow, "flow", "", "flow file; the fixture's by default")
	f.StringVar(&o.snapshot, "snapshot", "", "snapshot, JSON Lines or CSV; the fixture's by default")
	f.StringVar(&o.faults, "faults", "", "fault schedule; the fixture's by default, none with --snapshot")
	f.IntVar(&o.seeds, "seeds", 0, "compare under this many random schedules, each with its own crashes, partitions and fetch sizes")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the build, or the first of --seeds")
	f.Int32Var(&o.partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.fetch, "fetch", 0, "records of one batch at most (default 1024)")
	f.Int64Var(&o.crashEvery, "crash-every", 0, "crash the stream again and again, each time after at least so many records")
	f.StringVar(&o.via, "via", "", "how the stream gets the log: broker (embedded, over the Kafka protocol) or log (from the file); with --seeds the default is log")
	f.StringVar(&o.out, "out", ".", "folder for the files of a seed that failed")
	f.BoolVar(&o.summary, "summary", false, "leave values and events out of the --json document")
	o.addRun(cmd)
	return cmd
}

func (o *parityOptions) check() error {
	switch {
	case o.partitions < 1 || o.partitions > 1000:
		return usagef("--partitions must be between 1 and 1000, not %d", o.partitions)
	case o.fetch < 0 || o.crashEvery < 0 || o.seeds < 0:
		return usagef("--fetch, --crash-every and --seeds must not be negative")
	case o.via != "" && o.via != "broker" && o.via != "log":
		return usagef("--via is broker or log, not %q", o.via)
	case o.snapshot != "" && o.flow == "":
		return usagef("--snapshot needs --flow: say which flow to run over it")
	case o.seeds > 0 && o.faults != "":
		return usagef("--seeds makes its own fault schedules: leave --faults out")
	}
	return o.checkRun()
}

func (a *app) parity(ctx context.Context, o parityOptions, seedGiven bool) error {
	if err := o.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "weir-parity-")
	if err != nil {
		return codes.New(codes.OutputUnwritable, "a temporary folder: %w", err)
	}
	a.cleanUp = func() { os.RemoveAll(dir) }
	defer a.cleanUp()
	if o.run != "" {
		return a.parityOfRun(ctx, o, dir)
	}
	cfg, err := a.parityConfig(o, dir, seedGiven)
	if err != nil {
		return err
	}
	if o.seeds > 0 {
		return a.paritySeeds(ctx, o, cfg)
	}
	report, err := parity.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if a.json {
		err = a.document(report.Document(!o.summary))
	} else {
		a.printf("%s\n%s\n", reportTable(report), verdictText(report))
	}
	if err == nil && report.Verdict == parity.Different {
		return outcome(codes.ExitDifference)
	}
	return err
}

func (a *app) parityConfig(o parityOptions, dir string, seedGiven bool) (parity.Config, error) {
	cfg, err := fixtureConfig(dir)
	if err != nil {
		return cfg, err
	}
	cfg.Partitions, cfg.Fetch, cfg.CrashEvery, cfg.Log = o.partitions, o.fetch, o.crashEvery, a.quiet()
	if o.flow != "" {
		if cfg.Plan, err = a.loadFlow(o.flow); err != nil {
			return cfg, err
		}
	}
	if o.snapshot != "" {
		cfg.Snapshot, cfg.Schedule, cfg.Seed = o.snapshot, nil, 0
	}
	if o.faults != "" {
		if cfg.Schedule, err = loadSchedule(o.faults); err != nil {
			return cfg, err
		}
		cfg.Seed = cfg.Schedule.Seed
	}
	if seedGiven {
		cfg.Seed = o.seed
	}
	if o.via == "log" || o.via == "" && o.seeds > 0 {
		cfg.Stream = parity.ViaLog
	}
	return cfg, nil
}

// scheduleLimit is far more than a schedule of a million faults.
const scheduleLimit = 512 << 20

func loadSchedule(path string) (*replay.Schedule, error) {
	src, err := readFile("fault schedule", path, scheduleLimit)
	if err != nil {
		return nil, err
	}
	return replay.ParseSchedule(path, src)
}

func (a *app) paritySeeds(ctx context.Context, o parityOptions, cfg parity.Config) error {
	s := parity.Sweep{Config: cfg, First: o.seed, Count: o.seeds, Generate: o.snapshot == "", OwnFlow: o.flow != "", Out: o.out}
	if a.terminal() {
		s.Progress = func(done, total int) { a.notice("\rseeds %d/%d ", done, total) }
		defer func() { a.notice("\n") }()
	}
	summary, err := s.Run(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.document(summary.Document())
	} else {
		a.printf("%s", summary.Text())
	}
	if err == nil && len(summary.Failures) > 0 {
		return outcome(codes.ExitDifference)
	}
	return err
}

// reportTable shows the three modes side by side.
func reportTable(r parity.Report) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "mode\tconsumed\tfiltered\tomitted\tduplicates\tlate\tvalues\tvalues_hash\n")
	for _, d := range r.Modes() {
		row(w, d.Mode, d)
	}
	if r.Corrected != nil {
		row(w, "batch, corrected", *r.Corrected)
	}
	w.Flush()
	return b.String()
}

func row(w *tabwriter.Writer, name string, d emit.Doc) {
	c := d.Counts
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", name, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, valuesText(d), short(d.ValuesHash))
}

// valuesText shows the first few values.
func valuesText(d emit.Doc) string {
	const most = 8
	if !d.Complete || len(d.Values) > most {
		return fmt.Sprint(d.Rows)
	}
	parts := make([]string, len(d.Values))
	for i, v := range d.Values {
		parts[i] = "null"
		if v != nil {
			parts[i] = fmt.Sprint(v)
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func short(hash string) string {
	const shown = len("sha256:") + 12
	if len(hash) > shown {
		return hash[:shown] + "…"
	}
	return hash
}

func verdictText(r parity.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", r.Verdict)
	switch r.Verdict {
	case parity.EqualToBatch:
		fmt.Fprintf(&b, "%s with %s gave what the batch gave.", count(r.Arrivals, "arrival"), count(r.FaultsApplied, "fault"))
	case parity.EqualExplained:
		fmt.Fprintf(&b, "the whole difference to batch is explained by %s that the stream recorded:\n%s", count(len(r.Explained), "exception"), explained(r))
	default:
		fmt.Fprintf(&b, "\n  %s\n%s", strings.Join(r.Reasons, "\n  "), divergence(r.Divergence))
	}
	if r.Crashes > 0 {
		fmt.Fprintf(&b, "\nThe stream was crashed %s on the way.", count(r.Crashes, "time"))
	}
	return printable(b.String())
}

func explained(r parity.Report) string {
	const most = 10
	var lines []string
	for _, x := range r.Explained[:min(most, len(r.Explained))] {
		lines = append(lines, "  "+x.String())
	}
	if more := len(r.Explained) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more (--json lists all)", more))
	}
	return strings.Join(lines, "\n")
}

func divergence(d *parity.Divergence) string {
	if d == nil {
		return ""
	}
	side := func(name, event, value string) string {
		if event == "" {
			return fmt.Sprintf("    %s has no event there\n", name)
		}
		return fmt.Sprintf("    %s: event %s, value %s\n", name, event, value)
	}
	text := fmt.Sprintf("  first difference, at index %d:\n", d.Index) + side(d.Left, d.LeftEvent, d.LeftValue) + side(d.Right, d.RightEvent, d.RightValue)
	if d.CauseIsKnown {
		return text + "    cause: " + d.Cause + "\n"
	}
	return text + "    cause: not known\n"
}
