package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// named is a file that a flag names.
type named struct{ flag, path string }

// distinct makes sure that no output replaces an input or another output. Files are compared as files, so that a link or another
// spelling of a path does not help; one that does not exist yet is compared by its path.
func distinct(outputs, inputs []named) error {
	for i, out := range outputs {
		if out.path == "" {
			continue
		}
		for _, other := range append(append([]named(nil), inputs...), outputs[:i]...) {
			if other.path != "" && samePlace(out.path, other.path) {
				return codes.New(codes.ConfigInvalid, "%s would overwrite %s, which %s names; choose another file", out.flag, out.path, other.flag)
			}
		}
	}
	return nil
}

func samePlace(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		// Devices and pipes are nobody's content.
		return os.SameFile(infoA, infoB) && infoA.Mode().IsRegular()
	}
	if errA == nil || errB == nil {
		return false
	}
	return canonicalPath(a) == canonicalPath(b)
}

// canonicalPath is a path with the links of its folder followed.
func canonicalPath(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(dir, filepath.Base(abs))
	}
	return abs
}

// storeFiles are the files of a SQLite store, those beside it included. A store that cannot be read as one has none; opening it says why.
func storeFiles(ref string) []named {
	text, err := dereference(ref)
	if err != nil {
		return nil
	}
	s, err := control.ParseStore(text)
	if err != nil || s.Kind != control.StoreSQLite {
		return nil
	}
	var files []named
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		files = append(files, named{"--store", s.Path + suffix})
	}
	return files
}

// fileName turns a run id into the start of a file name: what is no letter, digit, dot, hyphen or underscore is written as %XX, so that
// different ids have different names.
func fileName(runID string) string {
	var b strings.Builder
	for i := range len(runID) {
		c := runID[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' && i > 0 || c >= 0x80
		if plain {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}

// writeFailure remembers the first error of writing to a stream, so that a command does not succeed when nobody got its answer.
type writeFailure struct {
	to interface{ Write([]byte) (int, error) }
	// err is the first failure.
	err error
}

func (w *writeFailure) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// failed is the failure as an error of the command, or nil.
func (w *writeFailure) failed() error {
	if w.err == nil {
		return nil
	}
	var known *codes.Error
	if errors.As(w.err, &known) {
		return known
	}
	return codes.New(codes.OutputUnwritable, "standard output: %w", w.err)
}
