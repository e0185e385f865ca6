package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

func TestUnknownEventsAreAllListed(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"event_id":"nobody","kind":"GAP"}`, `{"event_id":"a","kind":"GAP"}`, `{"event_id":"noone","kind":"DUPLICATE"}`, `{"event_id":"nobody","kind":"PAUSE","wall_ms":1}`)
	path := write(t, "s.jsonl", three)
	refused(t, BuildConfig{Snapshot: path, Schedule: s}, codes.ScheduleInvalid,
		`faults.json:1:49: faults[0]: the snapshot has no event "nobody"`+"\n"+
			`faults.json:3:1: faults[2]: the snapshot has no event "noone"`+"\n"+
			`faults.json:4:1: faults[3]: the snapshot has no event "nobody"`)
	byHand := &Schedule{Faults: []Fault{{EventID: "nobody", Kind: 3}}}
	refused(t, BuildConfig{Snapshot: path, Schedule: byHand}, codes.ScheduleInvalid, `fault schedule: faults[0]: the snapshot has no event "nobody"`)
}

func TestAScheduleMadeByHandIsCheckedToo(t *testing.T) {
	t.Parallel()
	s := &Schedule{Faults: []Fault{
		{EventID: "a", Kind: 99}, {EventID: "a", Kind: 1, Delay: -1e6}, {EventID: "a", Kind: 2, Count: 3}, {EventID: "b", Kind: 1, Delay: 1},
		{EventID: "b", Kind: 5, Values: map[string]any{"close": "x"}}, {EventID: "c", Kind: 0}, {EventID: "b", Kind: 1}, {EventID: "\xff", Kind: 3},
	}}
	refused(t, BuildConfig{Snapshot: write(t, "s.jsonl", three), Schedule: s}, codes.ScheduleInvalid,
		"faults[0]: there is no kind", "faults[1]: domain_ms must not be negative", "faults[2]: DUPLICATE takes no count", "faults[3]: domain_ms must be whole",
		`faults[4]: the value of "close" is no number`, "faults[5]: count must be between 1", `faults[6]: duplicate entry: event "b" has a DELAY already, at faults[3]`, "faults[7]: event_id is not UTF-8")
	if _, err := s.Encode(); !codes.Has(err, codes.ScheduleInvalid) {
		t.Errorf("Encode: %v", err)
	}
}

func TestARevisionKeepsTheIdentityOfItsEvent(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"event_id":"a","kind":"REVISION","domain_ms":1,"instrument":2}`, `{"event_id":"b","kind":"REVISION","domain_ms":1,"close":2}`, `{"event_id":"c","kind":"REVISION","domain_ms":1,"revision":2}`)
	refused(t, BuildConfig{Snapshot: write(t, "s.jsonl", three), Schedule: s}, codes.ScheduleInvalid, "faults.json:1:49", `leave "instrument" out`, "faults.json:3:1", `leave "revision" out`)
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "nowhere.jsonl")
	refused(t, BuildConfig{Snapshot: missing}, codes.FileMissing, "nowhere.jsonl")
	refused(t, BuildConfig{Snapshot: t.TempDir()}, codes.FileMissing)
	for name, c := range map[string]struct{ text, place string }{
		"cut":       {three[:len(three)-20], "s.jsonl:3:"},
		"text":      {three + "hello\n", "s.jsonl:4:1"},
		"no zone":   {strings.Replace(three, "01Z", "01", 1), "s.jsonl:2:"},
		"no id":     {strings.Replace(three, `"event_id":"b",`, "", 1), "s.jsonl:2:"},
		"twice":     {strings.Replace(three, `"close":2.0`, `"close":2.0,"close":3.0`, 1), "s.jsonl:2:14: duplicate"},
		"surrogate": {strings.Replace(three, `"close":2.0`, `"x":"\ud800"`, 1), "s.jsonl:2:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, BuildConfig{Snapshot: write(t, "s.jsonl", c.text)}, codes.SnapshotInvalid, c.place)
		})
	}
}

func TestUnusableOutput(t *testing.T) {
	t.Parallel()
	path := write(t, "s.jsonl", three)
	refused(t, BuildConfig{Snapshot: path, Out: filepath.Join(t.TempDir(), "no", "such", "folder.log")}, codes.OutputUnwritable, "folder.log")
	refused(t, BuildConfig{Snapshot: path, Out: path}, codes.ConfigInvalid, "place of the snapshot")
	if read(t, path) != three {
		t.Error("the snapshot was written over")
	}
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI lacks /dev/full, which stands for a full disk")
		}
		t.Skip("this system has no /dev/full to stand for a full disk")
	}
	refused(t, BuildConfig{Snapshot: path, Out: full}, codes.OutputUnwritable, full, "no space left")
}

func TestAnOlderLogStaysWhenABuildFails(t *testing.T) {
	t.Parallel()
	out := write(t, "arrivals.log", "older")
	_, err := Build(t.Context(), BuildConfig{Snapshot: write(t, "s.jsonl", three), Fields: snapshot.DefaultFields(), Schedule: parse(t, `{"event_id":"x","kind":"GAP"}`), Out: out})
	if !codes.Has(err, codes.ScheduleInvalid) || read(t, out) != "older" {
		t.Errorf("error %v, file %q", err, read(t, out))
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := write(t, "s.jsonl", three)
	_, err := Build(ctx, BuildConfig{Snapshot: path, Fields: snapshot.DefaultFields(), Out: filepath.Join(t.TempDir(), "x")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Build: %v", err)
	}
	if _, err = RandomSchedule(ctx, path, snapshot.DefaultFields(), 1, Rates{}); !errors.Is(err, context.Canceled) {
		t.Errorf("RandomSchedule: %v", err)
	}
	dir := t.TempDir()
	err = Generate(ctx, GenerateConfig{Events: 10, Instruments: 1, Snapshot: filepath.Join(dir, "s"), Faults: filepath.Join(dir, "f")})
	if left, _ := os.ReadDir(dir); !errors.Is(err, context.Canceled) || len(left) > 0 {
		t.Errorf("Generate: %v, left %v", err, left)
	}
}

func TestAnEmptySnapshotGivesAnEmptyLog(t *testing.T) {
	t.Parallel()
	arrivals, built := build(t, write(t, "s.jsonl", ""), nil)
	if len(arrivals) != 0 || built.FaultsApplied != 0 {
		t.Errorf("%v, %+v", arrivals, built)
	}
}

func TestValuesBecomeCanonical(t *testing.T) {
	t.Parallel()
	const id = `,"event_id":"a","event_time":"2026-01-05T14:30:00Z","instrument":"1"`
	for in, want := range map[string]string{
		`{ "instrument": "1", "event_time": "2026-01-05T14:30:00Z", "event_id": "a", "close": 1.50 }`: `{"close":1.5` + id + `}`,
		`{"close":NaN` + id + `}`:                      `{"close":null` + id + `}`,
		`{"close":-Infinity` + id + `,"x":Infinity}`:   `{"close":null` + id + `,"x":null}`,
		`{"close":1e400` + id + `,"n":[1,-1.5e999]}`:   `{"close":null` + id + `,"n":[1,null]}`,
		`{"close":"NaN"` + id + `,"I":"1e400, \"NaN"}`: `{"I":"1e400, \"NaN","close":"NaN"` + id + `}`,
		`{"close":123456789012345678901` + id + `}`:    `{"close":123456789012345678901` + id + `}`,
		`{"a":NaN,"close":1E2` + id + `}`:              `{"a":null,"close":100.0` + id + `}`,
	} {
		arrivals, _ := build(t, write(t, "s.jsonl", in+"\n"), nil)
		if got := string(arrivals[0].Value); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// TestPlainValuesAreToldRight compares the short cut with the rule: whatever it calls canonical is.
func TestPlainValuesAreToldRight(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 1))
	pieces := []string{"{", "}", "[", "]", ",", ":", `"a"`, `"b"`, `"c"`, `"\n"`, `"é"`, "1", "0", "-0", "-1", "1.0", "-0.0", "0.0", "0.5", "1.50", "0.0001", "0.00001", "0.00012",
		"123456789012345.5", "12345678901234.5", "12345678901234.25", "1e5", "1.5e3", "0.1234567890123456", "1e400", "NaN", "Infinity", "-Infinity", "null", "true", "false", " "}
	scalar := func() string { return pieces[6+rng.IntN(len(pieces)-7)] }
	plain, other := 0, 0
	for range 60000 {
		doc := "{"
		for i := range rng.IntN(4) {
			if i > 0 {
				doc += ","
			}
			doc += pieces[6+rng.IntN(5)] + ":" + scalar()
			if rng.IntN(15) == 0 {
				doc += " "
			}
		}
		doc += "}"
		if rng.IntN(10) == 0 {
			doc = strings.Replace(doc, scalar(), "["+scalar()+"]", 1)
		}
		if err := record.NewScanner(nil).Scan([]byte(doc), nil); err != nil {
			continue
		}
		canonical, err := record.Canonical([]byte(doc))
		same := err == nil && string(canonical) == doc
		if isCanonical([]byte(doc)) {
			plain++
			if !same {
				t.Fatalf("%s was taken for canonical; that is %s, %v", doc, canonical, err)
			}
		} else if same {
			other++
		}
	}
	if plain < 1000 || other > plain/2 {
		t.Errorf("%d were recognised and %d were not: the short cut is not taken", plain, other)
	}
	for range 20000 { // floats of every size
		f := rng.NormFloat64() * float64(uint64(1)<<rng.IntN(60)) / float64(uint64(1)<<rng.IntN(40))
		if rng.IntN(2) == 0 {
			f = float64(int64(f*100)) / 100
		}
		doc := string(record.AppendFloat([]byte(`{"a":`), f)) + "}"
		if rng.IntN(3) == 0 { // a digit more or less
			doc = doc[:len(doc)-1] + string(byte('0'+rng.IntN(10))) + "}"
		}
		canonical, err := record.Canonical([]byte(doc))
		if isCanonical([]byte(doc)) && (err != nil || string(canonical) != doc) {
			t.Fatalf("%s was taken for canonical; that is %s, %v", doc, canonical, err)
		}
	}
}

func TestCSVGivesTheArrivalsOfJSON(t *testing.T) {
	t.Parallel()
	csv := "close,event_id,event_time,instrument\n1.0,a,2026-01-05T14:30:00Z,1\n3.0,c,2026-01-05T14:30:02Z,1\n2.0,b,2026-01-05T14:30:01Z,1\n"
	s := parse(t, `{"event_id":"b","kind":"REVISION","domain_ms":10,"close":7}`)
	a, _ := build(t, write(t, "s.csv", csv), s)
	b, _ := build(t, write(t, "s.jsonl", three), s)
	if got, want := short(t, a), short(t, b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestOtherFieldsAndUnits(t *testing.T) {
	t.Parallel()
	path := write(t, "s.jsonl", `{"id":12,"k":"x","ts":1500,"v":1}`+"\n"+`{"id":13,"k":null2,"ts":1500,"v":1}`+"\n")
	fields := snapshot.Fields{ID: "id", Key: "k", Time: "ts", Unit: flow.Milliseconds}
	refused(t, BuildConfig{Snapshot: path, Fields: fields}, codes.SnapshotInvalid, "s.jsonl:2")
	path = write(t, "s.jsonl", `{"id":12,"k":"x","ts":1500,"v":1}`+"\n")
	out := filepath.Join(t.TempDir(), "log")
	if _, err := Build(t.Context(), BuildConfig{Snapshot: write(t, "s.jsonl", three), Out: out}); err != nil {
		t.Fatal(err)
	}
	if _, r := readLog(t, out); r.Header().Fields != (logfile.Fields{ID: "event_id", Key: "instrument", Time: "event_time", Unit: "rfc3339"}) {
		t.Errorf("fields by default: %+v", r.Header().Fields)
	}
	_, err := Build(t.Context(), BuildConfig{Snapshot: path, Fields: fields, Schedule: parse(t, `{"event_id":"12","kind":"REVISION","domain_ms":5,"v":2}`), Seed: 3, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	arrivals, r := readLog(t, out)
	if h := r.Header(); h.Seed != 3 || h.Fields.Unit != "ms" || h.Fields.ID != "id" || h.ScheduleHash == "" {
		t.Errorf("header %+v", h)
	}
	if a := arrivals[1]; len(arrivals) != 2 || a.Time != 1505e6 || string(a.Value) != `{"id":12,"k":"x","revision":1,"ts":1500,"v":2}` {
		t.Errorf("revision %+v %s", a, a.Value)
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	snap := filepath.Join(dir, "s.jsonl")
	if err := Generate(t.Context(), GenerateConfig{Events: 3000, Instruments: 7, Seed: 5, Snapshot: snap}); err != nil {
		t.Fatal(err)
	}
	var logs [2]string
	for i := range logs {
		s, err := RandomSchedule(t.Context(), snap, snapshot.DefaultFields(), 9, Rates{Duplicate: .1, Delay: .2, Gap: .1, Revision: .1, Pause: .1, Burst: .1, SourceFailure: .1})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "log")
		if _, err := Build(t.Context(), BuildConfig{Snapshot: snap, Fields: snapshot.DefaultFields(), Schedule: s, Seed: 9, Out: out}); err != nil {
			t.Fatal(err)
		}
		logs[i] = read(t, out)
	}
	if logs[0] != logs[1] {
		t.Error("two builds differ")
	}
	out := filepath.Join(dir, "log")
	if _, err := Build(t.Context(), BuildConfig{Snapshot: snap, Fields: snapshot.DefaultFields(), Seed: 10, Out: out}); err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(read(t, out), "\n"); !strings.Contains(head, `"schedule_hash":null,"seed":10`) {
		t.Errorf("header %s", head)
	}
}
