package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/server"
)

// localPrincipal is who submits from the command line, as on a server without tokens.
const localPrincipal = "local"

// storeFlag adds --store to a command, which opens it for run. Only submit makes a store that is not there: to others a store that does
// not exist is a mistake in its name.
func (a *app) storeFlag(cmd *cobra.Command, run func(ctx context.Context, store control.ControlStore, args []string) error) *cobra.Command {
	var store string
	cmd.Flags().StringVar(&store, "store", "", "store of the control plane: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if store == "" {
			return usagef("--store is missing: say where the control plane is kept, such as --store sqlite:weir.db")
		}
		if files := storeFiles(store); len(files) > 0 && cmd.Name() != "submit" && missing(files[0].path) {
			return codes.New(codes.FileMissing, "there is no store at %s; `weir runs submit`, `weir run` and `weir batch worker` make one", files[0].path)
		}
		s, err := openStore(cmd.Context(), store)
		if err != nil {
			return err
		}
		defer s.Close()
		return run(cmd.Context(), s, args)
	}
	return cmd
}

// group is a command that only holds others.
func (a *app) group(use, short, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: cobra.NoArgs, RunE: a.needsSubcommand}
	cmd.AddCommand(children...)
	return cmd
}

func (a *app) runsCommand() *cobra.Command {
	return a.group("runs", "Submit, show and cancel batch runs", "  weir runs list --store sqlite:weir.db",
		a.runsSubmitCommand(), a.runsListCommand(), a.runsShowCommand(), a.runsCancelCommand())
}

func (a *app) runsSubmitCommand() *cobra.Command {
	var flow, snapshot, key, flows, snapshots string
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Ask for a run of a registered flow over a registered snapshot",
		Long: "Admits a run: the same --key with the same flow and snapshot is the same run, however often it is asked for; with others it is refused.\n" +
			"Without --key every call asks for a new run. With --flows and --snapshots the names are checked before.",
		Example: "  weir runs submit --store sqlite:weir.db --flow closing-ema --snapshot monday --key monday-1",
		Args:    cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&flow, "flow", "", "name of the flow (required)")
	f.StringVar(&snapshot, "snapshot", "", "name of the snapshot (required)")
	f.StringVar(&key, "key", "", "idempotency key; a new one by default")
	f.StringVar(&flows, "flows", "", "folder of flows, to check the name")
	f.StringVar(&snapshots, "snapshots", "", "folder of snapshots, to check the name")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, _ []string) error {
		if flow == "" || snapshot == "" {
			return usagef("--flow and --snapshot are needed: the names to run")
		}
		names := checkNames(flows, snapshots, flow, snapshot)
		switch {
		case names != nil && !codes.Has(names, codes.NameUnknown):
			return names
		case key == "" && f.Changed("key"):
			return usagef("--key is empty: the same request would be admitted each time; leave it out if that is meant")
		case key == "":
			key = "cli-" + rand.Text()
		}
		body, err := record.AppendJSON(nil, map[string]any{"flow": flow, "snapshot": snapshot})
		if err != nil {
			return codes.New(codes.RequestInvalid, "the names cannot be used: %w", err)
		}
		run, created, err := server.Admit(ctx, store, control.Request{Principal: localPrincipal, Operation: server.Operation, Key: key, Body: body, Flow: flow, Snapshot: snapshot}, names)
		if err != nil {
			return err
		}
		if a.json {
			doc := server.Document(run)
			doc["created_now"], doc["key"] = created, key
			return a.document(doc)
		}
		said := "was admitted before"
		if created {
			said = "admitted"
		}
		a.printf("%s %s, %s\n", run.ID, said, run.Phase)
		return nil
	})
}

func checkNames(flows, snapshots, flow, snapshot string) error {
	if (flows == "") != (snapshots == "") {
		return usagef("give both --flows and --snapshots, or neither")
	}
	if flows == "" {
		if err := catalog.CheckName("flow", flow); err != nil {
			return err
		}
		return catalog.CheckName("snapshot", snapshot)
	}
	names, err := catalog.Open(flows, snapshots)
	if err != nil {
		return err
	}
	defer names.Close()
	if err := names.CheckFlow(flow); err != nil {
		return err
	}
	return names.CheckSnapshot(snapshot)
}

func (a *app) runsListCommand() *cobra.Command {
	var f control.RunFilter
	var phase string
	cmd := &cobra.Command{Use: "list", Short: "List runs, newest first", Example: "  weir runs list --store sqlite:weir.db --phase FAILED", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&phase, "phase", "", "QUEUED, RUNNING, SUCCEEDED, FAILED or CANCELLED")
	cmd.Flags().StringVar(&f.Principal, "principal", "", "who asked")
	cmd.Flags().StringVar(&f.Cursor, "cursor", "", "where the page before ended")
	cmd.Flags().IntVar(&f.Limit, "limit", control.DefaultPage, "runs of a page")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, _ []string) error {
		if f.Limit < 1 || f.Limit > control.MaxPage {
			return usagef("--limit must be between 1 and %d, not %d", control.MaxPage, f.Limit)
		}
		var err error
		if f.Phase, err = server.ParsePhase(phase); err != nil {
			return usagef("--phase: %v", err)
		}
		runs, next, err := store.ListRuns(ctx, f)
		if err != nil {
			return err
		}
		if a.json {
			rows := make([]any, len(runs))
			for i, r := range runs {
				rows[i] = server.Document(r)
			}
			return a.document(map[string]any{"runs": rows, "next": textOrNull(next)})
		}
		a.table("run\tphase\tflow\tsnapshot\tprincipal\tcreated", len(runs), func(w io.Writer, i int) {
			r := runs[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Phase, r.Flow, r.Snapshot, r.Principal, seconds(r.Created))
		})
		if next != "" {
			a.printf("more: --cursor %s\n", next)
		}
		return nil
	})
}

func (a *app) runsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show one run, by its id or the beginning of it",
		Example: "  weir runs show run_3f9a --store sqlite:weir.db\n  weir runs show RUN --store sqlite:weir.db --json", Args: cobra.ExactArgs(1),
	}
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		r, err := findRun(ctx, store, args[0])
		if err != nil {
			return err
		}
		return a.showRun(r)
	})
}

func (a *app) runsCancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "Ask that a run not start; one that has started is not touched",
		Example: "  weir runs cancel RUN --store sqlite:weir.db", Args: cobra.ExactArgs(1),
	}
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		r, err := store.CancelRun(ctx, args[0])
		if err != nil {
			return err
		}
		if r.Phase != control.Queued {
			a.notice("weir: the run is %s; nothing was cancelled\n", r.Phase)
		}
		return a.showRun(r)
	})
}

func (a *app) showRun(r control.BatchRun) error {
	if a.json {
		return a.document(server.Document(r))
	}
	a.printf("run        %s\nphase      %s\nflow       %s\nsnapshot   %s\nprincipal  %s\ncreated    %s\nupdated    %s\n", r.ID, r.Phase, printable(r.Flow), printable(r.Snapshot), printable(r.Principal), seconds(r.Created), seconds(r.Updated))
	if r.CancelRequested {
		a.printf("cancelling asked\n")
	}
	for _, ref := range r.ResultRefs {
		a.printf("result     %s\n", ref)
	}
	if r.Error != "" {
		a.printf("error      %s\n", printable(r.Error))
	}
	return nil
}

func (a *app) leaseCommand() *cobra.Command {
	list := a.storeFlag(&cobra.Command{Use: "list", Short: "List leases", Example: "  weir lease list --store sqlite:weir.db", Args: cobra.NoArgs},
		func(ctx context.Context, store control.ControlStore, _ []string) error {
			leases, err := store.ListLeases(ctx)
			if err != nil {
				return err
			}
			return a.showLeases(leases)
		})
	show := a.storeFlag(&cobra.Command{Use: "show NAME", Short: "Show one lease", Example: "  weir lease show run/RUN --store sqlite:weir.db", Args: cobra.ExactArgs(1)},
		func(ctx context.Context, store control.ControlStore, args []string) error {
			l, ok, err := store.LookupLease(ctx, args[0])
			if err != nil {
				return err
			}
			if !ok {
				return codes.New(codes.LeaseUnknown, "there is no lease %q", args[0])
			}
			return a.showLeases([]control.LeaseInfo{l})
		})
	return a.group("lease", "Show who may act under which name, until when", "  weir lease list --store sqlite:weir.db", list, show, a.leaseRefusedCommand())
}

func (a *app) showLeases(leases []control.LeaseInfo) error {
	if a.json {
		rows := make([]any, len(leases))
		for i, l := range leases {
			rows[i] = map[string]any{"name": l.Name, "owner": l.Owner, "fence_token": uint64(l.Token), "until": stampOrNull(l.Until), "valid": l.Valid}
		}
		return a.document(map[string]any{"leases": rows})
	}
	a.table("lease\towner\ttoken\tuntil\tvalid", len(leases), func(w io.Writer, i int) {
		l := leases[i]
		until := "released"
		if !l.Until.IsZero() {
			until = seconds(l.Until)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%t\n", l.Name, l.Owner, l.Token, until, l.Valid)
	})
	return nil
}

func (a *app) outboxCommand() *cobra.Command {
	var delivered bool
	var limit int
	listCmd := &cobra.Command{Use: "list", Short: "List events that are not delivered, in order", Example: "  weir outbox list --store sqlite:weir.db", Args: cobra.NoArgs}
	listCmd.Flags().BoolVar(&delivered, "delivered", false, "list the delivered ones too")
	listCmd.Flags().IntVar(&limit, "limit", 100, "events listed at most")
	list := a.storeFlag(listCmd, func(ctx context.Context, store control.ControlStore, _ []string) error {
		events, err := store.ListEvents(ctx, delivered, limit)
		if err != nil {
			return err
		}
		return a.showEvents(events)
	})
	var ignore bool
	releaseCmd := &cobra.Command{
		Use: "release ID...", Short: "Make claimed events pending again", Example: "  weir outbox release 17 18 --store sqlite:weir.db", Args: cobra.MinimumNArgs(1),
		Long: "Makes claimed events pending again, so that another worker takes them. The runs themselves are protected by their leases.\n--ignore marks them delivered without an effect instead.",
	}
	releaseCmd.Flags().BoolVar(&ignore, "ignore", false, "mark the events delivered, without an effect")
	release := a.storeFlag(releaseCmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		ids := make([]int64, len(args))
		for i, arg := range args {
			if _, err := fmt.Sscanf(arg+"\n", "%d\n", &ids[i]); err != nil || ids[i] < 1 {
				return usagef("%q is not the id of an event", arg)
			}
		}
		if err := store.ReleaseEvents(ctx, "", ids, ignore); err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"released": len(ids), "ignored": ignore})
		}
		a.printf("%s released\n", count(len(ids), "event"))
		return nil
	})
	return a.group("outbox", "Show and release the events that workers take", "  weir outbox list --store sqlite:weir.db", list, release)
}

func (a *app) showEvents(events []control.OutboxEvent) error {
	if a.json {
		rows := make([]any, len(events))
		for i, e := range events {
			rows[i] = map[string]any{"id": e.ID, "kind": e.Kind, "run": e.RunID, "attempt": e.Attempt, "claimant": textOrNull(e.Claimant), "claimed": stampOrNull(e.ClaimedAt), "delivered": e.Delivered, "created": stamp(e.Created)}
		}
		return a.document(map[string]any{"events": rows})
	}
	a.table("id\tkind\trun\tattempt\tstate", len(events), func(w io.Writer, i int) {
		e := events[i]
		state := "pending"
		switch {
		case e.Delivered:
			state = "delivered"
		case e.Claimant != "":
			state = "claimed by " + e.Claimant
		}
		fmt.Fprintf(w, "%d\t%s\t%.20s…\t%d\t%s\n", e.ID, e.Kind, e.RunID, e.Attempt, state)
	})
	return nil
}

func (a *app) reconcileCommand() *cobra.Command {
	var repair bool
	var stale time.Duration
	var staged stagingFlags
	cmd := &cobra.Command{
		Use:     "reconcile",
		Short:   "Look for damage in the control plane; mend it with --repair",
		Long:    "Looks for orphaned runs, events claimed and never delivered, and publications that are not what their digest says. A run whose lease is valid\nis left alone. Without --repair nothing is changed; a changed publication is never repaired.\nWith --staging, rows that were staged for results that will never be published are found too, and dropped with --repair. Exit code 4 when something is found and not mended.",
		Example: "  weir reconcile --store sqlite:weir.db\n  weir reconcile --store sqlite:weir.db --repair",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	cmd.Flags().DurationVar(&stale, "stale", time.Minute, "age from which a claim whose run has no lease counts as abandoned")
	staged.addStaging(cmd, false)
	cmd.PreRunE = func(*cobra.Command, []string) error { return staged.checkStaging() }
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, _ []string) error {
		found, err := store.Reconcile(ctx, repair, stale)
		if err == nil {
			found, err = staged.reconcile(ctx, store, repair, found)
		}
		if err != nil {
			return err
		}
		open := 0
		rows := make([]any, len(found))
		for i, d := range found {
			if !d.Repaired {
				open++
			}
			rows[i] = map[string]any{"kind": string(d.Kind), "run": textOrNull(d.RunID), "key": textOrNull(d.Key), "event": d.EventID, "detail": d.Detail, "repaired": d.Repaired}
		}
		if a.json {
			err = a.document(map[string]any{"damage": rows, "repaired": len(found) - open, "open": open})
		} else {
			if len(found) > 0 {
				a.table("kind\trun\tdetail\trepaired", len(found), func(w io.Writer, i int) {
					d := found[i]
					fmt.Fprintf(w, "%s\t%.20s\t%s\t%t\n", d.Kind, d.RunID, d.Detail, d.Repaired)
				})
			}
			a.printf("%d found, %d mended\n", len(found), len(found)-open)
		}
		if err == nil && open > 0 {
			return outcome(codes.ExitDifference)
		}
		return err
	})
}

// needsSubcommand is what a command says that only holds others.
func (a *app) needsSubcommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usagef("%s needs one of its commands: %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// table prints rows under a heading, or that there are none.
func (a *app) table(heading string, n int, row func(w io.Writer, i int)) {
	if n == 0 {
		a.printf("none\n")
		return
	}
	w := tabwriter.NewWriter(escaping{a.stdout}, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	for i := range n {
		row(w, i)
	}
	w.Flush()
}

// escaping writes text with the control characters that data may carry made visible.
type escaping struct{ io.Writer }

func (e escaping) Write(p []byte) (int, error) {
	_, err := io.WriteString(e.Writer, printable(string(p)))
	return len(p), err
}

func stamp(t time.Time) string { return record.EventTime(t.UnixNano()).String() }

// seconds is a moment for people, who need no nanoseconds.
func seconds(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func stampOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
