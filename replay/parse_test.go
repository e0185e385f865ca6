package replay

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

func TestTheFixtureIsRead(t *testing.T) {
	t.Parallel()
	s := goldenSchedule(t)
	const ms = time.Millisecond
	want := []Fault{
		{EventID: "fixture.event.0.2", Kind: logfile.Duplicate},
		{EventID: "fixture.event.0.3", Kind: logfile.Delay, Delay: 2000 * ms},
		{EventID: "fixture.event.1.1", Kind: logfile.Gap},
		{EventID: "fixture.event.2.2", Kind: logfile.Revision, Delay: 120000 * ms, Values: map[string]any{"close": 100.25}},
		{EventID: "fixture.event.0.4", Kind: logfile.Pause, Wait: 100 * ms},
		{EventID: "fixture.event.2.4", Kind: logfile.Burst, Count: 3},
		{EventID: "fixture.event.1.4", Kind: logfile.SourceFailure, Wait: 300 * ms},
	}
	if s.Seed != 7 || !reflect.DeepEqual(withoutPlaces(s.Faults), want) {
		t.Errorf("seed %d, faults %+v", s.Seed, s.Faults)
	}
	if s.Faults[1].line != 9 || s.Faults[1].column != 5 {
		t.Errorf("the second entry stands at %d:%d", s.Faults[1].line, s.Faults[1].column)
	}
	canonical, err := record.Canonical([]byte(read(t, "testdata/fault_schedule.json")))
	if err != nil {
		t.Fatal(err)
	}
	if hash, err := s.Hash(); err != nil || hash != record.Hash(canonical) {
		t.Errorf("hash %s, %v, that of the canonical file is %s", hash, err, record.Hash(canonical))
	}
}

func withoutPlaces(faults []Fault) []Fault {
	list := append([]Fault(nil), faults...)
	for i := range list {
		list[i].line, list[i].column = 0, 0
	}
	return list
}

// TestEveryMistakeHasItsPlace puts mistakes into one entry each; the entry starts in line 2, column 1.
func TestEveryMistakeHasItsPlace(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		`{"event_id":"a","kind":"EXPLODE"}`:                                 "2:24: faults[0]: unknown kind \"EXPLODE\"; the kinds are BURST, DELAY, DUPLICATE, GAP, PAUSE, REVISION, SOURCE_FAILURE",
		`{"event_id":"a","kind":"gap"}`:                                     "2:24: faults[0]: unknown kind \"gap\"",
		`{"event_id":"a","kind":4}`:                                         "2:24: faults[0]: unknown kind 4",
		`{"event_id":"a"}`:                                                  "2:1: faults[0]: kind is missing",
		`{"kind":"GAP"}`:                                                    "2:1: faults[0]: event_id is missing",
		`{"event_id":7,"kind":"GAP"}`:                                       "2:13: faults[0]: event_id must be a string",
		`{"event_id":"a","kind":"GAP","evnet":1}`:                           "2:30: faults[0]: unknown field \"evnet\"",
		`{"event_id":"a","kind":"GAP","count":1}`:                           "2:30: faults[0]: GAP takes no count",
		`{"event_id":"a","kind":"DELAY"}`:                                   "2:1: faults[0]: DELAY needs domain_ms",
		`{"event_id":"a","kind":"DELAY","wall_ms":5}`:                       "2:32: faults[0]: DELAY takes no wall_ms\n2:1: faults[0]: DELAY needs domain_ms",
		`{"event_id":"a","kind":"DELAY","domain_ms":-5}`:                    "2:44: faults[0]: domain_ms must not be negative: -5",
		`{"event_id":"a","kind":"DELAY","domain_ms":-99999999999999999999}`: "2:44: faults[0]: domain_ms must not be negative",
		`{"event_id":"a","kind":"DELAY","domain_ms":1.0}`:                   "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not 1.0",
		`{"event_id":"a","kind":"DELAY","domain_ms":1e3}`:                   "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not 1e3",
		`{"event_id":"a","kind":"DELAY","domain_ms":"1"}`:                   "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not \"1\"",
		`{"event_id":"a","kind":"DELAY","domain_ms":NaN}`:                   "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not NaN",
		`{"event_id":"a","kind":"DELAY","domain_ms":-Infinity}`:             "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not -Infinity",
		`{"event_id":"a","kind":"DELAY","domain_ms":null}`:                  "2:44: faults[0]: domain_ms must be a whole number of milliseconds, not null",
		`{"event_id":"a","kind":"DELAY","domain_ms":9223372036855}`:         "2:44: faults[0]: domain_ms must be between 0 and 9223372036854",
		`{"event_id":"a","kind":"PAUSE","wall_ms":-1}`:                      "2:42: faults[0]: wall_ms must not be negative",
		`{"event_id":"a","kind":"SOURCE_FAILURE"}`:                          "2:1: faults[0]: SOURCE_FAILURE needs wall_ms",
		`{"event_id":"a","kind":"BURST"}`:                                   "2:1: faults[0]: BURST needs count",
		`{"event_id":"a","kind":"BURST","count":0}`:                         "2:40: faults[0]: count must be between 1 and 1000000, not 0",
		`{"event_id":"a","kind":"BURST","count":-3}`:                        "2:40: faults[0]: count must not be negative",
		`{"event_id":"a","kind":"BURST","count":1000001}`:                   "2:40: faults[0]: count must be between 1 and 1000000",
		`{"event_id":"a","kind":"REVISION","close":1}`:                      "2:1: faults[0]: REVISION needs domain_ms",
		`{"event_id":"a","kind":"REVISION","domain_ms":1,"close":"x"}`:      "2:57: faults[0]: the value of \"close\" is no number",
		`{"event_id":"a","kind":"REVISION","domain_ms":1,"close":NaN}`:      "2:57: faults[0]: the value of \"close\" is no finite number",
		`{"event_id":"a","kind":"REVISION","domain_ms":1,"close":1e400}`:    "2:57: faults[0]: the value of \"close\" is no finite number",
		`{"event_id":"a","kind":"REVISION","domain_ms":1,"count":1}`:        "2:49: faults[0]: REVISION takes no count",
		`{"event_id":"a","kind":"GAP","kind":"GAP"}`:                        "2:30: faults[0]: the field \"kind\" stands here a second time",
		`"a"`: "2:1: faults[0]: an entry must be an object",
		`null, {"event_id":"a","kind":"GAP"}, {"event_id":"a","kind":"GAP"}`: "2:1: faults[0]: an entry must be an object\n2:38: faults[2]: duplicate entry: event \"a\" has a GAP already, at line 2",
	} {
		s, err := ParseSchedule("f.json", []byte(`{"format":"fault-schedule/1","faults":[`+"\n"+entry+"]}"))
		if !codes.Has(err, codes.ScheduleInvalid) || s != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		for _, line := range strings.Split(want, "\n") {
			if !strings.Contains(err.Error(), "f.json:"+line) {
				t.Errorf("%s\ngot  %v\nwant %s", entry, err, line)
			}
		}
		if got, want := strings.Count(err.Error(), "\n"), strings.Count(want, "\n"); got != want {
			t.Errorf("%s: %d errors, want %d: %v", entry, got+1, want+1, err)
		}
	}
}

func TestEveryMistakeOfTheDocument(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		``:                                "f.json:1:1: ",
		`[]`:                              "f.json:1:1: ",
		"{\n\"format\"":                   "f.json:2:9: ",
		`{"format":"fault-schedule/1"} x`: "f.json:1:31: ",
		`{}`:                              "f.json:1:1: the field \"faults\" is missing: a list of entries\nf.json:1:1: the field \"format\" is missing: write \"format\": \"fault-schedule/1\"",
		`{"format":"fault-schedule/2","faults":[]}`:                                               `f.json:1:11: format is "fault-schedule/2"; this version reads "fault-schedule/1"`,
		`{"format":1,"faults":{}}`:                                                                "f.json:1:11: format is 1; this version reads \"fault-schedule/1\"\nf.json:1:22: faults must be a list",
		`{"format":"fault-schedule/1","faults":[],"seed":-1}`:                                     "f.json:1:49: seed must be an integer between 0 and 18446744073709551615",
		`{"format":"fault-schedule/1","faults":[],"seed":1.0}`:                                    "f.json:1:49: seed must be",
		`{"format":"fault-schedule/1","faults":[],"sede":1}`:                                      `f.json:1:42: unknown field "sede"; a schedule has format, seed and faults`,
		`{"format":"fault-schedule/1","faults":[],"faults":[]}`:                                   `f.json:1:42: the field "faults" stands here a second time`,
		"{\"format\":\"fault-schedule/1\",\"faults\":[{\"event_id\":\"\xff\",\"kind\":\"GAP\"}]}": "f.json:1:53: ",
	} {
		_, err := ParseSchedule("f.json", []byte(src))
		if !codes.Has(err, codes.ScheduleInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", src, err, want)
		}
	}
}

func TestAllMistakesAtOnceInTheirOrder(t *testing.T) {
	t.Parallel()
	_, err := ParseSchedule("f.json", []byte(`{"format":"fault-schedule/1","seed":1,"faults":[
{"event_id":"a","kind":"GAP"},
{"event_id":"a","kind":"GAP"},
{"event_id":"b","kind":"DELAY","domain_ms":-5},
{"event_id":"b","kind":"EXPLODE"}],
"more":1}`))
	var errs *ScheduleErrors
	if !errors.As(err, &errs) || errs.File != "f.json" || len(errs.List) != 4 {
		t.Fatalf("%v", err)
	}
	want := []ScheduleError{{Line: 3, Column: 1, Entry: 1}, {Line: 4, Column: 44, Entry: 2}, {Line: 5, Column: 24, Entry: 3}, {Line: 6, Column: 1, Entry: -1}}
	for i, e := range errs.List {
		if e.Message = ""; e != want[i] {
			t.Errorf("error %d: %+v, want %+v", i, e, want[i])
		}
	}
}

func TestVeryManyMistakesAreCounted(t *testing.T) {
	t.Parallel()
	src := `{"format":"fault-schedule/1","faults":[` + strings.Repeat("\n0,", 5000) + `0]}`
	_, err := ParseSchedule("f.json", []byte(src))
	var errs *ScheduleErrors
	if !errors.As(err, &errs) || len(errs.List) != maxErrors || errs.Omitted != 5001-maxErrors || !strings.Contains(err.Error(), "4001 more errors") {
		t.Fatalf("%.200v", err)
	}
}

// TestEncodeAndParseAreInverse also checks that the hash is that of the canonical document.
func TestEncodeAndParseAreInverse(t *testing.T) {
	t.Parallel()
	s := &Schedule{Seed: 1<<64 - 1, Faults: []Fault{
		{EventID: "a\"\\\n\u2028é", Kind: logfile.Gap},
		{EventID: "", Kind: logfile.Delay},
		{EventID: "b", Kind: logfile.Burst, Count: MaxBurst},
		{EventID: "b", Kind: logfile.Revision, Values: map[string]any{"close": -0.5, "zz": record.Integer("12345678901234567890123"), "": 2.0, "a b": record.Integer("-1")}},
		{EventID: "b", Kind: logfile.Pause, Wait: 9223372036854 * time.Millisecond},
	}}
	for _, n := range []int{0, 1, len(s.Faults)} {
		part := &Schedule{Seed: s.Seed, Faults: s.Faults[:n:n]}
		text, err := part.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSchedule("f.json", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.Seed != s.Seed || len(again.Faults) != n || n > 0 && !reflect.DeepEqual(withoutPlaces(again.Faults), part.Faults) {
			t.Errorf("%+v became %+v", part, again)
		}
		canonical, err := record.Canonical(text)
		if err != nil {
			t.Fatal(err)
		}
		if hash, err := part.Hash(); err != nil || hash != record.Hash(canonical) || strings.ReplaceAll(string(text), "\n", "") != string(canonical) {
			t.Errorf("hash %s, %v; canonical %s", hash, err, canonical)
		}
		for i, f := range again.Faults {
			if f.line != i+2 {
				t.Errorf("fault %d stands in line %d", i, f.line)
			}
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add(`{"format":"fault-schedule/1","seed":7,"faults":[{"event_id":"a","kind":"REVISION","domain_ms":1,"close":1.5},{"event_id":"b","kind":"BURST","count":2}]}`)
	f.Add(`{"format":"fault-schedule/1","faults":[{"event_id":"\u0061","kind":"GAP"} , {"event_id":"a","kind":"GAP","x":[{"}":"\""}]}]}`)
	f.Add(`{"a":{"b":[1,2,{"c":"\\"}]},"faults":[[],NaN,-Infinity,1e400]}`)
	f.Fuzz(func(t *testing.T, src string) {
		s, err := ParseSchedule("f", []byte(src))
		if err != nil {
			var errs *ScheduleErrors
			if !errors.As(err, &errs) || len(errs.List) == 0 {
				t.Fatalf("an error without a place: %v", err)
			}
			lines := strings.Split(src, "\n")
			for _, e := range errs.List {
				if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
					t.Fatalf("no such place: %+v", e)
				}
			}
			return
		}
		text, err := s.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := ParseSchedule("f", text)
		if err != nil || again.Seed != s.Seed || fmt.Sprint(withoutPlaces(again.Faults)) != fmt.Sprint(withoutPlaces(s.Faults)) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}
