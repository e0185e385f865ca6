package partitions

// baseWriter writes one bucket out of the table.
type baseWriter struct {
	bucket *idBucket
	body   []byte
	seq    uint64
	// left is the number of ids that are still to come.
	left int
}

// tagWriter says where the ids of a tag go, and with which generation within the bucket; the zero value is nowhere.
type tagWriter struct {
	to         *baseWriter
	generation int64
}

// rebase writes buckets whole, in one pass over the table. Their other blobs go.
func (d *dedupe) rebase(buckets []*idBucket, l *ledger) {
	if len(buckets) == 0 {
		return
	}
	byTag := make([]tagWriter, len(d.gens.tags))
	for _, b := range buckets {
		d.journal.dropLoose(b, l)
		b.dropBase(l)
		w := &baseWriter{bucket: b}
		for _, g := range d.gens.living {
			if n := g.number - b.number*d.journal.perBucket; n >= 0 && n < d.journal.perBucket {
				byTag[g.tag] = tagWriter{to: w, generation: n}
				w.left += d.gens.tags[g.tag].entries
			}
		}
	}
	for i := range d.segments {
		for _, s := range d.segments[i].slots {
			if t := byTag[s.tag()]; t.to != nil {
				h := idHash{segment: uint8(i), high: s.high, low: s.low &^ tagMask}
				t.to.add(l, packID(h, t.generation))
			}
		}
	}
}

// add writes one id; the last of a blob ends it.
func (w *baseWriter) add(l *ledger, id slot) {
	if w.body == nil {
		w.body, w.seq = w.bucket.begin(l, baseIDs, min(w.left, baseBlobIDs))
	}
	w.body = appendWords(w.body, id)
	if w.left--; w.left == 0 || len(w.body) == idsHeader+baseBlobIDs*slotBytes {
		w.bucket.base = append(w.bucket.base, w.bucket.put(l, w.body, w.seq))
		w.body = nil
	}
}
