package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// TestClickHouseOfAKilledRun: a process is killed with SIGKILL before its sinks, between them and the journal, or after it; the one that is started after it completes the
// view, in which each row is seen once.
func TestClickHouseOfAKilledRun(t *testing.T) {
	t.Parallel()
	dir, db, addr := fixtureDir(t), chtest.Database(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	write(t, dir, "all.yaml", strings.Replace(string(fixture.Flow), `select: {field: instrument, equals: "1"}`, "", 1))
	if err := os.Mkdir(filepath.Join(dir, "lines"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := &succession{dir: dir, env: []string{"RESULTS=" + db.URL(chtest.Super)}}
	args := func(id string, until ...string) []string {
		args := append(runArgs(addr, "ticks", id, "--epoch", "1h", "--standby", "--sink", "jsonl:lines", "--sink", "clickhouse:results",
			"--sink-clickhouse", "env:RESULTS", "--sink-create"), until...)
		args[1] = "all.yaml"
		return args
	}
	line.next(t, "", args("whole", "--once-n", "23")...)
	want := rowsOfFiles(t, dir, "whole")
	for _, point := range []string{"whole", "before_commit", "store:begin", "store:commit", "after_commit"} {
		id := strings.ReplaceAll(point, ":", "-")
		for _, until := range [][]string{{"--until-n", "12"}, {"--once-n", "23"}} {
			if point == "whole" {
				break
			}
			line.kill(t, point, args(id, until...)...)
			if point != "after_commit" || until[0] != "--once-n" { // of which nothing is left to do
				line.next(t, "", args(id, until...)...)
			}
		}
		if got := viewRows(t, db, id); len(want) < 10 || !slices.Equal(got, want) {
			t.Errorf("%s: the view shows\n%v\nwant\n%v", id, got, want)
		}
	}
}

func viewRows(t *testing.T, db chtest.DB, run string) (out []string) {
	t.Helper()
	err := db.Connect(t).Query(t.Context(), "SELECT partition, row_number, event_id, ema3 FROM results WHERE run_id = '"+run+"'", func(row []any) error {
		var value *float64
		if f, ok := row[3].(float64); ok {
			value = &f
		}
		out = append(out, fmt.Sprintf("%d/%d %s %s", row[0], row[1], row[2], valueText(value)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sorted(out)
}

// TestStagingOnTheCommandLine: a worker stages and shows what it publishes; what an ended run has left is found, and dropped when that is asked for.
func TestStagingOnTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, db := planeDir(t), chtest.Database(t)
	write(t, dir, "db.url", db.URL(chtest.Super))
	into := []string{"--staging", "clickhouse:features", "--staging-db", "file:db.url"}
	run := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --key k --json", onStore)...))["id"].(string)
	refused(t, dir, 3, []string{"SINK_INVALID", "CREATE TABLE"}, args("batch worker --once", onStore, onFolders, into)...)
	must(t, dir, args("batch worker --once --staging-create", onStore, onFolders, into)...)
	seen := func(run string) (rows []string) {
		query := "SELECT row_number, event_id, values[indexOf(outputs, 'ema3')] FROM features WHERE run_id = '" + run + "' ORDER BY row_number"
		if err := db.Connect(t).Query(t.Context(), query, func(row []any) error { rows = append(rows, fmt.Sprint(row...)); return nil }); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if rows := seen(run); len(rows) != 6 {
		t.Errorf("%d rows are seen, want 6: %q", len(rows), rows)
	}
	// A run that was cancelled has staged something, as a worker does whose lease was lost.
	dead := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --key k2 --json", onStore)...))["id"].(string)
	must(t, dir, args("runs cancel "+dead, onStore)...)
	must(t, dir, args("batch worker --once", onStore, onFolders, into)...)
	g, err := clickhouse.NewStaging(clickhouse.Config{URL: db.URL(chtest.Super), Table: "features"})
	if err != nil {
		t.Fatal(err)
	}
	staged := sinks.Staged{StagedName: sinks.StagedName{RunID: dead, Artifact: "0"}, Outputs: []string{"ema3"}}
	if err := g.Stage(t.Context(), staged, func(func(*partitions.Row) error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		repair     []string
		exit, open int
	}{{nil, 4, 1}, {nil, 4, 1}, {[]string{"--repair"}, 0, 0}, {nil, 0, 0}} {
		r := weir(t, dir, "", args("reconcile --json", onStore, into, step.repair)...)
		if found := parse(t, r.stdout); r.code != step.exit || found["open"] != float64(step.open) || step.exit == 4 && !strings.Contains(r.stdout, "STAGED_ORPHAN") {
			t.Errorf("%v: exit %d\n%s%s", step.repair, r.code, r.stdout, r.stderr)
		}
	}
	if rows := seen(run); len(rows) != 6 {
		t.Errorf("after the repair %d rows are seen, want 6", len(rows))
	}
	for _, wrong := range [][]string{{"--staging-db", "x"}, {"--staging", "s3:x", "--staging-db", "x"}, {"--staging", "clickhouse:x"}, {"--staging", "clickhouse:"}} {
		refused(t, dir, 2, []string{"--staging"}, args("batch worker --once", onStore, onFolders, wrong)...)
		refused(t, dir, 2, []string{"--staging"}, args("reconcile", onStore, wrong)...)
	}
}

// TestStagingInPostgres: the same worker, and a table in PostgreSQL.
func TestStagingInPostgres(t *testing.T) {
	t.Parallel()
	dir, db := planeDir(t), pgtest.Database(t, nil)
	write(t, dir, "db.url", db.Super)
	must(t, dir, args("runs submit --flow ema --snapshot fixture --key k --json", onStore)...)
	must(t, dir, args("batch worker --once --staging postgres:features --staging-db file:db.url --staging-create", onStore, onFolders)...)
	var n int
	if err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), `SELECT count("values"[array_position(outputs, 'ema3')]) FROM features`).Scan(&n); err != nil || n != 4 {
		t.Errorf("%d values are seen, %v; want 4", n, err)
	}
}

// TestUnfitClickHouse: what is wrong with a target is said at the start, with the sink and the cure, and nothing is committed.
func TestUnfitClickHouse(t *testing.T) {
	t.Parallel()
	dir, db, addr := fixtureDir(t), chtest.Database(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for name, c := range map[string]struct {
		exit  int
		words []string
		args  []string
	}{
		"no server":  {2, []string{"--sink-clickhouse"}, []string{"--sink", "clickhouse:results"}},
		"stray flag": {2, []string{"--sink-clickhouse"}, []string{"--sink", "jsonl:.", "--sink-clickhouse", "x"}},
		"no view":    {3, []string{"SINK_INVALID", "clickhouse:results", "CREATE VIEW"}, []string{"--sink", "clickhouse:results", "--sink-clickhouse", db.URL(chtest.Super)}},
		"bad name":   {3, []string{"CONFIG_INVALID", "lower-case"}, []string{"--sink", "clickhouse:Results;", "--sink-clickhouse", db.URL(chtest.Super)}},
		"no right":   {3, []string{"SINK_DENIED", "only read"}, []string{"--sink", "clickhouse:results", "--sink-clickhouse", db.URL(chtest.Reader)}},
	} {
		id := strings.ReplaceAll(name, " ", "-")
		r := refused(t, dir, c.exit, c.words, append(runArgs(addr, "ticks", id, "--once-n", "23"), c.args...)...)
		if strings.Contains(r.stderr, "canary") || c.exit == 3 && committed(t, filepath.Join(dir, id+".db")) != 0 {
			t.Errorf("%s: something was committed, or shown", name)
		}
	}
}
