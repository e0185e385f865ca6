package file_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

func sink(t testing.TB, dir string, format file.Format, hook func(string) error) *file.Sink {
	t.Helper()
	s, err := file.New(file.Config{Folder: dir, Format: format, Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// paths are the published files of a run, by name: that is by partition and row, in whatever folder they are.
func paths(t testing.TB, dir, run string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(dir, file.FolderName(run)), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), "p") {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return out
}

func files(t testing.TB, dir, run string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, p := range paths(t, dir, run) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text)
	}
	return out
}

type reader func(t testing.TB, run string, text []byte) []sinktest.Seen

func place(t testing.TB, cfg file.Config, seen reader) sinktest.Place {
	cfg.Folder = t.TempDir()
	return sinktest.Place{
		Sink: func(hook func(string) error) sinks.Sink {
			cfg := cfg
			cfg.Hook = hook
			s, err := file.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Seen: func(t testing.TB, run string) []sinktest.Seen {
			var out []sinktest.Seen
			for _, text := range files(t, cfg.Folder, run) {
				out = append(out, seen(t, run, text)...)
			}
			return out
		},
	}
}

func suite(t *testing.T, cfg file.Config, seen reader) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Place { return place(t, cfg, seen) })
}

func TestJSONLines(t *testing.T) { suite(t, file.Config{Format: file.JSONLines}, seenJSON) }

func seenJSON(t testing.TB, _ string, text []byte) []sinktest.Seen {
	var out []sinktest.Seen
	for line := range bytes.Lines(text) {
		var head struct {
			Partition int32
			Row       int64
		}
		if err := json.Unmarshal(line, &head); err != nil {
			t.Fatal(err)
		}
		out = append(out, sinktest.Seen{Partition: head.Partition, Number: head.Row, Text: strings.TrimSuffix(string(line), "\n")})
	}
	return out
}

func TestCSV(t *testing.T) { suite(t, file.Config{Format: file.CSV}, seenCSV) }

func seenCSV(t testing.TB, run string, text []byte) []sinktest.Seen {
	table := parse(t, string(text))
	if got := strings.Join(table[0], ","); got != "partition,row,time,event_id,key,ema12,close" {
		t.Fatalf("names: %s", got)
	}
	var out []sinktest.Seen
	enc := sinks.NewJSON(sinks.Target{RunID: run, Outputs: sinktest.Outputs})
	for _, line := range table[1:] {
		at, err := time.Parse(time.RFC3339Nano, line[2])
		if err != nil {
			t.Fatal(err)
		}
		row := partitions.Row{Time: record.EventTime(at.UnixNano()), ID: []byte(line[3]), Key: []byte(line[4])}
		for _, field := range line[5:] {
			f, err := strconv.ParseFloat(field, 64)
			if err != nil && field != "" {
				t.Fatal(err)
			}
			row.Values = append(row.Values, operators.Value{F: f, OK: field != ""})
		}
		partition, _ := strconv.Atoi(line[0])
		number, err := strconv.ParseInt(line[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sinktest.Seen{Partition: int32(partition), Number: number, Text: string(enc.Append(nil, int32(partition), number, &row))})
	}
	return out
}

// parse reads RFC 4180; the standard library's reader would change \r\n within a field.
func parse(t testing.TB, text string) [][]string {
	t.Helper()
	table, line := [][]string{}, []string{}
	for text != "" {
		var field string
		if quoted, ok := strings.CutPrefix(text, `"`); ok {
			text = quoted
			for {
				before, after, found := strings.Cut(text, `"`)
				if !found {
					t.Fatal("a quote is not closed")
				}
				field += before
				if text = after; !strings.HasPrefix(text, `"`) {
					break
				}
				field, text = field+`"`, text[1:]
			}
		} else {
			end := strings.IndexAny(text, ",\n")
			field, text = text[:end], text[end:]
		}
		line = append(line, field)
		if text[0] == '\n' {
			table, line = append(table, line), nil
		}
		text = text[1:]
	}
	return table
}

// TestNamesSayWhatIsIn: names are a function of run, partition and row, and a killed process's drafts are gone after the next opening.
func TestNamesSayWhatIsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killed := fmt.Errorf("killed")
	calls := 0
	s := sink(t, dir, file.JSONLines, func(step string) error {
		if calls++; step == "created" && calls > 10 {
			return killed
		}
		return nil
	})
	to := sinks.Target{RunID: "Run/1", Outputs: []string{"x"}, Partitions: []int32{0, 3}, Token: 1}
	w, err := s.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); err == nil; from += 5 {
		err = w.Publish(t.Context(), []sinks.Rows{rows(3, from, from+5)})
	}
	if err != killed {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "%52un%2f1")
	if err := os.WriteFile(filepath.Join(folder, ".new-of a killed process"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := s.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if at := next.Published(); at[0] != 0 || at[3] != 10 {
		t.Errorf("read back: %v", at)
	}
	var names []string
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"p00003-r0000000000000000.jsonl", "p00003-r0000000000000005.jsonl"}; !slices.Equal(names, want) {
		t.Errorf("the folder holds %v, want %v", names, want)
	}
}

func rows(partition int32, from, to int64) sinks.Rows {
	r := sinks.Rows{Partition: partition, From: from}
	for n := from; n < to; n++ {
		r.Append(record.EventTime(n), fmt.Appendf(nil, "e%d", n), []byte("k"), []operators.Value{operators.Number(float64(n))})
	}
	return r
}

// TestUnfitTargets: each is named with its cure, and nothing is lost or half written.
func TestUnfitTargets(t *testing.T) {
	t.Parallel()
	to := sinks.Target{RunID: "r", Outputs: []string{"x"}, Partitions: []int32{0}}
	if _, err := file.New(file.Config{}); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := sink(t, filepath.Join(t.TempDir(), "none"), nil, nil).Open(t.Context(), to); !codes.Has(err, codes.SinkInvalid) {
		t.Errorf("missing folder: %v", err)
	}
	for name, format := range map[string]file.Format{"JSON Lines": file.JSONLines, "CSV": file.CSV, "Parquet": file.Parquet} {
		dir := t.TempDir()
		w, err := sink(t, dir, format, nil).Open(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 9)}); err != nil {
			t.Fatal(err)
		}
		paths, _ := filepath.Glob(filepath.Join(dir, "r", "p*"))
		text, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(paths[0], text[:len(text)-3], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sink(t, dir, format, nil).Open(t.Context(), to); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), paths[0]) {
			t.Errorf("%s cut short: %v", name, err)
		}
	}
}

func TestLongRunIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := strings.Repeat("Ä/", 66)
	for i, run := range []string{base + "a", base + "b"} {
		w, err := sink(t, dir, nil, nil).Open(t.Context(), sinks.Target{RunID: run, Outputs: []string{"x"}, Partitions: []int32{0}})
		if err != nil {
			t.Fatal(err)
		}
		if at := w.Published()[0]; at != 0 {
			t.Errorf("run %d meets another", i)
		}
		if err := w.Publish(t.Context(), []sinks.Rows{rows(0, 0, 2)}); err != nil {
			t.Fatal(err)
		}
	}
}
