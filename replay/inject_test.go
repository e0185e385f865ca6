package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// three are three events, a second apart.
const three = `{"close":1.0,"event_id":"a","event_time":"2026-01-05T14:30:00Z","instrument":"1"}
{"close":2.0,"event_id":"b","event_time":"2026-01-05T14:30:01Z","instrument":"1"}
{"close":3.0,"event_id":"c","event_time":"2026-01-05T14:30:02Z","instrument":"1"}
`

// short writes arrivals as seconds:id:close/revision[kinds]pause/failure, and the audit before them.
func short(t *testing.T, list []keptArrival) string {
	t.Helper()
	var b strings.Builder
	for _, a := range list {
		for _, f := range a.audit {
			if f.EventID != string(a.EventID) || f.N != a.N {
				t.Errorf("the audit %+v stands before arrival %d of %s", f, a.N, a.EventID)
			}
			fmt.Fprintf(&b, "(%s)", f.Kind)
		}
		fmt.Fprintf(&b, "%g:%s:", float64(a.Time-defaultStart)/1e9, a.EventID)
		if a.Value == nil {
			b.WriteString("-")
		} else {
			doc, err := record.Decode(a.Value)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%v", doc.(map[string]any)["close"])
			if r, ok := doc.(map[string]any)["revision"]; ok {
				fmt.Fprintf(&b, "r%v", r)
			}
		}
		if a.Faults != 0 {
			fmt.Fprintf(&b, "[%s]", appendKinds(nil, a.Faults))
		}
		if a.Pause > 0 {
			fmt.Fprintf(&b, "p%d", a.Pause.Milliseconds())
		}
		if a.Failure > 0 {
			fmt.Fprintf(&b, "f%d", a.Failure.Milliseconds())
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestEveryKindAndHowTheyCombine(t *testing.T) {
	t.Parallel()
	const (
		dup   = `{"event_id":"a","kind":"DUPLICATE"}`
		delay = `{"event_id":"a","kind":"DELAY","domain_ms":1500}`
		gap   = `{"event_id":"a","kind":"GAP"}`
		rev   = `{"event_id":"a","kind":"REVISION","domain_ms":1000,"close":9.5}`
		pause = `{"event_id":"a","kind":"PAUSE","wall_ms":100}`
		burst = `{"event_id":"a","kind":"BURST","count":2}`
		fail  = `{"event_id":"a","kind":"SOURCE_FAILURE","wall_ms":300}`
	)
	for _, c := range []struct {
		name, want string
		entries    []string
	}{
		{"none", "0:a:1 1:b:2 2:c:3", nil},
		{"duplicate", "0:a:1 (DUPLICATE)0:a:1[DUPLICATE] 1:b:2 2:c:3", []string{dup}},
		{"delay", "1:b:2 (DELAY)1.5:a:1[DELAY] 2:c:3", []string{delay}},
		{"gap", "(GAP)0:a:-[GAP] 1:b:2 2:c:3", []string{gap}},
		{"revision: at one time the snapshot's order decides", "0:a:1 (REVISION)1:a:9.5r1[REVISION] 1:b:2 2:c:3", []string{rev}},
		{"revision at once", "0:a:1 (REVISION)0:a:1r1[REVISION] 1:b:2 2:c:3", []string{`{"event_id":"a","kind":"REVISION","domain_ms":0}`}},
		{"pause", "(PAUSE)0:a:1[PAUSE]p100 1:b:2 2:c:3", []string{pause}},
		{"burst", "0:a:1 (BURST)0:a:1[BURST] 0:a:1[BURST] 1:b:2 2:c:3", []string{burst}},
		{"failure", "(SOURCE_FAILURE)0:a:1[SOURCE_FAILURE]f300 1:b:2 2:c:3", []string{fail}},
		{"delay and duplicate", "1:b:2 (DELAY)1.5:a:1[DELAY] (DUPLICATE)1.5:a:1[DELAY,DUPLICATE] 2:c:3", []string{delay, dup}},
		{"delay and revision: the revision is first", "(REVISION)1:a:9.5r1[REVISION] 1:b:2 (DELAY)1.5:a:1[DELAY] 2:c:3", []string{rev, delay}},
		{"gap and revision: only the revision comes", "(GAP)0:a:-[GAP] (REVISION)1:a:9.5r1[REVISION] 1:b:2 2:c:3", []string{gap, rev}},
		{"gap and repetitions: tombstones", "(GAP)0:a:-[GAP] (DUPLICATE)0:a:-[DUPLICATE,GAP] (BURST)0:a:-[BURST,GAP] 0:a:-[BURST,GAP] 1:b:2 2:c:3", []string{burst, gap, dup}},
		{"pause and failure", "(PAUSE)(SOURCE_FAILURE)0:a:1[PAUSE,SOURCE_FAILURE]p100f300 1:b:2 2:c:3", []string{fail, pause}},
		{
			"all seven",
			"(REVISION)1:a:9.5r1[REVISION] 1:b:2 (DELAY)(GAP)(PAUSE)(SOURCE_FAILURE)1.5:a:-[DELAY,GAP,PAUSE,SOURCE_FAILURE]p100f300 " +
				"(DUPLICATE)1.5:a:-[DELAY,DUPLICATE,GAP] (BURST)1.5:a:-[BURST,DELAY,GAP] 1.5:a:-[BURST,DELAY,GAP] 2:c:3",
			[]string{dup, delay, gap, rev, pause, burst, fail},
		},
		{"after the last event", "0:a:1 1:b:2 (DELAY)62:c:3[DELAY]", []string{`{"event_id":"c","kind":"DELAY","domain_ms":60000}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arrivals, built := build(t, write(t, "s.jsonl", three), parse(t, c.entries...))
			if got := short(t, arrivals); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if built.FaultsApplied != int64(len(c.entries)) {
				t.Errorf("%d faults applied, want %d", built.FaultsApplied, len(c.entries))
			}
			reversed := slices.Clone(c.entries)
			slices.Reverse(reversed)
			again, _ := build(t, write(t, "s.jsonl", three), parse(t, reversed...))
			if got := short(t, again); got != c.want {
				t.Errorf("in another order of entries: %s", got)
			}
		})
	}
}

// model works out the arrivals the plain way: all of them in memory, then sorted.
func model(t *testing.T, events []event, s *Schedule, revision string) []keptArrival {
	t.Helper()
	type placed struct {
		keptArrival
		event int
	}
	var all []placed
	used := map[faultKey]bool{}
	for i, e := range events {
		find := func(k logfile.Kind) *Fault {
			key := faultKey{string(e.id), k}
			for j := range s.Faults {
				if f := &s.Faults[j]; f.Kind == k && f.EventID == string(e.id) && !used[key] {
					used[key] = true
					return f
				}
			}
			return nil
		}
		put := func(a logfile.Arrival, faults ...*Fault) {
			k := keptArrival{Arrival: a}
			for _, f := range faults {
				if f != nil {
					k.Faults |= logfile.SetOf(f.Kind)
					k.audit = append(k.audit, logfile.Fault{EventID: f.EventID, Kind: f.Kind, Count: f.Count, Delay: f.Delay, Wait: f.Wait, Values: f.Values})
				}
			}
			all = append(all, placed{k, i})
		}
		ms := int64(math.Ceil(float64(e.time) / 1e6)) // exact: the test's times are small
		a := logfile.Arrival{Time: record.EventTime(ms * 1e6), EventID: e.id, Key: e.key, Value: e.value}
		base := a.Time
		delay, gap := find(logfile.Delay), find(logfile.Gap)
		if delay != nil {
			a.Time += record.EventTime(delay.Delay)
			a.Faults |= logfile.SetOf(logfile.Delay)
		}
		if gap != nil {
			a.Value = nil
			a.Faults |= logfile.SetOf(logfile.Gap)
		}
		original := a
		pause, failure := find(logfile.Pause), find(logfile.SourceFailure)
		if pause != nil {
			original.Pause = pause.Wait
		}
		if failure != nil {
			original.Failure = failure.Wait
		}
		put(original, delay, gap, pause, failure)
		if f := find(logfile.Duplicate); f != nil {
			put(a, f)
		}
		if f := find(logfile.Burst); f != nil {
			put(a, f)
			all[len(all)-1].N = f.Count - 1 // repetitions to come
		}
		if f := find(logfile.Revision); f != nil {
			value, err := revise(e.value, revision, f.Values)
			if err != nil {
				t.Fatal(err)
			}
			put(logfile.Arrival{Time: base + record.EventTime(f.Delay), EventID: e.id, Key: e.key, Value: value}, f)
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		switch {
		case a.Time != b.Time:
			return int(min(max(a.Time-b.Time, -1), 1))
		default:
			return a.event - b.event
		}
	})
	var list []keptArrival
	for _, p := range all {
		repetitions := p.N
		p.N = 0
		list = append(list, p.keptArrival)
		p.audit = nil
		for range repetitions {
			list = append(list, p.keptArrival)
		}
	}
	return list
}

// randomEvents are events in order, with equal times, finer times than milliseconds, and now and then an id that was there before.
func randomEvents(rng *rand.Rand) []event {
	var events []event
	now := record.EventTime(rng.Int64N(3e9) - 1e9)
	for i := range rng.IntN(40) {
		if rng.IntN(3) > 0 {
			now += record.EventTime(rng.Int64N(5e6))
		}
		id := fmt.Sprintf("e%02d", i)
		if i > 0 && rng.IntN(10) == 0 {
			id = string(events[rng.IntN(i)].id)
		}
		value := fmt.Sprintf(`{"close":%d.5,"id":"%s"}`, i, id)
		events = append(events, event{time: now, id: []byte(id), key: []byte{byte('a' + rng.IntN(3))}, value: []byte(value)})
	}
	return events
}

func randomFaults(rng *rand.Rand, events []event) *Schedule {
	s := &Schedule{}
	seen := map[faultKey]bool{}
	for range rng.IntN(1 + 2*len(events)) {
		f := Fault{EventID: string(events[rng.IntN(len(events))].id), Kind: logfile.Kind(rng.IntN(7))}
		switch key := (faultKey{f.EventID, f.Kind}); {
		case seen[key]:
			continue
		default:
			seen[key] = true
		}
		ms := time.Duration(rng.IntN(30)) * time.Millisecond
		switch parameter(f.Kind) {
		case domainMember:
			f.Delay = ms
		case wallMember:
			f.Wait = ms
		case countMember:
			f.Count = 1 + rng.Int64N(3)
		}
		if f.Kind == logfile.Revision && rng.IntN(2) == 0 {
			f.Values = map[string]any{"close": 0.25, "volume": record.Integer("7")}
		}
		s.Faults = append(s.Faults, f)
	}
	return s
}

func TestInjectionEqualsThePlainModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1500) {
		rng := rand.New(rand.NewPCG(seed, 5))
		events := randomEvents(rng)
		s := randomFaults(rng, append(events, event{id: []byte("none")})[:max(1, len(events))])
		want := model(t, events, s, "revision")
		if len(events) == 0 {
			s.Faults = nil
		}
		var got []keptArrival
		in := newInjector(s, "revision", func(a *logfile.Arrival, audit []logfile.Fault) error {
			got = append(got, keep(a, audit))
			return nil
		})
		for _, e := range events {
			// The injector must not keep what belongs to its caller.
			mine := event{time: e.time, id: slices.Clone(e.id), key: slices.Clone(e.key), value: slices.Clone(e.value)}
			if err := in.event(&mine); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, b := range [][]byte{mine.id, mine.key, mine.value} {
				clear(b)
			}
		}
		if err := in.finish(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(got) == 0 && len(want) == 0 {
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, %d events, %d faults:\ngot  %+v\nwant %+v", seed, len(events), len(s.Faults), got, want)
		}
		if len(in.delayed) != 0 {
			t.Fatalf("seed %d: %d deliveries are left", seed, len(in.delayed))
		}
	}
}

func TestTimesAreRoundedUpToMilliseconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want record.EventTime
		ok       bool
	}{
		{0, 0, true}, {1, 1e6, true}, {999_999, 1e6, true}, {1e6, 1e6, true}, {1e6 + 1, 2e6, true},
		{-1, 0, true}, {-999_999, 0, true}, {-1e6, -1e6, true}, {-1e6 - 1, -1e6, true},
		{record.MaxTime - 1, 0, false}, {record.NoTime + 1, -9223372036854 * 1e6, true},
	} {
		got, ok := ceilMillis(c.in)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%d: got %d, %v, want %d, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestADelayBeyondTheEndOfTimeIsRefused(t *testing.T) {
	t.Parallel()
	path := write(t, "s.jsonl", three)
	for _, kind := range []string{"DELAY", "REVISION"} {
		s := parse(t, `{"event_id":"a","kind":"GAP"}`, `{"event_id":"b","kind":"`+kind+`","domain_ms":9223372036854}`)
		refused(t, BuildConfig{Snapshot: path, Schedule: s}, codes.ScheduleInvalid, "faults.json:2:1", `"b"`, "2262")
	}
	last := `{"event_id":"z","event_time":"2262-04-11T23:47:16.8547758Z","instrument":"1"}` + "\n"
	refused(t, BuildConfig{Snapshot: write(t, "s.jsonl", three+last)}, codes.SnapshotInvalid, "s.jsonl:4", "millisecond")
}
