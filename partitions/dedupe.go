package partitions

import (
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// dedupe is the set of the event ids of a partition, bounded by event time.
//
// Every id belongs to the generation of its event time, an eighth of the horizon long. A generation dies when all of it is older
// than W - horizon, and its ids with it: a verdict depends on W alone, never on when the memory of the dead is used again. So an
// id is remembered for at least the horizon behind W, and for at most an eighth more.
//
// The table has 256 segments that grow and shrink one by one, so that no step is long: 16 bytes an entry at a load of 0.6 to 0.875.
type dedupe struct {
	gens     generations
	segments [256]segment
	// limit is the number of living ids that may be held; 0 is no limit.
	limit int
	// living is the number of ids of living generations, dead the number of entries that wait to be swept.
	living, dead int
	// sweepAt is the segment to sweep next, credit the number of places that may be swept.
	sweepAt uint8
	credit  int

	journal idJournal
}

// Places swept for each new id while there are dead entries. Segments that fill up are cleaned anyway; the pace is for those that don't.
const sweepPace = 2

const slotBytes = 16

func newDedupe(horizon, lateness, gapHold time.Duration, limit int) *dedupe {
	d := &dedupe{limit: limit}
	window := record.EventTime(max(horizon, 0))
	span := max(record.EventTime(time.Millisecond), (window+7)/8)
	// Ids live from W - horizon up to the greatest event time. Where the lateness dwarfs the horizon an eighth of the horizon would
	// make too many generations to number; an eighth more of the whole stretch is then still not passed.
	stretch := plus(plus(window, record.EventTime(max(lateness, 0))), record.EventTime(max(gapHold, 0)))
	span = max(span, stretch/maxGenerations)
	d.gens.init(span, window)
	d.journal.init(stretch/span + 1)
	return d
}

// hashID is the hash of an event id.
func hashID(id []byte) idHash {
	h := xxh3.Hash128(id)
	return idHash{segment: uint8(h.Hi >> 56), high: h.Hi<<8 | h.Lo>>56, low: h.Lo << 8 &^ tagMask}
}

// touch looks at the place where an id would stand, so that it is near when the id comes to be tried.
func (d *dedupe) touch(h idHash) uint64 {
	if g := &d.segments[h.segment]; g.homes > 0 {
		return g.slots[g.home(h.high)].low
	}
	return 0
}

// has says whether the id lives in the set.
func (d *dedupe) has(h idHash) bool {
	g := &d.segments[h.segment]
	at, found := g.find(h)
	return found && d.gens.tags[g.slots[at].tag()].alive
}

// add puts an id of event time t in, unless it lives there already (true) or its generation is dead.
func (d *dedupe) add(h idHash, t record.EventTime) (duplicate bool, err error) {
	g := &d.segments[h.segment]
	at, found := g.find(h)
	if found && d.gens.tags[g.slots[at].tag()].alive {
		return true, nil
	}
	if d.gens.isDead(t) {
		return false, nil
	}
	gen := d.gens.at(t)
	if gen == nil {
		if gen = d.open(d.gens.numberOf(t)); gen == nil {
			return false, codes.New(codes.Internal, "event ids of %d generations are alive at once", maxTags-1)
		}
		at, found = g.find(h)
	}
	entry := slot{high: h.high, low: h.low | uint64(gen.tag)}
	if found {
		d.gens.forget(g.slots[at].tag())
		d.dead--
		g.slots[at] = entry
	} else {
		d.insert(g, at, h, entry)
	}
	d.gens.tags[gen.tag].entries++
	d.living++
	d.journal.added(h, gen.number, d.living)
	return false, nil
}

// over says that more ids live than may. It is asked once the watermark has seen the record: that may let older ids die.
func (d *dedupe) over() bool { return d.limit > 0 && d.living > d.limit }

func (d *dedupe) limitError() error {
	return codes.New(codes.LimitReached, "more than %d event ids are remembered, the flow's `limits.ids`: raise it, or shorten `dedupe.horizon`", d.limit)
}

func (d *dedupe) insert(g *segment, at int, h idHash, entry slot) {
	if g.full() {
		d.fit(g, 1)
		at, _ = g.find(h)
	}
	g.insert(at, entry)
	if d.dead > 0 {
		d.sweep(sweepPace)
	}
}

// fit cleans a segment and gives it room for some more entries.
func (d *dedupe) fit(g *segment, more int) {
	used := g.used
	g.fit(more, &d.gens)
	d.dead -= used - g.used
}

// sweep takes up dead entries segment by segment as far as the pace allows.
func (d *dedupe) sweep(pace int) {
	if len(d.gens.tags)-len(d.gens.free) > maxTags/2 {
		// Few ids in very many generations: clean faster, before the tags run out.
		pace = max(pace, d.places()>>13)
	}
	d.credit += pace
	for d.dead > 0 {
		g := &d.segments[d.sweepAt]
		if d.credit < len(g.slots) {
			return
		}
		d.credit -= len(g.slots)
		d.sweepAt++
		d.fit(g, 0)
	}
	d.credit = 0
}

func (d *dedupe) places() int {
	n := 0
	for i := range d.segments {
		n += len(d.segments[i].slots)
	}
	return n
}

// open begins a generation. When the tags run out everything dead is swept at once, which moves entries. It returns nil when so many
// generations live that there is no tag, which the span of a generation excludes.
func (d *dedupe) open(number int64) *generation {
	if !d.gens.hasTag() {
		for i := range d.segments {
			d.fit(&d.segments[i], 0)
		}
	}
	if !d.gens.hasTag() {
		return nil
	}
	return d.gens.open(number)
}

// advance moves the watermark on: generations die.
func (d *dedupe) advance(w record.EventTime) {
	d.gens.dying = minus(w, d.gens.horizon)
	if w < d.gens.nextDeath {
		return
	}
	n := d.gens.kill(w)
	d.living -= n
	d.dead += n
	d.prune(w)
}

// minus is a - b for b >= 0, at least record.NoTime.
func minus(a, b record.EventTime) record.EventTime {
	if a < record.NoTime+b {
		return record.NoTime
	}
	return a - b
}

// plus is a + b for b >= 0, at most record.MaxTime.
func plus(a, b record.EventTime) record.EventTime {
	if a > record.MaxTime-b {
		return record.MaxTime
	}
	return a + b
}

// bytes is the memory of the table and of what the next cut may need.
func (d *dedupe) bytes() int {
	return d.places()*slotBytes + d.journal.bytes()
}
