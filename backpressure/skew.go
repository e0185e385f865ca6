package backpressure

import (
	"time"

	"github.com/weirstream/weir/record"
)

// Skew holds partitions that run ahead in event time. A partition is held (its credit is 0) while its event time is more than the
// bound ahead of the slowest partition that is being read. The slowest is never held, so some partition can always go on.
//
// Only partitions that have records to read count as slow: one that is idle, finished, paused, blocked or caught up with its log
// would hold the others for ever, and one that has seen no event has no event time to compare with. Not safe for concurrent use.
type Skew struct {
	bound   record.EventTime
	reading map[int32]record.EventTime
	known   map[int32]record.EventTime
	slowest record.EventTime
}

// NewSkew makes the control for a bound; 0 or less switches it off.
func NewSkew(bound time.Duration) *Skew {
	return &Skew{
		bound: record.EventTime(bound), slowest: record.NoTime,
		reading: map[int32]record.EventTime{}, known: map[int32]record.EventTime{},
	}
}

// Update takes a partition's maximum event time (record.NoTime before its first event) and whether it is being read: its input is
// ACTIVE and its log has more.
func (s *Skew) Update(partition int32, maxEventTime record.EventTime, reading bool) {
	s.known[partition] = maxEventTime
	if reading && maxEventTime != record.NoTime {
		s.reading[partition] = maxEventTime
	} else {
		delete(s.reading, partition)
	}
	s.slowest = record.NoTime
	for _, t := range s.reading {
		if s.slowest == record.NoTime || t < s.slowest {
			s.slowest = t
		}
	}
}

// Hold says whether the partition is to be held.
func (s *Skew) Hold(partition int32) bool {
	t, known := s.known[partition]
	return known && Ahead(t, s.slowest, time.Duration(s.bound))
}

// Lead is how far the partition is ahead of the slowest one; 0 if it is not, or there is none to compare with.
func (s *Skew) Lead(partition int32) time.Duration {
	t := s.known[partition]
	if s.slowest == record.NoTime || t == record.NoTime || t <= s.slowest {
		return 0
	}
	if lead := uint64(t) - uint64(s.slowest); lead < uint64(record.MaxTime) {
		return time.Duration(lead)
	}
	return time.Duration(record.MaxTime)
}

// Slowest is the event time of the slowest partition that is being read, or record.NoTime.
func (s *Skew) Slowest() record.EventTime { return s.slowest }

// Ahead says whether event time t is more than the bound ahead of the slowest. It is false when the bound is 0 or less, or either time
// is record.NoTime.
func Ahead(t, slowest record.EventTime, bound time.Duration) bool {
	if bound <= 0 || t == record.NoTime || slowest == record.NoTime || t <= slowest {
		return false
	}
	// The difference of two times may not fit 63 bits; as unsigned it does.
	return uint64(t)-uint64(slowest) > uint64(bound)
}
