package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestWhatIsInTheWay: a file where a folder should be, and a thing that has the name of the next file, are named with what to do. What stands stays.
func TestWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
	dir := t.TempDir()
	make := func(cfg file.Config) *file.Sink {
		s, err := file.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for path, words := range map[string][]string{"file": {"no folder"}, "file/below": {"create it"}, "none": {"create it"}, ".": {"no folder", "take it away"}} {
		for _, name := range []string{"file", "r"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := make(file.Config{Folder: filepath.Join(dir, path)})
		_, err := s.Open(t.Context(), to)
		wants(t, err, codes.SinkInvalid, append(words, filepath.Join(dir, path))...)
		if path != "." {
			wants(t, s.Probe(t.Context(), to), codes.SinkInvalid, words...)
		}
	}
	for name, place := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a text":   func(path string) error { return os.WriteFile(path, []byte("notes"), 0o600) },
	} {
		for _, format := range []file.Format{file.JSONLines, file.CSV, file.Parquet} {
			cfg := file.Config{Folder: t.TempDir(), Format: format}
			w := open(t, cfg, to)
			if err := w.Publish(t.Context(), []sinks.Rows{sinktest.Ticks(0, 3)}); err != nil {
				t.Fatal(err)
			}
			first := paths(t, cfg.Folder, "r")[0]
			next := filepath.Join(filepath.Dir(first), "p00000-r0000000000000003"+filepath.Ext(first))
			if err := place(next); err != nil {
				t.Fatal(err)
			}
			wants(t, w.Publish(t.Context(), []sinks.Rows{sinktest.Ticks(3, 2)}), codes.SinkUnavailable, next)
			_, err := make(cfg).Open(t.Context(), to)
			wants(t, err, codes.SinkInvalid, next, "restore it")
			if err := os.RemoveAll(next); err != nil {
				t.Fatal(err)
			}
			if n := open(t, cfg, to).Published()[0]; n != 3 {
				t.Errorf("%s: %d rows stand", name, n)
			}
		}
	}
}
