package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/record"
)

// idJournal writes the set of event ids as deltas. Ids are grouped by buckets: runs of generations, about nine of which live at a
// time. A blob holds ids of one bucket and is deleted when the whole bucket is dead.
//
//	small    the ids of one cut ─┐ 32 of them, or many ids
//	medium   the same ids, in one ◀┘─┐ 64 of them and a fourth of the bucket, or the bucket closes (W passes its end)
//	base     all ids of the bucket ◀─┘ taken from the table
//
// So a bucket has at most some hundred blobs, and an id is written about three times, however many cuts there are. The ids of the
// small blobs are kept in memory until they are merged; where there are more new ids than is worth keeping (a long time without a
// cut) they are let go, and the next cut writes the bucket whole.
//
// A blob: version 1 │ kind 1 │ bucket 8 │ sequence 8 │ 16 bytes an id, as packID makes them. In its name the bucket and the sequence.
type idJournal struct {
	// perBucket is the number of generations in a bucket.
	perBucket int64
	// buckets in ascending order.
	buckets []idBucket
	// last is the place of the bucket used last, or -1.
	last int
	// kept is the number of ids in the tails, spares the memory of tails for the next buckets.
	kept   int
	spares [][]slot
	// w is the watermark at the last cut.
	w record.EventTime
}

type idBucket struct {
	number int64
	// tail are the ids that no medium or base blob holds, packed; the first written of them stand in small blobs.
	tail    []slot
	written int
	// over says that the tail was let go.
	over                bool
	small, medium, base []idBlob
}

type idBlob struct {
	blobRef
	seq uint64
	ids int
	// loaded are the ids of a small blob while a restore goes on.
	loaded []slot
}

type idBlobKind uint8

const (
	smallIDs idBlobKind = iota + 1
	mediumIDs
	baseIDs
)

const (
	idsPrefix   = "dedupe/"
	idsVersion  = 1
	idsHeader   = 1 + 1 + 8 + 8
	maxSmall    = 32
	maxMedium   = 64
	mergeIDs    = 1 << 15
	baseBlobIDs = 1 << 16
	// closeLoose is the number of loose blobs that is worth a rewrite when their bucket closes.
	closeLoose = 4
	// keepIDs bounds the tail from below; above it the tail may have a fourth of the living ids.
	keepIDs = 1 << 16
	// liveBuckets is about how many buckets live at a time.
	liveBuckets = 9
)

func (j *idJournal) init(generations record.EventTime) {
	j.perBucket = max(1, (int64(generations)+liveBuckets-1)/liveBuckets)
	j.last = -1
	j.w = record.NoTime
}

// added takes a new id of a generation; living is the number of ids in the set.
func (j *idJournal) added(h idHash, generation int64, living int) {
	if j.last < 0 || generation-j.buckets[j.last].number*j.perBucket >= j.perBucket || generation < j.buckets[j.last].number*j.perBucket {
		j.find(generation)
	}
	b := &j.buckets[j.last]
	if b.over {
		return
	}
	if j.kept >= max(keepIDs, living/4) {
		j.letGo()
		return
	}
	j.kept++
	if b.tail == nil {
		b.tail = j.spareTail()
	}
	b.tail = append(b.tail, packID(h, generation-b.number*j.perBucket))
}

// letGo gives the tails up: the next cut writes their buckets whole.
func (j *idJournal) letGo() {
	for i := range j.buckets {
		if b := &j.buckets[i]; len(b.tail) > 0 || i == j.last {
			j.spare(b.tail)
			b.tail, b.over = nil, true
		}
	}
	j.kept = 0
}

// packID writes a whole hash and the generation within the bucket (below 256) as two words; slot is only a pair of words here.
func packID(h idHash, generation int64) slot {
	return slot{high: h.high, low: h.low | uint64(h.segment)<<8 | uint64(generation)}
}

func unpackID(s slot) (h idHash, generation int64) {
	return idHash{segment: uint8(s.low >> 8), high: s.high, low: s.low &^ tagMask}, int64(s.low & 0xff)
}

func appendWords(dst []byte, s slot) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.high), s.low)
}

// find makes last the bucket of a generation, and makes that bucket if it must.
func (j *idJournal) find(generation int64) {
	number := generation / j.perBucket
	if generation%j.perBucket < 0 {
		number--
	}
	i, found := slices.BinarySearchFunc(j.buckets, number, func(b idBucket, n int64) int { return cmp.Compare(b.number, n) })
	if !found {
		j.buckets = slices.Insert(j.buckets, i, idBucket{number: number})
	}
	j.last = i
}

// bytes is the memory of the tails.
func (j *idJournal) bytes() int {
	n := 0
	for i := range j.buckets {
		n += cap(j.buckets[i].tail)
	}
	for _, tail := range j.spares {
		n += cap(tail)
	}
	return n * slotBytes
}

// cut writes what is new since the last cut.
func (d *dedupe) cut(w record.EventTime, l *ledger) {
	j := &d.journal
	for i := range j.buckets {
		if b := &j.buckets[i]; d.isOver(b, w) {
			j.dropLoose(b, l)
			b.dropBase(l)
		}
	}
	d.prune(w)
	var whole []*idBucket
	for i := range j.buckets {
		b := &j.buckets[i]
		end := d.bucketEnd(b)
		closes := j.w < end && end <= w && len(b.small)+len(b.medium) >= closeLoose
		switch {
		case b.over, closes, len(b.medium) >= maxMedium && 4*(idsOf(b.medium)+len(b.tail)) >= idsOf(b.base):
			whole = append(whole, b)
		case len(b.tail) == b.written:
		case len(b.small)+1 >= maxSmall || len(b.tail) >= mergeIDs:
			j.mergeTail(b, l)
		default:
			b.small = append(b.small, b.write(l, smallIDs, b.tail[b.written:]))
			b.written = len(b.tail)
		}
	}
	d.rebase(whole, l)
	j.w = w
	j.count()
}

// prune forgets the dead buckets of which no blob stands. Without any cut that is all of them.
func (d *dedupe) prune(w record.EventTime) {
	j := &d.journal
	j.buckets = slices.DeleteFunc(j.buckets, func(b idBucket) bool {
		over := d.isOver(&b, w) && len(b.small)+len(b.medium)+len(b.base) == 0
		if over {
			j.kept -= len(b.tail)
			j.spare(b.tail)
		}
		return over
	})
	j.last = -1
}

// isOver says that a whole bucket is dead.
func (d *dedupe) isOver(b *idBucket, w record.EventTime) bool {
	return plus(d.bucketEnd(b), d.gens.horizon) <= w
}

// spare keeps the memory of a tail for another bucket.
func (j *idJournal) spare(tail []slot) {
	held := cap(tail)
	for _, s := range j.spares {
		held += cap(s)
	}
	if cap(tail) > 0 && held <= keepIDs {
		j.spares = append(j.spares, tail[:0])
	}
}

func (j *idJournal) spareTail() []slot {
	last := len(j.spares) - 1
	if last < 0 {
		return nil
	}
	tail := j.spares[last]
	j.spares = j.spares[:last]
	return tail
}

// count takes stock of the tails.
func (j *idJournal) count() {
	j.kept = 0
	for i := range j.buckets {
		j.kept += len(j.buckets[i].tail)
	}
}

// bucketEnd is the first instant after a bucket.
func (d *dedupe) bucketEnd(b *idBucket) record.EventTime {
	return d.gens.end((b.number+1)*d.journal.perBucket - 1)
}

func idsOf(blobs []idBlob) int {
	n := 0
	for _, b := range blobs {
		n += b.ids
	}
	return n
}

// begin starts the body of a blob that has room for some ids.
func (b *idBucket) begin(l *ledger, kind idBlobKind, ids int) (body []byte, seq uint64) {
	l.seq++
	body = make([]byte, 0, idsHeader+ids*slotBytes+checksumBytes)
	body = append(body, idsVersion, byte(kind))
	body = binary.BigEndian.AppendUint64(body, uint64(b.number))
	return binary.BigEndian.AppendUint64(body, l.seq), l.seq
}

// put puts a blob.
func (b *idBucket) put(l *ledger, body []byte, seq uint64) idBlob {
	name := fmt.Sprintf("%s%d-%d", idsPrefix, b.number, seq)
	return idBlob{blobRef: l.write(name, body), seq: seq, ids: (len(body) - idsHeader) / slotBytes}
}

// write puts a blob of ids.
func (b *idBucket) write(l *ledger, kind idBlobKind, ids []slot) idBlob {
	body, seq := b.begin(l, kind, len(ids))
	for _, id := range ids {
		body = appendWords(body, id)
	}
	return b.put(l, body, seq)
}

// mergeTail puts the ids of the small blobs and the new ones into one medium blob.
func (j *idJournal) mergeTail(b *idBucket, l *ledger) {
	blob := b.write(l, mediumIDs, b.tail)
	j.forgetTail(b, l)
	b.medium = append(b.medium, blob)
}

// forgetTail drops the small blobs; their ids stand elsewhere now.
func (j *idJournal) forgetTail(b *idBucket, l *ledger) {
	for _, s := range b.small {
		l.drop(s.blobRef)
	}
	b.small, b.written, b.over = b.small[:0], 0, false
	j.spare(b.tail)
	b.tail = nil
}

func (j *idJournal) dropLoose(b *idBucket, l *ledger) {
	j.forgetTail(b, l)
	for _, m := range b.medium {
		l.drop(m.blobRef)
	}
	b.medium = nil
}

func (b *idBucket) dropBase(l *ledger) {
	for _, x := range b.base {
		l.drop(x.blobRef)
	}
	b.base = nil
}
