package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/zeebo/xxh3"
)

// hand is the flow of ticks written out by somebody who knows what it costs, without weir: decode the five fields, parse the time,
// select, check for the future, dedupe by a 128-bit hash over two generations, wait for the watermark, release in (time, id)
// order, EMA per instrument, append the row. It reads the JSON that the producer writes and not all JSON: no escapes, no check of
// the encoding, fields that it does not need are skipped unread.
type hand struct {
	max, watermark int64
	seen           twoGenerations
	states         map[string]*handEMA
	queue          []handRef
	head           int
	slots          []handSlot
	free           []int32
	rows           []byte

	consumed, filtered, omitted, duplicates, late, future, outputs int
}

type handEMA struct {
	key  []byte
	n    int
	sum  float64
	last float64
}

type handRef struct {
	at   int64
	slot int32
}

type handSlot struct {
	id    []byte
	state *handEMA
	close float64
}

func newHand() *hand {
	h := &hand{max: math.MinInt64, watermark: math.MinInt64, states: map[string]*handEMA{}}
	h.seen.init(int(tickHorizon/time.Second)*ticksPerSecond, int64(tickHorizon))
	return h
}

type handFields struct {
	id, at, key, venue, close []byte
}

func (h *hand) process(batch []message) {
	var f handFields
	for i := range batch {
		m := &batch[i]
		if !f.decode(m.value) {
			h.omitted++
			continue
		}
		if string(f.venue) != tickVenue {
			h.filtered++
			continue
		}
		at, okTime := handTime(f.at)
		price, okPrice := handFloat(f.close)
		if !okTime || !okPrice {
			h.omitted++
			continue
		}
		hash := xxh3.Hash128(f.id)
		place, seen := h.seen.find(hash)
		switch {
		case seen:
			h.duplicates++
			continue
		case at > m.timestamp+int64(tickSkew):
			h.future++
			continue
		}
		h.seen.add(place, hash, at)
		if at < h.watermark {
			h.late++
			continue
		}
		h.consumed++
		h.wait(at, f.id, h.state(f.key), price)
		if at > h.max {
			h.max = at
			h.watermark = at - int64(tickLateness)
			h.seen.forget(h.watermark)
			h.release(h.watermark)
		}
	}
}

func (h *hand) state(key []byte) *handEMA {
	if s := h.states[string(key)]; s != nil {
		return s
	}
	s := &handEMA{key: bytes.Clone(key)}
	h.states[string(key)] = s
	return s
}

// wait puts a record into the queue, which is kept in order: most records belong at its end.
func (h *hand) wait(at int64, id []byte, state *handEMA, price float64) {
	var n int32
	if k := len(h.free); k > 0 {
		n, h.free = h.free[k-1], h.free[:k-1]
	} else {
		n = int32(len(h.slots))
		h.slots = append(h.slots, handSlot{})
	}
	s := &h.slots[n]
	s.id, s.state, s.close = append(s.id[:0], id...), state, price
	ref := handRef{at, n}
	i := len(h.queue)
	if i > h.head && h.before(ref, h.queue[i-1]) {
		lo, hi := h.head, i-1
		for lo < hi {
			mid := int(uint(lo+hi) / 2)
			if h.before(h.queue[mid], ref) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		i = lo
	}
	h.queue = append(h.queue, handRef{})
	copy(h.queue[i+1:], h.queue[i:])
	h.queue[i] = ref
}

func (h *hand) before(a, b handRef) bool {
	return a.at < b.at || a.at == b.at && bytes.Compare(h.slots[a.slot].id, h.slots[b.slot].id) < 0
}

func (h *hand) release(before int64) {
	for h.head < len(h.queue) && h.queue[h.head].at < before {
		r := h.queue[h.head]
		h.head++
		s := &h.slots[r.slot]
		v, ok := s.state.step(s.close)
		h.row(r.at, s, v, ok)
		h.free = append(h.free, r.slot)
	}
	if h.head > 4096 && h.head > len(h.queue)/2 {
		h.queue = h.queue[:copy(h.queue, h.queue[h.head:])]
		h.head = 0
	}
}

func (h *hand) row(at int64, s *handSlot, v float64, ok bool) {
	h.outputs++
	d := binary.BigEndian.AppendUint64(h.rows, uint64(at))
	d = binary.AppendUvarint(d, uint64(len(s.id)))
	d = append(d, s.id...)
	d = binary.AppendUvarint(d, uint64(len(s.state.key)))
	d = append(d, s.state.key...)
	if ok {
		d = append(d, 1)
		d = binary.BigEndian.AppendUint64(d, math.Float64bits(v))
	} else {
		d = append(d, 0)
	}
	h.rows = d
}

func (e *handEMA) step(x float64) (float64, bool) {
	e.n++
	if e.n < tickEMA {
		e.sum += x
		return 0, false
	}
	if e.n == tickEMA {
		e.last = (e.sum + x) / tickEMA
		return e.last, true
	}
	e.last += float64((x - e.last) * (2.0 / (tickEMA + 1)))
	return e.last, true
}

// decode finds the five fields of one flat object.
func (f *handFields) decode(doc []byte) bool {
	*f = handFields{}
	if len(doc) < 2 || doc[0] != '{' {
		return false
	}
	for i := 1; i < len(doc); {
		if doc[i] != '"' {
			return false
		}
		i++
		n := bytes.IndexByte(doc[i:], '"')
		if n < 0 || i+n+2 >= len(doc) || doc[i+n+1] != ':' {
			return false
		}
		name := doc[i : i+n]
		i += n + 2
		var value []byte
		if doc[i] == '"' {
			i++
			if n = bytes.IndexByte(doc[i:], '"'); n < 0 {
				return false
			}
			value = doc[i : i+n]
			i += n + 1
		} else {
			from := i
			for i < len(doc) && doc[i] != ',' && doc[i] != '}' {
				i++
			}
			value = doc[from:i]
		}
		switch string(name) {
		case "event_id":
			f.id = value
		case "event_time":
			f.at = value
		case "instrument":
			f.key = value
		case "venue":
			f.venue = value
		case "close":
			f.close = value
		}
		if i >= len(doc) {
			return false
		}
		if doc[i] == '}' {
			return len(f.id) > 0 && len(f.at) > 0 && f.key != nil && f.venue != nil && len(f.close) > 0
		}
		i++
	}
	return false
}

// handTime reads 2006-01-02T15:04:05[.fraction]Z as nanoseconds since 1970.
func handTime(s []byte) (int64, bool) {
	if len(s) < 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[len(s)-1] != 'Z' {
		return 0, false
	}
	two := func(i int) int64 { return int64(s[i]-'0')*10 + int64(s[i+1]-'0') }
	y, m, d := two(0)*100+two(2), two(5), two(8)
	if m <= 2 {
		y--
		m += 12
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + d - 719469
	ns := int64(0)
	if len(s) > 20 {
		scale := int64(100_000_000)
		for _, c := range s[20 : len(s)-1] {
			ns += int64(c-'0') * scale
			scale /= 10
		}
	}
	return ((days*24+two(11))*60+two(14))*60*1e9 + two(17)*1e9 + ns, true
}

var handPowers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// handFloat reads a plain decimal exactly; the rest is for strconv.
func handFloat(s []byte) (float64, bool) {
	mantissa, digits, point := uint64(0), 0, -1
	for i, c := range s {
		switch {
		case c >= '0' && c <= '9':
			mantissa = mantissa*10 + uint64(c-'0')
			digits++
		case c == '.' && point < 0:
			point = i
		default:
			v, err := strconv.ParseFloat(string(s), 64)
			return v, err == nil
		}
	}
	if digits > 15 {
		v, err := strconv.ParseFloat(string(s), 64)
		return v, err == nil
	}
	if point < 0 {
		return float64(mantissa), true
	}
	return float64(mantissa) / handPowers[len(s)-1-point], true
}

// twoGenerations remembers hashes for at least a horizon of event time: two presized tables, the older of which is forgotten whole.
type twoGenerations struct {
	tables  [2][]xxh3.Uint128
	used    [2]int
	ends    int64
	horizon int64
}

func (g *twoGenerations) init(ids int, horizon int64) {
	size := 1
	for size < ids*3/2 {
		size *= 2
	}
	g.tables = [2][]xxh3.Uint128{make([]xxh3.Uint128, size), make([]xxh3.Uint128, size)}
	g.horizon = horizon
}

// find says whether the hash is in the set, and where it belongs in the present generation.
func (g *twoGenerations) find(h xxh3.Uint128) (place uint64, found bool) {
	place, found = probe(g.tables[0], h)
	if !found && g.used[1] > 0 {
		_, found = probe(g.tables[1], h)
	}
	return place, found
}

func probe(table []xxh3.Uint128, h xxh3.Uint128) (uint64, bool) {
	mask := uint64(len(table) - 1)
	for i := h.Lo & mask; ; i = (i + 1) & mask {
		switch e := &table[i]; {
		case e.Lo == h.Lo && e.Hi == h.Hi:
			return i, true
		case e.Lo == 0 && e.Hi == 0:
			return i, false
		}
	}
}

func (g *twoGenerations) add(place uint64, h xxh3.Uint128, at int64) {
	if g.ends == 0 {
		g.ends = at + g.horizon
	}
	g.tables[0][place] = h
	g.used[0]++
}

// forget starts a new generation once the present one is a horizon long.
func (g *twoGenerations) forget(watermark int64) {
	if watermark < g.ends || g.ends == 0 {
		return
	}
	g.ends = watermark + g.horizon
	g.tables[0], g.tables[1] = g.tables[1], g.tables[0]
	clear(g.tables[0])
	g.used = [2]int{0, g.used[0]}
}
