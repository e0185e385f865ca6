package sim

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/partitions"
)

// TestRevisionsAreDrawn: among the seeds are flows that publish rows again, adopt revisions without, and set them aside.
func TestRevisionsAreDrawn(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for seed := range uint64(60) {
		truth, err := Draw(seed).Truth()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, q := range truth.Quarantine {
			if found[q.Reason]++; strings.Contains(q.Detail, "after it was released") {
				found[map[bool]string{true: "published", false: "adopted"}[truth.Plan.Revised]]++
			}
		}
		for _, rows := range truth.Rows {
			var row partitions.Row
			for data := rows; truth.Plan.Revised && len(data) > 0; {
				if data, err = partitions.DecodeRow(data, len(truth.Plan.Outputs), &row); err != nil {
					t.Fatal(err)
				}
				if row.Values[len(row.Values)-1].F > 0 {
					found["again"]++
				}
			}
		}
	}
	for _, kind := range []string{partitions.ReasonRevised, partitions.ReasonRevisionLate, partitions.ReasonRevisionMoved, "published", "adopted", "again"} {
		if found[kind] < 5 {
			t.Errorf("%s: %d times in 60 seeds; all: %v", kind, found[kind], found)
		}
	}
	t.Log(found)
}
