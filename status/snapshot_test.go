package status

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weirstream/weir/record"
)

// The document is an interface: its names and forms stay. What is read back is what was written.
func TestTheDocumentStays(t *testing.T) {
	t.Parallel()
	s := healthy()
	for _, c := range planted {
		if c.name == "open gap" || c.name == "open transaction" || c.name == "paused by pressure" || c.name == "restart back-off" {
			c.plant(&s)
		}
	}
	s.Partitions = s.Partitions[:2]
	s.Partitions[0].Seconds = map[State]float64{Reading: 1.5, Paused: 2}
	oldest := "4711"
	s.Partitions[0].Undone = &Undone{Records: 12, Bytes: 3400, Oldest: &oldest, Since: &s.At}
	s.Partitions[1].Watermark = EventTime{record.MaxTime}
	s.Partitions[1].MaxEventTime = NoEventTime
	r := Report{Format: Format, Run: s.Run, At: s.At, Live: true, Runs: []Snapshot{s}}
	r.Merge()
	got, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "report.json")
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(append(got, '\n'), want) {
		if os.Getenv("WEIR_UPDATE") != "" {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Errorf("the document is another one (%v); if that is meant, WEIR_UPDATE=1 writes it anew:\n%s", err, got)
	}
	var back Report
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, r) {
		t.Errorf("read back it is another one:\n%+v\n%+v", back, r)
	}
}

func TestEventTimesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"yesterday"`, `5`, `{}`, `"2026-01-05T14:00:00"`} {
		var e EventTime
		if err := json.Unmarshal([]byte(text), &e); err == nil {
			t.Errorf("%s is taken as %s", text, e)
		}
	}
}
