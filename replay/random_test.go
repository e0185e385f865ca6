package replay

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// generated writes a snapshot of so many events.
func generatedSnapshot(t testing.TB, events int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := Generate(t.Context(), GenerateConfig{Events: events, Instruments: 5, Seed: 3, Snapshot: path}); err != nil {
		t.Fatal(err)
	}
	return path
}

func random(t testing.TB, path string, seed uint64, r Rates) *Schedule {
	t.Helper()
	s, err := RandomSchedule(t.Context(), path, snapshot.DefaultFields(), seed, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRandomSchedulesKeepTheirRates(t *testing.T) {
	t.Parallel()
	const events = 20000
	path := generatedSnapshot(t, events)
	r := Rates{Duplicate: .05, Delay: .2, Gap: .02, Revision: .1, Pause: .01, Burst: .04, SourceFailure: .03, MinDelay: 10 * time.Millisecond, MaxDelay: time.Second}
	s := random(t, path, 4, r)
	var counts [7]int
	low, high := r.MaxDelay, r.MinDelay
	short := 0
	for _, f := range s.Faults {
		counts[f.Kind]++
		if f.Kind == logfile.Delay {
			low, high = min(low, f.Delay), max(high, f.Delay)
			if f.Delay < 100*time.Millisecond {
				short++
			}
		}
		if f.Kind == logfile.Revision && (len(f.Values) != 1 || f.Delay == 0) {
			t.Errorf("revision %+v", f)
		}
	}
	for kind, share := range map[logfile.Kind]float64{logfile.Duplicate: .05, logfile.Delay: .2, logfile.Gap: .02, logfile.Revision: .1, logfile.Pause: .01, logfile.Burst: .04, logfile.SourceFailure: .03} {
		if got := float64(counts[kind]) / events; got < share*.8 || got > share*1.2 {
			t.Errorf("%s: share %g, want about %g", kind, got, share)
		}
	}
	if low < r.MinDelay || low > 12*time.Millisecond || high > r.MaxDelay || high < 900*time.Millisecond {
		t.Errorf("delays between %v and %v", low, high)
	}
	if part := float64(short) / float64(counts[logfile.Delay]); part < .35 || part > .65 {
		t.Errorf("%g of the delays are below 100 ms, want about the half", part)
	}
	if again := random(t, path, 4, r); !reflect.DeepEqual(s, again) {
		t.Error("the same seed gave another schedule")
	}
	if other := random(t, path, 5, r); reflect.DeepEqual(s.Faults, other.Faults) {
		t.Error("another seed gave the same schedule")
	}
	if _, built := build(t, path, s); built.FaultsApplied != int64(len(s.Faults)) {
		t.Errorf("%d of %d faults were applied", built.FaultsApplied, len(s.Faults))
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseSchedule("f", text); err != nil || !reflect.DeepEqual(withoutPlaces(again.Faults), s.Faults) {
		t.Errorf("it does not come back from a file: %v", err)
	}
}

func TestRatesOfNoneAndAll(t *testing.T) {
	t.Parallel()
	path := write(t, "s.jsonl", three)
	if s := random(t, path, 1, Rates{}); len(s.Faults) != 0 || s.Seed != 1 {
		t.Errorf("%+v", s)
	}
	all := Rates{Duplicate: 1, Delay: 1, Gap: 1, Revision: 1, Pause: 1, Burst: 1, SourceFailure: 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
	s := random(t, path, 1, all)
	if len(s.Faults) != 21 {
		t.Errorf("%d faults", len(s.Faults))
	}
	for _, f := range s.Faults {
		if parameter(f.Kind) == domainMember && f.Delay != time.Millisecond {
			t.Errorf("%+v", f)
		}
	}
	// An id that stands twice has its faults once.
	s = random(t, write(t, "s.jsonl", three+three), 1, all)
	if _, err := s.Encode(); err != nil || len(s.Faults) != 21 {
		t.Errorf("%d faults, %v", len(s.Faults), err)
	}
}

func TestWhatARevisionChanges(t *testing.T) {
	t.Parallel()
	const id = `{"event_id":"a","event_time":"2026-01-05T14:30:00Z","instrument":"1"`
	for in, check := range map[string]func(map[string]any) bool{
		id + `}`:                         func(v map[string]any) bool { return v == nil },
		id + `,"s":"1","b":true}`:        func(v map[string]any) bool { return v == nil },
		id + `,"revision":4}`:            func(v map[string]any) bool { return v == nil },
		id + `,"count":4}`:               func(v map[string]any) bool { return v == nil },
		id + `,"n":9223372036854775807}`: func(v map[string]any) bool { return v == nil },
		id + `,"x":1e308}`:               func(v map[string]any) bool { return len(v) == 1 },
		id + `,"x":1.5}`: func(v map[string]any) bool {
			x, ok := v["x"].(float64)
			return ok && x != 1.5 && x >= -0.5 && x <= 3.5
		},
		id + `,"n":10}`: func(v map[string]any) bool {
			n, ok := v["n"].(record.Integer)
			return ok && n != "10"
		},
	} {
		for seed := range uint64(20) {
			s := random(t, write(t, "s.jsonl", in+"\n"), seed, Rates{Revision: 1})
			if !check(s.Faults[0].Values) {
				t.Errorf("%s: %+v", in, s.Faults[0].Values)
			}
		}
	}
}

func TestRatesOutOfRangeAreAllNamed(t *testing.T) {
	t.Parallel()
	nan := 0.0
	nan /= nan
	_, err := RandomSchedule(t.Context(), "nowhere", snapshot.DefaultFields(), 1, Rates{Duplicate: -.1, Delay: 1.1, Gap: nan, MinDelay: time.Second, MaxDelay: time.Millisecond})
	if !codes.Has(err, codes.ConfigInvalid) {
		t.Fatal(err)
	}
	for _, w := range []string{"rate of duplicate", "rate of delay", "rate of gap", "shortest delay"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is missing: %v", w, err)
		}
	}
	for _, r := range []Rates{{MinDelay: -1}, {MaxDelay: -1}} {
		if _, err := RandomSchedule(t.Context(), "nowhere", snapshot.DefaultFields(), 1, r); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := RandomSchedule(t.Context(), "nowhere.jsonl", snapshot.DefaultFields(), 1, Rates{}); !codes.Has(err, codes.FileMissing) {
		t.Error(err)
	}
}
