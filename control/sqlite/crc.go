package sqlite

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// The CRC-32C of a row covers the name of its table, then every column but crc in the order of the schema: an integer as 8 bytes big
// endian, text and bytes with their length before them as such an integer, NULL as the length -1. Key columns are included, so a row that
// turns up in another's place does not pass. It guards against damage, not against people: who can write the file can write the sum.
// A state blob has two sums, so that its digest can be read without its data: see migration 3.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type sum uint32

func newSum(table string) sum { return sum(0).text(table) }

func (s sum) ints(xs ...int64) sum {
	var buf [8]byte
	for _, x := range xs {
		binary.BigEndian.PutUint64(buf[:], uint64(x))
		s = sum(crc32.Update(uint32(s), castagnoli, buf[:]))
	}
	return s
}

func (s sum) bytes(b []byte) sum {
	if b == nil {
		return s.ints(-1)
	}
	return sum(crc32.Update(uint32(s.ints(int64(len(b)))), castagnoli, b))
}

func (s sum) text(xs ...string) sum {
	for _, x := range xs {
		s = s.bytes([]byte(x))
	}
	return s
}

// runRow is a row of the table runs.
type runRow struct {
	id                                               int64
	runID, fingerprint, source, sourceID, group      string
	status                                           string
	epoch, watermark, partitions, created, committed int64
	crc                                              int64
	fence                                            int64
	forkedFrom                                       string
	forkedEpoch                                      int64
}

func (r *runRow) sum() int64 {
	return int64(sum(r.sumBeforeFences()).ints(r.fence).text(r.forkedFrom).ints(r.forkedEpoch))
}

// sumBeforeFences is the sum of a row of the first two versions of the schema.
func (r *runRow) sumBeforeFences() int64 {
	s := newSum("runs").ints(r.id).text(r.runID, r.fingerprint, r.source, r.sourceID, r.group, r.status)
	return int64(s.ints(r.epoch, r.watermark, r.partitions, r.created, r.committed))
}

// columns in the order of selectRuns.
func (r *runRow) columns() []any {
	return []any{&r.id, &r.runID, &r.fingerprint, &r.source, &r.sourceID, &r.group, &r.status, &r.epoch, &r.watermark, &r.partitions, &r.created, &r.committed, &r.crc,
		&r.fence, &r.forkedFrom, &r.forkedEpoch}
}

// cutRow is a row of the table cuts.
type cutRow struct {
	run, partition, epoch              int64
	next                               []byte
	watermark                          int64
	finished                           int64
	counts                             partitions.Counts
	blobs, parts, quarantined, decided int64
	crc                                int64
}

func (r *cutRow) sum() int64 {
	c := &r.counts
	s := newSum("cuts").ints(r.run, r.partition, r.epoch).bytes(r.next).ints(r.watermark, r.finished)
	s = s.ints(c.Records, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future, c.Outputs)
	return int64(s.ints(r.blobs, r.parts, r.quarantined, r.decided))
}

// columns in the order of selectCuts.
func (r *cutRow) columns() []any {
	c := &r.counts
	return []any{&r.run, &r.partition, &r.epoch, &r.next, &r.watermark, &r.finished, &c.Records, &c.Consumed, &c.Filtered, &c.Omitted, &c.Duplicates, &c.Late, &c.Future, &c.Outputs,
		&r.blobs, &r.parts, &r.quarantined, &r.decided, &r.crc}
}

// cut is what the row says to the core. The row's sum has been checked.
func (r *cutRow) cut() (partitions.Cut, error) {
	next, _, err := record.DecodePosition(r.next)
	return partitions.Cut{Partition: int32(r.partition), Next: next, Watermark: record.EventTime(r.watermark), Finished: r.finished != 0, Counts: r.counts}, err
}

func blobSum(run int64, partition int32, name string, data []byte) int64 {
	return int64(newSum("blobs").ints(run, int64(partition)).text(name).bytes(data))
}

// refSum is the sum of what stands beside the data of a state blob.
func refSum(run, partition int64, name string, size int64, digest []byte) int64 {
	return int64(newSum("blob_refs").ints(run, partition).text(name).ints(size).bytes(digest))
}

// outputRow is a row of the table outputs.
type outputRow struct {
	epoch, part, parts, rows, first, last, crc int64
}

func (r *outputRow) sum(run int64, partition int32, data []byte) int64 {
	return int64(newSum("outputs").ints(run, int64(partition), r.epoch, r.part, r.parts, r.rows, r.first, r.last).bytes(data))
}

// quarantineSum is the sum of a quarantined record, with its headers as they are encoded. Rows of the first four versions of the schema have no number
// within their position, no arrival and no headers, and a sum without them.
func quarantineSum(run int64, epoch, n int64, position, headers []byte, q *partitions.Quarantined) int64 {
	s := newSum("quarantine").ints(run, int64(q.Partition)).bytes(position).ints(epoch, n).text(q.Reason, q.Detail, q.EventID)
	s = s.ints(int64(q.EventTime)).bytes(q.Key).bytes(q.Value)
	if q.Sub > 0 || q.Arrival != record.NoTime || headers != nil {
		s = s.ints(int64(q.Sub), int64(q.Arrival)).bytes(headers)
	}
	return int64(s)
}

func decisionSum(run int64, epoch, n int64, position []byte, d *partitions.Decision) int64 {
	return int64(newSum("decisions").ints(run, int64(d.Partition)).bytes(position).ints(epoch, n).text(d.Kind, d.Detail))
}
