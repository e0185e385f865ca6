package main

import (
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
	return &cobra.Command{
		Use:     "lint FLOW...",
		Short:   "Check flow files: every error with line, column and cure",
		Example: "  weir lint flow.yaml\n  weir lint --json flow.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.lint(args) },
	}
}

func (a *app) lint(files []string) error {
	var reports []any
	bad := 0
	for _, file := range files {
		plan, err := a.loadFlow(file)
		var list *flow.Errors
		switch {
		case err == nil:
			reports = append(reports, map[string]any{"file": file, "ok": true, "fingerprint": plan.Fingerprint, "errors": []any{}})
			if !a.json {
				a.printf("%s: ok (%s)\n", file, plan.Fingerprint)
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
	if bad > 0 {
		return outcome(codes.ExitConfig)
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
