package partitions

import "math/bits"

// idHash is what is kept of an event id: 120 bits of its 128-bit hash, 8 of them implied by the segment.
type idHash struct {
	segment uint8
	// high orders the ids of a segment and gives an id its place; low has 48 bits, the lowest 16 are zero.
	high, low uint64
}

// slot is one place of a segment: an id's hash and, in the lowest 16 bits of low, the tag of its generation. Tag 0 is a free place.
type slot struct{ high, low uint64 }

const (
	tagBits = 16
	tagMask = 1<<tagBits - 1
)

func (s slot) tag() uint16 { return uint16(s.low) }

// before says whether s sorts before the hash h.
func (s slot) before(h idHash) bool {
	return s.high < h.high || s.high == h.high && s.low>>tagBits < h.low>>tagBits
}

func (s slot) is(h idHash) bool { return s.high == h.high && s.low>>tagBits == h.low>>tagBits }

// segment is a pointer-free open-addressing table whose entries stand in ascending order of their hashes: an entry stands at its
// home, or right after the entry before it, whichever is later. So the layout depends on the entries alone, not on their history;
// a look-up ends at the first greater hash; growing, shrinking and cleaning are one pass in order; and a scan is sorted.
//
// Nothing wraps around: slots is longer than the homes, and its last place is always free.
type segment struct {
	slots []slot
	// homes is the number of home places.
	homes int
	// used counts the entries, living and dead.
	used int
}

// The load that a segment is built with, and the bounds at which it is built anew: full at 7/8 with the dead, too small for its
// living above 3/4, too large below 9/20.
const (
	minHomes      = 16
	spillSlots    = 16
	loadNew       = 0.70
	loadCompacted = 0.75
	loadLow       = 0.45
)

// home is where an entry stands when nothing is in its way. It rises with the hash; a product instead of a mask lets a segment have
// any size.
func (g *segment) home(high uint64) int {
	h, _ := bits.Mul64(high, uint64(g.homes))
	return int(h)
}

// find is the place of h: where it stands, or where it has to be inserted.
func (g *segment) find(h idHash) (at int, found bool) {
	slots := g.slots
	for at = g.home(h.high); at < len(slots); at++ {
		s := slots[at]
		if s.high < h.high && s.low != 0 {
			continue
		}
		if s.tag() == 0 || !s.before(h) {
			return at, s.tag() != 0 && s.is(h)
		}
	}
	return at, false
}

// full says that one more entry calls for another layout first.
func (g *segment) full() bool { return (g.used+1)*8 > g.homes*7 }

// insert puts s at the place that find gave.
func (g *segment) insert(at int, s slot) {
	end := at
	for g.slots[end].tag() != 0 {
		end++
	}
	copy(g.slots[at+1:end+1], g.slots[at:end])
	g.slots[at] = s
	g.used++
	if end == len(g.slots)-1 {
		g.extend()
	}
}

// extend adds places behind the homes.
func (g *segment) extend() {
	longer := make([]slot, len(g.slots)+g.spill())
	copy(longer, g.slots)
	g.slots = longer
}

// fit drops the dead entries and lays the segment out anew where it is too small or too large for the living ones and more.
func (g *segment) fit(more int, gens *generations) {
	g.sweep(gens)
	load := float64(g.used + more)
	if load > loadCompacted*float64(g.homes) || load < loadLow*float64(g.homes) && g.homes > minHomes {
		g.rebuild(max(minHomes, int(load/loadNew)+1))
	}
}

// rebuild copies the entries into new places.
func (g *segment) rebuild(homes int) {
	old := g.slots
	g.homes = homes
	g.slots = make([]slot, homes+g.spill())
	next := 0
	for _, s := range old {
		if s.tag() == 0 {
			continue
		}
		at := max(next, g.home(s.high))
		if at >= len(g.slots)-1 {
			g.extend()
		}
		g.slots[at] = s
		next = at + 1
	}
}

// sweep drops the dead entries in place. An entry moves back as far as the ones before it have made room, never forward.
func (g *segment) sweep(gens *generations) {
	next := 0
	for i, s := range g.slots {
		if s.tag() == 0 {
			continue
		}
		if !gens.tags[s.tag()].alive {
			gens.forget(s.tag())
			g.slots[i] = slot{}
			g.used--
			continue
		}
		at := max(next, g.home(s.high))
		if at != i {
			g.slots[at], g.slots[i] = s, slot{}
		}
		next = at + 1
	}
}

// spill is the number of places behind the homes.
func (g *segment) spill() int { return spillSlots + g.homes/64 }
