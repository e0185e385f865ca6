package replay

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// keptArrival is an arrival that owns its bytes, with the audit that stands before it.
type keptArrival struct {
	logfile.Arrival
	audit []logfile.Fault
}

func keep(a *logfile.Arrival, audit []logfile.Fault) keptArrival {
	k := keptArrival{Arrival: *a}
	k.EventID, k.Key, k.Value = bytes.Clone(a.EventID), bytes.Clone(a.Key), bytes.Clone(a.Value)
	if len(audit) > 0 {
		k.audit = append(k.audit, audit...)
	}
	return k
}

// readLog reads a whole log; the reader verifies it.
func readLog(t testing.TB, path string) ([]keptArrival, *logfile.Reader) {
	t.Helper()
	r, err := logfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var list []keptArrival
	for {
		var a logfile.Arrival
		if err := r.Next(&a); err == io.EOF {
			return list, r
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, keep(&a, r.Faults()))
	}
}

// write makes a file in a folder of the test.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parse reads a schedule of these entries.
func parse(t testing.TB, entries ...string) *Schedule {
	t.Helper()
	s, err := ParseSchedule("faults.json", []byte(`{"format":"fault-schedule/1","seed":7,"faults":[`+strings.Join(entries, ",\n")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// build builds a log of a snapshot and reads it.
func build(t testing.TB, snapshotPath string, s *Schedule) ([]keptArrival, Built) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "arrivals.log")
	built, err := Build(t.Context(), BuildConfig{Snapshot: snapshotPath, Fields: snapshot.DefaultFields(), Schedule: s, Seed: 7, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	arrivals, r := readLog(t, out)
	if end := r.End(); end.Arrivals != built.Arrivals || end.FaultsApplied != built.FaultsApplied || end.LogHash != built.LogHash || int64(len(arrivals)) != built.Arrivals {
		t.Fatalf("built %+v, but the log holds %d arrivals and ends with %+v", built, len(arrivals), end)
	}
	return arrivals, built
}

// refused builds what cannot be built and checks that nothing is left.
func refused(t *testing.T, cfg BuildConfig, code *codes.Code, words ...string) {
	t.Helper()
	dir := t.TempDir()
	if cfg.Out == "" {
		cfg.Out = filepath.Join(dir, "arrivals.log")
	}
	if cfg.Fields.ID == "" {
		cfg.Fields = snapshot.DefaultFields()
	}
	_, err := Build(t.Context(), cfg)
	if !codes.Has(err, code) {
		t.Fatalf("error %v, want %s", err, code.Name)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error lacks %q: %v", w, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
