package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/control"
)

func (a *app) idleCommand() *cobra.Command {
	c := choice{}
	cmd := &cobra.Command{
		Use: "confirm RUN", Short: "Say that a partition is idle, so that it does not hold the watermark",
		Long: "A silent partition holds the merged watermark, since nobody knows whether its next record is on its way. This says that it is idle: a recorded decision,\n" +
			"which a replay makes again at the same place. Its next record brings it back. A producer can say the same in the log, with a record that has the\n" +
			"header weir-control: idle (or end, which ends the partition).",
		Example: "  weir idle confirm ticks-1 --store sqlite:weir.db --partition 2 --reason \"that exchange is closed today\" --apply", Args: cobra.ExactArgs(1),
	}
	c.add(cmd, " (required)")
	return a.group("idle", "Decide about partitions that are silent", "  weir idle confirm ticks-1 --store sqlite:weir.db --partition 2 --reason \"closed today\" --apply",
		a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
			c.Kind = control.ConfirmIdle
			return a.decide(ctx, store, args[0], c)
		}))
}

func (a *app) gapCommand() *cobra.Command {
	c := choice{}
	cmd := &cobra.Command{
		Use: "close RUN", Short: "Say that a missing sequence number will not come, so that it does not hold the watermark",
		Long: "Where a flow names a sequence field, a number that is missing holds the watermark of its partition until it comes, or until the flow's gap_hold has passed in\n" +
			"event time. This closes the whole run of missing numbers that holds the one that is named: a recorded decision, which a replay makes again.",
		Example: "  weir gap close ticks-1 --store sqlite:weir.db --partition 2 --key EURUSD --sequence 4711 --reason \"the feed skipped it\" --apply", Args: cobra.ExactArgs(1),
	}
	c.add(cmd, " (required)")
	cmd.Flags().StringVar(&c.Key, "key", "", "key that the number is missing of (required)")
	cmd.Flags().Int64Var(&c.Sequence, "sequence", 0, "the missing number")
	return a.group("gap", "Decide about numbers that are missing", "  weir gap close ticks-1 --store sqlite:weir.db --partition 2 --key EURUSD --sequence 4711 --reason \"skipped\" --apply",
		a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
			if c.Key == "" {
				return usagef("--key is missing: name the key that the number is missing of")
			}
			c.Kind = control.CloseGap
			return a.decide(ctx, store, args[0], c)
		}))
}

// decide leaves a choice about one partition.
func (a *app) decide(ctx context.Context, store control.ControlStore, runID string, c choice) error {
	if c.partition < 0 {
		return usagef("--partition is missing: name the partition")
	}
	c.Partition = int32(c.partition)
	state, err := runOf(ctx, store, runID, c.partition)
	if err != nil {
		return err
	}
	return a.intervene(ctx, store, state, c)
}
