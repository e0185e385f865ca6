package partitions

import (
	"encoding/binary"
	"fmt"
)

// The names of the state blobs: "core", "dedupe/BUCKET-SEQUENCE", "keys/CHUNK", "deltas/SEQUENCE", "marks/PART", "reorder/SEQUENCE" and HistoryBlob. Every
// blob ends in a checksum of 8 bytes over its name and body; the core counts the others.
const (
	coreName    = "core"
	coreVersion = 1
	// deferringVersion is that of a state in which the records of an open interval wait.
	deferringVersion = 2
)

// Cut is the state since the cut before, as a delta. It may be taken between any two Steps, after the effects of all Steps so far
// have been taken; they belong to the same commit. If the commit fails the machine is to be given up and restored, since the next
// delta builds on this one.
//
// A machine whose Step has failed stands between two records and has no cut: Cut panics.
func (m *Machine) Cut() Cut {
	if m.failed != nil {
		panic(fmt.Sprintf("partitions: a cut of partition %d after a step failed: %v", m.partition, m.failed))
	}
	w := m.wm.Watermark()
	l := &m.ledger
	m.ids.cut(w, l)
	m.keys.cut(m.grid, l)
	m.waiting.cut(m.kept(), l)
	m.marks.cut(m.wm, l)
	m.history.cut(l)
	m.holds.cut(l)
	l.putCore(m.appendCore(make([]byte, 0, 512), m.wm.AppendPart(nil, 0)))
	cut := Cut{
		Partition: m.partition, Next: m.next, Watermark: w, Finished: m.finished, Counts: m.counts,
		Put: l.put, Delete: l.dropped,
	}
	l.put, l.dropped = nil, nil
	return cut
}

// coreVersion is that of the core that the machine writes and reads.
func (m *Machine) coreVersion() byte {
	if m.defers {
		return deferringVersion
	}
	return coreVersion
}

// putCore puts the core blob, which does not count itself.
func (l *ledger) putCore(body []byte) {
	for _, n := range []uint64{l.seq, l.count, l.sum} {
		body = binary.BigEndian.AppendUint64(body, n)
	}
	sum := checksum(coreName, body)
	l.put = append(l.put, StateBlob{Name: coreName, Data: binary.BigEndian.AppendUint64(body, sum)})
}

// appendCore writes what is small and changes at every cut:
//
//	version 1 or 2, with a holder 16 more │ fingerprint (length, text) │ partition 4 │ finished 1 (2: by a record) │ next position 24 │ counts 8 × 8 │ keys uvarint │
//	watermark (length, the first part of its snapshot) │ position of the holder 24, if there is one
//
// and in the blob after it the ledger: sequence 8 │ blobs 8 │ sum of their checksums 8.
func (m *Machine) appendCore(dst, mark []byte) []byte {
	version := m.coreVersion()
	if m.holder.known {
		version |= holderFlag
	}
	dst = append(dst, version)
	dst = appendText(dst, m.plan.Fingerprint)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.partition))
	dst = append(dst, flag(m.finished)+flag(m.inBand))
	dst, _ = m.next.AppendBinary(dst) // a position has no error
	for _, n := range m.counts.fields() {
		dst = binary.BigEndian.AppendUint64(dst, uint64(*n))
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.keys.names)))
	if dst = appendText(dst, mark); m.holder.known {
		dst, _ = m.holder.at.AppendBinary(dst)
	}
	return dst
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// fields are the counts in the order in which they are written.
func (c *Counts) fields() [8]*int64 {
	return [...]*int64{&c.Records, &c.Consumed, &c.Filtered, &c.Omitted, &c.Duplicates, &c.Late, &c.Future, &c.Outputs}
}

// FullState is the whole state in a form that depends on nothing but the state: not on the cuts taken, nor on the layout of tables.
// Two machines that behave the same have equal full states. It is for tests and audits; a run writes cuts.
func (m *Machine) FullState() []StateBlob {
	out := []StateBlob{{Name: coreName, Data: m.appendCore(nil, m.wm.Snapshot(nil))}}
	out = append(out, m.ids.state()...)
	if m.history.open() {
		out = append(out, StateBlob{Name: HistoryBlob, Data: m.history.body()})
	}
	out = append(out, m.holds.state()...)
	for c := range m.keys.chunks {
		out = append(out, StateBlob{Name: fmt.Sprintf("%s%06d", keysPrefix, c), Data: m.keys.appendChunk(nil, c, m.grid, 0)})
	}
	// What W has passed is released at the end of every step, so that what waits does not depend on the batches.
	return append(out, StateBlob{Name: recordsPrefix, Data: m.waiting.state()})
}
