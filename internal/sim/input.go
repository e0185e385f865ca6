package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirstream/weir/record"
)

// The flows: every event ticks; a regular clock; a selection. Each has what a log may do to it switched on.
const flowHead = `flow: weir/1
name: %s
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: %ds
dedupe: {horizon: 5m}
`

var flowKinds = []struct{ name, rest string }{
	{"wide", `revision: revision
sequence: {field: seq, gap_hold: 1m}
operators:
  - {name: e, type: ema, input: close, period: 3}
  - {name: s, type: sma, input: e, period: 2}
  - {name: l, type: last, input: volume}
outputs: [e, s, l]
`},
	{"grid", `clock: {every: 30s}
operators:
  - {name: l, type: last, input: close}
outputs: [l]
`},
	{"select", `select: {field: instrument, equals: "key-1"}
operators:
  - {name: e, type: ema, input: close, period: 3}
outputs: [e]
`},
}

// drawInput makes a flow and a log for it: disorder within and beyond the lateness, duplicates, revisions, tombstones, values that cannot
// be read, gaps in sequences and in values, events from the future, holes in the positions.
func drawInput(rng *rand.Rand) (string, map[int32][]record.Record) {
	kind := flowKinds[[]int{0, 0, 0, 1, 2}[rng.IntN(5)]]
	lateness := 5 + rng.IntN(30)
	src := fmt.Sprintf(flowHead, kind.name, lateness) + kind.rest
	parts, n := 1+rng.IntN(4), 30+rng.IntN(150)
	d := drawer{rng: rng, log: map[int32][]record.Record{}, next: make([]int64, parts), seqs: map[string]int{}, lateness: lateness}
	for p := range parts {
		d.log[int32(p)] = nil
	}
	for i := range n {
		d.record(i)
	}
	return src, d.log
}

type drawer struct {
	rng      *rand.Rand
	log      map[int32][]record.Record
	next     []int64
	seqs     map[string]int
	lateness int
}

const logStart = 1_700_000_000_000

func (d *drawer) record(i int) {
	rng := d.rng
	key := fmt.Sprintf("key-%d", rng.IntN(6))
	p := record.PartitionOf([]byte(key), int32(len(d.next)))
	base := logStart + i*1000
	at := base - rng.IntN(d.lateness*750+1)
	id := fmt.Sprintf("id-%d", i)
	switch rng.IntN(24) {
	case 0:
		at -= 90_000
	case 1:
		at += 2 * 86_400_000
	case 2, 3:
		id = fmt.Sprintf("id-%d", rng.IntN(i+1))
	}
	closing := fmt.Sprintf("%d.%d", rng.IntN(100), rng.IntN(100))
	if rng.IntN(15) == 0 {
		closing = []string{"null", "NaN", "1e400"}[rng.IntN(3)]
	}
	d.seqs[key]++
	if rng.IntN(25) == 0 {
		d.seqs[key] += rng.IntN(3)
	}
	d.put(p, key, id, fmt.Sprintf(`"instrument":%q,"t":%d,"close":%s,"volume":%d,"seq":%d,"revision":%d}`,
		key, at, closing, rng.IntN(1000), d.seqs[key], rng.IntN(4)/3), base)
	if rng.IntN(12) == 0 {
		for range 1 + rng.IntN(3) {
			d.again(p)
		}
	}
}

// put appends a record of which the value is given but for its names. A delivery has a name of its own beside that of its event.
func (d *drawer) put(p int32, key, id, rest string, base int) {
	rng := d.rng
	if rng.IntN(10) == 0 {
		d.next[p] += int64(1 + rng.IntN(5))
	}
	value := []byte(fmt.Sprintf(`{"event_id":%q,"delivery":"%s#%d",`, id, id, d.next[p]) + rest)
	switch rng.IntN(40) {
	case 0:
		value = nil
	case 1:
		value = value[:len(value)/2]
	}
	r := record.Record{Position: record.Offset(d.next[p]), Key: []byte(key), Value: value, Arrival: record.EventTime(base) * record.EventTime(time.Millisecond)}
	if rng.IntN(3) == 0 {
		r.Headers = []record.Header{{Key: record.HeaderEventID, Value: []byte(id)}}
	}
	d.next[p]++
	d.log[p] = append(d.log[p], r)
}

// again delivers the last record of a partition once more, as a publisher that got no answer does.
func (d *drawer) again(p int32) {
	last := d.log[p][len(d.log[p])-1]
	last.Position = record.Offset(d.next[p])
	if v := string(last.Value); strings.Contains(v, `"delivery":"`) {
		from := strings.Index(v, `"delivery":"`)
		if hash := strings.IndexByte(v[from:], '#'); hash >= 0 {
			if end := strings.IndexByte(v[from+hash:], '"'); end >= 0 {
				last.Value = []byte(fmt.Sprintf("%s#%d%s", v[:from+hash], d.next[p], v[from+hash+end:]))
			}
		}
	}
	d.next[p]++
	d.log[p] = append(d.log[p], last)
}

// eventOf is the event that a row's id stands for, whichever of its names the flow takes for it.
func eventOf(id []byte) string {
	event, _, _ := strings.Cut(string(id), "#")
	return event
}
