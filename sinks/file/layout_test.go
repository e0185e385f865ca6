package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// The rows of the suite are a second apart: most of its publications are two files.
func TestByEventTimeJSONLines(t *testing.T) {
	suite(t, file.Config{Format: file.JSONLines, Every: 10 * time.Second}, seenJSON)
}

func TestByEventTimeCSV(t *testing.T) {
	suite(t, file.Config{Format: file.CSV, Every: 10 * time.Second}, seenCSV)
}

func TestByEventTimeParquet(t *testing.T) {
	suite(t, file.Config{Format: file.Parquet, Every: 10 * time.Second}, seenParquet)
}

func open(t testing.TB, cfg file.Config, to sinks.Target) sinks.Writer {
	t.Helper()
	s, err := file.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func wants(t testing.TB, err error, code *codes.Code, words ...string) {
	t.Helper()
	if !codes.Has(err, code) {
		t.Errorf("%v, want %s", err, code.Name)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
}

// at are rows of a partition at moments, numbered from a number on.
func at(partition int32, from int64, moments ...time.Time) sinks.Rows {
	r := sinks.Rows{Partition: partition, From: from}
	for i, m := range moments {
		r.Append(record.EventTime(m.UnixNano()), fmt.Appendf(nil, "e%d", from+int64(i)), []byte("k"), []operators.Value{operators.Number(float64(i))})
	}
	return r
}

// below are the published files of a run, from its folder on.
func below(t testing.TB, dir, run string) (names []string) {
	t.Helper()
	for _, p := range paths(t, dir, run) {
		rest, err := filepath.Rel(filepath.Join(dir, file.FolderName(run)), p)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(rest))
	}
	return names
}

// TestFoldersOfEventTime: names are those that readers of Hive's layout know, in UTC; each file has rows of one stretch that follow each other, also where
// time goes back, as it does for revisions, and before 1970.
func TestFoldersOfEventTime(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 5, 14, 59, 59, 0, time.UTC)
	moments := []time.Time{begin, begin.Add(999 * time.Millisecond), begin.Add(time.Second), begin.Add(10 * time.Hour), begin, time.Unix(0, -1)}
	for every, want := range map[time.Duration][]string{
		24 * time.Hour: {"date=2026-01-05/p00000-r0000000000000007.csv", "date=2026-01-06/p00000-r0000000000000010.csv", "date=2026-01-05/p00000-r0000000000000011.csv",
			"date=1969-12-31/p00000-r0000000000000012.csv"},
		time.Hour: {"date=2026-01-05/hour=14/p00000-r0000000000000007.csv", "date=2026-01-05/hour=15/p00000-r0000000000000009.csv",
			"date=2026-01-06/hour=00/p00000-r0000000000000010.csv", "date=2026-01-05/hour=14/p00000-r0000000000000011.csv", "date=1969-12-31/hour=23/p00000-r0000000000000012.csv"},
		30 * time.Minute: {"date=2026-01-05/hour=14/minute=30/p00000-r0000000000000007.csv", "date=2026-01-05/hour=15/minute=00/p00000-r0000000000000009.csv",
			"date=2026-01-06/hour=00/minute=30/p00000-r0000000000000010.csv", "date=2026-01-05/hour=14/minute=30/p00000-r0000000000000011.csv",
			"date=1969-12-31/hour=23/minute=30/p00000-r0000000000000012.csv"},
	} {
		dir := t.TempDir()
		to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}}
		w := open(t, file.Config{Folder: dir, Format: file.CSV, Every: every}, to)
		// As rows of a journal that begins at row 7, in two batches that are cut within a stretch.
		if err := w.Publish(t.Context(), []sinks.Rows{at(0, 0, slices.Repeat(moments[:1], 7)...)}); err != nil {
			t.Fatal(err)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{at(0, 7, moments[:1]...), at(0, 8, moments[1:]...)}); err != nil {
			t.Fatal(err)
		}
		got := below(t, dir, "r")
		if !slices.Equal(got[1:], want) {
			t.Errorf("every %v: %s, want %s", every, strings.Join(got[1:], "\n"), strings.Join(want, "\n"))
		}
		if n := open(t, file.Config{Folder: dir, Format: file.CSV, Every: every}, to).Published()[0]; n != 13 {
			t.Errorf("every %v: %d rows are read back", every, n)
		}
	}
	for _, every := range []time.Duration{-1, time.Millisecond, 7 * time.Hour, 48 * time.Hour, 1500 * time.Millisecond} {
		_, err := file.New(file.Config{Folder: ".", Every: every})
		wants(t, err, codes.ConfigInvalid, every.String(), "1h")
	}
}

// TestKilledBetweenTwoFiles: a publication that spans stretches is killed after each of its files; what stands is its beginning, and the next owner, with
// other boundaries, goes on there.
func TestKilledBetweenTwoFiles(t *testing.T) {
	t.Parallel()
	killed := errors.New("killed")
	begin := time.Date(2026, 1, 5, 23, 0, 0, 0, time.UTC)
	var moments []time.Time
	for i := range 20 {
		moments = append(moments, begin.Add(time.Duration(i)*15*time.Minute))
	}
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0, 1}}
	for _, format := range []file.Format{file.JSONLines, file.CSV, file.Parquet} {
		for _, after := range []int{1, 2, 3, 6, 9, 10} {
			dir := t.TempDir()
			links := 0
			hook := func(step string) error {
				if step == "linked" {
					links++
				}
				if links == after {
					return killed
				}
				return nil
			}
			w := open(t, file.Config{Folder: dir, Format: format, Every: time.Hour, Hook: hook}, to)
			if err := w.Publish(t.Context(), []sinks.Rows{at(0, 0, moments...), at(1, 0, moments...)}); !errors.Is(err, killed) {
				t.Fatalf("after %d: %v", after, err)
			}
			next := open(t, file.Config{Folder: dir, Format: format, Every: time.Hour}, to)
			stands := next.Published()
			if stands[0] != int64(4*((after+1)/2)) || stands[1] != int64(4*(after/2)) {
				t.Errorf("after %d files %v rows stand", after, stands)
			}
			if err := next.Publish(t.Context(), []sinks.Rows{at(0, 0, moments[:14]...), at(1, 0, moments...)}); err != nil {
				t.Fatal(err)
			}
			if err := next.Publish(t.Context(), []sinks.Rows{at(0, 14, moments[14:]...)}); err != nil {
				t.Fatal(err)
			}
			last := open(t, file.Config{Folder: dir, Format: format, Every: time.Hour}, to).Published()
			if last[0] != 20 || last[1] != 20 {
				t.Errorf("after %d files %v rows stand in the end", after, last)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "r", ".new-*")); left != nil {
				t.Errorf("after %d files %v are left", after, left)
			}
		}
	}
}

// TestManyStretches: a publication of many stretches is written file by file, with no more of them open than are synced at once.
func TestManyStretches(t *testing.T) {
	t.Parallel()
	const n = 300
	dir := t.TempDir()
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}}
	most := 0
	hook := func(string) error {
		held := 0
		links, err := os.ReadDir("/proc/self/fd")
		for _, l := range links {
			if path, err := os.Readlink("/proc/self/fd/" + l.Name()); err == nil && strings.HasPrefix(path, dir) {
				held++
			}
		}
		most = max(most, held)
		return err
	}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		hook = nil // a system that does not tell
	}
	w := open(t, file.Config{Folder: dir, Every: time.Hour, Hook: hook}, to)
	moments := make([]time.Time, n)
	for i := range moments {
		moments[i] = time.Unix(int64(i)*3600, 0)
	}
	if err := w.Publish(t.Context(), []sinks.Rows{at(0, 0, moments...)}); err != nil {
		t.Fatal(err)
	}
	if got := len(paths(t, dir, "r")); got != n || most > file.MaxSyncs+1 {
		t.Errorf("%d files, of which %d were open at once", got, most)
	}
}

// TestLayoutsStay: the files of a run have one layout, whoever opens it; a folder that is older than layouts is taken for what it is.
func TestLayoutsStay(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
	tick := func(from int64) []sinks.Rows { return []sinks.Rows{sinktest.Ticks(from, 3)} }
	old, hours := t.TempDir(), t.TempDir()
	for from := range int64(2) {
		if err := open(t, file.Config{Folder: old}, to).Publish(t.Context(), tick(3*from)); err != nil {
			t.Fatal(err)
		}
		if err := open(t, file.Config{Folder: hours, Every: time.Hour}, to).Publish(t.Context(), tick(3*from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		cfg  file.Config
		word string
	}{
		{file.Config{Folder: old, Every: time.Hour}, "all files in one folder"}, {file.Config{Folder: hours}, "every 1h0m0s"},
		{file.Config{Folder: hours, Every: 2 * time.Hour}, "every 1h0m0s"},
	} {
		s, err := file.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Open(t.Context(), to)
		wants(t, err, codes.SinkInvalid, c.word, c.cfg.Folder, "another folder")
	}
	// Another format does not meet them.
	if n := open(t, file.Config{Folder: old, Every: time.Hour, Format: file.CSV}, to).Published()[0]; n != 0 {
		t.Errorf("files of another format are read back: %d", n)
	}
	if a, b := len(below(t, old, "r")), len(below(t, hours, "r")); a != 2 || b != 2 {
		t.Errorf("%d and %d files", a, b)
	}
}
