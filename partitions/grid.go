package partitions

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/weirstream/weir/record"
)

// grid is a regular clock: it cuts event time into intervals [k·every, (k+1)·every) and ticks every key at the end of each, from the
// interval of the key's first record on. The value of an interval is that of its last record in (event time, id) order; an empty
// interval ticks with a gap. The id of a tick is the key, "@" and the instant in RFC 3339.
type grid struct {
	every record.EventTime
	width int
	// next is the instant of the next tick, while there are keys.
	next record.EventTime
	// ends has for each key the end of the interval of its last record, NoTime before the first; inputs are that record's.
	ends   []record.EventTime
	inputs []float64
	// order are the keys that tick, in the order of their ids at one instant; added are those since the last tick.
	order, added []int32
	merged       []int32
	// mixed says that a key holds an "@": the order of ids may then depend on the instant.
	mixed bool
	// id is the memory of a tick's id, suffix of the part that its keys share.
	id, suffix []byte
}

func newGrid(every record.EventTime, width int) *grid { return &grid{every: every, width: width} }

// end is the end of the interval that holds t.
func (g *grid) end(t record.EventTime) record.EventTime {
	k := t / g.every
	if t%g.every < 0 {
		k--
	}
	return (k + 1) * g.every
}

// floor is the start of the interval that holds t.
func (g *grid) floor(t record.EventTime) record.EventTime { return minus(g.end(t), g.every) }

// room makes place for a key.
func (g *grid) room(key int32) {
	for len(g.ends) <= int(key) {
		g.ends = append(g.ends, record.NoTime)
		for range g.width {
			g.inputs = append(g.inputs, math.NaN())
		}
	}
}

// take makes a record the last one of its interval. Records come in order.
func (g *grid) take(key int32, name string, at record.EventTime, inputs []float64) {
	g.room(key)
	end := g.end(at)
	if g.ends[key] == record.NoTime {
		if !g.ticking() {
			g.next = end
		}
		g.start(key, name)
	}
	g.ends[key] = end
	copy(g.inputs[int(key)*g.width:], inputs)
}

func (g *grid) start(key int32, name string) {
	g.added = append(g.added, key)
	g.mixed = g.mixed || strings.IndexByte(name, '@') >= 0
}

// ticking says whether any key ticks.
func (g *grid) ticking() bool { return len(g.order)+len(g.added) > 0 }

// at prepares the tick at g.next and returns its keys in order.
func (g *grid) at(names []string) []int32 {
	g.suffix = record.AppendTime(append(g.suffix[:0], '@'), g.next)
	suffix := string(g.suffix)
	less := func(a, b int32) int { return compareTicks(names[a], names[b], suffix) }
	if g.mixed {
		g.order = append(g.order, g.added...)
		g.added = g.added[:0]
		slices.SortFunc(g.order, less)
		return g.order
	}
	if len(g.added) > 0 {
		slices.SortFunc(g.added, less)
		g.merge(less)
	}
	return g.order
}

// merge puts the sorted new keys among the old ones.
func (g *grid) merge(less func(a, b int32) int) {
	old, added := g.order, g.added
	out := g.merged[:0]
	for len(old) > 0 && len(added) > 0 {
		if less(old[0], added[0]) < 0 {
			out, old = append(out, old[0]), old[1:]
		} else {
			out, added = append(out, added[0]), added[1:]
		}
	}
	out = append(append(out, old...), added...)
	g.merged, g.order, g.added = g.order, out, g.added[:0]
}

// compareTicks compares a+suffix with b+suffix.
func compareTicks(a, b, suffix string) int {
	n := min(len(a), len(b))
	if c := strings.Compare(a[:n], b[:n]); c != 0 || len(a) == len(b) {
		return c
	}
	if len(a) > len(b) {
		return -compareTicks(b, a, suffix)
	}
	rest := b[n:]
	m := min(len(rest), len(suffix))
	if c := strings.Compare(suffix[:m], rest[:m]); c != 0 {
		return c
	}
	// The shorter side goes on with the rest of the suffix, the longer one with the rest of its key and the whole suffix.
	return strings.Compare(suffix[m:], rest[m:]+suffix)
}

// tickID is the id of a key's tick at g.next; it is valid until the next call.
func (g *grid) tickID(name string) []byte {
	g.id = append(append(g.id[:0], name...), g.suffix...)
	return g.id
}

// value is what a key ticks with at g.next; ok is false for an empty interval.
func (g *grid) value(key int32) (inputs []float64, ok bool) {
	from := int(key) * g.width
	return g.inputs[from : from+g.width], g.ends[key] == g.next
}

// appendKey writes a key's state: NoTime, or the end of its last interval and the inputs there.
func (g *grid) appendKey(dst []byte, key int32) []byte {
	g.room(key)
	dst = binary.BigEndian.AppendUint64(dst, uint64(g.ends[key]))
	if g.ends[key] == record.NoTime {
		return dst
	}
	for _, f := range g.inputs[int(key)*g.width : (int(key)+1)*g.width] {
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
	}
	return dst
}

// loadKey reads what appendKey wrote.
func (g *grid) loadKey(in *decoder, key int32) bool {
	g.room(key)
	g.ends[key] = record.EventTime(in.uint64())
	if in.bad || g.ends[key] != record.NoTime && g.ends[key]%g.every != 0 {
		return false
	}
	if g.ends[key] == record.NoTime {
		return true
	}
	for i := int(key) * g.width; i < (int(key)+1)*g.width; i++ {
		g.inputs[i] = math.Float64frombits(in.uint64())
	}
	return !in.bad
}

// skipKey passes over what appendKey wrote.
func (g *grid) skipKey(in *decoder) {
	if end := record.EventTime(in.uint64()); end != record.NoTime {
		in.bytes(8 * uint64(g.width))
	}
}

// resume goes on after a restore at watermark w: everything up to w has ticked.
func (g *grid) resume(names []string, w record.EventTime) {
	for key, end := range g.ends {
		if end != record.NoTime {
			g.start(int32(key), names[key])
		}
	}
	if g.ticking() && w != record.NoTime {
		g.next = g.end(w)
	}
}
