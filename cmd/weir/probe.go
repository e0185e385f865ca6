package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
)

// probeCommand is /readyz for those who have no HTTP client at hand, such as the probe of a container whose image holds weir alone.
func (a *app) probeCommand() *cobra.Command {
	var o urlFlags
	cmd := &cobra.Command{
		Use: "probe", Short: "Say by the exit code whether the process of a run does its work",
		Long: "Asks a process that was started with `weir run --listen`. Exit code 0: it runs, or stands by. 1: it does not do its work just now (NOT_READY says where\n" +
			"and why). 5: it does not answer. It is the probe of containers that have no HTTP client.",
		Example: "  weir probe --url http://127.0.0.1:8787\n  weir probe --url https://localhost:8787 --url-ca /etc/weir/tls/ca.crt --token file:/etc/weir/probe-token",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.url == "" {
				return usagef("--url is missing: say which process, such as --url http://127.0.0.1:8787")
			}
			r, err := o.liveReport(cmd.Context(), "")
			if err != nil {
				return err
			}
			if ok, wrong := r.Ready(); !ok {
				var said []string
				for _, place := range slices.Sorted(maps.Keys(wrong)) {
					said = append(said, place+": "+wrong[place])
				}
				return codes.New(codes.NotReady, "%s", strings.Join(said, "; "))
			}
			if a.json {
				return a.document(map[string]any{"ready": true, "run": r.Run})
			}
			a.printf("%s: ready\n", printable(r.Run))
			return nil
		},
	}
	o.addURL(cmd)
	return cmd
}
