package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A back-quoted word in the text of a flag would be shown as the flag's type.
func TestFlagsHaveNoBackquotes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	flag, seen := regexp.MustCompile(`\.[A-Za-z0-9]+Var\(.*`), 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range flag.FindAllString(string(text), -1) {
			if seen++; regexp.MustCompile("`[^`]*`").MatchString(line) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d flags were looked at", seen)
	}
}
