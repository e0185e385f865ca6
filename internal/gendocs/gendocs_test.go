package gendocs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirstream/weir/codes"
)

func TestDocumentsAreUpToDate(t *testing.T) {
	t.Parallel()
	for path, want := range Files() {
		got, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Errorf("%s: %v; run `make docs`", path, err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes; run `make docs`", path)
		}
	}
}

func TestCatalogueIsSortedAndComplete(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range codes.All() {
		names = append(names, c.Name)
		if c.Meaning == "" || c.Cure == "" || c.Exit == codes.ExitOK {
			t.Errorf("%s lacks a meaning, a cure or an exit code", c.Name)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("codes are not sorted or not unique: %v", names)
	}
}
