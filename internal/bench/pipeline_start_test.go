package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkStart runs the built command from its start to its end.
//
//	version-ms   weir version; wanted at most 50
//	first-ms     weir run --once-n 1 on a topic and a new store: everything up to the first record, and its commit and the end
//	             too; wanted at most 1,000
//
// Each is the median of several.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	weir := filepath.Join(dir, "weir")
	if out, err := exec.Command("go", "build", "-o", weir, "github.com/weirstream/weir/cmd/weir").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	flowFile := filepath.Join(dir, "flow.yaml")
	if err := os.WriteFile(flowFile, []byte(strings.TrimSpace(tickFlow)+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	t := loadTopic(b, 1000)
	var version, first []time.Duration
	for i := range setting(b, envPairs, defaultPairs) {
		version = append(version, elapsed(b, weir, "version"))
		first = append(first, elapsed(b, weir, "run", flowFile, "--brokers", t.addr, "--topic", topicName, "--once-n", "1",
			"--run-id", fmt.Sprint("start-", i), "--store", "sqlite:"+filepath.Join(dir, fmt.Sprint(i, ".db"))))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(version).Seconds()*1000, "version-ms")
	b.ReportMetric(middle(first).Seconds()*1000, "first-ms")
}

func elapsed(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	from := time.Now()
	out, err := exec.Command(name, args...).CombinedOutput()
	took := time.Since(from)
	if err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return took
}

func middle(v []time.Duration) time.Duration {
	slices.Sort(v)
	return v[len(v)/2]
}
