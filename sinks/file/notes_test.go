package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

func TestSequences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  file.Config
		seen reader
	}{
		"JSON Lines": {file.Config{}, seenJSON}, "CSV": {file.Config{Format: file.CSV}, seenCSV}, "Parquet": {file.Config{Format: file.Parquet}, seenParquet},
		"by event time": {file.Config{Every: 10 * time.Second}, seenJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.RunSequence(t, func(t testing.TB) sinktest.Place { return place(t, c.cfg, c.seen) })
		})
	}
}

func named(sequence string) sinks.Target {
	return sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}, Sequence: sequence}
}

func publish(t testing.TB, cfg file.Config, to sinks.Target, batches ...sinks.Rows) {
	t.Helper()
	if err := open(t, cfg, to).Publish(t.Context(), batches); err != nil {
		t.Fatal(err)
	}
}

func refusal(t testing.TB, cfg file.Config, to sinks.Target) error {
	t.Helper()
	s, err := file.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Open(t.Context(), to)
	return err
}

// TestFoldersSwapped: the folders of rows and of late events are not exchanged, and another flow does not go on in them; each is told where, what stands there, and
// the cure. Another format in the folder has a sequence of its own.
func TestFoldersSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x, y := filepath.Join(dir, "x"), filepath.Join(dir, "y")
	for _, d := range []string{x, y} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	late := named("late f1")
	late.Outputs, late.Entries = nil, true
	publish(t, file.Config{Folder: x}, named("rows f1"), rows(0, 0, 5))
	open(t, file.Config{Folder: y}, late)
	before := below(t, x, "r")
	for _, c := range []struct {
		folder string
		to     sinks.Target
		stands string
	}{{x, late, "rows f1"}, {y, named("rows f1"), "late f1"}, {x, named("rows f2"), "rows f1"}} {
		err := refusal(t, file.Config{Folder: c.folder}, c.to)
		wants(t, err, codes.SinkInvalid, filepath.Join(c.folder, "r"), c.stands, c.to.Sequence, "another folder", "another id")
	}
	if after := below(t, x, "r"); !slices.Equal(after, before) {
		t.Errorf("the folder holds %v, and held %v", after, before)
	}
	publish(t, file.Config{Folder: x, Format: file.CSV}, named("rows f2"), rows(0, 0, 5))
	other := named("rows f2")
	other.RunID = "r2"
	publish(t, file.Config{Folder: x}, other, rows(0, 0, 5))
}

// TestOneSequenceOfManyOwners: of owners who come at once to a new folder, those of one sequence are taken.
func TestOneSequenceOfManyOwners(t *testing.T) {
	t.Parallel()
	for range 10 {
		dir := t.TempDir()
		var mu sync.Mutex
		taken := map[string]bool{}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				to := named(fmt.Sprintf("rows f%d", i%3))
				s, err := file.New(file.Config{Folder: dir})
				if err == nil {
					_, err = s.Open(t.Context(), to)
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					taken[to.Sequence] = true
				case !codes.Has(err, codes.SinkInvalid) && !codes.Has(err, codes.SinkUnavailable): // the draft of a note may have been cleared away
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(taken) > 1 {
			t.Fatalf("sequences %v are taken", taken)
		}
	}
}

// TestFormatsLeaveEachOtherAlone: a sink of another format that opens the folder, and one that is refused, take no drafts away.
func TestFormatsLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	formats := []file.Format{file.JSONLines, file.CSV, file.Parquet}
	for i, format := range formats {
		dir := t.TempDir()
		came := 0
		hook := func(step string) error {
			if step == "created" || step == "synced" {
				came++
				for j, other := range formats {
					if j != i {
						open(t, file.Config{Folder: dir, Format: other}, named("rows f1"))
					}
				}
				wants(t, refusal(t, file.Config{Folder: dir, Format: format}, named("late f1")), codes.SinkInvalid)
			}
			return nil
		}
		publish(t, file.Config{Folder: dir, Format: format, Hook: hook}, named("rows f1"), rows(0, 0, 5))
		if names := below(t, dir, "r"); came != 2 || len(names) != 1 {
			t.Errorf("after %d others: %v", came, names)
		}
	}
}

// TestEmptiedFile: a last file without rows was not written so, and is named at once instead of being taken for another owner's for ever.
func TestEmptiedFile(t *testing.T) {
	t.Parallel()
	for format, text := range map[file.Format][]string{
		file.JSONLines: {""}, file.CSV: {"", "partition,row,time,event_id,key,\"x\"\n"}, file.Parquet: {"", "PAR", "PAR1PAR1"},
	} {
		for _, text := range text {
			dir := t.TempDir()
			publish(t, file.Config{Folder: dir, Format: format}, named("rows f1"), rows(0, 0, 5))
			publish(t, file.Config{Folder: dir, Format: format}, named("rows f1"), rows(0, 5, 9))
			last := paths(t, dir, "r")[1]
			if err := os.WriteFile(last, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			wants(t, refusal(t, file.Config{Folder: dir, Format: format}, named("rows f1")), codes.SinkInvalid, last, "not as it was written", "take it away")
			if err := os.Remove(last); err != nil {
				t.Fatal(err)
			}
			if at := open(t, file.Config{Folder: dir, Format: format}, named("rows f1")).Published()[0]; at != 5 {
				t.Errorf("without the file %d rows stand, want 5", at)
			}
		}
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "r", "p00000-r0000000000000000.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	wants(t, refusal(t, file.Config{Folder: dir}, named("rows f1")), codes.SinkInvalid, "p00000-r0000000000000000.jsonl")
}

// TestFilesTakenAway: what is published belongs to the reader, but for the last file of each partition: whatever else he takes away, or moves, the run goes on.
func TestFilesTakenAway(t *testing.T) {
	t.Parallel()
	for _, cfg := range []file.Config{{}, {Format: file.CSV}, {Format: file.Parquet}, {Every: time.Second}} {
		cfg.Folder = t.TempDir()
		for i := range int64(5) {
			publish(t, cfg, named("rows f1"), rows(0, 3*i, 3*i+3))
		}
		all := paths(t, cfg.Folder, "r")
		for _, path := range []string{all[2], all[0], all[1], all[3]} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if at := open(t, cfg, named("rows f1")).Published()[0]; at != 15 {
				t.Errorf("without %s %d rows stand, want 15", path, at)
			}
		}
		publish(t, cfg, named("rows f1"), rows(0, 15, 16))
		if names := paths(t, cfg.Folder, "r"); len(names) != 2 || !strings.Contains(names[1], "r0000000000000015") {
			t.Errorf("in the end: %v", names)
		}
	}
}
