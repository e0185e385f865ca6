package main

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
)

// The same on PostgreSQL, with the rights of a running process: two processes share a stream, it is looked at, and read again by a run that a rewind makes.
func TestKinesisOnPostgres(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	url := pgtest.Database(t, func(ctx context.Context, url string) error {
		_, err := postgres.Migrate(ctx, url)
		return err
	}).Runtime
	args := func(id string) []string {
		out := r.args(id)
		out[5] = url
		return out
	}
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	consumed := func(id string) func() bool {
		return func() bool {
			runs, err := store.Runs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n := int64(0)
			for _, row := range runs {
				if strings.HasPrefix(row.Header.RunID, id+"/") {
					n += row.Counts.Records
				}
			}
			return n == fixtureArrivals
		}
	}
	a, b := start(t, r.dir, args("run")...), start(t, r.dir, args("run")...)
	until(t, "both work on it and everything is committed", []*process{a, b}, func() bool {
		leases := weir(t, r.dir, "", "lease", "list", "--store", url)
		return strings.Count(leases.stdout, "members/run/") == 2 && consumed("run")()
	})
	r.ends(a)
	r.ends(b)
	shown := must(t, r.dir, append([]string{"shards", "run", "--store", url}, r.at()...)...)
	if strings.Count(shown, shardReading) != 2 {
		t.Errorf("%s", shown)
	}
	must(t, r.dir, append([]string{"rewind", "run", "--store", url, "--shard", "0", "--to", trimHorizon, "--as", "again", "--reason", "to see", "--apply"}, r.at()...)...)
	c := start(t, r.dir, args("again")...)
	until(t, "it has come as far", []*process{c}, func() bool {
		leases := weir(t, r.dir, "", "lease", "list", "--store", url)
		return strings.Contains(leases.stdout, "claims/again/1") && consumed("again")()
	})
	r.ends(c)
	document := func(id string) any {
		return parse(t, must(t, r.dir, "journal", "emit", id, "--flow", "flow.yaml", "--store", url, "--json"))["values"]
	}
	if got, want := document("again"), document("run"); !reflect.DeepEqual(got, want) {
		t.Errorf("again %v, first %v", got, want)
	}
}
