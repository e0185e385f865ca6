package chtest_test

import (
	"os"
	"testing"

	"github.com/weirstream/weir/internal/chtest"
)

func TestMain(m *testing.M) { os.Exit(chtest.Run(m)) }

// Nobody sees another's tables.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	a, b := chtest.Database(t), chtest.Database(t)
	if err := a.Connect(t).Exec(t.Context(), "CREATE TABLE t (x UInt8) ENGINE = Memory"); err != nil {
		t.Fatal(err)
	}
	tables := -1
	err := b.Connect(t).Query(t.Context(), "SELECT count() FROM system.tables WHERE database = '"+b.Name+"'", func(row []any) error {
		tables = int(row[0].(uint64))
		return nil
	})
	if err != nil || tables != 0 {
		t.Errorf("%d tables, %v; want none", tables, err)
	}
}
