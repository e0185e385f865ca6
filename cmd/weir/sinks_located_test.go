package main

import (
	"testing"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/pgtest"
)

// TestOneTableOfTwoSinks: a table that two sinks of a flow, or of a flow and the command line, write into under two names is found before anything is made there.
func TestOneTableOfTwoSinks(t *testing.T) {
	t.Parallel()
	dir, db := fixtureDir(t), pgtest.Database(t, nil)
	write(t, dir, "arrivals.log", "")
	write(t, dir, "one.url", db.Super)
	write(t, dir, "two.url", db.Super+"&application_name=two")
	run := []string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", "r", "--store", "sqlite:r.db"}
	flowOf := func(url, table string) {
		write(t, dir, "flow.yaml", string(fixture.Flow)+"sinks:\n  - {name: first, type: postgres, database: 'file:one.url', table: ee, create: true}\n"+
			"  - {name: second, type: postgres, database: 'file:"+url+"', table: "+table+", create: true}\n")
	}
	for _, table := range []string{"ee", "public.ee", "ee_progress"} {
		flowOf("two.url", table)
		for _, args := range [][]string{{"lint", "--connect", "flow.yaml"}, run} {
			refused(t, dir, 3, []string{"CONFIG_INVALID", `"first"`, `"second"`, "the same table"}, args...)
		}
		must(t, dir, "lint", "flow.yaml")
	}
	for table, says := range map[string]string{"public.ee": "same place as sinks[0]", "public.ee_progress": "a table of sinks[0]"} {
		flowOf("one.url", table)
		refused(t, dir, 3, []string{says}, "lint", "flow.yaml")
	}
	flowOf("one.url", "ef")
	must(t, dir, "lint", "--connect", "flow.yaml")
	for _, sink := range []string{"postgres:public.ee", "postgres:ef_progress"} {
		refused(t, dir, 3, []string{"CONFIG_INVALID", "same place", sink}, append(run, "--sink", sink, "--sink-db", "file:one.url")...)
		refused(t, dir, 3, []string{"CONFIG_INVALID", "the same table", sink}, append(run, "--sink", sink, "--sink-db", "file:two.url")...)
	}
	var tables int
	if err := pgtest.Connect(t, db.Super).QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables were made, %v", tables, err)
	}
}
