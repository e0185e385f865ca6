package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

var testHeader = Header{
	Fields: Fields{ID: "event_id", Key: "instrument", Time: "event_time", Unit: "rfc3339"},
	Seed:   7, SnapshotHash: record.Hash([]byte("snapshot")), ScheduleHash: record.Hash([]byte("schedule")),
}

func at(ms int64) record.EventTime { return record.EventTime(1767623400000+ms) * 1e6 }

// smallLog holds one line of every form: plain, tombstone, no key, escapes, every kind of fault, several at once.
func smallLog(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	fault := func(f Fault) {
		t.Helper()
		if err := w.Fault(&f); err != nil {
			t.Fatal(err)
		}
	}
	arrive := func(a Arrival) {
		t.Helper()
		if err := w.Arrival(&a); err != nil {
			t.Fatal(err)
		}
	}
	e := func(id string, ms int64, kinds ...Kind) Arrival {
		return Arrival{EventID: []byte(id), Time: at(ms), Key: []byte("1"), Value: []byte(`{"close":1.5}`), Faults: SetOf(kinds...)}
	}
	arrive(e("a", 0))
	arrive(Arrival{EventID: []byte("b \"quoted\"\n\u00e9"), Time: at(0), Value: []byte(`{"nested":{"x":[1,2.0]},"é":null}`)})
	fault(Fault{EventID: "a", Kind: Duplicate})
	arrive(e("a", 500, Duplicate))
	fault(Fault{EventID: "c", Kind: Gap})
	fault(Fault{EventID: "c", Kind: Pause, Wait: 100 * time.Millisecond})
	fault(Fault{EventID: "c", Kind: SourceFailure, Wait: 300 * time.Millisecond})
	gap := e("c", 1000, Gap, Pause, SourceFailure)
	gap.Value, gap.Pause, gap.Failure = nil, 100*time.Millisecond, 300*time.Millisecond
	arrive(gap)
	fault(Fault{EventID: "d", Kind: Delay, Delay: 2 * time.Second})
	arrive(e("d", 3000, Delay))
	fault(Fault{EventID: "d", Kind: Burst, Count: 2})
	arrive(e("d", 3000, Burst))
	arrive(e("d", 3000, Burst))
	fault(Fault{EventID: "a", Kind: Revision, Delay: time.Minute, Values: map[string]any{"close": 2.5, "volume": record.Integer("3")}})
	arrive(e("a", 60000, Revision))
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTheFormIsFrozenAndEveryLineIsCanonical(t *testing.T) {
	t.Parallel()
	text := string(smallLog(t))
	golden(t, "small.log", text)
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if canonical, err := record.Canonical([]byte(line)); err != nil || string(canonical) != line {
			t.Errorf("line %d is not canonical: %v", i+1, err)
		}
	}
	body := text[:strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1]
	if want := record.Hash([]byte(body)); !strings.Contains(text, `"log_hash":"`+want+`"`) {
		t.Errorf("log_hash is not that of the lines before it, %s", want)
	}
}

// golden compares with a frozen file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from what was frozen:\n%s", name, got)
	}
}

func TestReadingGivesWhatWasWritten(t *testing.T) {
	t.Parallel()
	src := smallLog(t)
	r, err := NewReader(bytes.NewReader(src), "log")
	if err != nil {
		t.Fatal(err)
	}
	if r.Header() != testHeader {
		t.Errorf("header %+v", r.Header())
	}
	if r.End() != (End{}) {
		t.Error("an end before the end")
	}
	var again bytes.Buffer
	w, err := NewWriter(&again, r.Header())
	if err != nil {
		t.Fatal(err)
	}
	var a Arrival
	for {
		err := r.Next(&a)
		for _, f := range r.Faults() {
			if err := w.Fault(&f); err != nil {
				t.Fatal(err)
			}
		}
		if err == io.EOF {
			break
		}
		if err == nil {
			err = w.Arrival(&a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	end, err := w.Finish()
	if err != nil || end != r.End() || end.Arrivals != 8 || end.FaultsApplied != 7 {
		t.Errorf("end %+v, %+v, %v", end, r.End(), err)
	}
	if !bytes.Equal(again.Bytes(), src) {
		t.Errorf("written again:\n%s", again.Bytes())
	}
	if err := r.Next(&a); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// readAll reads a log by the Reader and by a Source and fails the test when they disagree on whether it is sound.
func readAll(t *testing.T, log []byte) error {
	t.Helper()
	return readAllAt(t, filepath.Join(t.TempDir(), "x.log"), log)
}

func readAllAt(t *testing.T, path string, log []byte) error {
	t.Helper()
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := Verify(path)
	_, sourceErr := drain(t, NewSource(path, SourceConfig{Partitions: 3}), 2)
	if (err == nil) != (sourceErr == nil) {
		t.Fatalf("the reader says %v, the source %v", err, sourceErr)
	}
	return err
}

func TestEveryTruncationIsRefusedWithTheLine(t *testing.T) {
	t.Parallel()
	log := smallLog(t)
	if err := readAll(t, log); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.log")
	for n := range log {
		err := readAllAt(t, path, log[:n])
		line := 1 + bytes.Count(log[:n], []byte{'\n'})
		if !codes.Has(err, codes.LogInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("x.log:%d: ", line)) {
			t.Fatalf("cut at byte %d: got %v, want line %d", n, err, line)
		}
	}
}

func TestEveryChangedByteIsRefused(t *testing.T) {
	t.Parallel()
	log := smallLog(t)
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "x.log")
	for n := range log {
		damaged := bytes.Clone(log)
		damaged[n] ^= byte(1 + rng.IntN(255))
		if err := readAllAt(t, path, damaged); !codes.Has(err, codes.LogInvalid) {
			t.Fatalf("seed %d, byte %d became %q: got %v", seed, n, damaged[n], err)
		}
	}
}

func TestWhatFollowsTheEndIsRefused(t *testing.T) {
	t.Parallel()
	log := smallLog(t)
	for _, more := range []string{"\n", "x", "{}\n", string(log)} {
		if err := readAll(t, append(bytes.Clone(log), more...)); !codes.Has(err, codes.LogInvalid) || !strings.Contains(err.Error(), "follows the end") {
			t.Errorf("%.10q: got %v", more, err)
		}
	}
}

// rehash replaces the end line so that the counts and the hash are right for whatever stands before it.
func rehash(t *testing.T, body string, arrivals, faults int64) []byte {
	t.Helper()
	end, err := appendEnd(nil, End{Arrivals: arrivals, FaultsApplied: faults, LogHash: record.Hash([]byte(body))})
	if err != nil {
		t.Fatal(err)
	}
	return []byte(body + string(end) + "\n")
}

func TestAWrongFormIsRefusedThoughTheHashIsRight(t *testing.T) {
	t.Parallel()
	const (
		head = `{"fields":{"id":"i","key":"k","time":"t","unit":"rfc3339"},"format":"arrival-log/1","schedule_hash":null,"seed":0,"snapshot_hash":"h","type":"header"}` + "\n"
		a0   = `{"arrival_time":"2026-01-05T14:30:00Z","event_id":"a","key":"1","n":0,"type":"arrival","value":{}}` + "\n"
		a1   = `{"arrival_time":"2026-01-05T14:30:00Z","event_id":"a","key":"1","n":1,"type":"arrival","value":{}}` + "\n"
		gap0 = `{"event_id":"a","kind":"GAP","n":0,"type":"fault"}` + "\n"
	)
	if err := readAll(t, rehash(t, head+a0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	arrival := func(old, new string) string { return head + strings.Replace(a0, old, new, 1) }
	for _, c := range []struct {
		name, body      string
		arrivals, fault int64
		line            int
		says            string
	}{
		{"no header", a0, 1, 0, 1, "not a line"},
		{"a fault first", gap0, 0, 1, 1, "not the header"},
		{"two headers", head + head, 0, 0, 2, "second header"},
		{"another format", strings.Replace(head, "log/1", "log/2", 1) + a0, 1, 0, 1, `"arrival-log/2"`},
		{"unknown member", strings.Replace(head, `"type"`, `"tipe":1,"type"`, 1), 0, 0, 1, "unknown or missing"},
		{"seed too large", strings.Replace(head, `"seed":0`, `"seed":18446744073709551616`, 1), 0, 0, 1, "seed"},
		{"wrong number", head + a1, 1, 0, 2, "arrival 1 stands where arrival 0 belongs"},
		{"time goes back", head + a0 + strings.Replace(a1, "14:30:00Z", "14:29:59Z", 1), 2, 0, 3, "comes after"},
		{"finer than milliseconds", arrival("00Z", "00.0001Z"), 1, 0, 2, "whole milliseconds"},
		{"trailing zero", arrival("00Z", "00.10Z"), 1, 0, 2, "canonical"},
		{"zero fraction", arrival("00Z", "00.0Z"), 1, 0, 2, "canonical"},
		{"offset", arrival("00Z", "00+00:00"), 1, 0, 2, "canonical"},
		{"no zone", arrival("00Z", "00"), 1, 0, 2, "zone"},
		{"spaces", arrival(`"key":`, `"key": `), 1, 0, 2, "canonical"},
		{"needless escape", arrival(`"event_id":"a"`, `"event_id":"\u0061"`), 1, 0, 2, "canonical"},
		{"control character", arrival(`"event_id":"a"`, "\"event_id\":\"a\x01\""), 1, 0, 2, "canonical"},
		{"invalid UTF-8", arrival(`"event_id":"a"`, "\"event_id\":\"a\xff\""), 1, 0, 2, "UTF-8"},
		{"key is a number", arrival(`"key":"1"`, `"key":1`), 1, 0, 2, "canonical"},
		{"leading zero", arrival(`"n":0`, `"n":00`), 1, 0, 2, "integer"},
		{"huge number", arrival(`"n":0`, `"n":99999999999999999999`), 1, 0, 2, "integer"},
		{"no wait", arrival(`"type"`, `"pause_ms":0,"type"`), 1, 0, 2, "wait"},
		{"endless wait", arrival(`"type"`, `"pause_ms":9223372036854775807,"type"`), 1, 0, 2, "wait"},
		{"no faults", arrival(`"key"`, `"faults":[],"key"`), 1, 0, 2, "canonical"},
		{"unknown fault", arrival(`"key"`, `"faults":["FLOOD"],"key"`), 1, 0, 2, "FLOOD"},
		{"faults not sorted", arrival(`"key"`, `"faults":["GAP","DELAY"],"key"`), 1, 0, 2, "DELAY"},
		{"fault twice", arrival(`"key"`, `"faults":["GAP","GAP"],"key"`), 1, 0, 2, "GAP"},
		{"value is an array", arrival(`{}}`, `[]}`), 1, 0, 2, "neither an object nor null"},
		{"value is missing", arrival(`,"value":{}`, ``), 1, 0, 2, "value"},
		{"fault of another arrival", head + strings.Replace(gap0, `"n":0`, `"n":1`, 1) + a0, 1, 1, 2, "stands before arrival 0"},
		{"arrival not marked", head + gap0 + a0, 1, 1, 3, "not marked"},
		{"fault of no arrival", head + a0 + strings.Replace(gap0, `"n":0`, `"n":1`, 1), 1, 1, 4, "before no arrival"},
		{"unknown kind", head + strings.Replace(gap0, "GAP", "FLOOD", 1), 0, 1, 2, "FLOOD"},
		{"negative delay", head + `{"domain_ms":-1,"event_id":"a","kind":"DELAY","n":0,"type":"fault"}` + "\n", 0, 1, 2, "out of range"},
		{"endless delay", head + `{"domain_ms":9300000000000,"event_id":"a","kind":"DELAY","n":0,"type":"fault"}` + "\n", 0, 1, 2, "out of range"},
		{"parameter of another kind", head + `{"count":1,"event_id":"a","kind":"DELAY","n":0,"type":"fault"}` + "\n", 0, 1, 2, "unknown or missing"},
		{"too many arrivals", head + a0, 2, 0, 3, "counts 2 arrivals"},
		{"too few faults", head + gap0 + strings.Replace(a0, `"key"`, `"faults":["GAP"],"key"`, 1), 1, 0, 4, "counts 0 faults"},
		{"other lines", head + "hello\n", 0, 0, 2, "column 1"},
		{"another document", head + "{\"type\":\"other\"}\n", 0, 0, 2, "not a line"},
		{"a scalar", head + "1\n", 0, 0, 2, "not a line"},
	} {
		err := readAll(t, rehash(t, c.body, c.arrivals, c.fault))
		if !codes.Has(err, codes.LogInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("x.log:%d: ", c.line)) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v; want line %d and %q", c.name, err, c.line, c.says)
		}
	}
}

func TestVerifyNamesTheLineThatNoWriterWrote(t *testing.T) {
	t.Parallel()
	log := bytes.Replace(smallLog(t), []byte(`"close":1.5}}`), []byte(`"close":1.50}`), 1)
	err := readAll(t, append(log[:bytes.Index(log, []byte("1.50}"))+5], append([]byte("}"), log[bytes.Index(log, []byte("1.50}"))+5:]...)...))
	if !codes.Has(err, codes.LogInvalid) || !strings.Contains(err.Error(), "x.log:2: ") {
		t.Errorf("got %v", err)
	}
}

func TestTheWriterRefusesWhatAReaderWould(t *testing.T) {
	t.Parallel()
	good := Arrival{EventID: []byte("a"), Time: at(0), Value: []byte("{}")}
	for name, spoil := range map[string]func(*Arrival){
		"no time":            func(a *Arrival) { a.Time = record.NoTime },
		"finer than ms":      func(a *Arrival) { a.Time++ },
		"negative wait":      func(a *Arrival) { a.Pause = -time.Millisecond },
		"wait finer than ms": func(a *Arrival) { a.Failure = time.Microsecond },
		"id not UTF-8":       func(a *Arrival) { a.EventID = []byte{0xff} },
		"key not UTF-8":      func(a *Arrival) { a.Key = []byte{0xff} },
		"value a list":       func(a *Arrival) { a.Value = []byte("[]") },
		"value empty":        func(a *Arrival) { a.Value = []byte{} },
		"value of two lines": func(a *Arrival) { a.Value = []byte("{\n}") },
		"before the last":    func(a *Arrival) { a.Time = at(-1000) },
		"too long":           func(a *Arrival) { a.Value = bytes.Join([][]byte{[]byte("{"), []byte("}")}, make([]byte, MaxLine)) },
	} {
		w, err := NewWriter(io.Discard, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		first, spoiled := good, good
		if err := w.Arrival(&first); err != nil {
			t.Fatal(err)
		}
		spoil(&spoiled)
		if err := w.Arrival(&spoiled); !codes.Has(err, codes.LogInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("%s: finished after an error", name)
		}
	}
	w, err := NewWriter(io.Discard, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Fault(&Fault{EventID: "a", Kind: Gap}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); !codes.Has(err, codes.LogInvalid) {
		t.Errorf("a fault of no arrival: got %v", err)
	}
}

type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

func TestAFullDiskShowsAtTheLatestInFinish(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 300_000, 900_000} {
		w, err := NewWriter(&failing{after}, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 10_000 && err == nil; n++ {
			err = w.Arrival(&Arrival{EventID: []byte("a"), Time: at(0), Value: []byte("{}")})
		}
		if _, finishErr := w.Finish(); finishErr == nil || !strings.Contains(finishErr.Error(), "no space") {
			t.Errorf("after %d bytes: got %v and %v", after, err, finishErr)
		}
	}
}

func TestAFileStandsOnlyWhenItIsComplete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	f, err := Create(path, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	f.Discard()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Fatalf("left behind: %v, %v", list, err)
	}
	if f, err = Create(path, testHeader); err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	if err := f.Arrival(&Arrival{EventID: []byte("a"), Time: at(0), Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	end, err := f.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := Verify(path); err != nil || got != end {
		t.Fatalf("got %+v, %v, want %+v", got, err, end)
	}
	if _, err := Create(filepath.Join(dir, "missing", "x.log"), testHeader); !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("missing folder: %v", err)
	}
	for _, missing := range []string{filepath.Join(dir, "none.log"), dir} {
		if _, err := Open(missing); !codes.Has(err, codes.FileMissing) {
			t.Errorf("%s: %v", missing, err)
		}
	}
}

func FuzzParseArrival(f *testing.F) {
	for _, line := range bytes.Split(smallLog(f), []byte{'\n'}) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var a Arrival
		if parseArrival(line, &a) != nil {
			return
		}
		if again := appendArrival(nil, &a); !bytes.Equal(again, line) {
			t.Errorf("accepted %q, writes %q", line, again)
		}
	})
}
