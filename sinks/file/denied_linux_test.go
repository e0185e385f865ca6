package file_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// asNobody calls fn without the rights of root on files: of one thread, which ends with it.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		var err error
		if os.Geteuid() == 0 {
			err = syscall.Setfsuid(65534)
		}
		if err == nil {
			fn()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestNoPermission: a folder that may not be read, or not be written, is refused for good and named; so is one whose rights are taken away while it is
// written to. Nothing stands that was not published before.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
	parent := t.TempDir()
	for _, path := range []string{parent, filepath.Dir(parent)} { // a test's folder is its user's alone
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inner := filepath.Join(parent, "out")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := file.New(file.Config{Folder: inner, Every: 3600e9})
	if err != nil {
		t.Fatal(err)
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o555, 0o444} {
		chmod(inner, mode)
		asNobody(t, func() {
			_, err := s.Open(t.Context(), to)
			wants(t, err, codes.SinkDenied, inner, "grant")
			wants(t, s.Probe(t.Context(), to), codes.SinkDenied, inner, "grant")
		})
	}
	chmod(inner, 0o777)
	asNobody(t, func() {
		w, err := s.Open(t.Context(), to)
		if err != nil {
			t.Error(err)
			return
		}
		if err := w.Publish(t.Context(), []sinks.Rows{sinktest.Ticks(0, 3)}); err != nil {
			t.Error(err)
		}
		folder := filepath.Join(inner, "r")
		if err := os.Chmod(folder, 0o555); err != nil {
			t.Error(err)
		}
		wants(t, w.Publish(t.Context(), []sinks.Rows{sinktest.Ticks(3, 2)}), codes.SinkDenied, folder, "grant")
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Error(err)
		}
		next, err := s.Open(t.Context(), to)
		if err != nil {
			t.Error(err)
			return
		}
		if n := next.Published()[0]; n != 3 {
			t.Errorf("%d rows stand", n)
		}
	})
}
