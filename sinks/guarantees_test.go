package sinks_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesAreShown: every promise of docs/guarantees.md names a test, and the test is there.
func TestGuaranteesAreShown(t *testing.T) {
	t.Parallel()
	const page = "../docs/guarantees.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)#]+)(?:#(\w+))?\)`).FindAllStringSubmatch(string(text), -1)
	tests := 0
	for _, link := range links {
		source, err := os.ReadFile(filepath.Join(filepath.Dir(page), link[1]))
		if err != nil {
			t.Errorf("%s is linked and does not exist", link[1])
			continue
		}
		if link[2] == "" {
			continue
		}
		tests++
		if !strings.Contains(string(source), "\nfunc "+link[2]+"(") {
			t.Errorf("%s has no %s", link[1], link[2])
		}
	}
	if tests < 20 {
		t.Errorf("%d promises name a test", tests)
	}
	_, matrix, found := strings.Cut(string(text), "## Source by sink")
	if !found {
		t.Fatal("the table of sources and sinks is gone")
	}
	for line := range strings.Lines(matrix) {
		if strings.HasPrefix(line, "| [") && strings.Count(line, "#Test") != 7 {
			t.Errorf("a cell names no test: %s", line)
		}
	}
}
