package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/weirstream/weir/record"
)

// recordJournal writes the waiting records as deltas. What waits at a cut with watermark W is exactly what was accepted and is not
// older than W, so a record is written once, by the first cut it lives to see, and its release needs no writing: a blob is deleted
// when W has passed its youngest record, and a restore leaves out what is older than W.
//
// A long lateness under short epochs would leave very many small blobs. So eight of one level are merged into one of the next, like
// the digits of a counter: the blobs that stand number at most seven a level, and a record is written once for each level it lives to
// see.
//
// A blob: version 1 │ level 1 │ sequence 8 │ per record: event time 8, id (length, bytes), key uvarint, inputs 8 each (NaN: a gap). In version
// 2, which is written while a record of the blob is a revision, the number of the revision (uvarint) follows each record. A record that a
// revision changed is written again, and of two records of an id, the one in the blob of the greater sequence stands. Where records are kept
// for revisions behind W, all of this holds for what is kept.
type recordJournal struct {
	// fresh are the slots filled since the last cut, in order; a slot may have been released since, and filled again.
	fresh []int32
	// blobs in the order of their sequence.
	blobs []recordBlob
	// loads are the blobs that a restore has read so far.
	loads []recordLoad
}

type recordBlob struct {
	blobRef
	seq   uint64
	level uint8
	// until is the greatest event time in it.
	until record.EventTime
}

type recordLoad struct {
	recordBlob
	version byte
	records []byte
}

// The blob number of a slot: the low half of the sequence, or one of these.
const (
	unwritten uint32 = 0
	released  uint32 = math.MaxUint32
	marked    uint32 = math.MaxUint32 - 1
)

const (
	recordsPrefix  = "reorder/"
	recordsVersion = 1
	// revisedVersion is that of a blob with numbers of revisions.
	revisedVersion = 2
	levelBlobs     = 8
	minFresh       = 1024
	maxLevel       = 64
)

func (b recordBlob) number() uint32 { return uint32(b.seq) }

// pushed notes a slot. Slots that were released before any cut saw them are forgotten now and then.
func (j *recordJournal) pushed(r *reorder, slot int32) {
	if len(j.fresh) >= 2*r.held()+minFresh {
		j.fresh = r.unwritten(marked)
		for _, s := range j.fresh {
			r.slots[s].blob = unwritten
		}
	}
	j.fresh = append(j.fresh, slot)
}

// unwritten keeps of fresh the slots that still wait to be written, once each, and gives them a blob number. A slot that was filled
// again stands at its last place.
func (r *reorder) unwritten(number uint32) []int32 {
	fresh := r.journal.fresh
	to := len(fresh)
	for i := len(fresh) - 1; i >= 0; i-- {
		if s := fresh[i]; r.slots[s].blob == unwritten {
			r.slots[s].blob = number
			to--
			fresh[to] = s
		}
	}
	return slices.Delete(fresh, 0, to)
}

// cut writes what is new since the last cut. Everything older than w must have been given up.
func (r *reorder) cut(w record.EventTime, l *ledger) {
	j := &r.journal
	j.blobs = slices.DeleteFunc(j.blobs, func(b recordBlob) bool {
		over := b.until < w || r.held() == 0
		if over {
			l.drop(b.blobRef)
		}
		return over
	})
	slots := r.unwritten(marked)
	j.fresh = slots[:0]
	if len(slots) == 0 {
		return
	}
	level, merged := r.level()
	if level > 0 {
		slots = append(slots[:len(slots):len(slots)], r.slotsIn(merged)...)
		slices.SortFunc(slots, r.compareSlots)
		j.blobs = slices.DeleteFunc(j.blobs, func(b recordBlob) bool {
			if b.level < level {
				l.drop(b.blobRef)
			}
			return b.level < level
		})
	}
	j.blobs = append(j.blobs, r.write(l, level, slots))
}

// level is the level of the next blob: as many levels as are full carry over, and their blobs are merged into it.
func (r *reorder) level() (level uint8, merged map[uint32]bool) {
	var count [256]int
	for _, b := range r.journal.blobs {
		count[b.level]++
	}
	for count[level] >= levelBlobs-1 {
		level++
	}
	if level == 0 {
		return 0, nil
	}
	merged = map[uint32]bool{}
	for _, b := range r.journal.blobs {
		if b.level < level {
			merged[b.number()] = true
		}
	}
	return level, merged
}

func (r *reorder) slotsIn(blobs map[uint32]bool) []int32 {
	var slots []int32
	r.each(func(s int32) {
		if blobs[r.slots[s].blob] {
			slots = append(slots, s)
		}
	})
	return slots
}

func (r *reorder) compareSlots(a, b int32) int {
	if c := cmp.Compare(r.slots[a].at, r.slots[b].at); c != 0 {
		return c
	}
	return slices.Compare(r.idOf(a), r.idOf(b))
}

func (r *reorder) write(l *ledger, level uint8, slots []int32) recordBlob {
	l.seq++
	for uint32(l.seq) == unwritten || uint32(l.seq) >= marked {
		l.seq++
	}
	b := recordBlob{seq: l.seq, level: level, until: record.NoTime}
	version := r.versionOf(slots)
	body := append(make([]byte, 0, 64*len(slots)+32), version, level)
	body = binary.BigEndian.AppendUint64(body, b.seq)
	for _, s := range slots {
		r.slots[s].blob = b.number()
		b.until = max(b.until, r.slots[s].at)
		body = r.appendRecord(body, s, version)
	}
	b.blobRef = l.write(fmt.Sprintf("%s%d", recordsPrefix, b.seq), body)
	return b
}

func (r *reorder) appendRecord(dst []byte, slot int32, version byte) []byte {
	w := &r.slots[slot]
	dst = binary.BigEndian.AppendUint64(dst, uint64(w.at))
	dst = appendText(dst, r.idOf(slot))
	dst = binary.AppendUvarint(dst, uint64(w.key))
	for _, f := range r.inputsOf(slot) {
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
	}
	if version == revisedVersion {
		dst = binary.AppendUvarint(dst, uint64(r.numbers[slot]))
	}
	return dst
}

// load takes one blob of records. The blobs may come in any order; call loaded after the last one.
func (r *reorder) load(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version := in.byte()
	b := recordBlob{blobRef: ref, level: in.byte(), seq: in.uint64()}
	if in.bad || version != recordsVersion && version != revisedVersion || b.level > maxLevel {
		return damaged(blob.Name, fmt.Sprintf("holds no waiting records of version %d", recordsVersion))
	}
	r.journal.loads = append(r.journal.loads, recordLoad{recordBlob: b, version: version, records: slices.Clone(in.src)})
	l.stands(ref)
	return nil
}

// loaded takes the records up that were not older than w; keys is the number of keys. Of those, the ones older than decided had been released.
func (r *reorder) loaded(w, decided record.EventTime, keys int) error {
	slices.SortFunc(r.journal.loads, func(a, b recordLoad) int { return cmp.Compare(a.seq, b.seq) })
	var slots []int32
	for _, b := range r.journal.loads {
		b.until = record.NoTime
		for in := (decoder{src: b.records}); len(in.src) > 0; {
			slot, at, ok := r.loadRecord(&in, keys, b.version)
			if !ok {
				return damaged(b.name, "has a record that cannot be read")
			}
			if b.until = max(b.until, at); at < w {
				r.unload(slot)
				continue
			}
			r.slots[slot].blob = b.number()
			slots = append(slots, slot)
		}
		r.journal.blobs = append(r.journal.blobs, b.recordBlob)
	}
	r.journal.loads = nil
	if r.revising {
		slots = r.latest(slots)
	} else {
		slices.SortFunc(slots, r.compareSlots)
	}
	sorted := make([]waitingRef, len(slots))
	for i, s := range slots {
		sorted[i] = waitingRef{at: r.slots[s].at, slot: s}
	}
	n := 0
	for ; n < len(sorted) && sorted[n].at < decided; n++ {
		r.past = append(r.past, sorted[n])
	}
	r.merge(sorted[n:])
	return nil
}

func (r *reorder) loadRecord(in *decoder, keys int, version byte) (slot int32, at record.EventTime, ok bool) {
	at = record.EventTime(in.uint64())
	id, key := in.text(), in.uvarint()
	if in.bad || key >= uint64(keys) {
		return 0, 0, false
	}
	slot = r.slot()
	r.slots[slot] = waiting{at: at, id: r.ids.add(id), key: int32(key)}
	inputs := r.inputsOf(slot)
	for i := range inputs {
		inputs[i] = math.Float64frombits(in.uint64())
	}
	if version == revisedVersion {
		r.number(slot, int64(in.uvarint()))
	}
	return slot, at, !in.bad
}

// state is what waits and what is kept, in order.
func (r *reorder) state() []byte {
	var slots []int32
	r.each(func(s int32) { slots = append(slots, s) })
	slices.SortFunc(slots, r.compareSlots)
	version := r.versionOf(slots)
	var dst []byte
	for _, s := range slots {
		dst = r.appendRecord(dst, s, version)
	}
	return dst
}
