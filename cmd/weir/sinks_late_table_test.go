package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// TestLateTable: late events stand in a table of PostgreSQL, each once and with its verdict, also when the run stops between them; lint looks at the table before.
func TestLateTable(t *testing.T) {
	t.Parallel()
	dir, db := fixtureDir(t), pgtest.Database(t, nil)
	url := filepath.Join(dir, "url")
	if err := os.WriteFile(url, []byte(db.Super), 0o600); err != nil {
		t.Fatal(err)
	}
	flowText := strings.NewReplacer("lateness: 5s", "lateness: 1s", `select: {field: instrument, equals: "1"}`, "").Replace(string(fixture.Flow))
	write(t, dir, "flow.yaml", flowText+"sinks: [{name: too-late, type: postgres, database: 'file:"+url+"', table: late_events, create: true}]\nlate: {sink: too-late}\n")
	must(t, dir, "replay", "generate", "--events", "600", "--instruments", "3", "--seed", "1", "--disorder", "0.2", "--max-delay", "20s", "--snapshot", "events.jsonl", "--faults", "odd.json")
	must(t, dir, "replay", "build", "--snapshot", "events.jsonl", "--faults", "odd.json", "--flow", "flow.yaml", "--out", "odd.log")
	must(t, dir, "lint", "--connect", "flow.yaml")
	run := []string{"run", "flow.yaml", "--log", "odd.log", "--run-id", "r", "--store", "sqlite:r.db"}
	must(t, dir, append(run, "--until-n", "400")...)
	must(t, dir, append(run, "--emit", "out.json")...)
	text, err := os.ReadFile(filepath.Join(dir, "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := int(parse(t, string(text))["late"].(float64))
	conn := pgtest.Connect(t, db.Super)
	var n, numbers, told int
	err = conn.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT row_number), count(*) FILTER (WHERE entry->>'late_by' <> '' AND entry->'holder'->>'position' <> '') FROM late_events WHERE run_id = 'r'`).Scan(&n, &numbers, &told)
	if err != nil || want == 0 || n != want || numbers != want || told != want {
		t.Errorf("%d late events, %d numbers, %d with a verdict, want %d: %v", n, numbers, told, want, err)
	}
}
