package balance

import (
	"maps"
	"slices"
)

// view is what one look at the store shows, as far as it is valid.
type view struct {
	// units that there are to work on, ascending.
	units []int32
	// members that live, this one among them.
	members []string
	// claims and wishes by partition: who holds them.
	claims, wishes map[int32]string
}

// memory is what a member remembers between two looks.
type memory struct {
	// short is the number of looks in a row in which it had less than its share and nothing was free.
	short int
}

// moves is what to do after a look.
type moves struct {
	// claim what nobody holds; let go of what is not worked on any more; hand over on a wish.
	claim, letGo []int32
	handOver     int32
	// wish for a partition of another member; unwish what would not help any more.
	wish   int32
	unwish []int32
}

const none int32 = -1

// patience is the number of looks for which a member has to be short before it asks for what another holds.
const patience = 2

// decide says what a member does. It is a function of what it sees, and of how long it has been short.
func decide(me string, v view, mem *memory) moves {
	m := moves{handOver: none, wish: none}
	held := map[string]int{}
	mine := 0
	for _, p := range v.units {
		owner, claimed := v.claims[p]
		switch {
		case claimed && owner == me:
			mine++
			held[owner]++
		case claimed:
			held[owner]++
		}
	}
	for p, owner := range v.claims {
		if owner == me && !slices.Contains(v.units, p) {
			m.letGo = append(m.letGo, p)
		}
	}
	slices.Sort(m.letGo)
	share := (len(v.units) + max(len(v.members), 1) - 1) / max(len(v.members), 1)
	for _, p := range v.units {
		if _, claimed := v.claims[p]; !claimed && mine+len(m.claim) < share {
			m.claim = append(m.claim, p)
		}
	}
	m.handOver = v.asked(me, mine, held)
	wishing := false
	for p, who := range v.wishes {
		switch {
		case who != me:
		case slices.Contains(v.units, p) && held[v.claims[p]] >= mine+2:
			wishing = true
		default:
			m.unwish = append(m.unwish, p)
		}
	}
	slices.Sort(m.unwish)
	if len(m.claim) > 0 || mine >= share || wishing {
		mem.short = 0
		return m
	}
	victim, most := v.richest(me, held)
	if most < mine+2 {
		mem.short = 0
		return m
	}
	if mem.short++; mem.short >= patience {
		m.wish = v.choose(victim)
	}
	return m
}

// asked is the partition that this member should hand over: one that a living member wishes for who has at least two fewer.
func (v *view) asked(me string, mine int, held map[string]int) int32 {
	for _, p := range v.units {
		who, wished := v.wishes[p]
		if wished && who != me && v.claims[p] == me && slices.Contains(v.members, who) && mine >= held[who]+2 {
			return p
		}
	}
	return none
}

// richest is the other member with the most partitions; of several, the first by name.
func (v *view) richest(me string, held map[string]int) (who string, n int) {
	for _, name := range slices.Sorted(maps.Keys(held)) {
		if name != me && held[name] > n {
			who, n = name, held[name]
		}
	}
	return who, n
}

// choose is the highest partition of a member that nobody wishes for.
func (v *view) choose(victim string) int32 {
	for _, p := range slices.Backward(v.units) {
		if _, wished := v.wishes[p]; !wished && v.claims[p] == victim {
			return p
		}
	}
	return none
}
