package replay

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// generatedHash freezes the generator: the same seed has to give the same events in every version and on every platform.
const (
	generatedHash       = "sha256:38521ae284001d7dd8f7a205ca43730a314e4e2eea93431d204d09d8c35402ba"
	generatedFaultsHash = "sha256:51ef92c6d61937a1507487a31f0bdee5e165206f14629575866ce9dfa64f51d5"
)

func generate(t *testing.T, cfg GenerateConfig) (events, faults string) {
	t.Helper()
	dir := t.TempDir()
	cfg.Snapshot = filepath.Join(dir, "s.jsonl")
	if cfg.Faults != "" {
		cfg.Faults = filepath.Join(dir, cfg.Faults)
	}
	if err := Generate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Faults != "" {
		faults = read(t, cfg.Faults)
	}
	return read(t, cfg.Snapshot), faults
}

var busy = GenerateConfig{Events: 5000, Instruments: 12, Seed: 42, Rate: 2000, Faults: "f.json", Disorder: .1, Gaps: .02, Revisions: .03, Duplicates: .05, MaxDelay: 4 * time.Second}

func TestGeneratedBytesAreFrozen(t *testing.T) {
	t.Parallel()
	events, faults := generate(t, busy)
	if got := record.Hash([]byte(events)); got != generatedHash {
		t.Errorf("events: %s", got)
	}
	if got := record.Hash([]byte(faults)); got != generatedFaultsHash {
		t.Errorf("faults: %s", got)
	}
	other := busy
	other.Disorder, other.Gaps, other.Faults = 0, 0, ""
	if again, _ := generate(t, other); again != events {
		t.Error("the events depend on the faults")
	}
	other = busy
	other.Seed++
	if again, _ := generate(t, other); again == events {
		t.Error("another seed gave the same events")
	}
}

func TestGeneratedEvents(t *testing.T) {
	t.Parallel()
	events, faults := generate(t, busy)
	lines := strings.Split(strings.TrimSuffix(events, "\n"), "\n")
	if len(lines) != 5000 {
		t.Fatalf("%d events", len(lines))
	}
	scanner := record.NewScanner([]string{"event_time", "event_id", "instrument", "close", "volume"})
	var f [5]record.Field
	var last record.EventTime
	var lastID []byte
	ids, instruments, ties := map[string]bool{}, map[string]int{}, 0
	prices := map[string]float64{}
	for _, line := range lines {
		if canonical, err := record.Canonical([]byte(line)); err != nil || string(canonical) != line {
			t.Fatalf("not canonical: %s, %v", line, err)
		}
		if err := scanner.Scan([]byte(line), f[:]); err != nil {
			t.Fatal(err)
		}
		at, err := record.ParseTime(f[0].Raw)
		if err != nil || at%record.EventTime(time.Millisecond) != 0 {
			t.Fatalf("time in %s: %v", line, err)
		}
		if at < last || at == last && bytes.Compare(f[1].Raw, lastID) <= 0 {
			t.Fatalf("out of order: %s", line)
		}
		if at == last {
			ties++
		}
		last, lastID = at, bytes.Clone(f[1].Raw)
		key, price := string(f[2].Raw), record.ParseFloat(f[3].Raw)
		ids[string(lastID)] = true
		instruments[key]++
		if before, ok := prices[key]; ok && math.Abs(price-before) > 0.5 || price <= 0 || price*4 != math.Trunc(price*4) {
			t.Errorf("price %g after %g", price, before)
		}
		prices[key] = price
	}
	if len(ids) != 5000 || len(instruments) != 12 || ties < 1000 {
		t.Errorf("%d ids, %d instruments, %d events at the time of another", len(ids), len(instruments), ties)
	}
	if seconds := float64(last-defaultStart) / 1e9; seconds < 2.3 || seconds > 2.7 {
		t.Errorf("5000 events at 2000 a second took %g s", seconds)
	}
	schedule, err := ParseSchedule("f.json", []byte(faults))
	if err != nil {
		t.Fatal(err)
	}
	var counts [7]int
	for _, f := range schedule.Faults {
		counts[f.Kind]++
		if !ids[f.EventID] || f.Delay > 4*time.Second || f.Kind == logfile.Revision && f.Values["close"] == nil {
			t.Errorf("%+v", f)
		}
	}
	for kind, share := range map[logfile.Kind]float64{logfile.Delay: .1, logfile.Gap: .02, logfile.Revision: .03, logfile.Duplicate: .05} {
		if got := float64(counts[kind]) / 5000; got < share*.7 || got > share*1.3 {
			t.Errorf("%s: share %g, want about %g", kind, got, share)
		}
	}
	_, built := build(t, write(t, "s.jsonl", events), schedule)
	if built.FaultsApplied != int64(len(schedule.Faults)) || built.Arrivals != int64(5000+counts[logfile.Revision]+counts[logfile.Duplicate]) {
		t.Errorf("%+v from %v", built, counts)
	}
}

func TestFewEvents(t *testing.T) {
	t.Parallel()
	events, faults := generate(t, GenerateConfig{Instruments: 1, Faults: "f.json", Gaps: 1})
	if events != "" || faults != "{\"faults\":[\n],\"format\":\"fault-schedule/1\",\"seed\":0}\n" {
		t.Errorf("%q, %q", events, faults)
	}
	if _, err := ParseSchedule("f", []byte(faults)); err != nil {
		t.Error(err)
	}
	start := record.EventTime(1_500_001)
	events, faults = generate(t, GenerateConfig{Events: 1, Instruments: 1, Start: start, Faults: "f.json", Gaps: 1})
	if !strings.Contains(events, `"event_id":"g.1.0","event_time":"1970-01-01T00:00:00.002Z","instrument":"1"`) || !strings.Contains(faults, `{"event_id":"g.1.0","kind":"GAP"}`) {
		t.Errorf("%q, %q", events, faults)
	}
}

func TestGenerateRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	err := Generate(t.Context(), GenerateConfig{Events: -1, Instruments: 0, Rate: -3, Disorder: 2, Gaps: -1, Revisions: math.NaN(), Duplicates: 1.01, MaxDelay: -1, Snapshot: "x", Faults: "./x"})
	if !codes.Has(err, codes.ConfigInvalid) {
		t.Fatal(err)
	}
	for _, w := range []string{"events", "instruments", "rate", "disorder", "gaps", "revisions", "duplicates", "longest delay", "path"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is missing: %v", w, err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	for _, cfg := range []GenerateConfig{
		{Events: 1 << 50, Instruments: 1, Snapshot: path}, {Events: 1, Instruments: 1, Rate: math.NaN(), Snapshot: path},
		{Events: 1, Instruments: 1, Rate: 2e6, Snapshot: path}, {Events: 1, Instruments: 1},
	} {
		if err := Generate(t.Context(), cfg); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestGenerateLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := GenerateConfig{Events: 10, Instruments: 1, Snapshot: filepath.Join(dir, "s.jsonl"), Faults: filepath.Join(dir, "no", "f.json")}
	err := Generate(t.Context(), cfg)
	if left, _ := os.ReadDir(dir); !codes.Has(err, codes.OutputUnwritable) || len(left) != 0 {
		t.Errorf("%v, left %v", err, left)
	}
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI lacks /dev/full, which stands for a full disk")
		}
		t.Skip("this system has no /dev/full to stand for a full disk")
	}
	for _, cfg := range []GenerateConfig{
		{Events: 10, Instruments: 1, Snapshot: full},
		{Events: 5000, Instruments: 1, Snapshot: full},
		{Events: 10, Instruments: 1, Snapshot: filepath.Join(dir, "s.jsonl"), Faults: full},
	} {
		err := Generate(t.Context(), cfg)
		if left, _ := os.ReadDir(dir); !codes.Has(err, codes.OutputUnwritable) || len(left) != 0 {
			t.Errorf("%+v: %v, left %v", cfg, err, left)
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		cfg := busy
		cfg.Events, cfg.Snapshot, cfg.Faults = 100_000, filepath.Join(dir, "s.jsonl"), filepath.Join(dir, "f.json")
		if err := Generate(b.Context(), cfg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/event")
}

func BenchmarkBuild(b *testing.B) {
	dir := b.TempDir()
	cfg := busy
	cfg.Events, cfg.Rate, cfg.Snapshot, cfg.Faults = 100_000, 100, filepath.Join(dir, "s.jsonl"), filepath.Join(dir, "f.json")
	if err := Generate(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	schedule, err := ParseSchedule("f.json", []byte(read(b, cfg.Faults)))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, err := Build(b.Context(), BuildConfig{Snapshot: cfg.Snapshot, Fields: snapshot.DefaultFields(), Schedule: schedule, Out: filepath.Join(dir, "log")})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/event")
}
