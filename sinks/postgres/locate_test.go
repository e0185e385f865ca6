package postgres_test

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/sinks/postgres"
)

// TestLocate: one table is one place, however its database and it are spelled, and a table of progress is a place too.
func TestLocate(t *testing.T) {
	t.Parallel()
	db, other := pgtest.Database(t, nil), pgtest.Database(t, nil)
	locate := func(url, table string) []string {
		places, err := sink(t, url, func(c *postgres.Config) { c.Table = table }).Locate(t.Context())
		if err != nil || len(places) != 2 {
			t.Fatalf("%v, %v", places, err)
		}
		return places
	}
	first := locate(db.Super, "ee")
	for name, c := range map[string]struct {
		url, table string
		meets      bool
	}{
		"schema": {db.Super, "public.ee", true}, "another URL": {db.Super + "&application_name=x", "ee", true}, "progress": {db.Super, "ee_progress", true},
		"table": {db.Super, "ef", false}, "another schema": {db.Super, "s.ee", false}, "another database": {other.Super, "ee", false},
	} {
		places := locate(c.url, c.table)
		if meets := slices.ContainsFunc(places, func(p string) bool { return slices.Contains(first, p) }); meets != c.meets {
			t.Errorf("%s: %v beside %v", name, places, first)
		}
	}
}
