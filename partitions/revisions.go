package partitions

import "slices"

// revisions is what the reorder buffer knows of revisions.
type revisions struct {
	// numbers are those of the records that are revisions, by slot; any other record is revision 0.
	numbers map[int32]int64
	// index finds a record by its id. It is made when a revision first asks for it, and kept from then on.
	index map[idHash]int32
}

// number says which revision a record is.
func (r *reorder) number(slot int32, revision int64) {
	if r.numbers == nil {
		r.numbers = map[int32]int64{}
	}
	r.numbers[slot] = revision
	r.revising = true
}

// newest is the record that was pushed last.
func (r *reorder) newest() int32 { return r.arrived[len(r.arrived)-1].slot }

// keepNewest puts the record that was pushed last among the kept ones, which sortKept then brings in order.
func (r *reorder) keepNewest() {
	last := len(r.arrived) - 1
	r.past = append(r.past, r.arrived[last])
	r.arrived = r.arrived[:last]
}

func (r *reorder) sortKept() { slices.SortFunc(r.past, r.compare) }

// forget a record that is given up.
func (r *reorder) forget(slot int32) {
	delete(r.numbers, slot)
	if r.index != nil {
		delete(r.index, hashID(r.idOf(slot)))
	}
}

// find is the record with an id, among those that wait and those that are kept.
func (r *reorder) find(id idHash) (slot int32, ok bool) {
	if r.index == nil {
		r.index = make(map[idHash]int32, r.held())
		r.revising = true
		r.each(func(slot int32) { r.index[hashID(r.idOf(slot))] = slot })
	}
	slot, ok = r.index[id]
	return slot, ok
}

// amend gives a record the inputs of a revision. The next cut writes it again: what an older blob says of it does not count any more.
func (r *reorder) amend(slot int32, inputs []float64, revision int64) {
	copy(r.inputsOf(slot), inputs)
	r.number(slot, revision)
	if w := &r.slots[slot]; w.blob != unwritten {
		w.blob = unwritten
		r.journal.pushed(r, slot)
	}
}

// held is the number of records that wait or are kept.
func (r *reorder) held() int { return r.len() + r.kept() }

// kept is the number of records that were released and are kept.
func (r *reorder) kept() int { return len(r.past) - r.pastHead }

// oldest is the first record that is kept.
func (r *reorder) oldest() (ref waitingRef, ok bool) {
	if r.kept() == 0 {
		return waitingRef{}, false
	}
	return r.past[r.pastHead], true
}

// dropOldest takes the first record out of the kept ones; done gives its slot up.
func (r *reorder) dropOldest() {
	if r.pastHead++; 2*r.pastHead >= len(r.past) {
		r.past = slices.Delete(r.past, 0, r.pastHead)
		r.pastHead = 0
	}
}

// versionOf is the version in which records have to be written.
func (r *reorder) versionOf(slots []int32) byte {
	if len(r.numbers) > 0 {
		for _, s := range slots {
			if r.numbers[s] > 0 {
				return revisedVersion
			}
		}
	}
	return recordsVersion
}

// latest sorts loaded records, which come in the order of their blobs, and leaves of each the one in the last blob.
func (r *reorder) latest(slots []int32) []int32 {
	slices.SortStableFunc(slots, r.compareSlots)
	to := 0
	for i, s := range slots {
		if i+1 < len(slots) && r.compareSlots(s, slots[i+1]) == 0 {
			r.unload(s)
			continue
		}
		slots[to] = s
		to++
	}
	return slots[:to]
}

// unload gives up the slot of a loaded record that stands nowhere yet.
func (r *reorder) unload(slot int32) {
	if r.revising {
		r.forget(slot)
	}
	r.ids.remove(r.slots[slot].id)
	r.free = append(r.free, slot)
}
