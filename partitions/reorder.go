package partitions

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// reorder holds the accepted records of a partition until the watermark has passed them, and gives them out in (event time, event
// id) order.
//
//	           arrived          settle             run, a sorted ring ─┐
//	record ──▶ in log order ──▶ sorted ─┬─ merge ─▶                    ├──▶ the smaller of the two heads
//	                                    └─ deep ──▶ heap ──────────────┘
//
// New records are sorted among themselves and merged into the end of the run, some hundred at a time, when the next release asks for
// the first one. In order that costs next to nothing, and slight disorder little. Those that belong far from the end go to the heap:
// then the work for a record does not grow with the number that wait.
//
// A record is kept in a slot: its id in an arena, its inputs in one array of all slots with NaN for a gap (an input is finite), its
// key as a number. The lists hold the event time beside the slot's number, so that ordering rarely touches the slot.
type reorder struct {
	// width is the number of inputs of a record.
	width int
	// limit is the number of records that may wait; 0 is no limit.
	limit int

	slots  []waiting
	inputs []float64
	free   []int32
	ids    arena

	arrived []waitingRef
	// run is a ring of a power of two: runLen entries from runHead on.
	run             []waitingRef
	runHead, runLen int
	heap            []waitingRef

	// revising says that there are numbers of revisions, or an index.
	revising bool
	revisions
	// past are the records that were released and are kept for revisions, in order, from pastHead on.
	past     []waitingRef
	pastHead int

	journal recordJournal
}

type waiting struct {
	at  record.EventTime
	id  span
	key int32
	// blob is the number of the journal's blob that holds the record: see recordJournal.
	blob uint32
}

type waitingRef struct {
	at   record.EventTime
	slot int32
}

// Records that belong more than mergeBase + mergeFactor·n places from the end of the run, when n are merged, go to the heap.
const (
	mergeBase   = 64
	mergeFactor = 8
)

func newReorder(width, limit int) *reorder {
	r := &reorder{width: width, limit: limit}
	r.ids.init()
	return r
}

// len is the number of waiting records.
func (r *reorder) len() int { return len(r.arrived) + r.runLen + len(r.heap) }

// over says that more records wait than may.
func (r *reorder) over() bool { return r.limit > 0 && r.len() > r.limit }

func (r *reorder) limitError() error {
	return codes.New(codes.LimitReached, "more than %d records wait for the watermark, the flow's `limits.reorder`: raise it, or shorten `lateness` or `sequence.gap_hold`", r.limit)
}

// push takes a record and returns where its inputs go: the caller fills them in, NaN for a gap.
func (r *reorder) push(at record.EventTime, id []byte, key int32) []float64 {
	n := r.slot()
	r.slots[n] = waiting{at: at, id: r.ids.add(id), key: key, blob: unwritten}
	r.journal.pushed(r, n)
	if r.index != nil {
		r.index[hashID(id)] = n
	}
	r.arrived = append(r.arrived, waitingRef{at: at, slot: n})
	return r.inputsOf(n)
}

func (r *reorder) slot() int32 {
	if n := len(r.free); n > 0 {
		s := r.free[n-1]
		r.free = r.free[:n-1]
		return s
	}
	n := len(r.slots)
	r.slots = append(r.slots, waiting{})
	for range r.width {
		r.inputs = append(r.inputs, 0)
	}
	return int32(n)
}

func (r *reorder) inputsOf(slot int32) []float64 {
	from := int(slot) * r.width
	return r.inputs[from : from+r.width : from+r.width]
}

func (r *reorder) idOf(slot int32) []byte { return r.ids.get(r.slots[slot].id) }

// compare orders by event time, then by the bytes of the id. No two waiting records have the same id.
func (r *reorder) compare(a, b waitingRef) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return bytes.Compare(r.idOf(a.slot), r.idOf(b.slot))
}

func (r *reorder) less(a, b waitingRef) bool {
	return a.at < b.at || a.at == b.at && bytes.Compare(r.idOf(a.slot), r.idOf(b.slot)) < 0
}

// settle puts the new records in order.
func (r *reorder) settle() {
	fresh := r.arrived
	if len(fresh) == 0 {
		return
	}
	r.arrived = fresh[:0]
	for i := 1; i < len(fresh); i++ {
		if r.less(fresh[i], fresh[i-1]) {
			slices.SortFunc(fresh, r.compare)
			break
		}
	}
	if deep := r.runLen - mergeBase - mergeFactor*len(fresh); deep > 0 {
		border := r.run[(r.runHead+deep)&(len(r.run)-1)]
		for len(fresh) > 0 && r.less(fresh[0], border) {
			r.intoHeap(fresh[0])
			fresh = fresh[1:]
		}
	}
	r.merge(fresh)
}

// merge puts sorted records into the run, from the end backwards.
func (r *reorder) merge(fresh []waitingRef) {
	for r.runLen+len(fresh) > len(r.run) {
		r.growRun()
	}
	mask := len(r.run) - 1
	old := r.runHead + r.runLen
	for to := old + len(fresh); len(fresh) > 0; to-- {
		last := len(fresh) - 1
		if old > r.runHead && r.less(fresh[last], r.run[(old-1)&mask]) {
			old--
			r.run[(to-1)&mask] = r.run[old&mask]
			continue
		}
		r.run[(to-1)&mask] = fresh[last]
		fresh = fresh[:last]
		r.runLen++
	}
}

func (r *reorder) growRun() {
	run := make([]waitingRef, max(64, 2*len(r.run)))
	n := copy(run, r.run[r.runHead:])
	copy(run[n:], r.run[:r.runHead])
	r.run, r.runHead = run, 0
}

func (r *reorder) intoHeap(ref waitingRef) {
	r.heap = append(r.heap, ref)
	i := len(r.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !r.less(ref, r.heap[parent]) {
			break
		}
		r.heap[i] = r.heap[parent]
		i = parent
	}
	r.heap[i] = ref
}

// first is the record that comes first in order.
func (r *reorder) first() (ref waitingRef, fromHeap, ok bool) {
	r.settle()
	switch {
	case r.runLen == 0 && len(r.heap) == 0:
		return waitingRef{}, false, false
	case len(r.heap) == 0:
		return r.run[r.runHead], false, true
	case r.runLen == 0 || r.less(r.heap[0], r.run[r.runHead]):
		return r.heap[0], true, true
	}
	return r.run[r.runHead], false, true
}

// remove takes the first record out of the order; done gives its slot up.
func (r *reorder) remove(fromHeap bool) {
	if !fromHeap {
		r.runHead = (r.runHead + 1) & (len(r.run) - 1)
		r.runLen--
		return
	}
	last := len(r.heap) - 1
	ref := r.heap[last]
	r.heap = r.heap[:last]
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && r.less(r.heap[child+1], r.heap[child]) {
			child++
		}
		if !r.less(r.heap[child], ref) {
			break
		}
		r.heap[i] = r.heap[child]
		i = child
	}
	if last > 0 {
		r.heap[i] = ref
	}
}

// done gives a slot up. Its id must not be used afterwards.
func (r *reorder) done(slot int32) {
	w := &r.slots[slot]
	if r.revising {
		r.forget(slot)
	}
	r.ids.remove(w.id)
	w.blob = released
	r.free = append(r.free, slot)
	if r.ids.loose() {
		r.compact()
	}
}

// compact moves the ids of the waiting records together.
func (r *reorder) compact() {
	old := r.ids
	r.ids.init()
	r.each(func(slot int32) {
		w := &r.slots[slot]
		w.id = r.ids.add(old.get(w.id))
	})
}

// each calls fn with the slot of every record that waits or is kept, in no particular order.
func (r *reorder) each(fn func(slot int32)) {
	for i := range r.runLen {
		fn(r.run[(r.runHead+i)&(len(r.run)-1)].slot)
	}
	for _, list := range [][]waitingRef{r.heap, r.arrived, r.past[r.pastHead:]} {
		for _, ref := range list {
			fn(ref.slot)
		}
	}
}

// valueOf is an input as operators take it.
func valueOf(f float64) operators.Value {
	if math.IsNaN(f) {
		return operators.Gap
	}
	return operators.Number(f)
}
