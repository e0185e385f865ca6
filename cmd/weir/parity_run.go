package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/parity"
	"github.com/weirstream/weir/sources/logfile"
)

// parityRunFlags name a run that has ended, and the log that it has read.
type parityRunFlags struct{ run, store, log string }

func (o *parityRunFlags) addRun(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "compare this run, which has ended, with a replay of the log that it has read; needs --store, --log and --flow")
	f.StringVar(&o.store, "store", "", "with --run: the store of the run, sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH")
	f.StringVar(&o.log, "log", "", "with --run: the arrival log that the run has read, from the file or as it was published")
}

func (o *parityOptions) checkRun() error {
	switch {
	case o.run == "" && (o.store != "" || o.log != ""):
		return usagef("--store and --log go with --run")
	case o.run == "":
		return nil
	case o.store == "" || o.log == "" || o.flow == "":
		return usagef("--run needs --store, --log and --flow: where the run is, what it has read, and which flow it ran")
	case o.snapshot != "" || o.faults != "" || o.seeds > 0 || o.via != "" || o.crashEvery > 0:
		return usagef("--run compares what has run already: leave --snapshot, --faults, --seeds, --via and --crash-every out")
	}
	return nil
}

// parityOfRun compares a run that has ended with a replay of its log, under the decisions that operators made meanwhile.
func (a *app) parityOfRun(ctx context.Context, o parityOptions, dir string) error {
	plan, err := a.loadFlow(o.flow)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, o.store)
	if err != nil {
		return err
	}
	defer store.Close()
	partitions := 0
	err = store.Snapshot(ctx, o.run, func(v control.JournalView) error {
		partitions = len(v.State().Header.Partitions)
		return nil
	})
	if err != nil {
		return err
	}
	r, err := parity.OfRun(ctx, parity.RunConfig{
		Plan: plan, Store: store, Run: o.run, Dir: dir, Source: logfile.NewSource(o.log, logfile.SourceConfig{Partitions: int32(partitions)}),
	})
	if err != nil {
		return err
	}
	if a.json {
		err = a.document(runParityDocument(r, !o.summary))
	} else {
		a.printf("%s", runParityText(o.run, r))
	}
	if err == nil && len(r.Reasons) > 0 {
		return outcome(codes.ExitDifference)
	}
	return err
}

// The verdicts on a run.
const (
	equalToReplay = "EQUAL_TO_REPLAY"
	notEqual      = "DIFFERENT"
)

func runVerdict(r parity.RunReport) string {
	if len(r.Reasons) > 0 {
		return notEqual
	}
	return equalToReplay
}

func runParityDocument(r parity.RunReport, rows bool) map[string]any {
	reasons, decided := make([]any, len(r.Reasons)), make([]any, len(r.Decisions))
	for i, s := range r.Reasons {
		reasons[i] = s
	}
	for i, d := range r.Decisions {
		decided[i] = map[string]any{"partition": d.Partition, "position": d.Position.String(), "kind": d.Kind, "detail": d.Detail}
	}
	return map[string]any{"verdict": runVerdict(r), "replay": r.Replay.Document(rows), "stream": r.Stream.Document(rows), "decisions": decided, "reasons": reasons}
}

func runParityText(run string, r parity.RunReport) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "mode\tconsumed\tfiltered\tomitted\tduplicates\tlate\tvalues\tvalues_hash\n")
	row(w, "replay", r.Replay)
	row(w, "stream", r.Stream)
	w.Flush()
	fmt.Fprintf(&b, "%s: ", runVerdict(r))
	if len(r.Reasons) > 0 {
		fmt.Fprintf(&b, "\n  %s\n", strings.Join(r.Reasons, "\n  "))
		return printable(b.String())
	}
	fmt.Fprintf(&b, "run %s gave what a replay of its log gives; %s made again in it.\n", run, countWere(len(r.Decisions), "recorded decision"))
	return printable(b.String())
}

func countWere(n int, what string) string {
	if n == 1 {
		return "1 " + what + " was"
	}
	return fmt.Sprintf("%d %ss were", n, what)
}
