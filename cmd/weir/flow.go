package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
)

// flowLimit is more than any flow file may hold; the parser's own limit is lower and names itself.
const flowLimit = 4 << 20

// loadFlow reads and compiles a flow file.
func (a *app) loadFlow(path string) (*flow.Plan, error) {
	src, err := readFile("flow", path, flowLimit)
	if err != nil {
		return nil, err
	}
	return flow.Parse(path, src, nil)
}

func (a *app) lintCommand() *cobra.Command {
	var o lintFlags
	cmd := &cobra.Command{
		Use:   "lint FLOW...",
		Short: "Check flow files: every error with line, column and cure",
		Long: "Checks flow files without running them. With --connect it also looks at the targets of their sinks: whether each is there, fits and may be written by us.\n" +
			"Nothing is changed there. The exit code is that of the first thing that is wrong.",
		Example: "  weir lint flow.yaml\n  weir lint --json flow.yaml\n  weir lint --connect --brokers 127.0.0.1:9092 flow.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.lint(cmd.Context(), args, &o) },
	}
	cmd.Flags().BoolVar(&o.connect, "connect", false, "look at the targets of the flow's sinks too")
	o.addBrokers(cmd, "with --connect: brokers of the sinks that name none, HOST:PORT, separated by commas")
	return cmd
}

func (a *app) lint(ctx context.Context, files []string, o *lintFlags) error {
	if !o.connect && o.brokers != "" {
		return usagef("--brokers goes with --connect")
	}
	if err := o.checkBrokers(); err != nil {
		return err
	}
	var reports []any
	bad, unfit := 0, error(nil)
	for _, file := range files {
		plan, err := a.loadFlow(file)
		var list *flow.Errors
		switch {
		case err == nil:
			report := map[string]any{"file": file, "ok": true, "fingerprint": plan.Fingerprint, "errors": []any{}}
			reports = append(reports, report)
			if err := a.lintPlaces(file, plan, report); err != nil {
				unfit = cmp.Or(unfit, err)
				continue
			}
			if !a.json {
				a.printf("%s: ok (%s)\n", file, plan.Fingerprint)
			}
			if o.connect {
				found, err := a.lookAt(ctx, plan, o)
				report["sinks"], report["ok"] = found, err == nil
				unfit = cmp.Or(unfit, err)
			}
		case errors.As(err, &list):
			bad++
			reports = append(reports, map[string]any{"file": file, "ok": false, "errors": lintRows(list)})
			if !a.json {
				a.notice("%s\n", printable(list.Error()))
			}
		default:
			return err
		}
	}
	if a.json {
		if err := a.document(map[string]any{"files": reports}); err != nil {
			return err
		}
	}
	switch {
	case bad > 0:
		return outcome(codes.ExitConfig)
	case errors.Is(unfit, context.Canceled):
		return unfit
	case codes.Of(unfit) != nil:
		return outcome(codes.Of(unfit).Exit)
	case unfit != nil:
		return outcome(codes.ExitRuntime)
	}
	return nil
}

func lintRows(list *flow.Errors) []any {
	var rows []any
	for _, e := range list.List {
		rows = append(rows, map[string]any{"line": e.Line, "column": e.Column, "path": e.Path, "message": e.Message, "cure": e.Cure})
	}
	return rows
}

func (a *app) planCommand() *cobra.Command {
	var partitions int
	cmd := &cobra.Command{
		Use:     "plan FLOW",
		Short:   "Show what a flow will run: its steps, fingerprint and memory bound",
		Example: "  weir plan flow.yaml --partitions 4",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if partitions < 1 || partitions > maxPartitions {
				return usagef("--partitions must be between 1 and %d, not %d", maxPartitions, partitions)
			}
			plan, err := a.loadFlow(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.document(plan.Describe(partitions))
			}
			a.printf("%s", plan.Text(partitions))
			return nil
		},
	}
	cmd.Flags().IntVar(&partitions, "partitions", 1, "number of partitions that one process reads")
	return cmd
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of flow files",
		Example: "  weir schema > flow.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := a.stdout.Write(flow.Schema(nil)); err != nil {
				return codes.New(codes.OutputUnwritable, "standard output: %w", err)
			}
			return nil
		},
	}
}
