package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/server"
	"github.com/weirstream/weir/status"
)

func (a *app) whyCommand() *cobra.Command {
	var o askFlags
	cmd := &cobra.Command{
		Use: "why [RUN]", Short: "Say in words what holds a run, since when, and what would release it",
		Long: "With --url the process of the run is asked, which has to be started with --listen: it knows who holds the watermark or the pause, and why. With\n" +
			"--store only what was committed is known: whether anybody runs it, and where it stands.",
		Example: "  weir why --url http://127.0.0.1:8787\n  weir why ticks-1 --store sqlite:weir.db --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.report(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			return a.showWhy(r)
		},
	}
	o.add(cmd)
	return cmd
}

func (a *app) showWhy(r status.Report) error {
	reasons := r.Why()
	if a.json {
		return a.showJSON(server.Reasons{Run: r.Run, Reasons: reasons})
	}
	told := map[string][]string{}
	for _, why := range reasons {
		if why.Partition != nil {
			told[why.Code] = append(told[why.Code], number(*why.Partition))
			if len(told[why.Code]) > alike {
				continue
			}
		}
		var b strings.Builder
		if len(r.Runs) > 1 {
			fmt.Fprintf(&b, "%s: ", why.Run)
		}
		fmt.Fprintf(&b, "%s: %s\n", why.Code, why.Text)
		if why.Holder != "" {
			fmt.Fprintf(&b, "    held by   %s\n", why.Holder)
		}
		if why.Since != nil {
			fmt.Fprintf(&b, "    since     %s (%s)\n", seconds(*why.Since), status.Age(r.At.Sub(*why.Since)))
		}
		if why.Release != "" {
			fmt.Fprintf(&b, "    ends by   %s\n", why.Release)
		}
		a.printf("%s", printable(b.String()))
	}
	for _, code := range slices.Sorted(maps.Keys(told)) {
		if more := told[code]; len(more) > alike {
			a.printf("%s: and so are %s: %s\n", code, count(len(more)-alike, "more partition"), strings.Join(more[alike:], ", "))
		}
	}
	return nil
}

// alike is how many reasons of one code are told in full; the partitions of the others are named. With --json all are told in full.
const alike = 3
