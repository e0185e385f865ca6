package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
)

// sinksApart refuses two sinks that would write into each other, however their places are spelled. Errors: CONFIG_INVALID.
func sinksApart(specs []flow.SinkSpec) error {
	for i, a := range specs {
		for _, b := range specs[:i] {
			if a.Meets(b) || a.Type == b.Type && sinkKinds[a.Type].where == "folder" && sameFolder(a.Fields["folder"], b.Fields["folder"]) {
				return codes.New(codes.ConfigInvalid, "the sinks %q and %q write to the same place: keep one of the two, or name another place", b.Name, a.Name)
			}
		}
	}
	return nil
}

// sameFolder says whether two paths lead to one folder, by links, mounts or the case of a file system that has none; one that does not exist yet is where it would be made.
func sameFolder(a, b string) bool {
	first, err := os.Stat(a)
	second, otherErr := os.Stat(b)
	if err == nil && otherErr == nil {
		return os.SameFile(first, second)
	}
	return resolved(a) == resolved(b)
}

// resolved is a path from the root on without links, as far as it exists.
func resolved(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path) // there is no working folder
	}
	missing := ""
	for at := whole; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, missing)
		}
		if at == filepath.Dir(at) {
			return whole
		}
		missing = filepath.Join(filepath.Base(at), missing)
	}
}

// withoutCode is what an error says beside its code, which others may have put words before.
func withoutCode(err error, c *codes.Code) string {
	return strings.ReplaceAll(err.Error(), c.Name+": ", "")
}
