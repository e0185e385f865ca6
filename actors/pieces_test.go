package actors

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/record"
)

// Pieces are as large as allowed and never end within an aggregate.
func TestPieceEnds(t *testing.T) {
	t.Parallel()
	// subs gives the number of each record within its aggregate.
	for _, test := range []struct {
		subs []uint32
		size int
		want []int
	}{
		{[]uint32{0, 0, 0, 0, 0}, 2, []int{2, 4, 5}},
		{[]uint32{0, 0, 0}, 5, []int{3}},
		{[]uint32{0, 0, 1, 2, 0}, 2, []int{1, 4, 5}},
		{[]uint32{0, 1, 2, 3, 4, 0}, 2, []int{5, 6}},
		{[]uint32{0, 1, 0, 1, 0, 1}, 3, []int{2, 4, 6}},
		{[]uint32{0, 1, 2, 3}, 1, []int{4}},
	} {
		records := make([]record.Record, len(test.subs))
		for i, sub := range test.subs {
			records[i].Sub = sub
		}
		if got := pieceEnds(records, test.size); !slices.Equal(got, test.want) {
			t.Errorf("%v in pieces of %d: ends at %v, want %v", test.subs, test.size, got, test.want)
		}
	}
}
