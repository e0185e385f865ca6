package main

import "github.com/spf13/cobra"

func (a *app) graphCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "graph FLOW",
		Short:   "Draw a flow: what it reads, its operators, outputs and sinks",
		Long:    "Prints a flow as a graph in the language of Graphviz, for dot and whatever else reads it. Secrets are references in a flow, and not drawn.",
		Example: "  weir graph flow.yaml > flow.dot\n  weir graph --json flow.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			plan, err := a.loadFlow(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.document(map[string]any{"flow": plan.Name, "fingerprint": plan.Fingerprint, "dot": plan.Dot()})
			}
			a.printf("%s", plan.Dot())
			return nil
		},
	}
}
