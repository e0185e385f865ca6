package bench

import (
	"os"
	"testing"
)

// scope is a testing.TB whose temporary folders end with it and not with the benchmark, which would gather a journal for every pass.
type scope struct {
	testing.TB
	dirs []string
}

// TempDir makes a folder that close removes.
func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.dirs = append(s.dirs, dir)
	return dir
}

func (s *scope) close() {
	for _, dir := range s.dirs {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	}
}
