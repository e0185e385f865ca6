package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// shuffled makes a file of n rows with few different times and ids, so that there are ties, and how they come out sorted.
func shuffled(t testing.TB, seed uint64, n int) (path string, want []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	var file bytes.Buffer
	var rows []Row
	for i := range n {
		at := record.EventTime(1767623400+rng.Int64N(50)) * 1e9
		id := fmt.Sprintf("%x", rng.IntN(300))
		key := fmt.Sprint(rng.IntN(9))
		value := fmt.Sprintf(`{"event_id":%q,"event_time":%q,"instrument":%q,"pad":%q}`, id, at, key, strings.Repeat("x", rng.IntN(200)))
		fmt.Fprintln(&file, value)
		rows = append(rows, Row{Time: at, ID: []byte(id), Key: []byte(key), Value: []byte(value), Line: int64(i + 1)})
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case a.before(b.Time, b.ID):
			return -1
		case b.before(a.Time, a.ID):
			return 1
		}
		return 0
	})
	for i := range rows {
		want = append(want, show(&rows[i]))
	}
	return write(t, "x.jsonl", file.Bytes()), want
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestSortingOutsideMemoryIsSorting(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		path, want := shuffled(t, seed, 400)
		dir := t.TempDir()
		// 1 is a run for every row, which goes through several levels of merging; 64 MiB sorts in memory.
		for _, memory := range []int{1, 4 << 10, 100 << 10, 64 << 20} {
			got, err := all(t, New(Config{Path: path, Memory: memory, TempDir: dir}))
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, memory %d: %v", seed, memory, err)
			}
			if left := names(t, dir); len(left) > 0 {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

func TestARowThatCannotBeReadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	path, _ := shuffled(t, 1, 500)
	dir := t.TempDir()
	s := New(Config{Path: path, Memory: 4 << 10, TempDir: dir})
	if _, err := all(t, s); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, "{}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := all(t, s); !codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), ":501:1: ") {
		t.Errorf("got %v", err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNoRoomToSortIsAClearError(t *testing.T) {
	t.Parallel()
	path, _ := shuffled(t, 1, 500)
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := all(t, New(Config{Path: path, Memory: 4 << 10, TempDir: missing})); !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
}

// Locate finds the line of every position, in memory, in files and in a file that is in order; and no other.
func TestLocateNamesTheLine(t *testing.T) {
	t.Parallel()
	path, want := shuffled(t, 3, 200)
	for _, memory := range []int{4 << 10, 64 << 20} {
		s := New(Config{Path: path, Memory: memory, TempDir: t.TempDir()})
		for n := range want {
			_, rest, _ := strings.Cut(want[n], " line ")
			line, _, _ := strings.Cut(rest, ":")
			if got, err := s.Locate(t.Context(), 0, record.Offset(int64(n))); err != nil || got != path+":"+line {
				t.Fatalf("memory %d, row %d: %q, %v; want line %s", memory, n, got, err, line)
			}
		}
		for _, c := range []struct {
			partition int32
			at        int64
		}{{0, 200}, {1, 0}} {
			if got, err := s.Locate(t.Context(), c.partition, record.Offset(c.at)); !codes.Has(err, codes.SnapshotInvalid) {
				t.Errorf("partition %d, row %d: %q, %v", c.partition, c.at, got, err)
			}
		}
	}
}

func TestAFileInOrderIsStreamed(t *testing.T) {
	t.Parallel()
	path, want := shuffled(t, 1, 500)
	var file bytes.Buffer
	for _, line := range want {
		fmt.Fprintln(&file, line[strings.Index(line, ": ")+2:])
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing") // sorting would fail
	got, err := all(t, New(Config{Path: path, Memory: 1, TempDir: missing}))
	if err != nil || len(got) != 500 {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

func TestAFileThatChangesWhileItIsReadIsRefused(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf(`{"event_id":"%06d","event_time":"2026-01-05T14:30:00Z","instrument":"1"}`+"\n", i))
	}
	for name, change := range map[string]func(f *os.File) error{
		"cut": func(f *os.File) error { return f.Truncate(int64(len(lines[0]) * 9_000)) },
		"longer": func(f *os.File) error {
			_, err := f.WriteAt([]byte(lines[9_999]), int64(len(lines[0])*10_000))
			return err
		},
		"reordered": func(f *os.File) error { _, err := f.WriteAt([]byte(lines[0]), int64(len(lines[0])*9_000)); return err },
	} {
		path := write(t, "x.jsonl", []byte(strings.Join(lines, "")))
		rows, err := New(Config{Path: path}).Rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var row Row
		for err == nil {
			err = rows.Next(&row)
		}
		rows.Close()
		if !codes.Has(err, codes.SnapshotInvalid) || !errors.Is(err, errChanged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestInfoIsOfTheWholeFile(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/snapshot.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Path: "testdata/snapshot.jsonl"})
	info, err := s.Info(t.Context())
	if err != nil || info.Name != s.Path() || info.ID != record.Hash(content) || !info.Bounded || !slices.Equal(info.Partitions, []int32{0}) {
		t.Errorf("got %+v, %v", info, err)
	}
	if n, err := s.Count(t.Context()); n != 18 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if hash, err := s.Hash(t.Context()); hash != info.ID || err != nil {
		t.Errorf("hash %s, %v", hash, err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none.jsonl"), t.TempDir(), os.DevNull} {
		s := New(Config{Path: path})
		if _, err := s.Info(t.Context()); !codes.Has(err, codes.FileMissing) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := s.Open(t.Context(), map[int32]record.Position{0: {}}); !codes.Has(err, codes.FileMissing) {
			t.Errorf("%s: %v", path, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Config{Path: "testdata/snapshot.jsonl"}).Info(ended); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// drain polls a reader to its end and checks positions and headers.
func drain(t *testing.T, r sources.Reader, max int, next record.Position) ([]string, error) {
	t.Helper()
	var got []string
	for {
		batches, err := r.Poll(t.Context(), max)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		b := batches[0]
		if len(batches) != 1 || b.Partition != 0 || len(b.Records) == 0 || max > 0 && len(b.Records) > max || b.Bytes <= 0 {
			t.Fatalf("got %d batches, %+v", len(batches), b)
		}
		for _, rec := range b.Records {
			if rec.Position != next || rec.Arrival != record.NoTime || rec.Headers[0].Key != record.HeaderEventID {
				t.Fatalf("got %+v, want position %s", rec, next)
			}
			next = next.Next()
			got = append(got, fmt.Sprintf("%s %s %s", rec.Headers[0].Value, rec.Key, rec.Value))
		}
		if b.Next != next {
			t.Fatalf("next is %s, want %s", b.Next, next)
		}
		b.Done()
	}
}

func TestAnyFetchSizeAndStartDeliversTheRows(t *testing.T) {
	t.Parallel()
	path, lines := shuffled(t, 3, 700)
	s := New(Config{Path: path, Memory: 10 << 10})
	want := make([]string, len(lines))
	for i, line := range lines {
		f := strings.SplitN(line, " ", 6)
		want[i] = f[1] + " " + f[2] + " " + f[5]
	}
	for _, c := range []struct{ max, from int }{{0, 0}, {1, 0}, {17, 0}, {10_000, 0}, {-1, 300}, {100, 699}, {100, 700}} {
		from := record.Offset(int64(c.from))
		r, err := s.Open(t.Context(), map[int32]record.Position{0: from})
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r, c.max, from)
		if err != nil || !slices.Equal(got, want[c.from:]) {
			t.Errorf("fetch %d from %d: %d rows, %v", c.max, c.from, len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Poll(t.Context(), 1); err != sources.ErrClosed {
			t.Errorf("closed: %v", err)
		}
	}
}

func TestPositionsOutsideTheSnapshotAreRefused(t *testing.T) {
	t.Parallel()
	s := New(Config{Path: "testdata/snapshot.jsonl"})
	if _, err := s.Open(t.Context(), map[int32]record.Position{1: {}}); !codes.Has(err, codes.TopicMissing) {
		t.Errorf("partition 1: %v", err)
	}
	huge, err := record.ParsePosition("99999999999999999999")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), map[int32]record.Position{0: huge}); !codes.Has(err, codes.SnapshotInvalid) {
		t.Errorf("no offset: %v", err)
	}
	r, err := s.Open(t.Context(), map[int32]record.Position{0: record.Offset(19)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Poll(t.Context(), 1); !codes.Has(err, codes.SnapshotInvalid) {
		t.Errorf("beyond the end: %v", err)
	}
	r.Close()
	if r, err = s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Poll(t.Context(), 1); err != io.EOF {
		t.Errorf("no partition: %v", err)
	}
	r.Close()
}

func TestPauseResumeCancelAndClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opening, opened := context.WithCancel(t.Context())
		r, err := New(Config{Path: "testdata/snapshot.jsonl"}).Open(opening, map[int32]record.Position{0: {}})
		if err != nil {
			t.Fatal(err)
		}
		opened() // the context of Open does not end the reading
		first, err := r.Poll(t.Context(), 10)
		if err != nil || len(first[0].Records) != 10 {
			t.Fatalf("got %v, %v", first, err)
		}
		kept := first[0]
		r.Pause(0, 1)
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := r.Poll(hour, 10); err != context.DeadlineExceeded {
			t.Fatalf("paused: %v", err)
		}
		answer := make(chan int)
		fail := make(chan error)
		poll := func() {
			batches, err := r.Poll(t.Context(), 5)
			if err != nil {
				fail <- err
				return
			}
			answer <- len(batches[0].Records)
		}
		go poll()
		synctest.Wait()
		r.Resume(0)
		if n := <-answer; n != 5 {
			t.Fatalf("%d records", n)
		}
		r.Pause(0)
		go poll()
		synctest.Wait()
		r.Close()
		if err := <-fail; err != sources.ErrClosed {
			t.Fatalf("closed: %v", err)
		}
		if id := string(kept.Records[0].Headers[0].Value); id != "fixture.event.0.0" {
			t.Errorf("a batch that is out became %q", id)
		}
		kept.Done()
	})
}

// It is not parallel: allocations are counted for the whole process.
func TestAnAnswerCostsNoAllocationPerRow(t *testing.T) {
	var file bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&file, `{"event_id":"%06d","event_time":"2026-01-05T14:30:00Z","instrument":"1"}`+"\n", i)
	}
	r, err := New(Config{Path: write(t, "x.jsonl", file.Bytes())}).Open(t.Context(), map[int32]record.Position{0: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	allocs := testing.AllocsPerRun(10, func() {
		batches, err := r.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		batches[0].Done()
	})
	if allocs > 20 {
		t.Errorf("%v allocations for 1000 rows", allocs)
	}
}
