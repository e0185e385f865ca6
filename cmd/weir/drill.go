package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/atomicfile"
	drills "github.com/weirstream/weir/internal/drill"
	"github.com/weirstream/weir/record"
)

// drillOptions are the flags of weir drill.
type drillOptions struct {
	drills.Config
	drillSinkFlags
	connection    brokerFlags
	report, scope string
	keep          bool
}

func (a *app) drillCommand() *cobra.Command {
	var o drillOptions
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Prove the promises with real processes that are stopped, killed and woken",
		Long: "Runs daemons of this program over a topic and fails them on purpose: an intruder, an owner that stalls and wakes, SIGKILL at every failpoint,\n" +
			"SIGSTOP inside the transaction of a commit, a hand-over, twins with one owner id, a wrong clock, a restored checkpoint. A reader of its own\n" +
			"watches the store meanwhile. Each check is printed as PASS or FAIL with its evidence; exit 0, or 4 when one did not hold or a fault did not happen.\n" +
			"Without --store and --brokers it needs nothing installed and leaves nothing behind. On a store or broker that is given, its runs (drill-ID-…)\n" +
			"and topics (PREFIX-ID-…) stay. With --records it is one long run with an owner, a stand-by and --faults failpoints.",
		Example: "  weir drill\n  weir drill --store env:WEIR_STORE --brokers 127.0.0.1:9092 --topic-prefix drill --json --report drill.json\n" +
			"  weir drill --records 100000 --partitions 4 --faults 12",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.drill(cmd.Context(), o)
		},
	}
	o.addDrillSinks(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Store, "store", "", "store: sqlite:PATH, postgres://…, env:NAME or file:PATH (default: temporary SQLite files)")
	o.connection.addBrokers(cmd, "broker addresses, HOST:PORT, separated by commas (default: an embedded broker in its own process)")
	f.StringVar(&o.TopicPrefix, "topic-prefix", "weir-drill", "start of the names of the topics that are made")
	f.DurationVar(&o.TTL, "ttl", 6*time.Second, "lease of the parts with an owner and a next one; the many-failpoints parts take 2 s, or this if it is shorter")
	f.DurationVar(&o.Grace, "grace", time.Second, "added to every bound on time, for a machine that does much else")
	f.Int64Var(&o.Records, "records", 0, "run the long drill, over a generated topic of this many records")
	f.Int32Var(&o.Partitions, "partitions", 4, "with --records: partitions of the topic")
	f.IntVar(&o.Faults, "faults", 12, "with --records: failpoints that kill; half as many stop")
	f.StringVar(&o.scope, "scope", scopeRun, "with --records: run, or partition for daemons that share the run out over a consumer group, and join and leave meanwhile")
	f.IntVar(&o.Moves, "moves", 10, "with --scope partition: how often a daemon joins or leaves, beside the faults")
	f.IntVar(&o.Parallel, "parallel", 0, "parts that run at a time (default: four for each processor)")
	f.StringVar(&o.report, "report", "", "write the report here, as canonical JSON")
	f.BoolVar(&o.keep, "keep", false, "keep the folder with stores, results and the log of every process")
	f.StringSliceVar(&o.Only, "only", nil, "run these parts only, such as owners or effect")
	return cmd
}

func (o *drillOptions) check() error {
	switch {
	case o.Records < 0 || o.Parallel < 0 || o.Faults < 1 || o.Partitions < 1:
		return usagef("--records and --parallel must not be negative, and --faults and --partitions must be at least 1")
	case o.Records > 0 && o.Records < 1000:
		return usagef("--records must be at least 1000: every failpoint needs its share")
	case o.scope != scopeRun && o.scope != scopePartition:
		return usagef("--scope must be run or partition, not %q", o.scope)
	case o.scope == scopePartition && (o.Records == 0 || o.Moves < 1):
		return usagef("--scope partition is a long drill: give --records, and --moves of at least 1")
	case o.scope == scopePartition && o.Partitions < 4:
		return usagef("--scope partition has four daemons at times, each with a partition of its own: --partitions must be at least 4, not %d", o.Partitions)
	case o.Records > 0 && o.Records < 50*int64(o.Faults):
		return usagef("--records %d are too few for %d faults: every failpoint needs 50 of its own", o.Records, o.Faults)
	case o.Grace <= 0:
		return usagef("--grace must be more than 0, not %s", o.Grace)
	case o.TTL < 2*minTTL || o.TTL > time.Hour:
		return codes.New(codes.ConfigInvalid, "--ttl %s is not between %s and 1h", o.TTL, 2*minTTL)
	}
	if len(o.kinds) > 0 && o.scope == scopePartition {
		return usagef("--sink belongs to --scope run: a drill of --scope partition compares journals alone")
	}
	if err := o.checkDrillSinks(); err != nil {
		return err
	}
	return o.connection.checkBrokers()
}

func (a *app) drill(ctx context.Context, o drillOptions) error {
	var err error
	o.Apart = o.scope == scopePartition
	if o.Self, err = os.Executable(); err != nil {
		return codes.New(codes.Internal, "the drill does not find its own program: %w", err)
	}
	if err := writable(o.report); err != nil {
		return err
	}
	if o.Store, err = dereference(o.Store); err != nil {
		return err
	}
	o.Brokers, o.BrokerFlags = o.connection.brokers, o.connection.args()
	if o.Security, err = o.connection.security(); err != nil {
		return err
	}
	dir, remove, err := drills.Folder(o.keep)
	if err != nil {
		return err
	}
	defer remove()
	o.Dir = dir
	o.Logger = a.quiet()
	if len(o.kinds) > 0 {
		o.Targets = o.lay
		defer o.endDrillSinks()
	}
	o.Open = func(ctx context.Context, store string) (control.ControlStore, error) { return openStore(ctx, store) }
	if !a.json {
		o.OnCheck = func(c drills.Check) { a.printf("%s\n", printable(c.String())) }
	}
	o.OnStart = func(end func()) {
		a.cleanUp = func() {
			end()
			remove()
		}
	}
	if drillShortTTL > 0 {
		o.ShortTTL = min(o.TTL, drillShortTTL)
	}
	report, err := drills.Run(ctx, o.Config)
	if !o.keep {
		report.Logs = ""
	}
	if err != nil {
		return err
	}
	return a.drilled(report, o)
}

// drilled tells how the drill ended.
func (a *app) drilled(r *drills.Report, o drillOptions) error {
	doc := r.Document()
	if o.report != "" {
		text, err := record.AppendJSON(nil, doc)
		if err != nil {
			return codes.New(codes.Internal, "the report cannot be written as JSON: %w", err)
		}
		if err := atomicfile.Write(o.report, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	failed := r.Failed() > 0 || r.Fired() < len(r.Planned)
	if a.json {
		if err := a.document(doc); err != nil {
			return err
		}
	} else {
		a.printf("\n%d of %d checks passed, %d of %d faults happened, in %.1f s\n", len(r.Checks)-r.Failed(), len(r.Checks), r.Fired(), len(r.Planned), r.Took.Seconds())
		if o.keep {
			a.printf("everything is in %s\n", o.Dir)
		}
	}
	if !failed {
		return nil
	}
	a.notice("weir: %s: %d checks did not hold, %d faults did not happen\n", codes.DrillFailed.Name, r.Failed(), len(r.Planned)-r.Fired())
	return outcome(codes.DrillFailed.Exit)
}

// drillShortTTL is the life of the leases of a drill that has many, for tests whose processes are slow. Zero is the drill's own.
var drillShortTTL time.Duration
