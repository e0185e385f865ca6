package partitions

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirstream/weir/record"
)

// load takes one blob of ids. The blobs may come in any order; call loaded after the last one.
func (d *dedupe) load(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version, kind := in.byte(), idBlobKind(in.byte())
	number, seq := int64(in.uint64()), in.uint64()
	if in.bad || len(in.src)%slotBytes != 0 || version != idsVersion || kind < smallIDs || kind > baseIDs {
		return damaged(blob.Name, fmt.Sprintf("is no set of event ids of version %d", idsVersion))
	}
	per := d.journal.perBucket
	if number < d.gens.numberOf(record.NoTime)/per-1 || number > d.gens.numberOf(record.MaxTime)/per {
		return damaged(blob.Name, "names a bucket outside of event time")
	}
	d.journal.find(number * per)
	b := &d.journal.buckets[d.journal.last]
	x := idBlob{blobRef: ref, seq: seq, ids: len(in.src) / slotBytes}
	for len(in.src) > 0 {
		s := slot{high: in.uint64(), low: in.uint64()}
		h, generation := unpackID(s)
		if generation >= per || !d.reload(h, number*per+generation) {
			return damaged(blob.Name, "has an id outside of its bucket")
		}
		if kind == smallIDs {
			x.loaded = append(x.loaded, s)
		}
	}
	switch kind {
	case smallIDs:
		b.small = append(b.small, x)
	case mediumIDs:
		b.medium = append(b.medium, x)
	case baseIDs:
		b.base = append(b.base, x)
	}
	l.stands(ref)
	return nil
}

// reload puts an id of a generation in. An id that stands in two blobs died in between: the younger generation holds. It returns
// false when there are more generations than can live.
func (d *dedupe) reload(h idHash, number int64) bool {
	i, found := d.gens.search(number)
	if !found {
		if d.open(number) == nil {
			return false
		}
		i, _ = d.gens.search(number)
	}
	tag := d.gens.living[i].tag
	g := &d.segments[h.segment]
	at, found := g.find(h)
	entry := slot{high: h.high, low: h.low | uint64(tag)}
	switch {
	case !found:
		d.insert(g, at, h, entry)
		d.living++
	case d.numberOfTag(g.slots[at].tag()) < number:
		d.gens.tags[g.slots[at].tag()].entries--
		g.slots[at] = entry
	default:
		return true
	}
	d.gens.tags[tag].entries++
	return true
}

func (d *dedupe) numberOfTag(tag uint16) int64 {
	i := slices.IndexFunc(d.gens.living, func(g generation) bool { return g.tag == tag })
	return d.gens.living[i].number
}

// loaded puts the blobs in their order and lets die what is dead at the watermark of the cut.
func (d *dedupe) loaded(w record.EventTime) {
	bySeq := func(a, b idBlob) int { return cmp.Compare(a.seq, b.seq) }
	for i := range d.journal.buckets {
		b := &d.journal.buckets[i]
		slices.SortFunc(b.small, bySeq)
		slices.SortFunc(b.medium, bySeq)
		slices.SortFunc(b.base, bySeq)
		for k := range b.small {
			b.tail = append(b.tail, b.small[k].loaded...)
			b.small[k].loaded = nil
		}
		b.written = len(b.tail)
	}
	d.journal.w, d.journal.last = w, -1
	d.journal.count()
	d.advance(w)
}

// state is the set as it stands, in an order that depends on nothing else: by generation, then by hash.
func (d *dedupe) state() []StateBlob {
	bodies := make([][]byte, len(d.gens.tags))
	for i := range d.segments {
		for _, s := range d.segments[i].slots {
			if tag := s.tag(); tag != 0 && d.gens.tags[tag].alive {
				p := packID(idHash{segment: uint8(i), high: s.high, low: s.low &^ tagMask}, 0)
				bodies[tag] = appendWords(bodies[tag], p)
			}
		}
	}
	var out []StateBlob
	for _, g := range d.gens.living {
		if len(bodies[g.tag]) > 0 {
			out = append(out, StateBlob{Name: fmt.Sprintf("%s%d", idsPrefix, g.number), Data: bodies[g.tag]})
		}
	}
	return out
}
