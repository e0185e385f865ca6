package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/kinesistest"
)

// TestDocumentedKinesis runs every line of docs/kinesis.md against an emulator, in order, in one folder. A run without an end is stopped once it has read
// what there is.
func TestDocumentedKinesis(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "kinesis.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks(strings.ReplaceAll(string(text), "http://127.0.0.1:4567", r.Endpoint())) {
		if b.saveAs != "" {
			write(t, r.dir, b.saveAs, b.text)
			continue
		}
		if b.lang != "sh" {
			continue
		}
		for line := range strings.Lines(b.text) {
			line = strings.TrimSpace(line)
			switch {
			case line == "weir demo --kinesis": // TestDemoKinesis
			case strings.HasPrefix(line, "weir run ") && !strings.Contains(line, "--once-n"):
				ran++
				p := start(t, r.dir, strings.Fields(line)[1:]...)
				until(t, "the run reads what there is", []*process{p}, func() bool { return total(apart(t, filepath.Join(r.dir, "weir.db"), "ticks-1")) == 3 })
				r.ends(p)
			default:
				ran += runBlock(t, r.dir, line)
			}
		}
	}
	if ran != 7 {
		t.Errorf("%d commands were run; has the document changed its form?", ran)
	}
	if region := kinesistest.Region; !strings.Contains(string(text), region) {
		t.Errorf("the document does not name the emulator's region %s", region)
	}
}
