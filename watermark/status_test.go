package watermark

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestTableIsTheDocumentation compares the transition table in Status's doc comment with the one the machine runs on, cell by cell.
func TestTableIsTheDocumentation(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("status.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]input{"ACTIVE": active, "IDLE": idle, "PAUSED(a)": pausedActive, "PAUSED(i)": pausedIdle, "FINISHED": finished}
	columns := []string{"record", "idle", "pause", "resume", "finish"}
	var rows [][]string
	for line := range strings.Lines(string(src)) {
		f := strings.Fields(strings.TrimPrefix(line, "//"))
		if len(f) == len(columns) && strings.Join(f, " ") == strings.Join(columns, " ") {
			rows = [][]string{}
		}
		if _, row := names[first(f)]; row && rows != nil && len(f) == len(columns)+1 {
			rows = append(rows, f)
		}
	}
	if len(rows) != int(inputs) {
		t.Fatalf("the documentation has %d rows, the machine %d", len(rows), inputs)
	}
	for _, f := range rows {
		from := names[f[0]]
		for e, cell := range f[1:] {
			want := from
			if cell != "-" {
				want = names[cell]
			}
			if got := transitions[from][e]; got != want {
				t.Errorf("%s on %s: the documentation says %s, the machine goes to %d", f[0], columns[e], cell, got)
			}
		}
	}
}

func first(f []string) string {
	if len(f) == 0 {
		return ""
	}
	return f[0]
}

// TestStatusReports drives every row through every event and checks that the result says whether the public status changed, that
// PAUSED never turns IDLE by itself and that FINISHED is final.
func TestStatusReports(t *testing.T) {
	t.Parallel()
	calls := [inputEvents]func(*Partition) bool{
		onRecord: (*Partition).Record, onIdle: (*Partition).Idle, onPause: (*Partition).Pause,
		onResume: (*Partition).Resume, onFinish: (*Partition).Finish,
	}
	for from := range inputs {
		for e := range inputEvents {
			p := NewPartition(time.Second, 0)
			p.input = from
			before := p.Status()
			changed := calls[e](p)
			if changed != (p.Status() != before) {
				t.Errorf("%s on event %d: reported %v, went to %s", before, e, changed, p.Status())
			}
			if before == Paused && e == onIdle && p.Status() != Paused {
				t.Errorf("a paused input was confirmed idle")
			}
			if before == Finished && p.Status() != Finished {
				t.Errorf("a finished input came back as %s", p.Status())
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for s, want := range map[Status]string{Active: "ACTIVE", Idle: "IDLE", Paused: "PAUSED", Finished: "FINISHED", 9: "UNKNOWN"} {
		if s.String() != want {
			t.Errorf("Status(%d) is %q, want %q", s, s, want)
		}
	}
	for k, want := range map[GapKind]string{GapOpened: "OPENED", GapFilled: "FILLED", GapExpired: "EXPIRED", GapForced: "FORCED", GapIgnored: "IGNORED", 9: "UNKNOWN"} {
		if k.String() != want {
			t.Errorf("GapKind(%d) is %q, want %q", k, k, want)
		}
	}
	holds := map[Status]bool{Active: true, Paused: true, Idle: false, Finished: false}
	for s, want := range holds {
		if s.Holds() != want {
			t.Errorf("%s holds the merge: %v, want %v", s, s.Holds(), want)
		}
	}
}
