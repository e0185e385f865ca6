package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/snapshot"
)

// collector is a producer that writes down what it gets, and on the clock of a test when.
type collector struct {
	clock   *clock
	records []string
	flushes int
	fail    map[int]error // by the number of the record; -1 is Flush
	before  func(n int)
}

func (c *collector) Produce(_ context.Context, r record.Record) error {
	n := len(c.records)
	if c.before != nil {
		c.before(n)
	}
	if err := c.fail[n]; err != nil {
		return err
	}
	line := fmt.Sprintf("%g %s", float64(r.Arrival-defaultStart)/1e9, r.Key)
	if r.Value == nil {
		line += " tombstone"
	}
	for _, h := range r.Headers {
		line += fmt.Sprintf(" %s=%s", h.Key, h.Value)
		clear(h.Value) // it belongs to the caller again, who must not need it any more
	}
	if c.clock != nil {
		line = fmt.Sprintf("[%s] ", c.clock.now.Sub(clockStart)) + line
	}
	c.records = append(c.records, line)
	return nil
}

func (c *collector) Flush(context.Context) error {
	c.flushes++
	return c.fail[-1]
}

// clock is a clock that only waiting moves.
type clock struct{ now time.Time }

var clockStart = time.Unix(1_000_000, 0)

func (c *clock) wait(_ context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return nil
}

func goldenLog(t *testing.T) (path string, built Built) {
	t.Helper()
	s := goldenSchedule(t)
	path = filepath.Join(t.TempDir(), "arrivals.log")
	built, err := Build(t.Context(), BuildConfig{Snapshot: "testdata/snapshot.jsonl", Fields: snapshot.DefaultFields(), Schedule: s, Seed: s.Seed, Out: path})
	if err != nil {
		t.Fatal(err)
	}
	return path, built
}

func buildLog(t *testing.T, entries ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "arrivals.log")
	_, err := Build(t.Context(), BuildConfig{Snapshot: write(t, "s.jsonl", three), Fields: snapshot.DefaultFields(), Schedule: parse(t, entries...), Out: path})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPublishSendsEveryArrival(t *testing.T) {
	t.Parallel()
	path, built := goldenLog(t)
	c := &collector{}
	var progress []int64
	done, err := Publish(t.Context(), PublishConfig{Log: path, Producer: c, Progress: func(n int64) { progress = append(progress, n) }})
	if err != nil || done != (Published{Arrivals: 23, LogHash: built.LogHash}) || c.flushes != 1 || !reflect.DeepEqual(progress, []int64{23}) {
		t.Errorf("%+v, %v, %d flushes, progress %v", done, err, c.flushes, progress)
	}
	for n, want := range map[int]string{
		0:  "0 1 event_id=fixture.event.0.0 arrival=0",
		4:  "60 2 tombstone event_id=fixture.event.1.1 arrival=4 faults=GAP",
		7:  "120 1 event_id=fixture.event.0.2 arrival=7 faults=DUPLICATE",
		12: "182 1 event_id=fixture.event.0.3 arrival=12 faults=DELAY",
		22: "300 3 event_id=fixture.event.2.5 arrival=22",
	} {
		if c.records[n] != want {
			t.Errorf("record %d: %s, want %s", n, c.records[n], want)
		}
	}
}

func TestPublishKeepsDistancesAndStandsStill(t *testing.T) {
	t.Parallel()
	entries := []string{`{"event_id":"b","kind":"PAUSE","wall_ms":100}`, `{"event_id":"b","kind":"SOURCE_FAILURE","wall_ms":300}`, `{"event_id":"c","kind":"DUPLICATE"}`, `{"event_id":"a","kind":"REVISION","domain_ms":1}`}
	path := buildLog(t, entries...)
	for speed, want := range map[string][]string{
		"max":      {"[0s]", "[0s]", "[0s]", "[0s]", "[0s]"},
		"realtime": {"[0s]", "[0s]", "[1.4s]", "[2.4s]", "[2.4s]"}, // a millisecond is not waited for by itself
		"10x":      {"[0s]", "[0s]", "[500ms]", "[600ms]", "[600ms]"},
		"0.5":      {"[0s]", "[0s]", "[2.4s]", "[4.4s]", "[4.4s]"},
	} {
		s, err := ParseSpeed(speed)
		if err != nil {
			t.Fatal(err)
		}
		k := &clock{now: clockStart}
		c := &collector{clock: k}
		if _, err := Publish(t.Context(), PublishConfig{Log: path, Producer: c, Speed: s, Now: func() time.Time { return k.now }, Wait: k.wait}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range c.records {
			at, _, _ := strings.Cut(r, " ")
			got = append(got, at)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("speed %s: %v, want %v", speed, got, want)
		}
		if flushes := map[string]int{"max": 1, "realtime": 4, "10x": 4, "0.5": 4}[speed]; c.flushes != flushes {
			t.Errorf("speed %s: %d flushes, want %d", speed, c.flushes, flushes)
		}
	}
}

func TestPublishCatchesUpWhenItIsSlow(t *testing.T) {
	t.Parallel()
	path := buildLog(t)
	k := &clock{now: clockStart}
	c := &collector{clock: k, before: func(n int) {
		if n == 1 {
			k.now = k.now.Add(1500 * time.Millisecond)
		}
	}}
	s, _ := ParseSpeed("1")
	if _, err := Publish(t.Context(), PublishConfig{Log: path, Producer: c, Speed: s, Now: func() time.Time { return k.now }, Wait: k.wait}); err != nil {
		t.Fatal(err)
	}
	// The second one was handed over at 1 s and took 1.5 s, so that the third is late already.
	if want := "[2.5s] 2 1 event_id=c arrival=2"; c.records[2] != want {
		t.Errorf("%s, want %s", c.records[2], want)
	}
}

func TestPublishWithTheSystemsClock(t *testing.T) {
	t.Parallel()
	path := buildLog(t)
	synctest.Test(t, func(t *testing.T) {
		s, _ := ParseSpeed("realtime")
		start := time.Now()
		if _, err := Publish(t.Context(), PublishConfig{Log: path, Producer: &collector{}, Speed: s}); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		start = time.Now()
		done, err := Publish(ctx, PublishConfig{Log: path, Producer: &collector{}, Speed: s})
		if !errors.Is(err, context.DeadlineExceeded) || done.Arrivals != 2 || time.Since(start) != 1500*time.Millisecond {
			t.Errorf("%+v, %v after %v", done, err, time.Since(start))
		}
	})
}

func TestPublishStopsWhenItIsTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if _, err := Build(t.Context(), BuildConfig{Snapshot: generatedSnapshot(t, 2000), Fields: snapshot.DefaultFields(), Out: path}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("told to")
	c := &collector{before: func(n int) {
		if n == 300 {
			cancel(reason)
		}
	}}
	done, err := Publish(ctx, PublishConfig{Log: path, Producer: c})
	if !errors.Is(err, reason) || done.Arrivals < 300 || done.Arrivals > 300+checkEvery || done.LogHash != "" || c.flushes != 0 {
		t.Errorf("%+v, %v, %d flushes", done, err, c.flushes)
	}
}

func TestPublishReportsTheProducersError(t *testing.T) {
	t.Parallel()
	path, _ := goldenLog(t)
	broken := errors.New("broken")
	done, err := Publish(t.Context(), PublishConfig{Log: path, Producer: &collector{fail: map[int]error{5: broken}}})
	if !errors.Is(err, broken) || done.Arrivals != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	done, err = Publish(t.Context(), PublishConfig{Log: path, Producer: &collector{fail: map[int]error{-1: broken}}})
	if !errors.Is(err, broken) || done.Arrivals != 23 || done.LogHash != "" {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestPublishNoticesADamagedLog(t *testing.T) {
	t.Parallel()
	path, _ := goldenLog(t)
	text := read(t, path)
	for name, c := range map[string]struct {
		damaged string
		sent    int64
	}{
		"cut":        {text[:strings.Index(text, `"n":17,"type":"arrival"`)], 17},
		"no end":     {text[:strings.LastIndex(text, `{"arrivals"`)], 23},
		"changed":    {strings.Replace(text, `"close":100.0`, `"close":101.0`, 1), 23},
		"misordered": {strings.Replace(text, `"n":9,`, `"n":8,`, 1), 9},
	} {
		damaged := filepath.Join(t.TempDir(), "damaged.log")
		if err := os.WriteFile(damaged, []byte(c.damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		collected := &collector{}
		done, err := Publish(t.Context(), PublishConfig{Log: damaged, Producer: collected})
		if !codes.Has(err, codes.LogInvalid) || !strings.Contains(err.Error(), "damaged.log") || done.LogHash != "" {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if done.Arrivals != c.sent || collected.flushes != 1 {
			t.Errorf("%s: %d sent, %d flushes", name, done.Arrivals, collected.flushes)
		}
	}
	if _, err := Publish(t.Context(), PublishConfig{Log: filepath.Join(t.TempDir(), "nowhere.log"), Producer: &collector{}}); !codes.Has(err, codes.FileMissing) {
		t.Error(err)
	}
}

func TestParseSpeed(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"max": "max", "realtime": "realtime", "1": "realtime", "1x": "realtime", "10": "10x", "10x": "10x", "0.25": "0.25x", "1e3": "1000x"} {
		s, err := ParseSpeed(in)
		if err != nil || s.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, s, err, want)
		}
		if again, err := ParseSpeed(s.String()); err != nil || again != s {
			t.Errorf("%s does not come back: %v, %v", in, again, err)
		}
	}
	for _, in := range []string{"", "x", "0", "-1", "fast", "NaN", "Inf", "1e999", "10xx", "10 x"} {
		if s, err := ParseSpeed(in); !codes.Has(err, codes.ConfigInvalid) || s != (Speed{}) {
			t.Errorf("%q: %v, %v", in, s, err)
		}
	}
}
