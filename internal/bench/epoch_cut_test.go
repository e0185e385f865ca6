package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// The cut benchmark: so many keys, of which a hundredth changes between two cuts.
const (
	// envKeys is the number of keys in the one partition.
	envKeys     = "WEIR_BENCH_KEYS"
	defaultKeys = 1_000_000
	cutRounds   = 9
)

// cutFlow has room for a line with a sequence field.
const cutFlow = `
flow: weir/1
name: cut
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 0s
dedupe: {horizon: 0s}
limits: {keys: 100000000, ids: 100000000}
%soperators:
  - {name: ema12, type: ema, input: close, period: 12}
outputs: [ema12]
`

// keyed is a partition with keys, and a log that goes on.
type keyed struct {
	b    *testing.B
	m    *partitions.Machine
	eff  partitions.Effects
	next int64
	seqs []int32
}

func newKeyed(b *testing.B, keys int, sequence string) *keyed {
	plan, err := flow.Parse("flow.yaml", fmt.Appendf(nil, strings.TrimSpace(cutFlow)+"\n", sequence), nil)
	if err != nil {
		b.Fatal(err)
	}
	k := &keyed{b: b, m: partitions.New(plan, 0), seqs: make([]int32, keys)}
	all := make([]int, keys)
	for i := range all {
		all[i] = i
	}
	// The operators' windows are full, so that their state has the size that it keeps.
	for range 12 {
		k.change(all)
	}
	return k
}

// change delivers one record of each of the keys.
func (k *keyed) change(keys []int) {
	for chunk := range slices.Chunk(keys, 1024) {
		batch := record.Batch{}
		for _, n := range chunk {
			k.seqs[n]++
			batch.Records = append(batch.Records, record.Record{Position: record.Offset(k.next), Arrival: record.NoTime,
				Value: fmt.Appendf(nil, `{"event_id":"e%d","instrument":"instrument-%07d","t":%d,"close":%d,"seq":%d}`, k.next, n, 1_700_000_000_000+k.next, k.next%100, k.seqs[n])})
			k.next++
		}
		batch.Next = record.Offset(k.next)
		if err := k.m.Step(partitions.Deliver{Batch: &batch}, &k.eff); err != nil {
			k.b.Fatal(err)
		}
		k.eff.Reset()
	}
}

// cut takes a cut and returns what it puts, in bytes, and how long the partition stood still for it.
func (k *keyed) cut() (bytes, blobs int, pause time.Duration) {
	began := time.Now()
	c := k.m.Cut()
	pause = time.Since(began)
	for _, b := range c.Put {
		bytes += len(b.Data)
	}
	return bytes, len(c.Put), pause
}

// BenchmarkCutOfManyKeys takes cuts of a partition with a million keys of which a hundredth changed: keys that stand together in the
// order of first sight, as a burst of a few instruments makes them, and keys all over.
//
//	whole-MB   what the first cut writes
//	cut-MB     what a cut writes after a hundredth of the keys changed, and in percent of the whole: whole-%
//	pause-ms   how long the partition stands still for it; wanted under 50
//	longest-ms the longest of them
func BenchmarkCutOfManyKeys(b *testing.B) {
	keys := setting(b, envKeys, defaultKeys)
	for _, flow := range []struct{ name, sequence string }{{"plain", ""}, {"sequence", "sequence: {field: seq, gap_hold: 1s}\n"}} {
		b.Run(flow.name, func(b *testing.B) {
			k := newKeyed(b, keys, flow.sequence)
			whole, _, _ := k.cut()
			rng := rand.New(rand.NewPCG(1, 1))
			for _, spread := range []string{"together", "all-over"} {
				b.Run(spread, func(b *testing.B) {
					var pauses []time.Duration
					var bytes, blobs int
					for range cutRounds {
						from := rng.IntN(keys - keys/100 + 1)
						changed := make([]int, keys/100)
						for i := range changed {
							changed[i] = from + i
						}
						if spread == "all-over" {
							changed = rng.Perm(keys)[:keys/100]
						}
						k.change(changed)
						n, count, pause := k.cut()
						pauses, bytes, blobs = append(pauses, pause), bytes+n/cutRounds, blobs+count/cutRounds
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(whole)/1e6, "whole-MB")
					b.ReportMetric(float64(bytes)/1e6, "cut-MB")
					b.ReportMetric(100*float64(bytes)/float64(whole), "whole-%")
					b.ReportMetric(float64(blobs), "blobs")
					b.ReportMetric(float64(slices.Max(pauses).Microseconds())/1000, "longest-ms")
					b.ReportMetric(float64(middle(pauses).Microseconds())/1000, "pause-ms")
				})
			}
		})
	}
}
