package watermark

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/weirstream/weir/record"
)

// MaxOpenGaps bounds the open ranges of one partition (about 48 bytes each). The range that would pass it forces the oldest one
// closed, which is reported as GapForced: nothing is lost, but the watermark no longer waits for the forced one.
const MaxOpenGaps = 16384

// GapKind says what became of a run of missing sequence numbers.
//
//	                  ┌────────┐ the missing event came     GapFilled (one number; the rest stays open)
//	 seq > last + 1   │        │ a recorded decision        CloseGap
//	────────────────▶ │  OPEN  │ event time moved on        GapExpired
//	    GapOpened     │        │ MaxOpenGaps reached        GapForced
//	                  └────────┘ ──────────────────▶ closed
//
// A number that is neither new nor missing is a duplicate, the late coming of a closed gap, or a restart of the numbering. It
// opens and closes nothing: GapIgnored, so that it can be counted.
type GapKind uint8

// The kinds of change.
const (
	// GapOpened: First to Last are missing.
	GapOpened GapKind = iota
	// GapFilled: First (= Last) came.
	GapFilled
	// GapExpired: event time reached the anchor plus the gap hold.
	GapExpired
	// GapForced: the oldest range made room for a new one.
	GapForced
	// GapIgnored: First (= Last) was neither new nor missing.
	GapIgnored
)

var gapNames = [...]string{"OPENED", "FILLED", "EXPIRED", "FORCED", "IGNORED"}

func (k GapKind) String() string {
	if int(k) < len(gapNames) {
		return gapNames[k]
	}
	return "UNKNOWN"
}

// GapChange is one change of a key's run of sequence numbers.
type GapChange struct {
	Kind        GapKind
	Key         string
	First, Last int64
	// Anchor is the event time that the range holds, or held, the watermark at; record.NoTime for GapIgnored.
	Anchor record.EventTime
}

// Gap is an open run of missing sequence numbers of one key.
type Gap struct {
	Key         string
	First, Last int64
	// Anchor is the event time of the last event before the missing ones: W does not pass it.
	Anchor record.EventTime
}

// gaps holds the sequence numbers of one partition.
//
// A key's numbers rise with its event time. The missing event is therefore not older than the last event before it, the anchor:
// while W stays at or below the anchor the missing event is not late when it comes. If W is past the anchor already when the jump
// is seen (the key is behind its partition by more than the lateness), W cannot go back; it stays where it is until the gap closes.
//
// Missing numbers are kept as ranges: a jump by a billion is one entry. A number that comes out of the middle of a range splits
// it, and the numbers above it are anchored at its own time from then on.
type gaps struct {
	index map[string]int32
	keys  []sequence
	// changed says of each part of KeysPerPart keys whether it changed since it was last saved.
	changed []bool
	// slab holds the ranges; free the unused slots; heap the open ones, oldest anchor first.
	slab []span
	free []int32
	heap []int32
	// changes are the ones not yet handed out, or handed out by the last call.
	changes []GapChange
	taken   bool
}

// sequence is the numbering of one key, in the order in which keys were first seen.
type sequence struct {
	key  string
	last int64
	at   record.EventTime
	// open are the slots of the key's ranges, lowest number first.
	open []int32
}

type span struct {
	first, last int64
	anchor      record.EventTime
	key         int32
	pos         int32
}

func (g *gaps) init() { *g = gaps{index: map[string]int32{}} }

func (g *gaps) open() int { return len(g.heap) }

// hold is the time that W may not pass.
func (g *gaps) hold() record.EventTime {
	if len(g.heap) == 0 {
		return record.MaxTime
	}
	return g.slab[g.heap[0]].anchor
}

// Sequence takes the number and event time of a record in a flow that names a sequence field, before Observe of the same record:
// a jump must hold W before the record that revealed it moves W on. It is meant for late records too, so that a missing event
// that comes too late still closes its gap.
//
// The changes are those since the last call of Sequence or Changes, in order; they are valid until the next call of a method of p.
// W catches up at once when a gap closes, and the next Observe reports it.
func (p *Partition) Sequence(key string, seq int64, t record.EventTime) []GapChange {
	p.gaps.fresh()
	p.gaps.number(key, seq, t)
	if p.gaps.open() > 0 {
		p.gaps.expire(max(p.max, t), p.gapHold)
	}
	p.regain()
	return p.Changes()
}

// Changes are the changes that no call has returned yet: gaps that expired in an Observe without Sequence. Valid as for Sequence.
func (p *Partition) Changes() []GapChange {
	p.gaps.fresh()
	p.gaps.taken = true
	return p.gaps.changes
}

// CloseGap closes the open range of a key that holds the number seq: a decision that the caller has recorded. The whole range
// closes, since a range may have more numbers than anyone can name. W catches up at once; read Watermark afterwards. It returns
// false when the number is not missing.
func (p *Partition) CloseGap(key string, seq int64) bool {
	k, ok := p.gaps.index[key]
	if !ok {
		return false
	}
	i, ok := p.gaps.find(k, seq)
	if !ok {
		return false
	}
	p.gaps.remove(p.gaps.keys[k].open[i])
	p.regain()
	return true
}

// Missing says whether a number of a key is in an open range: whether CloseGap would close one.
func (p *Partition) Missing(key string, seq int64) bool {
	k, ok := p.gaps.index[key]
	if ok {
		_, ok = p.gaps.find(k, seq)
	}
	return ok
}

// OpenGaps is the number of open ranges.
func (p *Partition) OpenGaps() int { return p.gaps.open() }

// OldestGap is the range that holds the watermark, or would be the first to.
func (p *Partition) OldestGap() (Gap, bool) {
	if p.gaps.open() == 0 {
		return Gap{}, false
	}
	s := &p.gaps.slab[p.gaps.heap[0]]
	return Gap{Key: p.gaps.keys[s.key].key, First: s.first, Last: s.last, Anchor: s.anchor}, true
}

func (g *gaps) fresh() {
	if g.taken {
		g.changes, g.taken = g.changes[:0], false
	}
}

func (g *gaps) report(kind GapKind, key int32, first, last int64, anchor record.EventTime) {
	g.fresh()
	g.changes = append(g.changes, GapChange{Kind: kind, Key: g.keys[key].key, First: first, Last: last, Anchor: anchor})
}

// number takes the next number of a key in log order.
func (g *gaps) number(key string, seq int64, t record.EventTime) {
	k, ok := g.index[key]
	if !ok {
		g.append(sequence{key: strings.Clone(key), last: seq, at: t})
		return
	}
	s := &g.keys[k]
	if seq <= s.last {
		g.behind(k, seq, t)
		return
	}
	if seq-1 > s.last {
		g.jump(k, s.last+1, seq-1, s.at)
	}
	s.last, s.at = seq, t
	g.changed[k/KeysPerPart] = true
}

func (g *gaps) append(s sequence) {
	k := len(g.keys)
	g.index[s.key] = int32(k)
	g.keys = append(g.keys, s)
	if k%KeysPerPart == 0 {
		g.changed = append(g.changed, true)
	}
	g.changed[k/KeysPerPart] = true
}

func (g *gaps) jump(k int32, first, last int64, anchor record.EventTime) {
	g.room()
	g.report(GapOpened, k, first, last, anchor)
	g.keys[k].open = append(g.keys[k].open, g.add(span{first: first, last: last, anchor: anchor, key: k}))
}

// behind takes a number that is not new: it fills a gap or is ignored.
func (g *gaps) behind(k int32, seq int64, t record.EventTime) {
	i, ok := g.find(k, seq)
	if !ok {
		g.report(GapIgnored, k, seq, seq, record.NoTime)
		return
	}
	id := g.keys[k].open[i]
	s := &g.slab[id]
	old := *s
	g.report(GapFilled, k, seq, seq, old.anchor)
	g.changed[k/KeysPerPart] = true
	upper := max(old.anchor, t)
	switch {
	case old.first == old.last:
		g.remove(id)
	case seq == old.last:
		s.last--
	case seq == old.first:
		s.first++
		s.anchor = upper
		g.down(int(s.pos))
	default:
		s.last = seq - 1
		g.split(k, span{first: seq + 1, last: old.last, anchor: upper, key: k})
	}
}

// split inserts the upper part of a range whose lower part stays in its slot.
func (g *gaps) split(k int32, upper span) {
	g.room()
	id := g.add(upper)
	open := &g.keys[k].open
	at := sort.Search(len(*open), func(i int) bool { return g.slab[(*open)[i]].first > upper.first })
	*open = slices.Insert(*open, at, id)
}

// room forces the oldest range closed when there is no place for one more.
func (g *gaps) room() {
	if len(g.heap) < MaxOpenGaps {
		return
	}
	g.closeOldest(GapForced)
}

func (g *gaps) closeOldest(kind GapKind) {
	id := g.heap[0]
	s := g.slab[id]
	g.report(kind, s.key, s.first, s.last, s.anchor)
	g.remove(id)
}

// expire closes the gaps whose anchor lies the hold or more behind now.
func (g *gaps) expire(now, hold record.EventTime) {
	for len(g.heap) > 0 && now >= plus(g.slab[g.heap[0]].anchor, hold) {
		g.closeOldest(GapExpired)
	}
}

// find is the place among the key's open ranges of the one that holds seq.
func (g *gaps) find(k int32, seq int64) (int, bool) {
	return slices.BinarySearchFunc(g.keys[k].open, seq, func(id int32, seq int64) int {
		s := &g.slab[id]
		switch {
		case seq < s.first:
			return 1
		case seq > s.last:
			return -1
		}
		return 0
	})
}

func (g *gaps) add(s span) int32 {
	var id int32
	if n := len(g.free); n > 0 {
		id, g.free = g.free[n-1], g.free[:n-1]
		g.slab[id] = s
	} else {
		id = int32(len(g.slab))
		g.slab = append(g.slab, s)
	}
	g.slab[id].pos = int32(len(g.heap))
	g.heap = append(g.heap, id)
	g.up(len(g.heap) - 1)
	return id
}

func (g *gaps) remove(id int32) {
	s := g.slab[id]
	g.changed[s.key/KeysPerPart] = true
	i, _ := g.find(s.key, s.first)
	open := &g.keys[s.key].open
	*open = slices.Delete(*open, i, i+1)
	last := len(g.heap) - 1
	g.swap(int(s.pos), last)
	g.heap = g.heap[:last]
	if int(s.pos) < last {
		g.down(int(s.pos))
		g.up(int(s.pos))
	}
	g.free = append(g.free, id)
}

// older orders ranges by anchor, then by key and number, so that the order does not depend on the heap's history.
func (g *gaps) older(a, b int32) bool {
	x, y := &g.slab[a], &g.slab[b]
	c := cmp.Compare(x.anchor, y.anchor)
	if c == 0 {
		c = cmp.Compare(x.key, y.key)
	}
	if c == 0 {
		c = cmp.Compare(x.first, y.first)
	}
	return c < 0
}

func (g *gaps) swap(i, j int) {
	g.heap[i], g.heap[j] = g.heap[j], g.heap[i]
	g.slab[g.heap[i]].pos, g.slab[g.heap[j]].pos = int32(i), int32(j)
}

func (g *gaps) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !g.older(g.heap[i], g.heap[parent]) {
			return
		}
		g.swap(i, parent)
		i = parent
	}
}

func (g *gaps) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(g.heap) {
			return
		}
		if r := child + 1; r < len(g.heap) && g.older(g.heap[r], g.heap[child]) {
			child = r
		}
		if !g.older(g.heap[child], g.heap[i]) {
			return
		}
		g.swap(i, child)
		i = child
	}
}
