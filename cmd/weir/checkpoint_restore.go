package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
)

const mendedUse = "the flow is another one than the checkpoint's: it reads records otherwise, computes the same, and takes up the state"

func (a *app) checkpointCheckCommand() *cobra.Command {
	var mended bool
	cmd := &cobra.Command{
		Use: "check-restore FLOW RUN EPOCH", Short: "Say whether a checkpoint can be restored under a flow, operator by operator",
		Long: "Tries everything that a restore does, and writes nothing: reads and hashes every blob, compares the flow file with the flow of the checkpoint, and\n" +
			"restores the state of every partition in memory. No broker is asked. Each operator has a verdict: OK, NEW, MISSING, TYPE CHANGED,\n" +
			"PARAMETERS CHANGED, INPUT CHANGED or STATE VERSION CHANGED.",
		Example: "  weir checkpoint check-restore flow.yaml ticks-1 42 --store sqlite:weir.db --artifacts artifacts", Args: cobra.ExactArgs(3),
	}
	cmd.Flags().BoolVar(&mended, "mended", false, mendedUse)
	return a.keptFlags(cmd, func(ctx context.Context, k kept, args []string) error {
		plan, err := a.loadFlow(args[0])
		if err != nil {
			return err
		}
		p, err := k.find(ctx, args[1], args[2])
		if err != nil {
			return err
		}
		check := checkpoint.CheckRestore
		if mended {
			check = checkpoint.CheckMended
		}
		r, err := check(ctx, k.blobs, p, plan)
		if err != nil {
			return err
		}
		if a.json {
			if err := a.document(restorableDocument(r, r.Problem)); err != nil {
				return err
			}
			return a.concluded(r.Problem)
		}
		a.showRestorable(r)
		if r.Problem == nil {
			a.printf("the checkpoint of %s at epoch %d can be restored\n", printable(p.RunID), p.Epoch)
		}
		return r.Problem
	})
}

func (a *app) checkpointRestoreCommand() *cobra.Command {
	var as, flowFile string
	var mended bool
	cmd := &cobra.Command{
		Use: "restore RUN EPOCH --as NEWRUN", Short: "Make a new run that goes on where a checkpoint stands",
		Long: "Makes a new run out of one checkpoint, which is named by run and epoch; none is taken by itself. The old run stays as it is: a journal never goes\n" +
			"back. Everything is checked before, as by `weir checkpoint check-restore`. The flow is the checkpoint's own unless --flow names the file.\n" +
			"The new run has the results of the old one up to that epoch; start it with `weir run FLOW --run-id NEWRUN`. With --mended the flow may be another one, which\n" +
			"reads records otherwise and computes the same of them: what was set aside can then be replayed in the new run.",
		Example: "  weir checkpoint restore ticks-1 42 --as ticks-2 --store sqlite:weir.db --artifacts artifacts", Args: cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&as, "as", "", "run id of the new run (required)")
	cmd.Flags().StringVar(&flowFile, "flow", "", "flow file; the checkpoint has to be one of this flow, but for --mended")
	cmd.Flags().BoolVar(&mended, "mended", false, mendedUse+" (needs --flow)")
	return a.keptFlags(cmd, func(ctx context.Context, k kept, args []string) error {
		if as == "" {
			return usagef("--as is missing: a checkpoint is restored as a new run; name it")
		}
		if err := ownName("--as", as); err != nil && !group.IsPart(args[0]) {
			return err
		}
		epoch, err := parseEpoch(args[1])
		switch {
		case err != nil:
			return err
		case mended && flowFile == "":
			return usagef("--mended needs --flow: name the file of the mended flow")
		}
		var plan *flow.Plan
		if flowFile != "" {
			if plan, err = a.loadFlow(flowFile); err != nil {
				return err
			}
		}
		r := checkpoint.Restorer{Store: k.store, Blobs: k.blobs, Plan: plan, Mended: mended}
		found, err := r.Restore(ctx, args[0], epoch, as)
		if found == nil || err != nil && codes.Of(err) == nil {
			return err
		}
		if a.json {
			doc := restorableDocument(found, err)
			doc["as"], doc["restored"] = as, err == nil
			if err := a.document(doc); err != nil {
				return err
			}
			return a.concluded(err)
		}
		if err != nil {
			return err
		}
		a.printf("run %s stands where run %s stood at epoch %d; start it with `weir run` and --run-id\n", printable(as), printable(args[0]), epoch)
		return nil
	})
}

func restorableDocument(r *checkpoint.Restorable, err error) map[string]any {
	parts := make([]any, len(r.Partitions))
	for i, p := range r.Partitions {
		parts[i] = map[string]any{"partition": p.Partition, "committed": p.Committed, "blobs": p.Blobs, "bytes": p.Bytes,
			"keys": p.Keys, "ids": p.IDs, "waiting": p.Waiting, "error": errorDocument(p.Err)}
	}
	operators := make([]any, len(r.Operators))
	for i, o := range r.Operators {
		operators[i] = map[string]any{"name": o.Name, "verdict": string(o.Verdict), "was": textOrNull(o.Was), "is": textOrNull(o.Is)}
	}
	doc := map[string]any{"run": r.Pointer.RunID, "epoch": r.Pointer.Epoch, "ok": err == nil, "error": errorDocument(err), "flow": nil,
		"checkpoint_flow": r.Pointer.Fingerprint, "operators": operators, "settings": changes(r.Settings), "partitions": parts}
	if r.Plan != nil {
		doc["flow"] = r.Plan.Fingerprint
	}
	return doc
}

func (a *app) showRestorable(r *checkpoint.Restorable) {
	if len(r.Operators) > 0 {
		a.table("operator\tverdict\twas\tis", len(r.Operators), func(w io.Writer, i int) {
			o := r.Operators[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cell(o.Name), o.Verdict, cell(o.Was), cell(o.Is))
		})
	}
	for _, c := range r.Settings {
		a.printf("%s: was %s, is %s\n", shown(c.What), shown(c.Was), shown(c.Is))
	}
	if len(r.Partitions) > 0 {
		a.table("partition\tverdict\tblobs\tbytes\tkeys\tids\twaiting", len(r.Partitions), func(w io.Writer, i int) {
			p := r.Partitions[i]
			verdict := "OK"
			switch {
			case p.Err != nil:
				verdict = "REFUSED"
			case !p.Committed:
				verdict = "nothing committed yet"
			}
			fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\t%d\t%d\n", p.Partition, verdict, p.Blobs, p.Bytes, p.Keys, p.IDs, p.Waiting)
		})
	}
}
