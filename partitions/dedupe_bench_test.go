package partitions

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// benchIDs makes event ids of a usual length without keeping them.
func benchIDs(n int) [][]byte {
	ids := make([][]byte, n)
	for i := range ids {
		ids[i] = fmt.Appendf(nil, "%08x-tick-%012d", i*2654435761, i)
	}
	return ids
}

// BenchmarkDedupe compares one look-up and insert of a new id, at a million living ids that come and go with event time, with a Go
// map that is never cleaned, in one run. "longest-µs" is the longest single step.
func BenchmarkDedupe(b *testing.B) {
	const living = 1_000_000
	ids := benchIDs(1 << 16)
	key := func(dst []byte, i int) []byte {
		return strconv.AppendInt(append(dst[:0], ids[i&(1<<16-1)][:14]...), int64(i), 16)
	}
	for _, pace := range []string{"steady", "growing"} {
		b.Run("weir/"+pace, func(b *testing.B) {
			horizon := living * time.Microsecond * 8 / 9
			d := newDedupe(horizon, 0, 0, 0)
			first := 0
			buf := make([]byte, 0, 64)
			step := func(i int) {
				at := record.EventTime(i) * record.EventTime(time.Microsecond)
				buf = key(buf, i)
				if dup, err := d.add(hashID(buf), at); dup || err != nil {
					b.Fatal(dup, err)
				}
				d.advance(at)
			}
			if pace == "steady" {
				for ; first < 2*living; first++ {
					step(first)
				}
			}
			longest := time.Duration(0)
			b.ReportAllocs()
			b.ResetTimer()
			last := time.Now()
			for i := range b.N {
				step(first + i)
				if i&15 == 15 {
					now := time.Now()
					longest = max(longest, now.Sub(last))
					last = now
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
			b.ReportMetric(float64(d.bytes())/float64(max(d.living, 1)), "B/id")
		})
	}
	b.Run("map", func(b *testing.B) {
		seen := map[string]struct{}{}
		buf := make([]byte, 0, 64)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			buf = key(buf, i%(2*living))
			if i%(2*living) == living {
				clear(seen)
			}
			if _, dup := seen[string(buf)]; !dup {
				seen[string(buf)] = struct{}{}
			}
		}
	})
}
