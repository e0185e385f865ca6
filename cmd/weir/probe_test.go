package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/status"
)

// A probe tells three things apart: ready, running and not ready, and not there.
func TestProbe(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	l := startListening(t, dir, "run", runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms")...)
	l.caughtUp(t, 23)
	must(t, dir, "probe", "--url", l.url)
	if doc := parse(t, must(t, dir, "probe", "--url", l.url, "--json")); doc["ready"] != true || doc["run"] != "ticks-1" {
		t.Errorf("%v", doc)
	}
	by := startListening(t, dir, "standby", runArgs(addr, "ticks", "ticks-1", "--standby")...)
	by.await(t, "standing by", func() bool { return by.report(t).Runs[0].Wait == "LEASE" })
	must(t, dir, "probe", "--url", by.url)

	refused(t, dir, 2, []string{"--url is missing"}, "probe")
	blocked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(status.Report{Format: status.Format, Run: "ticks-1", Live: true,
			Runs: []status.Snapshot{{Run: "ticks-1", Phase: status.PhaseRecoveryBlocked, Cause: &status.Cause{Code: codes.OffsetLost.Name}}}})
	}))
	t.Cleanup(blocked.Close)
	refused(t, dir, 1, []string{"NOT_READY", "ticks-1: RECOVERY_BLOCKED: OFFSET_LOST"}, "probe", "--url", blocked.URL)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + free.Addr().String()
	free.Close()
	refused(t, dir, 5, []string{"PROCESS_UNREACHABLE"}, "probe", "--url", nobody)
	for _, d := range []*listener{by, l} {
		if err := d.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		d.end(t)
	}
}
