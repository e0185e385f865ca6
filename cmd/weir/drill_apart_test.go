package main

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/kafkatest"
)

// drillApart runs the drill of daemons that share a run out.
func drillApart(t *testing.T, store string, faults float64, args ...string) {
	t.Helper()
	code, report := runDrill(t, store, nil, append([]string{"--scope", "partition", "--partitions", "4", "--ttl", slower("1s", "2s"), "--grace", "10s"}, args...)...) // other tests run beside it
	if code != 0 || len(failed(report)) > 0 {
		t.Errorf("exit %d, failed:\n%s", code, strings.Join(failed(report), "\n"))
	}
	if planned, fired := report["faults_planned"].(float64), report["faults_fired"].(float64); planned != faults || fired != planned {
		t.Errorf("%v of %v faults happened, planned were %v", fired, planned, faults)
	}
	t.Logf("%v records, %v checks, %v faults, %v ms, %v", report["records"], report["passed"], report["faults_fired"], report["took_ms"], report["figures"])
}

// TestApartDrill: three daemons share four partitions while others join and leave, are killed and stopped. What they publish is what one
// publishes that is left alone.
func TestApartDrill(t *testing.T) {
	t.Parallel()
	args, faults := []string{"--records", "100000", "--faults", "12", "--moves", "10"}, 12.0
	if testing.Short() {
		args, faults = []string{"--records", "5000", "--faults", "2", "--moves", "2"}, 2
	}
	for name, store := range drillStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drillApart(t, store(t), faults, args...)
		})
	}
}

func TestApartDrillOnApacheKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Shared(t)
	args, faults := []string{"--records", "5000", "--faults", "4", "--moves", "4"}, 4.0
	if testing.Short() {
		args, faults = []string{"--records", "5000", "--faults", "2", "--moves", "2"}, 2
	}
	drillApart(t, chaosStores["postgres"](t), faults, append(args, "--brokers", broker.Addr())...)
}

// TestApartDrillOfABrokenWeirFails: the group is told positions that are not committed yet.
func TestApartDrillOfABrokenWeirFails(t *testing.T) {
	t.Parallel()
	code, report := runDrill(t, "", []string{asMutant + "=offsets-ahead"}, "--scope", "partition", "--records", "2000", "--faults", "1", "--moves", "2", "--ttl", "1s")
	if all := strings.Join(failed(report), "\n"); code != 4 || !strings.Contains(all, "the group's offsets are never ahead of the journal") {
		t.Errorf("exit %d, failed:\n%s", code, all)
	}
}

// TestApartDrillOfAWeirThatStopsFails: a partition that is opened stops itself and the others of its process. Which of them have records at that moment, the
// script does not say.
func TestApartDrillOfAWeirThatStopsFails(t *testing.T) {
	t.Parallel()
	code, report := runDrill(t, "", []string{asMutant + "=moves-stop"}, "--scope", "partition", "--records", "2000", "--faults", "1", "--moves", "2", "--ttl", "1s")
	if all := strings.Join(failed(report), "\n"); code != 4 || !strings.Contains(all, "a rebalance stops a partition that is ") {
		t.Errorf("exit %d, failed:\n%s", code, all)
	}
}
