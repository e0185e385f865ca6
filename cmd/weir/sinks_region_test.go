package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// TestASinkWithoutARegion: who named no region for a sink, on the command line or in a flow, is told where one belongs; it is not the flag of the input.
func TestASinkWithoutARegion(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "arrivals.log", "")
	write(t, dir, "sink.yaml", string(fixture.Flow)+"sinks: [{name: o, type: kinesis, stream: s}]\n")
	run := []string{"--log", "arrivals.log", "--run-id", "r", "--store", "sqlite:r.db"}
	for _, args := range [][]string{append([]string{"run", "flow.yaml", "--sink", "kinesis:s"}, run...), append([]string{"run", "sink.yaml"}, run...), {"lint", "--connect", "sink.yaml"}} {
		cmd := command(t, dir, args...)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "AWS_") })
		cmd.Env = append(cmd.Env, "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("%v: exit %d, %v", args, code, err)
		}
		for _, w := range []string{"CONFIG_INVALID", "no region is named", "--sink-region", "field region", "AWS_REGION"} {
			if !strings.Contains(string(out), w) {
				t.Errorf("%v: %q is missing:\n%s", args, w, out)
			}
		}
	}
}
