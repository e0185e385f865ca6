package partitions

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// made is a generated record with what it means, so that a model need not read it.
type made struct {
	record.Record
	// bad is the reason that it cannot be read for, or "".
	bad      string
	id, key  string
	at       record.EventTime
	x        float64
	gap      bool
	revision int64
	sequence int64 // 0 is none
}

// logShape says what a generated log is like. Times are in milliseconds.
type logShape struct {
	records int
	keys    int
	// step is the usual distance of two events, lag how far an event may lag behind, jump a rare leap of event time.
	step, lag, jump int64
	// odds of one in so many; 0 is never.
	duplicates, bad, gaps, revisions, future, lost int
	sequence                                       bool
	// amends: a delivery that comes again as a revision has another value, and now and then another time or key.
	amends bool
}

// generate makes a log of one partition.
func generate(rng *rand.Rand, s logShape) []made {
	one := func(in int) bool { return in > 0 && rng.IntN(in) == 0 }
	var log []made
	now := int64(1_000_000)
	numbers := map[string]int64{}
	for len(log) < s.records {
		now += rng.Int64N(2*s.step + 1)
		if s.jump > 0 && one(300) {
			now += rng.Int64N(s.jump)
		}
		m := made{id: "event-" + strconv.Itoa(len(log)), key: "k" + strconv.Itoa(rng.IntN(s.keys)), x: float64(rng.IntN(1000)) / 8, gap: one(s.gaps)}
		if rng.IntN(4) == 0 {
			m.id = "E" + m.id // so that ids and positions are ordered differently
		}
		at := now
		if s.lag > 0 && rng.IntN(3) > 0 {
			at -= rng.Int64N(s.lag + 1)
		}
		m.at = millis(at)
		m.Arrival = millis(now)
		if one(s.future) {
			m.Arrival = millis(at - 10_001)
		}
		if one(s.revisions) {
			m.revision = 1 + rng.Int64N(3)
		}
		if s.sequence {
			numbers[m.key]++
			if one(s.lost) {
				numbers[m.key]++
			}
			m.sequence = numbers[m.key]
		}
		m.write(rng, one(s.bad))
		log = append(log, m)
		for one(s.duplicates) && len(log) > 1 {
			again := log[max(0, len(log)-1-rng.IntN(200))]
			if again.bad != "" {
				break
			}
			again.revision = rng.Int64N(2)
			if s.amends {
				again.amend(rng)
			}
			again.write(rng, false)
			log = append(log, again)
		}
	}
	for i := range log {
		log[i].Position = record.Offset(int64(3*i + 1)) // offsets are not dense
	}
	return log
}

func (m *made) amend(rng *rand.Rand) {
	m.revision = rng.Int64N(4)
	if m.revision > 0 {
		m.x, m.gap = float64(rng.IntN(1000))/8, rng.IntN(9) == 0
	}
	if rng.IntN(20) == 0 {
		m.at += millis(rng.Int64N(3) - 1)
	}
	if rng.IntN(20) == 0 {
		m.key += "x"
	}
}

var badValues = []string{"", "null", "{", `{"id":1}`, `[]`, `{"id":"a","key":"b","at":"x"}`, "\xff"}

// write makes the bytes of a record.
func (m *made) write(rng *rand.Rand, bad bool) {
	m.Key = []byte(m.key)
	if bad {
		m.bad = ReasonUnreadable
		n := rng.IntN(len(badValues) + 1)
		if n == len(badValues) {
			m.bad, m.Value = ReasonTombstone, nil
			return
		}
		m.Value = []byte(badValues[n])
		return
	}
	x := strconv.FormatFloat(m.x, 'g', -1, 64)
	if m.gap {
		x = "null"
	}
	v := fmt.Sprintf(`{"x":%s,"at":%d,"id":%q,"key":%q`, x, int64(m.at)/1_000_000, m.id, m.key)
	if m.revision > 0 || rng.IntN(5) == 0 {
		v += fmt.Sprintf(`,"rev":%d`, m.revision)
	}
	if m.sequence > 0 {
		v += fmt.Sprintf(`,"seq":%d`, m.sequence)
	}
	m.Value = []byte(v + "}")
}

func recordsOf(log []made) []record.Record {
	out := make([]record.Record, len(log))
	for i := range log {
		out[i] = log[i].Record
	}
	return out
}

// flows are the flows of the property tests, and shapes the logs: each property holds for every pair.
var flows = map[string]string{
	"event clock": "lateness: 200ms\ndedupe: {horizon: 2s}\nmax_future_skew: 10s\nrevision: rev\n" +
		"operators: [{name: e, type: ema, input: x, period: 3}, {name: s, type: sma, input: {operator: e}, period: 2}]\noutputs: [e, s]\n",
	"grid": "lateness: 200ms\ndedupe: {horizon: 2s}\nmax_future_skew: 10s\nclock: {every: 250ms}\n" +
		"operators: [{name: e, type: ema, input: x, period: 2, gap: hold}, {name: l, type: last, input: x}]\noutputs: [e, l]\n",
	"grid with revisions": "lateness: 200ms\ndedupe: {horizon: 2s}\nclock: {every: 250ms}\nrevision: rev\n" +
		"operators: [{name: e, type: ema, input: x, period: 2, gap: hold}, {name: l, type: last, input: x}]\noutputs: [e, l]\n",
	"published": "lateness: 200ms\ndedupe: {horizon: 2s}\nrevision: rev\nrevisions: {horizon: 500ms}\n" +
		"operators: [{name: e, type: ema, input: x, period: 3}, {name: s, type: sma, input: {operator: e}, period: 2}]\noutputs: [e, s]\n",
	"published by a grid": "lateness: 200ms\ndedupe: {horizon: 2s}\nclock: {every: 70ms}\nrevision: rev\nrevisions: {horizon: 1s}\n" +
		"operators: [{name: e, type: ema, input: x, period: 2, gap: hold}, {name: l, type: last, input: x}]\noutputs: [e, l]\n",
	"adopted": "lateness: 100ms\ndedupe: {horizon: 2s}\nsequence: {field: seq, gap_hold: 400ms}\nrevision: rev\nrevisions: {horizon: 500ms, publish: false}\n" +
		"operators: [{name: l, type: last, input: x}, {name: s, type: sma, input: x, period: 3, gap: hold}]\noutputs: [l, s]\n",
	"select": "select: {field: key, in: [k1, k2, k5]}\nlateness: 50ms\ndedupe: {horizon: 0s}\nrevision: rev\n" +
		"operators: [{name: l, type: last, input: x}]\noutputs: [l]\n",
	"sequence": "lateness: 100ms\ndedupe: {horizon: 1s}\nsequence: {field: seq, gap_hold: 400ms}\n" +
		"operators: [{name: l, type: last, input: x}]\noutputs: [l]\n",
	"grid with sequence": "lateness: 100ms\ndedupe: {horizon: 1s}\nsequence: {field: seq, gap_hold: 400ms}\nclock: {every: 70ms}\n" +
		"operators: [{name: s, type: sma, input: x, period: 3}]\noutputs: [s]\n",
}

var shapes = map[string]logShape{
	"calm":    {keys: 6, step: 2, duplicates: 9, bad: 50, gaps: 20, revisions: 30, future: 60, sequence: true, lost: 60},
	"lagging": {keys: 6, step: 3, lag: 190, duplicates: 9, bad: 50, gaps: 9, revisions: 30, future: 60, sequence: true, lost: 200},
	"wild":    {keys: 40, step: 5, lag: 900, jump: 6000, duplicates: 5, bad: 9, gaps: 5, revisions: 9, future: 9, sequence: true, lost: 9},
	"revised": {keys: 5, step: 2, lag: 190, duplicates: 3, gaps: 9, revisions: 9, amends: true, sequence: true, lost: 200},
	"ties":    {keys: 2, step: 1, lag: 900, jump: 2000, duplicates: 2, bad: 30, gaps: 9, revisions: 9, amends: true},
	"sparse":  {keys: 50, step: 30, lag: 300, duplicates: 9, gaps: 9},
}

// eachCase runs fn for every pair of flow and shape, in parallel.
func eachCase(t *testing.T, records int, fn func(t *testing.T, flow string, log []made, rng *rand.Rand)) {
	for flow, text := range flows {
		for shape, s := range shapes {
			revisions := strings.Contains(text, "revision: rev")
			if s.amends && !revisions || !s.amends && shape != "wild" && revisions && flow != "event clock" && flow != "select" {
				continue // one of the two says nothing about the other
			}
			t.Run(flow+"/"+shape, func(t *testing.T) {
				t.Parallel()
				for seed := uint64(1); seed <= 2; seed++ {
					s.records = records
					rng := rand.New(rand.NewPCG(seed, 77))
					t.Logf("seed %d", seed)
					fn(t, text, generate(rng, s), rng)
				}
			})
		}
	}
}
