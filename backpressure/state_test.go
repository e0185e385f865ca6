package backpressure

import (
	"os"
	"strings"
	"testing"
)

var rowNames = [rows]string{
	none: "none", causeS: "S", causeP: "P", causePS: "PS", causeB: "B", causeBS: "BS", causeBP: "BP", causeBPS: "BPS",
}

// TestTableIsTheDocumentation compares the transition table in State's doc comment with the one the machine runs on, cell by cell.
func TestTableIsTheDocumentation(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("state.go")
	if err != nil {
		t.Fatal(err)
	}
	header := []string{"over", "back", "full", "drained", "block", "settled"}
	var table map[string][]string
	for line := range strings.Lines(string(src)) {
		f := strings.Fields(strings.TrimPrefix(line, "//"))
		switch {
		case strings.Join(f, " ") == strings.Join(header, " "):
			table = map[string][]string{}
		case table != nil && len(table) < int(rows) && len(f) == len(header)+1:
			table[f[0]] = f[1:]
		}
	}
	for row, name := range rowNames {
		cells := table[name]
		if len(cells) != int(events) {
			t.Fatalf("the documentation has no row %s of %d cells: %v", name, events, table)
		}
		for e, cell := range cells {
			if cell == "-" {
				cell = name
			}
			if got := rowNames[transitions[row][e]]; got != cell {
				t.Errorf("%s on %s: the documentation says %s, the machine goes to %s", name, header[e], cell, got)
			}
		}
	}
}

// TestTableIsASet: each event puts one cause in or takes one out, and nothing else; the gravest cause names the state.
func TestTableIsASet(t *testing.T) {
	t.Parallel()
	const s, p, b = causeS, causeP, causeB
	for row := range rows {
		want := [events]causes{
			over: row | s, back: row &^ s, full: row | p, drained: row &^ p, block: row | b, settled: row &^ b,
		}
		if transitions[row] != want {
			t.Errorf("row %s: %v, want %v", rowNames[row], transitions[row], want)
		}
		state := Flowing
		switch {
		case row&b != 0:
			state = RecoveryBlocked
		case row&p != 0:
			state = ProcessPaused
		case row&s != 0:
			state = SourcePaused
		}
		if stateOf[row] != state {
			t.Errorf("row %s is %s, want %s", rowNames[row], stateOf[row], state)
		}
	}
}

func TestWhatAStateAllows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state            State
		name             string
		reads, processes bool
	}{
		{Flowing, "FLOWING", true, true},
		{SourcePaused, "SOURCE_PAUSED", false, true},
		{ProcessPaused, "PROCESS_PAUSED", false, false},
		{RecoveryBlocked, "RECOVERY_BLOCKED", false, false},
		{9, "UNKNOWN", false, false},
	} {
		if c.state.String() != c.name || c.state.Reads() != c.reads || c.state.Processes() != c.processes {
			t.Errorf("%s: reads %v, processes %v", c.state, c.state.Reads(), c.state.Processes())
		}
	}
}
