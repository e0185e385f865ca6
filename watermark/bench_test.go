package watermark

import (
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// BenchmarkObserve is the trial of one record of an ordered log without a sequence field.
func BenchmarkObserve(b *testing.B) {
	p := NewPartition(5*time.Second, 0)
	at := record.EventTime(0)
	late := 0
	for b.Loop() {
		at++
		if p.IsLate(at) {
			late++
		}
		p.Observe(at)
		p.Record()
	}
	if late != 0 {
		b.Fatal("late in an ordered log")
	}
}

// BenchmarkSequence is the same with a sequence number, every eighth pair swapped.
func BenchmarkSequence(b *testing.B) {
	p := NewPartition(5*time.Second, time.Minute)
	for n := int64(0); b.Loop(); n++ {
		seq := n
		switch n % 16 {
		case 14:
			seq++
		case 15:
			seq--
		}
		p.Sequence("instrument", seq, record.EventTime(n))
		p.Observe(record.EventTime(n))
	}
}
