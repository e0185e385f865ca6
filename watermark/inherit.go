package watermark

import "github.com/weirstream/weir/record"

// RaiseTo moves W of a partition whose input has ended up to w, past any open gap: others that it is put together with are that far. It returns
// false, and changes nothing, when W is there already.
func (p *Partition) RaiseTo(w record.EventTime) bool {
	if w <= p.w {
		return false
	}
	p.w, p.told, p.quiet = w, w, p.max // the caller knows of the move
	return true
}

// Inherit takes over what a parent knows, into a partition that has seen nothing of its own: W and the maximum event time become the greatest of all
// parents', and the numbering of the keys that keep chooses goes on, with their gaps. Keys come in the parent's order.
func (p *Partition) Inherit(parent *Partition, keep func(key string) bool) {
	p.max, p.w = max(p.max, parent.max), max(p.w, parent.w)
	p.told, p.quiet = p.w, p.max
	for _, s := range parent.gaps.keys {
		if !keep(s.key) {
			continue
		}
		k := int32(len(p.gaps.keys))
		p.gaps.append(sequence{key: s.key, last: s.last, at: s.at})
		for _, id := range s.open {
			old := parent.gaps.slab[id]
			p.gaps.room()
			p.gaps.keys[k].open = append(p.gaps.keys[k].open, p.gaps.add(span{first: old.first, last: old.last, anchor: old.anchor, key: k}))
		}
	}
}
