package main

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// TestSinkInTheJournal: a table in the database of the journal holds just the rows that the journal holds, wherever the process is killed, and in the end all of them.
func TestSinkInTheJournal(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	db := migrated(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	write(t, dir, "db.url", db.Super)
	write(t, dir, "flow.yaml", strings.Replace(string(fixture.Flow), `select: {field: instrument, equals: "1"}`, "", 1)+
		`sinks: [{name: table, type: postgres, database: "file:db.url", table: results, create: true}]`+"\n")
	line := &succession{dir: dir, super: db.Super}
	args := func(id string, until ...string) []string {
		return append([]string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", id, "--store", db.Super, "--epoch", "1h", "--standby"}, until...)
	}
	conn := pgtest.Connect(t, db.Super)
	count := func(id string) (journal, table int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `SELECT (SELECT coalesce(sum(o.rows), 0) FROM weir.journal_outputs o JOIN weir.journal j ON j.id = o.run WHERE j.run_id = $1 AND o.part = 0),
			(SELECT count(*) FROM results WHERE run_id = $1)`, id).Scan(&journal, &table)
		if err != nil {
			t.Fatal(err)
		}
		return journal, table
	}
	line.next(t, "", args("whole", "--once-n", "23")...)
	want, table := count("whole")
	if want < 10 || table != want {
		t.Fatalf("the journal holds %d rows and the table %d", want, table)
	}
	for _, point := range []string{"before_commit", "store:begin", "store:locked", "store:joined", "store:commit", "store:committed", "after_commit"} {
		id := strings.ReplaceAll(point, ":", "-")
		for _, until := range [][]string{{"--until-n", "9"}, {"--until-n", "16"}} {
			line.kill(t, point, args(id, until...)...)
			if journal, table := count(id); journal != table {
				t.Errorf("%s, %v: killed, the journal holds %d rows and the table %d", point, until, journal, table)
			}
			line.next(t, "", args(id, until...)...)
		}
		line.next(t, "", args(id, "--once-n", "23")...)
		if journal, table := count(id); journal != want || table != want {
			t.Errorf("%s: in the end the journal holds %d rows and the table %d, want %d", point, journal, table, want)
		}
	}
}
