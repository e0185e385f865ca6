package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/kinesistest"
)

// unkeyed is an environment without credentials of AWS, in which whatever would lend some is switched off or refuses.
func unkeyed(env []string, more ...string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	return append(env, append([]string{"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null"}, more...)...)
}

// A log that cannot be published to Kinesis: what is missing is said, with what to do; nothing is written to standard error but in our own words.
func TestPublishToKinesisWithoutCredentials(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	// A machine whose service of credentials refuses: the SDK has something to say about that.
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(metadata.Close)
	for name, more := range map[string][]string{"none": {"AWS_EC2_METADATA_DISABLED=true"}, "refused": {"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata.URL}} {
		cmd := command(t, dir, "replay", "publish", "--log", "arrivals.log", "--kinesis", "ticks", "--region", kinesistest.Region, "--endpoint", "http://127.0.0.1:1")
		cmd.Env = unkeyed(cmd.Env, more...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("%s: exit %d, %v", name, code, err)
		}
		for _, w := range []string{"ACCESS_DENIED", "there are no credentials", "AWS_PROFILE"} {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: %q is missing:\n%s", name, w, out)
			}
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "SDK ") {
				t.Errorf("%s: the SDK writes by itself: %s", name, line)
			}
		}
	}
}

// An endpoint at which nobody answers is said at once, is tried again, and the process can be stopped meanwhile.
func TestPublishToKinesisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	p := startLogged(t, dir, "publish", nil, "replay", "publish", "--log", "arrivals.log", "--kinesis", "ticks", "--region", kinesistest.Region, "--endpoint", "http://127.0.0.1:1")
	p.await(t, "a word about it", func() bool {
		return strings.Contains(p.said(t), "kinesis takes nothing for now; it is tried again for 30s")
	})
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 130 || !strings.Contains(p.said(t), "stopped after 0 arrivals") || strings.Count(p.said(t), "takes nothing") != 1 {
		t.Errorf("exit %d\n%s", code, p.said(t))
	}
}
