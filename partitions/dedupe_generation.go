package partitions

import (
	"slices"

	"github.com/weirstream/weir/record"
)

const (
	// maxGenerations bounds the generations between W - horizon and the greatest event time.
	maxGenerations = 2048
	maxTags        = 1 << tagBits
)

// generation is a living generation of event ids: those with floor(event time / span) = number.
type generation struct {
	number int64
	tag    uint16
}

// tagState says what a tag stands for. A tag is used again once no entry carries it any more.
type tagState struct {
	entries int
	alive   bool
}

// generations numbers and tags the generations and lets them die by W.
type generations struct {
	span, horizon record.EventTime
	// living is in ascending order of the numbers.
	living []generation
	// tags[0] stands for a free place.
	tags []tagState
	free []uint16
	// nextDeath is the least W at which a living generation dies.
	nextDeath record.EventTime
	// dying is W - horizon: what ends at or before it is dead. record.NoTime before the first W.
	dying record.EventTime
	// last is the place in living of the generation used last, or -1; lastFrom and lastEnd bound its event times.
	last              int
	lastFrom, lastEnd record.EventTime
}

func (g *generations) init(span, horizon record.EventTime) {
	g.span, g.horizon = span, horizon
	g.tags = make([]tagState, 1, 32)
	g.nextDeath, g.dying = record.MaxTime, record.NoTime
	g.last = -1
}

// numberOf is floor(t / span).
func (g *generations) numberOf(t record.EventTime) int64 {
	n := int64(t / g.span)
	if t%g.span < 0 {
		n--
	}
	return n
}

// end is the first instant after a generation, at most record.MaxTime.
func (g *generations) end(number int64) record.EventTime {
	if number >= int64(record.MaxTime/g.span) {
		return record.MaxTime
	}
	return record.EventTime(number+1) * g.span
}

// isDead says whether the generation of an event time is dead.
func (g *generations) isDead(t record.EventTime) bool {
	// What is younger than dying cannot be dead; the division is for the old ones only.
	return t < g.dying && g.end(g.numberOf(t)) <= g.dying
}

// at is the living generation of t, or nil when it has no id.
func (g *generations) at(t record.EventTime) *generation {
	if g.last >= 0 && t >= g.lastFrom && t < g.lastEnd {
		return &g.living[g.last]
	}
	number := g.numberOf(t)
	i, found := g.search(number)
	if !found {
		return nil
	}
	g.remember(i)
	return &g.living[i]
}

func (g *generations) search(number int64) (int, bool) {
	return slices.BinarySearchFunc(g.living, number, func(x generation, number int64) int {
		switch {
		case x.number < number:
			return -1
		case x.number > number:
			return 1
		}
		return 0
	})
}

func (g *generations) remember(i int) {
	g.last = i
	g.lastEnd = g.end(g.living[i].number)
	g.lastFrom = record.EventTime(g.living[i].number) * g.span
	if g.lastFrom > g.lastEnd { // the very first generation of event time starts before it
		g.lastFrom = record.NoTime
	}
}

func (g *generations) hasTag() bool { return len(g.free) > 0 || len(g.tags) < maxTags }

// open makes a generation; there must be a tag for it.
func (g *generations) open(number int64) *generation {
	var tag uint16
	if n := len(g.free); n > 0 {
		tag, g.free = g.free[n-1], g.free[:n-1]
	} else {
		tag = uint16(len(g.tags))
		g.tags = append(g.tags, tagState{})
	}
	g.tags[tag] = tagState{alive: true}
	i, _ := g.search(number)
	g.living = slices.Insert(g.living, i, generation{number: number, tag: tag})
	g.remember(i)
	g.schedule()
	return &g.living[i]
}

func (g *generations) schedule() {
	g.nextDeath = record.MaxTime
	if len(g.living) > 0 {
		g.nextDeath = plus(g.end(g.living[0].number), g.horizon)
	}
}

// kill lets everything die that is older than w - horizon, and returns how many ids died.
func (g *generations) kill(w record.EventTime) int {
	n, ids := 0, 0
	for n < len(g.living) && plus(g.end(g.living[n].number), g.horizon) <= w {
		tag := g.living[n].tag
		g.tags[tag].alive = false
		ids += g.tags[tag].entries
		if g.tags[tag].entries == 0 {
			g.free = append(g.free, tag)
		}
		n++
	}
	g.living = slices.Delete(g.living, 0, n)
	g.last = -1
	g.schedule()
	return ids
}

// forget says that an entry with a dead tag is gone.
func (g *generations) forget(tag uint16) {
	if g.tags[tag].entries--; g.tags[tag].entries == 0 {
		g.free = append(g.free, tag)
	}
}
