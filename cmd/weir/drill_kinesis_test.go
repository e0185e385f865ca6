package main

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/kinesistest"
)

// TestDrillIntoKinesis: a stream holds every row of a run whose owners are killed or stall, at many moments, and no row more often than there were owners.
func TestDrillIntoKinesis(t *testing.T) {
	t.Parallel()
	kinesistest.Start(t) // it says what to do where there is no Node.js
	code, report := runDrill(t, "", nil, "--grace", "30s", "--parallel", "2", "--only", "kill,shot,restore,points1", "--sink", "kinesis,jsonl")
	if code != 0 || len(failed(report)) > 0 {
		t.Errorf("exit %d, failed:\n%s", code, strings.Join(failed(report), "\n"))
	}
	seen := 0
	for _, c := range report["checks"].([]any) {
		if strings.Contains(c.(map[string]any)["check"].(string), "in kinesis") {
			seen++
		}
	}
	if seen == 0 {
		t.Error("nobody has looked at the stream")
	}
}
