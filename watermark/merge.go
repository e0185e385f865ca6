package watermark

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/record"
)

// Merge is the watermark over many partitions: the minimum over those that hold it.
//
//	ACTIVE, PAUSED    hold the minimum; one that has seen no event yet holds it at record.NoTime
//	IDLE, FINISHED    are left out
//	none holds        some IDLE: the last value stays; all FINISHED: record.MaxTime, everything is closed
//
// The value never moves backwards: a partition that comes back from IDLE behind it holds it where it is. A partition's own
// watermark never moves backwards either (an older value, told late, changes nothing), and FINISHED is final. So the value after a
// set of updates does not depend on their interleaving, as long as each partition's own stay in order and none is IDLE in between.
// Not safe for concurrent use.
type Merge struct {
	members []member
	index   map[int32]int
	value   record.EventTime
}

type member struct {
	partition int32
	status    Status
	w         record.EventTime
}

// NewMerge makes a merge over partitions that are ACTIVE and have seen no event. A partition named twice counts once.
func NewMerge(partitions []int32) *Merge {
	m := &Merge{index: make(map[int32]int, len(partitions)), value: record.NoTime}
	for _, p := range partitions {
		m.Add(p)
	}
	return m
}

// Add takes a partition in that was not there before (a topic that grew): ACTIVE, no event yet, so the merge waits for it. It
// returns false when the partition is known.
func (m *Merge) Add(partition int32) bool {
	if _, known := m.index[partition]; known {
		return false
	}
	m.index[partition] = len(m.members)
	m.members = append(m.members, member{partition: partition, w: record.NoTime})
	return true
}

// Update takes a partition's status and watermark and returns the merged value and whether it moved. A partition that was not
// named before is added.
func (m *Merge) Update(partition int32, status Status, watermark record.EventTime) (merged record.EventTime, moved bool) {
	m.Add(partition)
	p := &m.members[m.index[partition]]
	p.w = max(p.w, watermark)
	if p.status != Finished {
		p.status = status
	}
	before := m.value
	m.raise()
	return m.value, m.value != before
}

// raise moves the value to the minimum over the holders.
func (m *Merge) raise() {
	low, holders, done := record.MaxTime, 0, 0
	for i := range m.members {
		switch p := &m.members[i]; {
		case p.status.Holds():
			holders++
			low = min(low, p.w)
		case p.status == Finished:
			done++
		}
	}
	if holders > 0 || (done > 0 && done == len(m.members)) {
		m.value = max(m.value, low)
	}
}

// Watermark is the merged value: record.NoTime at first, record.MaxTime when every partition is FINISHED.
func (m *Merge) Watermark() record.EventTime { return m.value }

// Each calls fn for every partition in ascending order, until it returns false.
func (m *Merge) Each(fn func(partition int32, status Status, watermark record.EventTime) bool) {
	for _, p := range m.sorted() {
		if !fn(p.partition, p.status, p.w) {
			return
		}
	}
}

func (m *Merge) sorted() []member {
	s := slices.Clone(m.members)
	slices.SortFunc(s, func(a, b member) int { return cmp.Compare(a.partition, b.partition) })
	return s
}

// Rescale makes a merge over some partitions of others, when N workers hand over to M at a cut. Each partition keeps its status
// and watermark; one that no source knows starts as in Add. The value starts at the minimum of the sources' values, which is what
// the run as a whole had reached: together the new merges neither fall behind it nor run ahead of an event to come.
// A partition that two sources claim is an error, since two owners cannot both be right.
func Rescale(partitions []int32, from ...*Merge) (*Merge, error) {
	m := NewMerge(partitions)
	seen := map[int32]bool{}
	value := record.MaxTime
	for _, src := range from {
		value = min(value, src.value)
		for _, p := range src.members {
			if seen[p.partition] {
				return nil, fmt.Errorf("watermark: partition %d stands in two of the merges to rescale", p.partition)
			}
			seen[p.partition] = true
			if i, wanted := m.index[p.partition]; wanted {
				m.members[i] = p
			}
		}
	}
	if len(from) > 0 {
		m.value = value
	}
	m.raise()
	return m, nil
}

// Snapshot appends the state to dst: version 1 │ value 8 │ members 4, then per partition, ascending: partition 4 │ status 1 │
// watermark 8. Big endian.
func (m *Merge) Snapshot(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, version)
	dst = be.AppendUint64(dst, uint64(m.value))
	dst = be.AppendUint32(dst, uint32(len(m.members)))
	for _, p := range m.sorted() {
		dst = be.AppendUint32(dst, uint32(p.partition))
		dst = append(dst, byte(p.status))
		dst = be.AppendUint64(dst, uint64(p.w))
	}
	return dst
}

// Restore replaces the state, the set of partitions included, by what Snapshot wrote. On an error, which is an ErrSnapshot, m is
// unchanged.
func (m *Merge) Restore(src []byte) error {
	r := reader{src: src}
	if v := r.byte(); v != version {
		return fmt.Errorf("%w: version %d", ErrSnapshot, v)
	}
	q := NewMerge(nil)
	q.value = r.time()
	for n := r.uint32(); n > 0 && !r.bad; n-- {
		p := member{partition: int32(r.uint32()), status: Status(r.byte()), w: r.time()}
		if k := len(q.members); p.status > Finished || (k > 0 && q.members[k-1].partition >= p.partition) {
			return fmt.Errorf("%w: partition %d, status %d", ErrSnapshot, p.partition, p.status)
		}
		q.index[p.partition] = len(q.members)
		q.members = append(q.members, p)
	}
	if r.bad || len(r.src) != 0 {
		return fmt.Errorf("%w: cut short or too long", ErrSnapshot)
	}
	*m = *q
	return nil
}
