package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/control"
)

func (a *app) leaseRefusedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "refused [RUN]", Short: "List what the fence refused to stale owners",
		Long: "Lists the effects that were refused to processes whose lease had been taken over: nothing of them stands. Each is written by the process that was refused,\n" +
			"as soon as it goes on; of each lease the newest are kept. RUN names a run, with the runs that its partitions are; without it, all are listed.",
		Example: "  weir lease refused --store sqlite:weir.db\n  weir lease refused ticks-1 --store sqlite:weir.db --json", Args: cobra.MaximumNArgs(1),
	}
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		run := ""
		if len(args) == 1 {
			if run = args[0]; run == "" {
				return usagef("the run id is empty; leave it out to list what was refused to all")
			}
		}
		all, err := refusalsOf(ctx, store, run)
		if err != nil {
			return err
		}
		if a.json {
			rows := make([]any, len(all))
			for i, r := range all {
				rows[i] = map[string]any{"id": r.ID, "run": r.RunID, "lease": r.Lease, "owner": r.Owner, "fence_token": uint64(r.Token), "effect": r.Effect, "target": textOrNull(r.Target),
					"detail": r.Detail, "met_owner": textOrNull(r.MetOwner), "met_token": uint64(r.MetToken), "at": stampOrNull(r.At)}
			}
			return a.document(map[string]any{"refused": rows})
		}
		a.table("at\trun\towner\ttoken\teffect\ttarget\tmet\tits token", len(all), func(w io.Writer, i int) {
			r := all[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\n", seconds(r.At), cell(r.RunID), cell(r.Owner), r.Token, cell(r.Effect), cell(r.Target), cell(r.MetOwner), r.MetToken)
		})
		return nil
	})
}
