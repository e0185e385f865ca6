package logfile

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Harness{
		Tombstones: true, NilKeys: true, ArrivalUnit: time.Millisecond,
		New: func(t testing.TB, partitions [][]record.Record) sourcetest.Target {
			path := filepath.Join(t.TempDir(), "x.log")
			f, err := Create(path, testHeader)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Discard()
			var all []record.Record
			for _, records := range partitions {
				all = append(all, records...)
			}
			slices.SortStableFunc(all, func(a, b record.Record) int { return cmp.Compare(a.Arrival, b.Arrival) })
			for i, r := range all {
				if err := f.Arrival(&Arrival{EventID: fmt.Appendf(nil, "e%d", i), Time: r.Arrival, Key: r.Key, Value: r.Value}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			return sourcetest.Target{Source: NewSource(path, SourceConfig{Partitions: int32(len(partitions))})}
		},
	})
}
