package reshard_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }

// stores are those that a fork is made in.
var stores = map[string]func(t *testing.T) (control.ControlStore, error){
	"memory": func(*testing.T) (control.ControlStore, error) { return controltest.NewMemory(), nil },
	"sqlite": func(t *testing.T) (control.ControlStore, error) {
		return sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	},
	"postgres": func(t *testing.T) (control.ControlStore, error) {
		db := pgtest.Database(t, func(ctx context.Context, url string) error {
			_, err := postgres.Migrate(ctx, url)
			return err
		})
		return postgres.Open(t.Context(), postgres.Config{URL: db.Runtime})
	},
}

// A fork stands where the shard of the other run stands, with position, state and results; a finished one is finished. It may be asked for again,
// also when the original has gone on since.
func TestFork(t *testing.T) {
	t.Parallel()
	plan, err := flow.Parse("flow.yaml", []byte(flowText), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			commit(t, store, plan, 1, 5, control.RunOpen)
			commit(t, store, plan, 2, 4, control.RunFinished)
			for range 2 {
				for shard := range int32(2) {
					if ok, err := reshard.Fork(t.Context(), store, "run", "new", shard+1, time.Minute); err != nil || !ok {
						t.Fatalf("shard %d: %v, %v", shard+1, ok, err)
					}
				}
			}
			rows, err := reshard.Rows(t.Context(), store, "new")
			if err != nil || len(rows) != 2 || rows[1].Status != control.RunOpen || rows[2].Status != control.RunFinished || rows[1].Counts.Records != 5 || rows[2].Counts.Records != 4 {
				t.Fatalf("%+v, %v", rows, err)
			}
			for id, shard := range map[string]int32{"run/1": 1, "new/1": 1, "run/2": 2, "new/2": 2} {
				m, err := partitions.Restore(plan, shard, func(yield func(partitions.StateBlob) error) error {
					return store.LoadBlobs(t.Context(), id, shard, yield)
				})
				if err != nil || m.Next() != record.Offset(int64(6-shard)) || m.Keys() != 1 {
					t.Errorf("%s: %v", id, err)
				}
			}
			if got, want := results(t, store, "new/1", 1), results(t, store, "run/1", 1); len(got) == 0 || len(got) != len(want) {
				t.Errorf("%d results, want %d", len(got), len(want))
			}
			kinds := 0
			if err := store.Decisions(t.Context(), "new/2", func(d partitions.Decision) error {
				if d.Kind == reshard.DecisionForked {
					kinds++
				}
				return nil
			}); err != nil || kinds != 1 {
				t.Errorf("%d decisions, %v", kinds, err)
			}
			if _, err := reshard.Fork(t.Context(), store, "run", "new", 9, time.Minute); err == nil {
				t.Error("a shard without a row was forked")
			}
		})
	}
}

func results(t *testing.T, store control.Journal, run string, shard int32) (out []string) {
	t.Helper()
	if err := store.Outputs(t.Context(), run, shard, func(rows partitions.Rows) error {
		out = append(out, decode(t, rows)...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
